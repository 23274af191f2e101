"""The `heapwright` command: one verb, one module. Everything after `--` is the target's, word for word."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import sys
from collections.abc import Sequence

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
    watch,
)
from heapwright.errors import INTERRUPTED, USAGE, HeapwrightError
from heapwright.shown import say

_VERBS = (
    *(tune, landscape, compare, bench, measure, apply, run, report, watch),
    *(record, info, replay, fit, synth, import_, export),
    *(inspect, link),
    plan,
    *(doctor, allocators, completion),
)

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


class _Parser(argparse.ArgumentParser):
    """argparse with our way of failing, one line and one hint, and our help."""

    def _get_formatter(self) -> argparse.HelpFormatter:
        return _Help(prog=self.prog)

    def error(self, message: str) -> None:  # type: ignore[override]
        """Reports bad usage and exits with status 2."""
        fail(message, f"see '{self.prog} --help'")
        raise SystemExit(USAGE)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = _Parser(
        prog="heapwright",
        description="Finds, proves and ships the best malloc for your program.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"heapwright {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", parser_class=_Parser)
    for verb in _VERBS:
        verb.add_parser(verbs)
    return parser


def _split(words: list[str]) -> tuple[list[str], list[str] | None]:
    """What is ours, and the target's words after the first '--' if there is one."""
    if "--" not in words:
        return words, None
    at = words.index("--")
    return words[:at], words[at + 1 :]


def parse(words: list[str]) -> argparse.Namespace:
    """The arguments of a command line, as a verb's `run` gets them."""
    own, target = _split(words)
    args = build_parser().parse_args(own)
    args.command = target
    return args


def fail(message: str, hint: str = "") -> None:
    """One line on stderr: what is wrong, what to do."""
    say(f"{message}{f' ({hint})' if hint else ''}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    _fill_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # names of files are bytes, and go out as they came in
        sys.stdout.reconfigure(errors="surrogateescape")
    own, target = _split(list(sys.argv[1:] if argv is None else argv))
    parser = build_parser()
    try:
        args = parser.parse_args(own)
        if not hasattr(args, "run"):
            parser.print_help()
            return USAGE if own else 0
        if target is not None and not getattr(args, "takes_command", False):
            fail(f"'{own[0]}' takes no command after --", f"see 'heapwright {own[0]} --help'")
            return USAGE
        args.command = target
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
