"""Reads the bounds on the possible saving from a study (`study.saving_bound`).

Two kinds of runs show that a bound is too low. If an allocator at its defaults saves more memory, the program leaves
parts of its blocks untouched, and the bound is that of a program that may leave all of them so. If the confirmation
proves a larger saving, the bound is withdrawn.
"""

from __future__ import annotations

import dataclasses
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from heapwright.interleaving.candidates import gather
from heapwright.interleaving.configuration import DEFAULT, DEFAULT_ID
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.records import StoredRun
from heapwright.measure.memory_parts import Breakdown
from heapwright.study.program import program_of
from heapwright.study.saving_bound import (
    DefaultMeasurements,
    RecordedCounts,
    at_most,
    bound_sentence,
    memory_bound,
    saving_bound,
)
from heapwright.study.store import Store
from heapwright.study.view import Pick, Reference, SavingBound


def bound_of_study(store: Store, runs: Sequence[StoredRun] | None = None) -> SavingBound | None:
    """The bounds from a study's runs so far; None if nothing is known, or if its settings may not be a malloc's.

    Args:
        store: the study.
        runs: the study's runs, if they were read already.
    """
    if not searches_malloc(store):
        return None
    calibrated = [r for r in (store.runs(Phase.CALIBRATE) if runs is None else runs) if r.phase == Phase.CALIBRATE]
    by_input: dict[str, list[StoredRun]] = {}
    for run in calibrated:
        by_input.setdefault(run.input, []).append(run)
    recorded: dict[str, dict[str, Any]] = store.meta.recorded
    tree = bool(store.meta.tree)
    served = store.config_by_id(DEFAULT_ID).allocator in (DEFAULT, "glibc") if calibrated else False
    known = program_of(store)
    files = (known.executable, known.interpreter) if known is not None else ()
    own = tuple(file.path for file in files if file is not None)
    saved = _saved_by_allocators(store, store.runs(Phase.ALLOCATORS) if runs is None else runs)
    found: dict[str, tuple[DefaultMeasurements, RecordedCounts | None]] = {}
    for name, made in by_input.items():
        default = default_of(made, tree, own)
        if default is None:
            return None
        counts = recorded_counts_of(recorded.get(name), served)
        if counts is not None and saved.get(name, 0.0) > (memory_bound(default, counts) or 1.0):
            counts = msgspec.structs.replace(counts, used=False)
        found[name] = default, counts
    judged = bound_of_inputs(found)
    if store.meta.runtimes and store.meta.managed.get("reach") == "none":
        return None  # only the runtime's settings are searched, which these bounds do not limit
    if judged is not None and store.meta.managed.get("reach", "all") != "all":  # static, or with a malloc linked in
        judged = _stated(dataclasses.replace(judged, recordable=False))
    if judged is not None and store.meta.runtimes:  # a runtime's own settings may save more
        return _restricted(judged, "Malloc's settings alone")
    return judged


def _saved_by_allocators(store: Store, runs: Sequence[StoredRun]) -> dict[str, float]:
    """Input → the largest share of peak memory that an allocator at its defaults saved."""
    screened = [r for r in runs if r.phase == Phase.ALLOCATORS]
    configs = {id_: store.config_by_id(id_) for id_ in {r.config for r in screened}}
    found: dict[str, float] = {}
    for candidate in gather(screened, configs, DEFAULT_ID).values():
        for input_, logs in candidate.logs.get("peak_rss_bytes", {}).items():
            if not candidate.failure:
                found[input_] = max(found.get(input_, 0.0), 1 - math.exp(statistics.fmean(logs)))
    return found


def bound_of_inputs(inputs: Mapping[str, tuple[DefaultMeasurements, RecordedCounts | None]]) -> SavingBound | None:
    """The bounds over the recorded inputs if there are any, else over all; the sentence names the former.

    Args:
        inputs: input → its measurements, and the counts of its recording; inputs that are held out are not recorded.
    """
    recorded = {name: one for name, one in inputs.items() if one[1] is not None}
    judged = saving_bound(list((recorded or inputs).values()))
    if judged is None or not recorded or len(recorded) == len(inputs):
        return judged
    return _restricted(judged, f"On the recorded input{'' if len(recorded) == 1 else 's'} {', '.join(recorded)}")


def _restricted(bound: SavingBound, to: str) -> SavingBound:
    """The bounds, restricted to a part of the study."""
    bound = dataclasses.replace(bound, scope=f"{to}: {bound.scope[:1].lower()}{bound.scope[1:]}" if bound.scope else to)
    return _stated(bound)


def _stated(bound: SavingBound) -> SavingBound:
    """The bounds with their sentence."""
    return dataclasses.replace(bound, sentence=bound_sentence(bound))


def searches_malloc(store: Store) -> bool:
    """Whether all settings that a study searches are those of a malloc."""
    spaces: Mapping[str, Any] = store.meta.spaces
    return bool(spaces) and all(_is_malloc(name) for name in spaces)


def _is_malloc(name: str) -> bool:
    """Whether settings under this name belong to a malloc; a user's own space file may belong to the program."""
    from heapwright.allocators.peers import known_peers
    from heapwright.allocators.registry import bundled_file

    return bundled_file(name) is not None or os.sep in name or any(name == spec.name for spec in known_peers())


def default_of(made: Sequence[StoredRun], tree: bool, own: tuple[str, ...]) -> DefaultMeasurements | None:
    """Measurements of the default on one input. The run whose memory was divided gives memory; other runs give times.

    Args:
        made: the calibration runs of the input.
        tree: whether to use proportional memory, for a tree of processes.
        own: paths of the command's program and of its interpreter.
    """
    looked = next((r for r in made if r.extra.get("parts")), None)
    timed = [r for r in made if r.block > 0 and not r.failure] or list(made)
    first = looked or timed[0]
    found = msgspec.convert(first.extra["parts"], Breakdown) if looked is not None else None
    parts = None if found is None else found.pss if tree else found.rss
    peak = first.metrics.get("peak_rss_bytes")
    if peak is None:
        return None
    if found is not None and tree:
        peak = found.pss.total + max(0.0, peak - found.rss.total)
    peaks = [value for r in made if (value := r.metrics.get("peak_rss_bytes")) is not None]
    return DefaultMeasurements(
        spread=max(peaks) - min(peaks),
        huge=max(r.metrics.get("huge_bytes") or 0.0 for r in made),
        peak=max(peak, parts.total if parts is not None else 0.0),
        parts=parts,
        cpu_s=statistics.median(r.metrics.get("cpu_s") or 0.0 for r in timed),
        sys_s=statistics.median(r.metrics.get("sys_s") or 0.0 for r in timed),
        threads=max((r.extra.get("threads") or 1) for r in made),
        processes=found.processes if found is not None else max((r.extra.get("processes") or 1) for r in made),
        busiest=found.busiest if found is not None else "",
        busiest_share=found.busiest_pss / found.pss.total if found is not None and found.pss.total else 1.0,
        own=own,
    )


def busiest_program(run: StoredRun) -> str:
    """The path of the program that had most of the memory in a run; empty where that is not known, or none had."""
    if not run.extra.get("parts"):
        return ""
    return msgspec.convert(run.extra["parts"], Breakdown).main_program


def loaded_files(run: StoredRun) -> list[str]:
    """The program and libraries of a run whose own mallocs may hold much of the memory; none if that is unknown."""
    if not run.extra.get("parts"):
        return []
    return msgspec.convert(run.extra["parts"], Breakdown).files_of_other_memory


def mostly_outside_heap(run: StoredRun) -> bool:
    """Whether a run's anonymous memory outside of malloc's heap is more than the heap; true where that is not known."""
    if not run.extra.get("parts"):
        return True
    parts = msgspec.convert(run.extra["parts"], Breakdown).pss
    return parts.other > parts.heap


def recorded_counts_of(recorded: dict[str, Any] | None, served: bool) -> RecordedCounts | None:
    """The counts of a recording; None if there is none, or if an older version made it without counts."""
    if recorded is None or "heap" not in recorded:
        return None
    more = {"share": recorded.get("share") or 1.0, "executable": recorded.get("executable") or ""}
    counts = msgspec.convert({**recorded["heap"], **more}, RecordedCounts)
    return counts if served else msgspec.structs.replace(counts, glibc=False)


def bound_after(store: Store, runs: Sequence[StoredRun], confirmed: Sequence[Pick | Reference]) -> SavingBound | None:
    """The bounds of a study, without those that its confirmation refutes; None if nothing is known.

    Args:
        store: the study.
        runs: all its runs.
        confirmed: the configurations that were confirmed.
    """
    bound = bound_of_study(store, runs)
    # Restricted bounds are about other settings, or other inputs, than the confirmation is.
    return bound if bound is None or bound.scope else unless_refuted(bound, confirmed)


def unless_refuted(bound: SavingBound, confirmed: Sequence[Pick | Reference]) -> SavingBound:
    """The bounds, without those below a saving that fresh pairs prove; the sentence then names them."""
    known = {"peak_rss_bytes": bound.memory_bound, "cpu_s": bound.cpu_bound}
    refuted = {
        metric: share
        for metric, share in known.items()
        if share is not None
        and any(1 - row.confirmed[metric].high > share for row in confirmed if metric in row.confirmed)
    }
    if not refuted:
        return bound
    names = {"peak_rss_bytes": "of peak memory", "cpu_s": "of CPU time"}
    shares = " and ".join(f"{at_most(share)} {names[metric]}" for metric, share in refuted.items())
    return dataclasses.replace(
        bound,
        memory_bound=None if "peak_rss_bytes" in refuted else bound.memory_bound,
        cpu_bound=None if "cpu_s" in refuted else bound.cpu_bound,
        used_blocks=bound.used_blocks and "peak_rss_bytes" not in refuted,
        sentence=f"The confirmed saving exceeds the bound before the search ({shares}): that bound is wrong.",
    )
