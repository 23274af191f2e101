"""Collects the cautions of a study: hazards of its picks' settings, and warnings about its measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heapwright.allocators.space_spec import ParamSpec
from heapwright.interleaving.phases import OF_REPLAYS, Phase
from heapwright.interleaving.records import StoredRun
from heapwright.interleaving.stats import pairs_needed
from heapwright.metrics import METRICS
from heapwright.study.claim import already_zero_text
from heapwright.study.options import NOISY_SPREAD, SHORT_RUN_S, Options
from heapwright.study.view import Pick, PickName, distinct_picks
from heapwright.workload.work_done import load_errors_warning

_MAPS_SHARE = 0.25  # warn from this share of vm.max_map_count


def hazards_of(
    picks: Mapping[PickName, Pick],
    params: Mapping[tuple[str, str], ParamSpec],
    runtime_params: Mapping[str, ParamSpec],
    runs: list[StoredRun],
    host: Mapping[str, Any],
) -> list[str]:
    """Return the risks of the picks' settings, each once.

    Args:
        picks: by name.
        params: (allocator, setting) → its specification.
        runtime_params: 'RUNTIME.SETTING' → its specification.
        runs: all runs of the study.
        host: description of the machine.
    """
    found: dict[str, None] = {}
    for pick in picks.values():
        names = " and ".join(p.name for p in picks.values() if p.config.id == pick.config.id)
        for key, value in pick.config.settings.items():
            spec = params.get((pick.config.allocator, key)) or runtime_params.get(key)
            if spec and (risk := spec.risks(value)):
                found[f"{key}={value} ({names} pick): {risk}"] = None
        limit = host.get("max_map_count")
        mappings = max((r.extra.get("maps") or 0 for r in runs if r.config == pick.config.id), default=0)
        if limit and mappings >= _MAPS_SHARE * limit:
            found[
                f"The {names} pick had {mappings} memory mappings at once; the kernel allows {limit}"
                " (vm.max_map_count), and a larger input may need more: then malloc fails."
            ] = None
    return list(found)


def too_few_pairs(pairs: int, needed: int) -> str:
    """Return that a confirmation of so many pairs at most can prove nothing."""
    return f"{pairs} pairs can prove nothing here: it takes at least {needed} (--pairs)"


def warnings_of(
    runs: list[StoredRun],
    calibrated: list[StoredRun],
    noise: Mapping[str, float],
    options: Options,
    picks: Mapping[PickName, Pick],
) -> list[str]:
    """Return the warnings about a study's measurements, each once.

    Args:
        runs: all runs of the study.
        calibrated: the runs of the calibration.
        noise: metric → relative spread of the default's runs.
        options: the study's options.
        picks: by name.
    """
    found: dict[str, None] = {}
    digests: dict[str, set[str]] = {}
    for run in runs:
        if run.config == 1 and run.phase not in OF_REPLAYS and run.digest:
            digests.setdefault(run.input, set()).add(run.digest)
    for name, seen in digests.items():
        if len(seen) > 1:
            on = f" on input '{name}'" if name != "default" else ""
            found[
                f"The default's output differs from run to run{on}, so equal output was not required"
                " (a workload file can compare files, or ask a command)."
            ] = None
    for metric in options.objectives:
        if calibrated and not any(r.metrics.get(metric) for r in calibrated):
            found[already_zero_text(metric)] = None
        if noise.get(metric, 0) > NOISY_SPREAD:
            found[f"{METRICS[metric].label} varied by {noise[metric]:.0%} between runs of the default."] = None
    walls = [w for r in calibrated if (w := r.metrics.get("wall_s")) is not None]
    if walls and min(walls) < SHORT_RUN_S:
        found[
            f"The command runs for less than {1000 * SHORT_RUN_S:.0f} ms: process start-up dominates the measurement."
        ] = None
    loads = {"the default": 1, **{f"the {name} pick": pick.config.id for name, pick in distinct_picks(picks)}}
    for who, config in loads.items():
        made = (r.metrics for r in runs if r.config == config and r.phase not in OF_REPLAYS)
        if text := load_errors_warning(made, f" of {who}"):
            found[text] = None
    for name, pick in distinct_picks(picks):
        failures = [r.failure for r in runs if r.config == pick.config.id and r.failure]
        if failures:
            found[f"The {name} pick failed in a run: {failures[0]}. Do not use it."] = None
        for metric in options.objectives:
            c = pick.confirmed.get(metric)
            if c is not None and c.note:
                found[f"{METRICS[metric].label} of the {name} pick: {c.note}."] = None
        if not pick.minified and options.minify and not options.search_only:
            found[f"There was no time to try each setting of the {name} pick: some may do nothing."] = None
    confirming = [run for run in runs if run.phase == Phase.CONFIRM]
    if confirming and any(c.verdict == "unproven" for p in picks.values() for c in p.confirmed.values()):
        tests = (len({run.config for run in confirming}) - 1) * len(options.objectives)
        needed = pairs_needed(len({run.input for run in confirming}), tests)
        if needed > options.pairs_max:
            found[f"{too_few_pairs(options.pairs_max, needed)}."] = None
    for run in runs:
        for text in run.extra.get("warnings", []):
            found[text] = None
    return list(found)
