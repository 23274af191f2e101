"""The `heapwright` command: one verb, one module. Everything after `--` is the target's, word for word."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, cast

from heapwright import __version__
from heapwright.cli import (
    allocators,
    apply,
    bench,
    compare,
    completion,
    doctor,
    export,
    fit,
    import_,
    info,
    inspect,
    landscape,
    link,
    measure,
    plan,
    record,
    replay,
    report,
    run,
    synth,
    tune,
    verify,
    watch,
)
from heapwright.errors import INTERRUPTED, USAGE, HeapwrightError, unknown
from heapwright.terminal_text import say

_GROUPS = {
    "main": (tune, apply, run, verify, report, watch, measure, compare, landscape),
    "traces": (record, info, replay, fit, synth, import_, export),
    "allocators": (allocators, inspect, link, bench),
    "clusters": (plan,),
    "set-up": (doctor, completion),
}

_NAME = "heapwright"
_EPILOG = """\
The main job, on a program of yours:

  heapwright tune -- ./prog args      measure, search, confirm; leaves a study and a report
  heapwright apply STUDY              the line to paste
"""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Paragraphs fit the terminal; what is indented, the examples, stays as it is."""

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


class _Verbs(argparse._SubParsersAction):  # type: ignore[type-arg]
    """The verbs; knows which of them the help shows together."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.groups: dict[str, list[str]] = {}


class _VerbHelp(_Help):
    """Shows the verbs in groups, a line each."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=18)

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, _Verbs):
            return super()._format_action(action)
        lines = {sub.dest: "  " + super(_VerbHelp, self)._format_action(sub) for sub in action._get_subactions()}
        groups = (f"  {group}\n{''.join(lines[name] for name in names)}" for group, names in action.groups.items())
        return "".join(groups)


class _Parser(argparse.ArgumentParser):
    """argparse with our way of failing, one line and one hint, and our help."""

    def _get_formatter(self) -> argparse.HelpFormatter:
        return (_VerbHelp if self.prog == _NAME else _Help)(self.prog)

    def error(self, message: str) -> None:  # type: ignore[override]
        """Reports bad usage and exits with status 2."""
        hint = f"see '{self.prog} --help'"
        choice = re.fullmatch(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", message)
        if choice:
            what = "verb" if choice[1] == "VERB" else f"value of {choice[1]}"
            error = unknown(what, choice[2], re.split(r"[', ]+", choice[3].strip("'")))
            message, hint = error.message, error.hint
        fail(message, hint)
        raise SystemExit(USAGE)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = _Parser(
        prog=_NAME,
        description="Finds, proves and ships the best malloc for your program.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"heapwright {__version__}")
    verbs = cast("_Verbs", parser.add_subparsers(title="verbs", metavar="VERB", parser_class=_Parser, action=_Verbs))
    for group, modules in _GROUPS.items():
        before = set(verbs.choices)
        for module in modules:
            module.add_parser(verbs)
        verbs.groups[group] = [name for name in verbs.choices if name not in before]
    return parser


def groups_of(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """The names of the verbs by group, in the order of `heapwright --help`."""
    verbs = next(action for action in parser._actions if isinstance(action, _Verbs))
    return verbs.groups


def _split(words: list[str]) -> tuple[list[str], list[str] | None]:
    """What is ours, and the target's words after the first '--' if there is one."""
    if "--" not in words:
        return words, None
    at = words.index("--")
    return words[:at], words[at + 1 :]


def parse(words: list[str]) -> argparse.Namespace:
    """The arguments of a command line, as a verb's `run` gets them."""
    own, target = _split(words)
    parser = build_parser()
    args, extra = parser.parse_known_args(own)
    if extra:
        _refuse(parser, own, extra, takes_command=getattr(args, "takes_command", False) and target is None)
    args.command = target
    return args


def _refuse(parser: argparse.ArgumentParser, own: list[str], extra: list[str], takes_command: bool) -> NoReturn:
    """Says what is wrong with words that no option takes."""
    import shlex

    from heapwright.cli.completion import verbs_of

    verb = next((word for word in own if word in verbs_of(parser)), "")
    hint = f"see '{f'heapwright {verb}'.strip()} --help'"
    if verb and extra[0].startswith("-"):
        options = [o for action in verbs_of(parser)[verb]._actions for o in action.option_strings]
        near = difflib.get_close_matches(extra[0].partition("=")[0], options, n=1)
        hint = f"did you mean {near[0]}? {hint}" if near else hint
    elif takes_command:
        hint = f"the command comes after --: heapwright {verb} … -- {shlex.join(extra)}"
    fail(f"unrecognized arguments: {' '.join(extra)}", hint)
    raise SystemExit(USAGE)


def fail(message: str, hint: str = "") -> None:
    """One line on stderr: what is wrong, what to do."""
    say(f"{message}{f' ({hint})' if hint else ''}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    _fill_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # names of files are bytes, and go out as they came in
        sys.stdout.reconfigure(errors="surrogateescape")
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        args = parse(words)
        if not hasattr(args, "run"):
            build_parser().print_help()
            return USAGE if _split(words)[0] else 0
        if args.command is not None and not getattr(args, "takes_command", False):
            fail(f"'{words[0]}' takes no command after --", f"see 'heapwright {words[0]} --help'")
            return USAGE
        status: int = args.run(args)
        sys.stdout.flush()
        return status
    except HeapwrightError as error:
        fail(error.message, error.hint)
        return error.status
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return INTERRUPTED
    except MemoryError:
        fail("there is not enough memory for this")
        return 1
    except BrokenPipeError:  # `heapwright … | head`
        _drop_output()
        return 128 + signal.SIGPIPE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        fail(f"{where}{error.strerror or error}")
        _drop_output()  # it may be what could not be written
        return 1


def _fill_closed_streams() -> None:
    """What is said where stdout or stderr is closed goes nowhere; and no file of ours gets a number below 3."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with contextlib.suppress(OSError):  # the lowest number that is free; a command we start finds it closed
                setattr(sys, name, open(os.open(os.devnull, os.O_RDWR), "w" if number else "r"))  # noqa: PTH123, SIM115


def _drop_output() -> None:
    """What stdout still holds goes nowhere, or Python would try once more at its end, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
