"""Judges the fresh pairs of a confirmation: ratios, intervals, adjusted p values and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heapwright.interleaving.candidates import Candidate, gather
from heapwright.interleaving.configuration import Config
from heapwright.interleaving.irregularities import irregularities
from heapwright.interleaving.records import StoredRun
from heapwright.interleaving.resolution import resolution
from heapwright.interleaving.stats import holm, ratio_interval, signed_rank_p, summarise, verdict
from heapwright.metrics import METRICS, NUMERIC
from heapwright.study.options import Options
from heapwright.study.view import Confirmation

# Counts of all processes on the machine: other programs decide their ratios.
_OF_THE_SYSTEM = ("system_thp_faults", "system_thp_collapses")


def judge_pairs(
    runs: Sequence[StoredRun], configs: dict[int, Config], default: int, options: Options, earlier_looks: int = 0
) -> dict[int, dict[str, Confirmation]]:
    """The confirmation of every pick, by metric, objectives first; a pick with a failed run has none.

    Holm's adjustment covers all confirmed rows (picks and usual advice) × objectives. A user who repeats with more
    pairs until something is proven finds something by chance. So each earlier look doubles p: all looks together err at
    most twice as often as one (alpha spending: 1, 1/2, 1/4 … of ALPHA). The rank test takes pairs as independent; where
    they come in spells, the wider interval decides. Metrics that are not objectives have an interval, but no verdict
    of better or worse.

    Args:
        runs: the fresh runs of the confirmation.
        configs: configurations by number.
        default: number of the default.
        options: the study's options.
        earlier_looks: how often results were shown before (`StudyMeta.earlier_looks`).
    """
    candidates = {k: c for k, c in gather(runs, configs, default).items() if not c.failure}
    tested = [(k, m) for k, c in candidates.items() for m in options.objectives if _enough(c, m)]
    raw = [signed_rank_p([x for g in candidates[k].logs[m].values() for x in g]) for k, m in tested]
    adjusted = dict(zip(tested, [min(1.0, p * 2.0**earlier_looks) for p in holm(raw)], strict=True))
    values = _values(runs)
    result: dict[int, dict[str, Confirmation]] = {}
    for id_, candidate in candidates.items():
        order = [*options.objectives, *(m for m in NUMERIC if m not in (*options.objectives, *_OF_THE_SYSTEM))]
        result[id_] = {
            metric: _confirmation(
                metric, candidate, adjusted.get((id_, metric)), values[default, metric], values[id_, metric], options
            )
            for metric in order
            if _enough(candidate, metric)
        }
    return result


def _enough(candidate: Candidate, metric: str) -> bool:
    """Whether every input has at least two log ratios. A metric that is 0 in one run of a pair has none."""
    groups = candidate.logs.get(metric, {})
    return min((len(g) for g in groups.values()), default=0) > 1


def _values(runs: Sequence[StoredRun]) -> dict[tuple[int, str], dict[str, list[float]]]:
    """(configuration, metric) → input → values, in the order of measurement."""
    values: dict[tuple[int, str], dict[str, list[float]]] = {}
    for run in runs:
        for metric, value in run.metrics.items():
            if value is not None:
                values.setdefault((run.config, metric), {}).setdefault(run.input, []).append(value)
    return values


def _confirmation(
    metric: str,
    candidate: Candidate,
    p: float | None,
    default: Mapping[str, Sequence[float]],
    pick: Mapping[str, Sequence[float]],
    options: Options,
) -> Confirmation:
    logs = candidate.logs[metric]
    ratio = ratio_interval(logs, options.seed)
    return Confirmation(
        metric,
        ratio.value,
        ratio.low,
        ratio.high,
        p,
        sum(len(g) for g in logs.values()),
        verdict(ratio, p, options.margin, max(resolution(metric, group) for group in default.values())),
        summarise([v for g in default.values() for v in g]).median,
        summarise([v for g in pick.values() for v in g]).median,
        irregularities(default, pick, logs, ratio, options.margin, METRICS[metric].show),
    )
