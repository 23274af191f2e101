"""Divides the program's values among the processes that one recording stands for.

A study replays the trace of one process, that with the most calls. A command may run several such processes, as mpirun
does. A setting changes each of them by as much as the replay. A prediction compares the change of the replay with the
program's values (`candidates.gather`), so these values must be those of one process: divided by the number of
processes that change alike. The ratio is then that of the whole tree.

    CPU time, counts   all calls of the recorded program's processes, over those of the replayed one
    memory             the processes of that program with about as many calls, but at most as many as the share of the
                       largest process leaves room for at the peak: processes that run in turn count once
    wall time          1, as if such processes ran side by side
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from heapwright.interleaving.candidates import Program
from heapwright.interleaving.records import StoredRun
from heapwright.measure.memory_parts import Breakdown
from heapwright.metrics import METRICS


def values_of_one_process(
    program: Program, recorded: Mapping[str, Mapping[str, Any]], calibrated: Sequence[StoredRun]
) -> Program:
    """The program's values, each divided by the number of processes that the input's recording stands for.

    Args:
        program: values of all processes together, by input and metric.
        recorded: facts about each recording, by input (`tuning.proxy.record_input`). Older studies have no counts of
            processes; then nothing is divided.
        calibrated: runs of the default, some with their memory divided into parts.
    """
    largest: dict[str, Breakdown] = {}
    for run in calibrated:
        if run.extra.get("parts"):
            largest.setdefault(run.input, msgspec.convert(run.extra["parts"], Breakdown))
    return {
        (input_, metric): value / _processes(metric, recorded.get(input_, {}), largest.get(input_))
        for (input_, metric), value in program.items()
    }


def _processes(metric: str, facts: Mapping[str, Any], largest: Breakdown | None) -> float:
    """The number of processes that one replay stands for in this metric, at least 1."""
    if metric == "wall_s":
        return 1.0
    if METRICS[metric].kind != "memory":
        return 1.0 / float(facts.get("alike_share") or 1.0)
    similar = int(facts.get("similar") or 1)
    if largest is None or similar < 2 or largest.busiest_pss <= 0:
        return 1.0
    if os.path.realpath(largest.busiest) != os.path.realpath(facts.get("executable") or ""):
        return 1.0
    return max(1.0, min(similar, int(largest.pss.total / largest.busiest_pss + 0.1)))
