"""Opens the recordings of `--trace` as a workload, and refuses options that need a program."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from heapwright.errors import UsageError
from heapwright.terminal_text import say

if TYPE_CHECKING:
    from heapwright.interleaving.replays import Replays
    from heapwright.trace.recordings import Recordings
    from heapwright.workload.model import Workload

_NEED_A_PROGRAM = (
    "workload",
    "stdin",
    "success",
    "prefix",
    "cluster",
    "instructions",
    "proxy",
    "machines",
)


def add_trace_options(parser: argparse.ArgumentParser, held_out: bool = False) -> None:
    """Add `--trace`.

    Args:
        parser: the parser of the verb.
        held_out: whether the verb also has `--test`.
    """
    parser.add_argument(
        "--trace",
        type=Path,
        nargs="+",
        action="extend",
        metavar="FILE",
        help="recordings instead of a command: traces, samples of traces or fitted models; every run is a replay, so"
        " the result is predicted, not proven",
    )
    if held_out:
        parser.add_argument(
            "--test",
            type=Path,
            nargs="+",
            action="extend",
            metavar="FILE",
            help="with --trace: recordings that the search does not use, on which the result is judged",
        )


@contextmanager
def open_recordings(args: argparse.Namespace, cluster: bool = False) -> Iterator[Workload]:
    """Open the recordings of `--trace` and `--test`; the counterpart of `common.open_workload`.

    Args:
        args: the command line.
        cluster: whether the verb can send recordings to a cluster.

    Raises:
        UsageError: an option needs a program, or a recording cannot be read.
    """
    from heapwright.trace.recordings import recorded_workload

    if args.command is not None:
        raise UsageError("a command and --trace cannot both be given", "leave out one of them")
    for name in _NEED_A_PROGRAM:
        if getattr(args, name, None) is not None and not (cluster and name == "cluster"):
            if name == "machines":
                raise UsageError("--trace cannot be planned as files", "run it without 'heapwright plan'")
            option = name.replace("_", "-")
            raise UsageError(f"--{option} cannot be given with --trace, because no program runs", "leave it out")
    if getattr(args, "massif", None) == "valgrind":
        raise UsageError("Massif itself cannot measure a replay", "use --massif emulation")
    args.waited_s, args.stdin_needed = 0.0, False
    yield recorded_workload(args.trace, getattr(args, "test", None) or ())


def refuse_test_alone(args: argparse.Namespace) -> None:
    """Refuse `--test` without `--trace`."""
    if args.test and not args.trace:
        raise UsageError("--test needs --trace", "in a workload file, inputs with split = 'test' are held out")


def refuse_unreplayable(metrics: Sequence[str]) -> None:
    """Refuse a metric that replays do not tell.

    Raises:
        UsageError: one of the metrics is of that kind.
    """
    from heapwright.metrics import METRICS, REPLAYABLE, REPLAYABLE_SHORT

    for key in metrics:
        if key not in REPLAYABLE:
            raise UsageError(
                f"a replay does not measure {METRICS[key].label} ({key})",
                f"with --trace choose among {REPLAYABLE_SHORT}",
            )


@contextmanager
def opened_replays(workload: Workload) -> Iterator[tuple[Recordings, Replays] | None]:
    """Read the facts of the recordings and open their replays; None if the workload is a program."""
    if not workload.replays:
        yield None
        return
    from heapwright.interleaving.replays import recorded_replays
    from heapwright.measure.meter import MeterOptions
    from heapwright.trace.recordings import read_recordings

    recordings = read_recordings(workload)
    with recorded_replays(workload, MeterOptions(), recordings.program_memory) as replays:
        yield recordings, replays


def tell_of_replay(command: list[str]) -> list[str]:
    """Return the command, and tell the user in one line if it is `heapwright replay`, a Python process."""
    if len(command) > 1 and Path(command[0]).name == "heapwright" and command[1] in ("replay", "synth"):
        say(
            f"this measures the Python process of 'heapwright {command[1]}' as well;"
            " 'heapwright compare --trace FILE' compares replays"
        )
    return command
