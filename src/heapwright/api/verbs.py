"""Functions that run a verb in a process of its own and return its JSON file as a typed result."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from heapwright.api.results import AllocatorResult, ComparisonResult, Measurement, ReplayResult
from heapwright.api.study import Study, open_study
from heapwright.errors import FAILED, INTERRUPTED, HeapwrightError, UsageError
from heapwright.files import scratch_folder
from heapwright.interleaving.stats import Ratio, Summary
from heapwright.workload.verb_process import start_verb, wait_for_verb


def measure(
    command: Sequence[str] | None = None,
    *,
    runs: int = 1,
    workload: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Measurement:
    """Run a command under the meter.

    Args:
        command: the words of the command; None with `workload`.
        runs: number of runs.
        workload: a workload file in place of the command.
        env: variables to add to the environment.
        options: further options of `heapwright measure`, as words.

    Raises:
        HeapwrightError: the command cannot be run or measured. A command that fails has its status in `runs`.
    """
    found = _verb(
        "measure", [*_target(workload), "-n", str(runs), *_further(options)], command, env, passes_status=True
    )
    return Measurement(found["runs"], _summaries(found["summary"], found["runs"]), found["meter"], found["host"])


def compare(
    command: Sequence[str] | None = None,
    *,
    allocators: Sequence[str] = (),
    rounds: int = 10,
    workload: str | os.PathLike[str] | None = None,
    metrics: Sequence[str] = (),
    seed: int = 1,
    options: Sequence[str] = (),
) -> ComparisonResult:
    """Compare allocators on a command, in interleaved rounds.

    Args:
        command: the words of the command; None with `workload`.
        allocators: names or paths, the reference first; empty for all that are installed.
        rounds: number of rounds.
        workload: a workload file in place of the command.
        metrics: the metrics of interest, which decide how runs are metered. The result has all that were measured.
        seed: of the order and the padding.
        options: further options of `heapwright compare`, as words.

    Raises:
        HeapwrightError: nothing can be run, or the reference fails.
    """
    words = [*_target(workload), "-n", str(rounds), "--seed", str(seed), *_further(options)]
    words += ["--allocators", _joined("allocators", allocators)] if allocators else []
    words += ["--metrics", _joined("metrics", metrics)] if metrics else []
    found = _verb("compare", words, command, None, passes_status=True)
    rows = {
        name: AllocatorResult(
            row["version"],
            row["failure"],
            row["runs"],
            _summaries(row["summary"], row["runs"]),
            {m: Ratio(*(_number(r[k]) for k in ("value", "low", "high"))) for m, r in row["ratio"].items() if r},
        )
        for name, row in found["allocators"].items()
    }
    return ComparisonResult(found["reference"], rows, found["warnings"], found["host"])


def tune(
    command: Sequence[str] | None = None,
    *,
    study: str | os.PathLike[str],
    workload: str | os.PathLike[str] | None = None,
    minimize: Sequence[str] = (),
    budget: int | str | None = None,
    method: str | None = None,
    allocators: Sequence[str] = (),
    preset: str | None = None,
    seed: int | None = None,
    search_only: bool | None = None,
    minify: bool = True,
    options: Sequence[str] = (),
) -> Study:
    """Find and prove the best settings for a command, or continue a study. It writes no report.

    Args:
        command: the words of the command; None with `workload`.
        study: the study's file. If it exists, the study continues.
        workload: a workload file in place of the command.
        minimize: metrics to minimise; empty for peak resident memory and CPU time.
        budget: number of distinct configurations, or a time such as '15m'; None for the usual budget.
        method: search method; None for 'auto'.
        allocators: the allocators to search; empty for all that are installed.
        preset: name of a preset.
        seed: of all random choices; None for that of the study, 1 in a new one.
        search_only: end after the search and keep its best single evaluations; None for the preset's choice.
        minify: drop settings without effect before the confirmation.
        options: further options of `heapwright tune`, as words.

    Raises:
        HeapwrightError: the program does not work by itself, or nothing can be measured or stored.
        KeyboardInterrupt: all completed runs are stored.
    """
    words = [*_target(workload), "--study", os.fspath(study), "--no-report"]
    for option, value in (
        ("--minimize", _joined("minimize", minimize)),
        ("--budget", "" if budget is None else str(budget)),
        ("--method", method or ""),
        ("--allocators", _joined("allocators", allocators)),
        ("--preset", preset or ""),
        ("--seed", "" if seed is None else str(seed)),
    ):
        words += [option, value] if value else []
    words += [] if search_only is None else ["--search-only" if search_only else "--no-search-only"]
    words += [] if minify else ["--no-minify"]
    _verb("tune", [*words, *_further(options)], command, None)
    return open_study(study)


def _joined(name: str, values: Sequence[str]) -> str:
    """Return the values of an option, separated by commas.

    Raises:
        UsageError: they are one text in place of a list.
    """
    if isinstance(values, str):
        raise UsageError(f"{name} is one text", f"give a list, for example {name}=[{values!r}]")
    return ",".join(values)


def replay(
    trace: str | os.PathLike[str],
    *,
    allocator: str = "glibc",
    settings: Mapping[str, str | int] | None = None,
    runs: int = 1,
    options: Sequence[str] = (),
) -> ReplayResult:
    """Replay a recorded trace under an allocator.

    Args:
        trace: the trace's file.
        allocator: name or path.
        settings: settings of the allocator, key → value.
        runs: number of replays.
        options: further options of `heapwright replay`, as words.

    Raises:
        HeapwrightError: the trace cannot be read, or the replay fails.
    """
    words = [os.fspath(trace), "--allocator", allocator, "-n", str(runs), *_further(options)]
    for key, value in (settings or {}).items():
        words += ["--set", f"{key}={value}"]
    found = _verb("replay", words, None, None)
    return ReplayResult(
        found["runs"],
        _summaries(found["summary"], found["runs"]),
        found["meter"],
        found["host"],
        found["events"],
        found["events_per_s"],
        found["peak_live_bytes"],
    )


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _summaries(
    found: Mapping[str, Mapping[str, float] | None], runs: Sequence[Mapping[str, Any]]
) -> dict[str, Summary]:
    """Return summaries from JSON; metrics that were not measured are left out.

    Args:
        found: metric → median, minimum, maximum and spread.
        runs: the metrics of each run, and its `failure`; the summary leaves out runs that failed.
    """
    counts = {m: sum(run.get(m) is not None and not run.get("failure") for run in runs) for m in found}
    return {m: msgspec.convert({"n": counts[m], **s}, Summary) for m, s in found.items() if s}


def _target(workload: str | os.PathLike[str] | None) -> list[str]:
    return ["--workload", os.fspath(workload)] if workload is not None else []


def _further(options: Sequence[str]) -> Sequence[str]:
    """The further options of a verb, checked: not one text, and none that takes the result away.

    Raises:
        UsageError: they are.
    """
    if isinstance(options, str):
        raise UsageError("the options are one text", "give a list of words, for example ['--timeout', '20']")
    for word in options:
        if isinstance(word, str) and word.partition("=")[0] in ("--json", "--help", "-h"):
            raise UsageError(f"{word} cannot be among the options: the result is returned", "leave it out")
    return options


def _verb(
    verb: str,
    words: Sequence[str],
    command: Sequence[str] | None,
    env: Mapping[str, str] | None,
    passes_status: bool = False,
) -> dict[str, Any]:
    """Run a verb and return its JSON object.

    Args:
        verb: its name.
        words: its options.
        command: the target command; None for none.
        env: variables to add to the environment.
        passes_status: whether the exit status may be the target's own; then a written result counts.

    Raises:
        HeapwrightError: the verb failed; the message is its own.
        KeyboardInterrupt: it was interrupted.
    """
    if isinstance(command, str):
        raise UsageError("the command is one text", "give a list of words, for example ['./prog', 'input']")
    for text in [*words, *(command or ()), *(env or {}), *(env or {}).values()]:
        if not isinstance(text, (str, os.PathLike)):
            raise UsageError(f"{text!r} is not a str", "words of commands and options, and variables, are texts")
        if "\0" in os.fspath(text):
            raise UsageError(f"{text!r} has a null byte", "leave it out")
    if wrong := [name for name in env or {} if not name or "=" in name]:
        raise UsageError(f"'{wrong[0]}' is not the name of a variable", "a name has no '='")
    with scratch_folder() as folder:
        out = folder / "out.json"
        line = [verb, "--quiet", "--json", str(out), *words]
        line += ["--", *command] if command is not None else []
        with start_verb(line, env={**os.environ, **(env or {})}, stderr=subprocess.PIPE) as process:
            errors = wait_for_verb(process)
        status = process.returncode
        if out.is_file() and (passes_status or status == 0):
            found: dict[str, Any] = json.loads(out.read_text())
            if not found.get("error"):  # of a later run; the earlier ones are in the result
                return found
        if status == INTERRUPTED:
            raise KeyboardInterrupt
    said = [text.removeprefix("heapwright: ") for text in errors.splitlines() if text.startswith("heapwright: ")]
    said = [text for text in said if not text.startswith("warning: ")] or errors.splitlines()
    raise HeapwrightError(said[-1] if said else f"heapwright {verb} failed", status=status or FAILED)
