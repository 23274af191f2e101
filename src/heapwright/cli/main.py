"""Runs the `heapwright` command; each verb has its own module.

Everything after `--` belongs to the target command, word for word. No other module imports this one.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import errno
import io
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from heapwright import __version__
from heapwright.cli import (
    allocators,
    apply,
    bench,
    canary,
    compare,
    completion,
    cut,
    diagnose,
    doctor,
    experiment,
    export,
    fit,
    import_,
    info,
    inspect,
    kit,
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
from heapwright.cli.output_files import naming_stdout
from heapwright.cli.parser import NAME, Parser, Verbs, fail, refuse_words, split_command
from heapwright.errors import FAILED, INTERRUPTED, USAGE, HeapwrightError
from heapwright.interruption import ending_signals

_GROUPS = {
    "main": (tune, apply, run, verify, report, watch, measure, compare, landscape, experiment),
    "services": (diagnose, canary),
    "traces": (record, info, cut, replay, fit, synth, import_, export),
    "allocators": (allocators, inspect, link, bench),
    "clusters": (plan,),
    "set-up": (doctor, kit, completion),
}

_EPILOG = """\
To tune a program of yours:

  heapwright tune -- ./prog args      # measure, search and confirm; writes a study and a report
  heapwright apply STUDY              # print the settings to paste
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = Parser(
        prog=NAME,
        description="Finds the best malloc settings for your program and proves their gain.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"heapwright {__version__}")
    verbs = cast("Verbs", parser.add_subparsers(title="verbs", metavar="VERB", parser_class=Parser, action=Verbs))
    for group, modules in _GROUPS.items():
        before = set(verbs.choices)
        for module in modules:
            module.add_parser(verbs)
        verbs.groups[group] = [name for name in verbs.choices if name not in before]
    return parser


def verbs_by_group(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """Return the names of the verbs by group, in the order of `heapwright --help`."""
    verbs = next(action for action in parser._actions if isinstance(action, Verbs))
    return verbs.groups


def parse(words: list[str]) -> argparse.Namespace:
    """Read a command line into the arguments that the `run` of a verb gets.

    The arguments also hold the words (`line`), the parser (`parser`, for `completion`), and this function (`parse`, for
    `plan`).
    """
    own, target = split_command(words)
    parser = build_parser()
    args, extra = parser.parse_known_args(own)
    if extra:
        refuse_words(parser, own, extra, takes_command=getattr(args, "takes_command", False) and target is None)
    args.command, args.parser, args.parse, args.line = target, parser, parse, words
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    with ending_signals() as received:
        status = _main(argv)
        return 128 + received[0] if received and status == INTERRUPTED else status


def _main(argv: Sequence[str] | None) -> int:
    _fill_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        codecs.register_error("heapwright", _encode_anyway)
        sys.stdout.reconfigure(errors="heapwright")
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _run(words)
        with naming_stdout():
            sys.stdout.flush()
        return status
    except HeapwrightError as error:
        fail(error.message, error.hint)
        return error.status
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return INTERRUPTED
    except MemoryError:
        fail("there is not enough memory for this command")
        return FAILED
    except BrokenPipeError:  # `heapwright … | head`
        _drop_output()
        return 128 + signal.SIGPIPE
    except OSError as error:
        lost = _drop_output()  # stdout may be the file that could not be written
        if error.errno == errno.ENOENT and not error.filename and not _directory_exists():
            fail("the current directory does not exist any more", "change to another one")
            return FAILED
        where = f"{error.filename}: " if error.filename else "stdout: " if lost else ""
        fail(f"{where}{error.strerror or error}")
        return USAGE if error.errno == errno.ENAMETOOLONG else FAILED  # all too long names are the user's


def _run(words: list[str]) -> int:
    """Run the verb that a command line names, or print the help; return the exit status."""
    try:
        args = parse(words)
    except SystemExit as end:  # --help and --version have printed; wrong usage is reported
        return end.code if isinstance(end.code, int) else 0
    if not hasattr(args, "run"):
        build_parser().print_help()
        return USAGE if words else 0
    if args.command is not None and not getattr(args, "takes_command", False):
        fail(f"'{words[0]}' takes no command after --", f"see 'heapwright {words[0]} --help'")
        return USAGE
    status: int = args.run(args)
    return status


def _encode_anyway(error: UnicodeError) -> tuple[bytes, int]:
    """Encode the bytes of file names unchanged, and characters that the encoding of stdout does not have as '?'."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    numbers = map(ord, error.object[error.start : error.end])
    return bytes(n - 0xDC00 if 0xDC80 <= n <= 0xDCFF else ord("?") for n in numbers), error.end


def _fill_closed_streams() -> None:
    """Replace closed standard streams by /dev/null, so that no later file gets a number below 3."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with contextlib.suppress(OSError):  # takes the lowest free number; child processes find it closed
                setattr(sys, name, open(os.open(os.devnull, os.O_RDWR), "w" if number else "r"))  # noqa: PTH123, SIM115


def _directory_exists() -> bool:
    """Whether the current directory exists."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _drop_output() -> bool:
    """Discard output that cannot be written, and return whether there is any.

    Python would otherwise write it again at exit, and report the failure again.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


if __name__ == "__main__":
    sys.exit(main())
