"""`heapwright replay`: replays a trace under an allocator and the meter."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright.cli.common import add_output_options, positive, write_json
from heapwright.cli.measuring_options import add_measuring_options, meter_options
from heapwright.errors import HeapwrightError, UsageError
from heapwright.terminal_text import console, counted, tell, warn

if TYPE_CHECKING:
    from heapwright.interleaving.stats import Summary
    from heapwright.trace.base import ProgramMeasurement
    from heapwright.trace.info import Info
    from heapwright.trace.replay import Operations, ReadyTrace, ReplayRun

_EPILOG = """\
examples:
  heapwright replay prog.hwt
  heapwright replay prog.hwt --allocator jemalloc --set MALLOC_CONF=dirty_decay_ms:0 -n 5
  heapwright replay prog.hwt --set mmap_threshold=65536 --json -
  heapwright replay prog.hwt --base prog.json --massif emulation --set top_pad=0

A replay runs faster than the program, because it only allocates and frees. docs/replay.md explains its figures.
"""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "replay",
        help="replay a trace under an allocator",
        description="Replays a recorded or synthetic trace under an allocator and reports memory and time.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a trace, packed or raw")
    add_replay_options(parser)
    parser.add_argument(
        "--base",
        type=Path,
        metavar="FILE",
        help="predict the program's memory too, from the JSON of 'heapwright measure' of the program on its own malloc"
        " with nothing set, measured with the same --massif, and with --meter poll if it has threads",
    )
    add_measuring_options(parser)
    add_output_options(parser)
    parser.set_defaults(run=run)


def add_replay_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a replay; `synth` replays its synthetic trace with the same options."""
    parser.add_argument(
        "--allocator", default="glibc", metavar="A", help="a name, or the path of a library (default glibc)"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="a setting of the allocator, or an environment variable; may be repeated",
    )
    parser.add_argument(
        "--touch",
        choices=("none", "page", "full"),
        default="page",
        help="the memory of a block that the replay writes: none, the first word and one byte in each further page "
        "(default), every byte",
    )
    parser.add_argument(
        "--pace",
        choices=("fast", "real"),
        default="fast",
        help="fast (default): make the calls one after the other, and show the allocator the time of the recording; "
        "real: make each call at its recorded time",
    )
    parser.add_argument("-n", "--runs", type=positive, default=1, metavar="RUNS", help="number of runs (default 1)")


def parse_settings(texts: list[str]) -> dict[str, str]:
    """Parse KEY=VALUE texts.

    Raises:
        UsageError: a text is not KEY=VALUE, or a key is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {text} is not KEY=VALUE", "for example --set mmap_threshold=65536")
        if key in found:
            raise UsageError(f"--set {key} is given twice", "leave out one of them")
        found[key] = value
    return found


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    from heapwright.allocators.loader_trace import check_loaded
    from heapwright.allocators.registry import get_allocator
    from heapwright.trace.base import find_base, read_measured, replay_as_recorded
    from heapwright.trace.info import read_info
    from heapwright.trace.replay import command, environment, make_ready, replay_once

    measured = read_measured(args.base) if getattr(args, "base", None) else None
    allocator = get_allocator(args.allocator)
    env = environment(allocator, parse_settings(args.settings), os.environ)
    options = meter_options(args)
    with make_ready(args.trace) as ready:
        check_loaded(allocator, command(ready)[0], env)
        if ready.warning:
            warn(ready.warning)
        if ready.operations.sample and not args.quiet:
            tell(f"{args.trace}: replays a complete trace made from a sample of 1 object in {ready.operations.sample}")
        base: dict[str, float] | None = None
        slowdown = 1.0
        if measured is not None:
            _warn_of_another(measured, ready.operations.executable)
            _warn_of_stops(measured, ready.operations.threads)
            info, _ = read_info(args.trace)
            slowdown = measured.slowdown(ready.operations, info) if args.pace == "fast" else 1.0
            as_recorded = replay_as_recorded(ready, options, args.touch, args.runs, slowdown)
            base = find_base(measured, as_recorded)
            _warn_of_error(base, measured, as_recorded, info)
        done: list[ReplayRun] = []
        try:
            for _ in range(args.runs):
                replayed = replay_once(ready, options, env, args.touch, None, args.pace == "real", slowdown)
                if replayed.failure:
                    raise HeapwrightError(f"the replay under {allocator.name} failed: {replayed.failure}")
                done.append(replayed)
        finally:
            if done:
                _show(args, ready, done, allocator.name, base, slowdown)
    return 0


def _warn_of_another(measured: ProgramMeasurement, recorded: str) -> None:
    """Warn if the measured command does not run the recorded executable."""
    if recorded and not measured.runs_program(recorded):
        found = os.path.realpath(shutil.which(measured.command[0]) or measured.command[0]) if measured.command else ""
        warn(
            f"--base measured {found}, and the recording is of {recorded}: the prediction holds only if one of them"
            " runs the other"
        )


def _warn_of_stops(measured: ProgramMeasurement, threads: int) -> None:
    """Warn if the meter's stops changed how the program's threads interleave, and so its memory and all predictions."""
    from heapwright.measure.meter import disturbs_threads

    calls, wall = measured.value("mapping_calls"), measured.value("wall_s")
    if disturbs_threads(measured.meter or "poll", threads, calls, wall):
        warn(
            "--base was measured with many stops of the program's threads, so its memory may differ by some per cent"
            " from that without stops: measure with '--meter poll'"
        )


def _warn_of_error(
    base: dict[str, float], measured: ProgramMeasurement, as_recorded: list[ReplayRun], info: Info
) -> None:
    """Warn if the replay on the recorded malloc misses the program's peak: all predictions then have the error, too."""
    from heapwright.metrics import show_bytes
    from heapwright.trace.base import MISSED, PEAK, SLACK_BYTES, base_error

    peak = measured.value(PEAK)
    missed = base_error(base, as_recorded, info) if peak else None
    if peak and missed and abs(missed) > max(MISSED * peak, SLACK_BYTES):
        warn(
            f"the replay on the recorded malloc has {show_bytes(abs(missed))} {'more' if missed > 0 else 'less'} than "
            f"malloc had in the measured program, {abs(missed) / peak:.0%} of its peak: the predictions may err by as "
            "much. The recorded run differed from the measured one, or the replay differs from the recorded run. "
            "Record again, or measure the allocators with 'heapwright compare'"
        )


def _show(
    args: argparse.Namespace,
    ready: ReadyTrace,
    done: list[ReplayRun],
    allocator: str,
    base: dict[str, float] | None,
    slowdown: float,
) -> None:
    from heapwright.interleaving.stats import summarise
    from heapwright.metrics import NUMERIC
    from heapwright.trace.base import predict

    values = {m: [v for r in done if (v := r.run.metrics[m]) is not None] for m in NUMERIC}
    summary = {m: summarise(v) if v else None for m, v in values.items()}
    for warning in dict.fromkeys(w for r in done for w in r.run.warnings):
        warn(warning)
    program = None if base is None else predict(base, done)
    if args.json:
        predicted = {"base": base, "program": program}
        write_json(args.json, _as_json(args, ready, done, allocator, summary, slowdown) | predicted)
    if not args.quiet and args.json != "-":
        _print(ready.operations, done, summary, _labels(done[0], base, program))


def _as_json(
    args: argparse.Namespace,
    ready: ReadyTrace,
    done: list[ReplayRun],
    allocator: str,
    summary: Mapping[str, Summary | None],
    slowdown: float,
) -> dict[str, Any]:
    """Return the runs, their summary, and the facts of the trace, for --json.

    Args:
        args: the command line.
        ready: the recording, ready to be replayed.
        done: the replays.
        allocator: its name.
        summary: of each metric over the replays; None for a metric without values.
        slowdown: the allocator saw this many times the recorded time.
    """
    import dataclasses
    from statistics import median

    from heapwright.measure.host import describe_host
    from heapwright.trace.replay import command

    operations, reports = ready.operations, [r.report for r in done if r.report]
    return {
        "command": command(ready, args.touch, real_pace=args.pace == "real", slowdown=slowdown),
        "host": describe_host(),
        "meter": done[0].run.meter,
        "runs": [
            {
                **r.run.as_json(),
                "recorded_mean_rss_bytes": r.mean_rss_bytes,
                "calls_cpu_s": report.calls_cpu_s,
                "calls_s": report.elapsed_s,
            }
            for r, report in zip(done, reports, strict=True)
        ],
        "summary": {
            m: {k: v for k, v in dataclasses.asdict(s).items() if k != "n"} if s else None for m, s in summary.items()
        },
        "trace": str(ready.trace),
        "allocator": allocator,
        "settings": parse_settings(args.settings),
        "touch": args.touch,
        "pace": args.pace,
        "slowdown": slowdown,
        "events": operations.events,
        "events_per_s": operations.events / max(1e-9, median(r.elapsed_s for r in reports)),
        "peak_live_bytes": operations.peak_live_bytes,
        "sample": operations.sample or None,
        "threads": operations.threads,
        "recorded_s": operations.recorded_s,
        "own_rss_bytes": reports[0].own_rss_bytes,
        "start_rss_bytes": median(r.start_rss_bytes for r in reports),
        "own_cpu_s": ready.own_cpu_s,
        "recorded_mean_rss_bytes": median(r.mean_rss_bytes for r in done),
        "checks": {
            "events_replayed": min(r.events for r in reports),
            "events_dropped": operations.dropped,
            "lost_events": operations.lost_events,
            "lost_bytes": operations.lost_bytes,
            "cut_short": operations.cut_short,
        },
        **getattr(args, "json_extra", {}),
    }


def _print(operations: Operations, done: list[ReplayRun], summary: Mapping[str, Summary | None], labels: str) -> None:
    """Print the table of the replays.

    Args:
        operations: counts of the replayed trace.
        done: the replays.
        summary: of each metric over the replays; None for a metric without values.
        labels: whose memory the table shows.
    """
    from statistics import median

    from heapwright.report.terminal import measure_table

    out = console()
    measure_table([r.run.as_json() for r in done], {m: s for m, s in summary.items() if s}, out)
    fastest = min(r.report.elapsed_s for r in done if r.report)
    mean = median(r.mean_rss_bytes for r in done)
    out.print(
        f"{counted(operations.events, 'call')}, {counted(operations.threads, 'thread')}, "
        f"{fastest * 1e9 / operations.events:.1f} ns per call; "
        f"mean RSS over recorded time {mean / 2**20:.1f} MiB"
    )
    out.print(labels, soft_wrap=True)


def _labels(replayed: ReplayRun, base: dict[str, float] | None, program: dict[str, float] | None) -> str:
    """Say whose memory the table shows, and the prediction for the program."""
    from heapwright.metrics import METRICS, show_bytes

    own = replayed.report.own_rss_bytes if replayed.report else 0
    text = f"The table is of the replay's process; {show_bytes(own)} of its memory is the replayer's own."
    if base is None or program is None:
        return f"{text} --base predicts the program's."
    lines = [f"  {METRICS[m].label} {show_bytes(value)}: base {show_bytes(base[m])}" for m, value in program.items()]
    return "\n".join([text, "Predicted for the program:", *lines])
