"""`heapwright plan`, `run-one`, `collect`: write the blocks of a study as files, for job arrays.

The format of the files is in cluster/job_files.py.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright.cli.common import positive, read_stdin, read_workload, with_stdin_named
from heapwright.cli.parser import Parse
from heapwright.errors import NO_GAIN, UNDECIDED, HeapwrightError, UsageError
from heapwright.terminal_text import say

if TYPE_CHECKING:
    from heapwright.allocators.registry import Allocator
    from heapwright.cluster.job_files import FileMachines, JobPlan
    from heapwright.interleaving.runner import Machines
    from heapwright.study.store import Store
    from heapwright.workload.model import Workload

_PLANNED = ("tune", "landscape")
_EPILOG = """\
examples:
  heapwright plan jobs tune --minimize peak_rss -- ./solver big.cnf
  heapwright run-one jobs 0                  # on any machine that sees jobs/ and the program
  heapwright collect jobs                    # prints the number of next blocks; 0: the study is finished
  n=$(heapwright plan jobs tune -- ./solver big.cnf)
  while [ "$n" -gt 0 ]; do
    sbatch --wait --array=0-$((n-1)) --wrap 'heapwright run-one jobs $SLURM_ARRAY_TASK_ID'
    n=$(heapwright collect jobs)
  done
"""


_ONE = """\
example, in a job of an array:
  heapwright run-one jobs $SLURM_ARRAY_TASK_ID
"""
_COLLECT = """\
example, when the array has ended:
  heapwright collect jobs
"""


def _parser(verbs: Any, name: str, help_: str, description: str, epilog: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, help=help_, description=description, epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("folder", type=Path, metavar="DIR", help="the directory of the plan, on a shared file system")
    return parser


def add_parser(verbs: Any) -> None:
    """Add the three verbs to the command line."""
    parser = _parser(
        verbs, "plan", "write the next blocks of a study as files, for job arrays",
        "Writes the next blocks of a study as files, for job arrays.", _EPILOG,
    )  # fmt: skip
    parser.add_argument(
        "--blocks",
        type=positive,
        default=20,
        metavar="N",
        help="number of blocks that a search requests at once (default 20)",
    )
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="VERB …", help=f"{' or '.join(_PLANNED)}, and its options"
    )
    parser.set_defaults(run=run_plan, takes_command=True)
    parser = _parser(verbs, "run-one", "run one block of a plan", "Runs one block of a plan.", _ONE)
    parser.add_argument("number", type=_number, metavar="N", help="number of the block, from 0")
    parser.set_defaults(run=run_one)
    parser = _parser(
        verbs, "collect", "collect the results of a plan, write the next blocks",
        "Stores the results of a plan and writes its next blocks.", _COLLECT,
    )  # fmt: skip
    parser.set_defaults(run=run_collect)


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 0")
    return int(text)


def run_plan(args: argparse.Namespace) -> int:
    """Runs `plan`."""
    from heapwright.cluster.job_files import PLAN, JobPlan

    hint = f"give one: heapwright plan DIR {_PLANNED[0]} … -- ./prog"
    if args.words and args.words[0] not in _PLANNED:
        raise UsageError(f"'{args.words[0]}' cannot be planned, only {' and '.join(_PLANNED)}", hint)
    if not args.words:
        raise UsageError("no command to plan", hint)
    if (args.folder / PLAN).exists():
        raise UsageError(
            f"{args.folder} already holds a plan",
            f"continue it with 'heapwright collect {args.folder}', or use another directory",
        )
    target = [] if args.command is None else ["--", *args.command]
    words = _with_stdin([*args.words, *target], args.parse)
    return _advance(args.folder.absolute(), JobPlan(words, str(Path.cwd()), args.blocks), args.parse)


def _with_stdin(words: list[str], parse: Parse) -> list[str]:
    """Return the planned command line with its standard input as a file, as `collect` repeats it without a pipe."""
    planned = parse(words)
    if planned.workload is not None or planned.command is None:
        return words
    planned.quiet = False
    read_workload(planned)  # an invalid command fails here, before a copy is made
    taken = read_stdin(planned, lambda: planned.study.parent if planned.study else Path(), kept=True)
    planned.stdin = str(taken.path) if taken else "none"
    return with_stdin_named(words, planned)


def run_collect(args: argparse.Namespace) -> int:
    """Runs `collect`."""
    from heapwright.cluster.job_files import read_plan

    folder, plan = args.folder.absolute(), read_plan(args.folder)
    os.chdir(plan.directory)
    return _advance(folder, plan, args.parse)


def run_one(args: argparse.Namespace) -> int:
    """Runs `run-one`."""
    from heapwright.cluster import job_files

    job_files.run_planned_block(args.folder, args.number)
    return 0


def _advance(folder: Path, plan: JobPlan, parse: Parse) -> int:
    """Run the tuning pipeline until it needs runs that are not there, and print the number of blocks to run.

    Args:
        folder: the directory of the plan, absolute.
        plan: the plan.
        parse: reads the planned command line.
    """
    from heapwright.cluster.job_files import BlocksWritten, FileMachines
    from heapwright.cluster.transport import needs_of

    made: list[FileMachines] = []

    def machines(
        workload: Workload, allocators: Sequence[Allocator], _note: Callable[[str], None], store: Store | None
    ) -> Machines:
        assert store is not None
        needs = needs_of(workload, list(allocators), store.references.absolute())
        made.append(FileMachines(folder, plan, needs, store))
        return made[0]

    args = parse(plan.words)
    if args.cluster:
        raise UsageError("a planned command cannot have --cluster", "leave it out")
    if any(str(getattr(args, name, None)) == "-" for name in ("json", "csv", "markdown", "latex")):
        raise UsageError("a planned command cannot write to stdout, where the count of blocks goes", "name a file")
    args.machines, args.quiet = machines, True
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        status: int = args.run(args)
    except BlocksWritten:
        count = len(made[0].plan.blocks)
        which = f"0 … {count - 1}" if count > 1 else "0"
        say(f"blocks to run: {count} (heapwright run-one {folder} {which})")
        sys.stdout.write(f"{count}\n")
        return 0
    except HeapwrightError:
        with contextlib.suppress(OSError):  # a folder holds files of the plan
            for path in new:
                path.rmdir()
        raise
    if status in (0, NO_GAIN, UNDECIDED):  # --exit-code
        made[0].done()
        if plan.words[0] == "landscape":
            say(f"the landscape is finished; see it by its command: {shlex.join(['heapwright', *plan.words])}")
        else:
            say("the study is finished; its report is beside the study file")
        sys.stdout.write("0\n")
    return status
