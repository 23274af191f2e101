"""`heapwright measure`: runs a command or a workload under the meter, once or several times."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from heapwright.cli.cautions import warn_of_settings
from heapwright.cli.common import (
    add_command_options,
    add_output_options,
    add_workload_option,
    open_workload,
    positive,
    read_inputs,
    write_json,
)
from heapwright.cli.containers import add_container_option
from heapwright.cli.durations import duration
from heapwright.cli.measuring_options import add_measuring_options, meter_options
from heapwright.cli.output_files import json_file
from heapwright.errors import HeapwrightError, UsageError
from heapwright.terminal_text import console, visible, warn

if TYPE_CHECKING:
    from heapwright.interleaving.stats import Summary
    from heapwright.measure.meter import Run
    from heapwright.workload.execute import Outcome
    from heapwright.workload.model import Workload

_EPILOG = """\
examples:
  heapwright measure -n 5 -- perl -e 'my %h; $h{$_} = "x$_" for 1..200000'
  heapwright measure --workload redis.toml -n 5 --env MALLOC_ARENA_MAX=1
  seq 1000000 | heapwright measure -n 5 -- sort -n

The output of the first run goes to stdout, before the table; with --json - no output is shown. The exit status is that
of the command, or 0 if --success lists it. A pipe on standard input is read once and given to every run.

With --workload every input is run -n times, with the set-up and clean-up of the workload file around each run. A server
is started, loaded and stopped. The exit status is 0 if every run succeeded as the workload file defines it.
"""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "measure",
        help="measure a command's memory and time",
        description="Runs a command and reports its memory, time, faults and mapping calls.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-n", "--runs", type=positive, default=1, metavar="RUNS", help="number of runs (default 1)")
    add_workload_option(parser, inputs="all")
    add_command_options(parser)
    add_container_option(parser)
    parser.add_argument(
        "--env",
        type=_variable,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set a variable for the command only, not for set-up, clean-up or the load of a server",
    )
    parser.add_argument(
        "--for",
        dest="end_after",
        type=duration,
        metavar="TIME",
        help="end the run after this time by SIGTERM (90s, 30m, 6h); a server's load is repeated until then",
    )
    add_measuring_options(parser)
    add_output_options(parser)
    parser.add_argument("--html", type=json_file, metavar="FILE", help="write a page with memory over time")
    parser.set_defaults(run=run, takes_command=True)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE")
    return name, value


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    with open_workload(args) as workload:
        return _measure(args, workload)


def _measure(args: argparse.Namespace, workload: Workload) -> int:
    from dataclasses import replace
    from pathlib import Path

    from heapwright.files import scratch_folder
    from heapwright.measure.meter import SERIES_POINTS
    from heapwright.workload.execute import Executor

    if args.html == "-":
        raise UsageError("--html cannot write to stdout, where the output of the command goes", "name a file")
    inputs, env = read_inputs(args, workload), dict(args.env)
    warn_of_settings(workload, env=env)
    options = replace(meter_options(args, workload.file.timeout), pss=True, series=SERIES_POINTS if args.html else 0)
    if args.end_after:
        if args.timeout or args.prefix:
            raise UsageError("--for ends the run itself", "leave out --timeout and --prefix")
        kept = Path(f"{args.json}.unfinished") if args.json not in (None, "-") else None
        options = replace(options, end_after=args.end_after, report=kept, series=SERIES_POINTS)
    outcomes: dict[str, list[Outcome]] = {}
    status = 0
    # Ctrl-C at the terminal ends the target too. The run ends with it, and its figures are shown.
    interrupts: list[int] = []
    failed = ""
    if args.end_after:
        signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        with (
            Path(os.devnull).open("wb") as nowhere,
            scratch_folder() as folder,
        ):
            executor = Executor(workload, options, Path(folder) / "references")
            for input_ in inputs:
                for number in range(args.runs):
                    if interrupts:
                        break
                    passed_on = number == 0 and args.json != "-"
                    executor.forward = sys.stdout.buffer if passed_on else nowhere
                    outcome = executor.run(input_, env)
                    if interrupts:  # the user ended the run, as --for would have
                        outcome = replace(outcome, failure="")
                    outcomes.setdefault(input_.name, []).append(outcome)
                    status = status or executor.exit_status(outcome)
    except KeyboardInterrupt:
        if outcomes:
            made, runs = sum(map(len, outcomes.values())), len(inputs) * args.runs
            warn(f"interrupted: the figures are those of {made} of {runs} runs")
        raise
    except HeapwrightError as error:
        failed = error.message
        raise HeapwrightError(error.message, error.hint, min(error.status, 127)) from None
    finally:
        if outcomes:
            _show(args, workload, outcomes, failed)
    return 128 + signal.SIGINT if interrupts else status


def _succeeded(outcomes: list[Outcome]) -> list[Run]:
    return [o.run for o in outcomes if not o.failure]


def _marked(failed: Outcome) -> Run:
    """Return a failed run with its failure among its warnings."""
    from dataclasses import replace

    return replace(failed.run, warnings=[*failed.run.warnings, f"the run failed: {failed.failure}"])


def _summary(outcomes: list[Outcome]) -> dict[str, Summary | None]:
    """Return the statistics of each metric over the runs that succeeded."""
    from heapwright.interleaving.stats import summarise
    from heapwright.metrics import NUMERIC

    runs = _succeeded(outcomes)
    values = {m: [v for r in runs if (v := r.metrics[m]) is not None] for m in NUMERIC}
    return {m: summarise(v) if v else None for m, v in values.items()}


def _was_disturbed(run: Run) -> bool:
    from heapwright.measure.meter import disturbs_threads

    return disturbs_threads(run.meter, run.max_threads, run.metrics["mapping_calls"], run.metrics["wall_s"])


def _show(args: argparse.Namespace, workload: Workload, outcomes: dict[str, list[Outcome]], failed: str) -> None:
    """Show and write the runs that were made. The figures leave out failed runs.

    The own exit status of a command, or its signal, is no failure here unless a workload file says what success is:
    `exit_code` has it, and `measure` passes it on.

    Args:
        args: the command line.
        workload: the program.
        outcomes: the runs of each input.
        failed: why a further run could not be made, or empty.
    """
    from dataclasses import replace

    from heapwright.workload.work_done import fixed_time_sentence, fixed_time_warning, load_errors_warning

    runs = {name: [o.run for o in found] for name, found in outcomes.items()}
    for warning in dict.fromkeys(w for found in runs.values() for r in found for w in r.warnings):
        warn(warning)
    if any(_was_disturbed(run) for found in runs.values() for run in found):
        warn(
            "the meter stopped the program's threads at many mapping calls, so they interleaved differently: its memory"
            " may differ by some per cent. '--meter poll' stops no thread, but measures neither mapping_calls nor"
            " peak_heap"
        )
    if workload.file.server is not None:
        inputs = [[r.metrics for r in _succeeded(found)] for found in outcomes.values()]
        errors = load_errors_warning(run for of_input in inputs for run in of_input)
        for text in filter(None, [fixed_time_sentence(inputs) or fixed_time_warning(inputs), errors]):
            warn(text)
    for name, found in outcomes.items():
        on = f" on input '{name}'" if len(workload.inputs) > 1 else ""
        all_told = bool(workload.path or workload.file.prefix)  # else a failure is an exit status or a signal
        for failure in dict.fromkeys(o.failure for o in found if o.failure and (all_told or o.run.timed_out)):
            warn(f"a run{on} failed: {failure}")
        if not all_told:
            # The status and the stderr of a single run tell enough, but a signal leaves no text,
            # nor may a container.
            single = len(found) == 1 and workload.container is None
            for text in _endings([o for o in found if not single or o.failure.startswith("killed")]):
                warn(text)
        if len({o.digest for o in found if not o.failure}) > 1:
            warn(f"the output differs from run to run{on}")
    if not all_told:
        outcomes = {
            name: [o if o.run.timed_out else replace(o, failure="") for o in of] for name, of in outcomes.items()
        }
    if args.html:
        from pathlib import Path

        from heapwright.report.measurement_html import write_page

        shown = {name: _succeeded(found) or [_marked(found[0])] for name, found in outcomes.items()}
        write_page(shown, {name: workload.command(workload.input(name)) for name in runs}, Path(args.html))
    if args.json:
        _write(args.json, workload, outcomes, failed)
    if not args.quiet and args.json != "-":
        for name, found in outcomes.items():
            if len(outcomes) > 1:
                console().print(visible(f"input {name}"), style="bold")
            _print(found)


def _print(outcomes: list[Outcome]) -> None:
    """Print the table of the runs that succeeded, and say if there are others."""
    from heapwright.report.terminal import measure_table
    from heapwright.terminal_text import counted

    good, total = _succeeded(outcomes), len(outcomes)
    if good:
        measure_table([r.as_json() for r in good], {m: s for m, s in _summary(outcomes).items() if s}, console())
    if len(good) < total:
        failed = "the run failed" if total == 1 else f"{total - len(good)} of {counted(total, 'run')} failed"
        hint = next((f"; {o.hint}" for o in outcomes if o.hint and not good), "")
        left = "the figures leave out failed runs" if good else "no figures (n/a)"
        console().print(visible(f"{left}: {failed}{hint}"), style="yellow", soft_wrap=True)


def _endings(outcomes: list[Outcome]) -> list[str]:
    """Return a sentence for each way in which runs failed, with their number: '2 of 3 runs ended with exit status 3'.

    Runs that took too long are left out.
    """
    from collections import Counter

    failed = Counter(o.failure.partition(": ")[0] for o in outcomes if o.failure and not o.run.timed_out)
    single = len(outcomes) == 1
    sentences = []
    for failure, count in failed.items():
        who = "the run" if single else f"{count} of {len(outcomes)} runs"
        was = "was" if single or count == 1 else "were"
        sentences.append(f"{who} {was if failure.startswith('killed') else 'ended with'} {failure}")
    return sentences


def _write(where: str, workload: Workload, outcomes: dict[str, list[Outcome]], failed: str) -> None:
    """Write the JSON object. For a workload, each run names its input and each input has its own summary.

    Failed runs have a reason and are in no summary.
    """
    import dataclasses

    from heapwright.measure.host import describe_host

    def plain(found: list[Outcome]) -> dict[str, Any]:
        return {
            m: {k: v for k, v in dataclasses.asdict(s).items() if k != "n"} if s else None
            for m, s in _summary(found).items()
        }

    commands = {name: workload.command(workload.input(name)) for name in outcomes}
    every = [(name, outcome) for name, found in outcomes.items() for outcome in found]
    result = {
        "command": next(iter(commands.values())) if len(outcomes) == 1 else workload.file.command,
        "host": {**describe_host(), **workload.where()},
        "meter": every[0][1].run.meter,
        "runs": [
            {**o.run.as_json(), "failure": o.failure or None, **({"input": name} if workload.path else {})}
            for name, o in every
        ],
        "summary": plain([outcome for _, outcome in every]),
    }
    if failed:
        result["error"] = failed
    if workload.path:
        result["workload"] = workload.path
        result["inputs"] = {name: {"command": commands[name], "summary": plain(outcomes[name])} for name in outcomes}
    write_json(where, result)
