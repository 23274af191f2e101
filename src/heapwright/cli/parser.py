"""Defines the argument parser of the command line: its help, its errors, and the split at `--`.

It knows no verb. `main` adds the verbs; `completion` and `plan` get the parser through the arguments.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable
from typing import IO, Any, NoReturn

from heapwright.cli.output_files import naming_stdout
from heapwright.errors import USAGE, unknown
from heapwright.terminal_text import say

NAME = "heapwright"
Parse = Callable[[list[str]], argparse.Namespace]  # reads a command line, as `main.parse` does


class _Help(argparse.RawDescriptionHelpFormatter):
    """Wraps paragraphs to the width of the terminal; indented lines, such as examples, stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:  # noqa: ARG002
        import textwrap

        done: list[str] = []
        paragraph: list[str] = []
        for line in [*text.splitlines(), ""]:
            if line and not line.startswith(" "):
                paragraph.append(line)
                continue
            done += textwrap.wrap(" ".join(paragraph), width, break_on_hyphens=False) if paragraph else []
            paragraph = []
            done.append(line)
        return "\n".join(done[:-1])


class Verbs(argparse._SubParsersAction):  # type: ignore[type-arg]
    """The verbs of the command line.

    Attributes:
        groups: heading in the help → names of its verbs.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.groups: dict[str, list[str]] = {}


class _VerbHelp(_Help):
    """Shows the verbs in groups, one per line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=18)

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, Verbs):
            return super()._format_action(action)
        lines = {sub.dest: "  " + super(_VerbHelp, self)._format_action(sub) for sub in action._get_subactions()}
        groups = (f"  {group}\n{''.join(lines[name] for name in names)}" for group, names in action.groups.items())
        return "".join(groups)


class Parser(argparse.ArgumentParser):
    """An argparse parser with heapwright's help, which reports an error as one line with a hint."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # '-1s' and '-5%' are values, as '-1' is. So the type of their option refuses them in its
        # own words.
        self._negative_number_matcher = re.compile(r"-(\d+\.?\d*|\.\d+)[A-Za-z%]*$")

    def _get_formatter(self) -> argparse.HelpFormatter:
        return (_VerbHelp if self.prog == NAME else _Help)(self.prog)

    def _print_message(self, message: str, file: IO[str] | None = None) -> None:  # type: ignore[override]
        """Print a help; argparse's own function ignores that it cannot be written."""
        with naming_stdout():
            (file or sys.stderr).write(message)

    def format_usage(self) -> str:
        """Return the usage lines, with the command that a verb takes after '--'."""
        return self._with_command(super().format_usage())

    def format_help(self) -> str:
        """Return the help, whose usage names the command that a verb takes after '--'."""
        usage, empty, rest = super().format_help().partition("\n\n")
        return self._with_command(usage + "\n").rstrip("\n") + empty + rest

    def _with_command(self, usage: str) -> str:
        # A verb sets `takes_command`: True, or "optional" if it does something without a command.
        # With --workload or --trace no verb needs one.
        takes = self.get_default("takes_command")
        if not takes:
            return usage
        instead = {"--workload", "--trace"} & self._option_string_actions.keys()
        command = "[-- COMMAND [ARG ...]]" if instead or takes == "optional" else "-- COMMAND [ARG ...]"
        indent = " " * (len(f"usage: {self.prog} "))
        return f"{usage.rstrip()}\n{indent}{command}\n"

    def error(self, message: str) -> None:  # type: ignore[override]
        """Report wrong usage and exit with status 2."""
        hint = f"see '{self.prog} --help'"
        choice = re.fullmatch(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", message)
        if choice:
            what = "verb" if choice[1] == "VERB" else f"value of {choice[1]}"
            error = unknown(what, choice[2], re.split(r"[', ]+", choice[3].strip("'")))
            message, hint = error.message, error.hint
        fail(message, hint)
        raise SystemExit(USAGE)


def verbs_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the verbs, by name."""
    (found,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return dict(found.choices)


def split_command(words: list[str]) -> tuple[list[str], list[str] | None]:
    """Split a command line at the first '--': heapwright's words, and those of the target (None without '--')."""
    if "--" not in words:
        return words, None
    at = words.index("--")
    return words[:at], words[at + 1 :]


def refuse_words(parser: argparse.ArgumentParser, own: list[str], extra: list[str], takes_command: bool) -> NoReturn:
    """Report words that no option takes, and exit with status 2.

    Args:
        parser: the whole command line.
        own: heapwright's words, before '--'.
        extra: the words that no option takes.
        takes_command: whether the verb takes a command and got none, so that a '--' may be missing.
    """
    import shlex

    verb = next((word for word in own if word in verbs_of(parser)), "")
    hint = f"see '{f'{NAME} {verb}'.strip()} --help'"
    if verb and extra[0].startswith("-"):
        options = [o for action in verbs_of(parser)[verb]._actions for o in action.option_strings]
        near = difflib.get_close_matches(extra[0].partition("=")[0], options, n=1)
        hint = f"did you mean {near[0]}? {hint}" if near else hint
    elif takes_command:
        hint = f"the command comes after --: heapwright {verb} … -- {shlex.join(extra)}"
    fail(f"unrecognized arguments: {' '.join(extra)}", hint)
    raise SystemExit(USAGE)


def fail(message: str, hint: str = "") -> None:
    """Write one line on stderr: what is wrong, and what to do."""
    say(f"{message}{f' ({hint})' if hint else ''}")
