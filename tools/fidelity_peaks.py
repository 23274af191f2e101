"""Measures how well a replay predicts its program's peaks of address space; tools/fidelity.py --address-space runs it.

The peaks are the meter's counts of mappings. Load on the machine does not change them, so one run of each is enough.
The base of each peak is that of the pair with glibc's malloc without settings, as in fidelity.py.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright.measure.meter import MeterOptions, run_metered
from heapwright.metrics import METRICS
from heapwright.trace.replay import ReadyTrace, environment, make_ready, replay_once

if TYPE_CHECKING:
    from fidelity import Config, Program

PEAKS = ("massif_peak_bytes", "peak_heap_bytes", "peak_vm_bytes")
PROGRAMS = ("z3", "cc1plus", "clang", "redis", "sqlite3", "perl", "gawk", "jq", "lua", "xmllint")
ALLOCATORS = ("exgen", "jemalloc", "mimalloc2", "tcmalloc")
EQUAL = 8192  # bytes: a page of the environment more or less, which holds the settings, and one of the initial stack
KIB, MIB = 1 << 10, 1 << 20


def run_program(program: Program, config: Config, folder: Path) -> dict[str, float | None]:
    """Runs a program once under the meter, a server under its load; returns its peaks, or nothing if it failed."""
    from sample_servers import LOADS

    env = environment(config.allocator, config.settings, {**os.environ, "LC_ALL": "C", **program.env})
    load = LOADS.get(program.name)
    client = threading.Thread(target=load, args=(lambda: None,)) if load else None
    if client:
        client.start()
    ran = run_metered(program.command, MeterOptions(massif=True), env=env, cwd=folder)
    if client:
        client.join()
    for warning in ran.warnings:
        print(f"{program.name} under {config.name}: {warning}", file=sys.stderr)
    return {} if ran.exit_code else {peak: ran.metrics[peak] for peak in PEAKS}


def run_replay(ready: ReadyTrace, config: Config, linked: str) -> dict[str, float | None]:
    """Replays once; returns its peaks without the replayer's own memory, or nothing if the replay failed."""
    import fidelity

    replayed = replay_once(ready, MeterOptions(massif=True), fidelity.replay_environment(config, linked))
    if replayed.failure:
        print(f"replay of {ready.trace} under {config.name}: {replayed.failure}", file=sys.stderr)
        return {}
    found = replayed.metrics()
    return {peak: found[peak] for peak in PEAKS}


def study(program: Program, configs: list[Config], folder: Path) -> dict[str, Any]:
    """Records a program, and runs it and its replay once under each configuration.

    Returns:
        The trace's facts, and for 'program' and 'replay' the peaks of each configuration by name.
    """
    import fidelity

    trace = folder / f"{program.name}.hwt"
    told = fidelity.record(program, folder, trace)
    with make_ready(trace) as ready:
        told |= {"threads": ready.operations.threads, "calls": ready.operations.events}
        real = {config.name: run_program(program, config, folder) for config in configs}
        played = {config.name: run_replay(ready, config, program.linked) for config in configs}
    return {**told, "program": real, "replay": played}


def errors_of(result: dict[str, Any], peak: str, default: str) -> dict[str, float]:
    """The errors of the prediction in bytes, by configuration; the default gives the base and has none."""
    program, replay = result["program"], result["replay"]
    base = program[default][peak] - replay[default][peak]
    return {
        name: replay[name][peak] + base - values[peak]
        for name, values in program.items()
        if name != default and values and replay[name]
    }


def markdown(results: dict[str, Any], default: str) -> str:
    """Formats the tables as Markdown."""
    from fidelity_tables import percentile, ranks

    lines = [
        "| program | calls | peak | program, default | its range over all pairs | base | pairs | equal |"
        " error: median, 95%, worst | worst of all | rank |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|---|---|")
    everything: dict[str, list[float]] = {peak: [] for peak in PEAKS}
    equal: dict[str, int] = dict.fromkeys(PEAKS, 0)
    for name, result in results.items():
        for peak in PEAKS:
            errors = errors_of(result, peak, default)
            program = {n: v[peak] for n, v in result["program"].items() if v}
            shares = {n: abs(e) / program[n] for n, e in errors.items()}
            same = sum(abs(e) <= EQUAL for e in errors.values())
            everything[peak] += shares.values()
            equal[peak] += same
            worst = max(errors, key=lambda n: shares[n])
            base = program[default] - result["replay"][default][peak]
            sizes = list(shares.values())
            rank = ranks(result, peak)
            cells = [
                name,
                f"{result['calls']:,}",
                METRICS[peak].label,
                f"{program[default] / MIB:.1f} MiB",
                f"{min(program.values()) / MIB:.1f} to {max(program.values()) / MIB:.1f}",
                f"{base / MIB:.2f} MiB",
                str(len(errors)),
                str(same),
                f"{statistics.median(sizes):.2%}, {percentile(sizes, 0.95):.2%}, {max(sizes):.2%}",
                f"{errors[worst] / KIB:+.0f} KiB: {worst}",
                f"{rank:.2f}" if rank is not None else "n/a",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| over all | pairs | equal | median error | 95% | worst |", "|---|---|---|---|---|---|"]
    for peak, sizes in everything.items():
        told = f"{statistics.median(sizes):.3%} | {percentile(sizes, 0.95):.2%} | {max(sizes):.2%}"
        lines.append(f"| {METRICS[peak].label} | {len(sizes)} | {equal[peak]} | {told} |")
    return "\n".join(lines) + "\n"
