"""The confirmation: fresh, randomised, interleaved pairs of each pick and the default.

Nothing measured during the search counts here: the best of 200 noisy runs 'wins' 2.75 % where there is
nothing to win.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from heapwright.experiment.blocks import Blocks, Candidate, gather
from heapwright.experiment.notes import note
from heapwright.experiment.shape import shapes
from heapwright.experiment.stats import ALPHA, holm, narrow_enough, ratio_interval, signed_rank_p, summarise, verdict
from heapwright.metrics import METRICS, NUMERIC
from heapwright.study.options import CONFIRM_LOOK, Options
from heapwright.study.store import StoredRun
from heapwright.study.view import Config, Confirmation
from heapwright.workload.model import Input

PHASE = "confirm"
SPARE = 1.2  # pairs there must be time for, over those that a proof needs


@dataclass(frozen=True)
class Rows:
    """What a confirmation holds against the default.

    Attributes:
        picks: the most important first.
        references: rows of usual advice; they run in the first blocks only.
        pairs: how many pairs there must be of each input.
    """

    picks: tuple[Config, ...]
    references: tuple[Config, ...]
    pairs: int


def fitting_rows(
    picks: Sequence[Config],
    references: Sequence[Config],
    blocks: Blocks,
    inputs: Sequence[Input],
    options: Options,
) -> Rows | None:
    """The rows that the time left can prove something of; None where it cannot for a single pick.

    With little time go all references but one, the picks but the most important one, and last the reference. Fewer
    rows need fewer pairs. There must be time for some pairs more than a proof needs: runs may turn out slower.
    """
    in_time = math.inf
    a_run = len(inputs) * blocks.typical.seconds
    if blocks.budget.limited and a_run:
        in_time = (blocks.budget.limit_s - blocks.budget.spent_s) / a_run + 1e-9  # runs of every input
    for chosen, beside in (
        (picks, references),
        (picks, references[:1]),
        (picks[:2], references[:1]),
        (picks[:1], references[:1]),
        (picks[:1], ()),
    ):
        rows = {c.id for c in [*chosen, *beside]}
        needed = pairs_needed(len(inputs), len(rows) * len(options.objectives))
        if not rows or (beside and needed > options.pairs_max):
            continue
        fits = in_time / (1 + len(rows))
        if fits >= SPARE * min(needed, options.pairs_max):
            others = tuple(c for c in beside if c.id not in {p.id for p in chosen})
            pairs = min(max(options.pairs_min, needed), options.pairs_max)
            return Rows(tuple(chosen), others, min(pairs, math.floor(fits)) if math.isfinite(fits) else pairs)
    return None


def confirm(default: Config, rows: Rows, blocks: Blocks, inputs: Sequence[Input], options: Options) -> None:
    """Measure blocks of the default and all rows until every objective's interval is narrow enough for every pick.

    There are `rows.pairs` blocks at least and `pairs_max` at most. Whether to go on is decided at every
    fifth block by the intervals' widths and the pairs' regularity, not by whether they show a gain.
    """
    picks = [default, *rows.picks]
    everything = [*picks, *rows.references]
    further = (options.pairs_max - rows.pairs) * len(picks)
    blocks.phase(PHASE, (rows.pairs * len(everything) + further) * len(inputs))
    needed = pairs_needed(len(inputs), (len(everything) - 1) * len(options.objectives))
    if needed > options.pairs_max:
        blocks.progress.note(f"{options.pairs_max} pairs can prove nothing here: it takes at least {needed} (--pairs)")
    first = blocks.first_block(PHASE, everything)
    runs = blocks.measure_all(PHASE, first, [everything] * rows.pairs, inputs)
    done = rows.pairs
    while done < options.pairs_max:
        candidates = gather(runs, {c.id: c for c in everything}, default.id)
        a_block = len(picks) * len(inputs) * blocks.typical.seconds
        if blocks.budget.over(a_block) or all(_settled(candidates[c.id], options) for c in rows.picks):
            return
        further = min(CONFIRM_LOOK, options.pairs_max - done)
        while further > 1 and blocks.budget.over(further * a_block):
            further -= 1
        runs += blocks.measure_all(PHASE, first + done, [picks] * further, inputs)
        done += further


def pairs_needed(inputs: int, tests: int) -> int:
    """How many pairs of each input let a signed-rank test's smallest p, 2 / 2^n, survive Holm over so many tests."""
    return next(n for n in range(1, 64) if tests * 2.0 ** (1 - n * inputs) < ALPHA)


def _settled(candidate: Candidate, options: Options) -> bool:
    if candidate.failure:
        return True
    return all(settled(candidate.logs[m], options) for m in options.objectives if m in candidate.logs)


def settled(groups: Mapping[str, Sequence[float]], options: Options) -> bool:
    """Whether one metric needs no more pairs: the interval is narrow and the pairs are regular.

    A confirmation goes on while pairs fall into groups, have outliers or come in spells (`experiment.shape`),
    unless all pairs lie within the margin: then nothing among them matters.

    Args:
        groups: input name → log ratios of its pairs, in the order of measurement.
    """
    if not narrow_enough(ratio_interval(groups, options.seed), options.margin):
        return False
    return not any(
        max(g) - min(g) > options.margin and shapes(np.asarray(g, dtype=float)[None]).irregular[0]
        for g in groups.values()
        if len(g)
    )


def judge(
    runs: Sequence[StoredRun], configs: dict[int, Config], default: int, options: Options
) -> dict[int, dict[str, Confirmation]]:
    """Every pick's confirmation by metric, objectives first; a pick that failed a run has none.

    Holm's adjustment runs over picks × objectives. Metrics that were no objective are shown with their
    interval and never called better or worse.
    """
    candidates = {k: c for k, c in gather(runs, configs, default).items() if not c.failure}
    tested = [(k, m) for k, c in candidates.items() for m in options.objectives if _enough(c, m)]
    raw = [signed_rank_p([x for g in candidates[k].logs[m].values() for x in g]) for k, m in tested]
    adjusted = dict(zip(tested, holm(raw), strict=True))
    values = _values(runs)
    result: dict[int, dict[str, Confirmation]] = {}
    for id_, candidate in candidates.items():
        order = [*options.objectives, *(m for m in NUMERIC if m not in options.objectives)]
        result[id_] = {
            metric: _confirmation(
                metric, candidate, adjusted.get((id_, metric)), values[default, metric], values[id_, metric], options
            )
            for metric in order
            if _enough(candidate, metric)
        }
    return result


def _enough(candidate: Candidate, metric: str) -> bool:
    """Whether there are two ratios of every input; a count that is mostly zero has few or none."""
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
        verdict(ratio, p, options.margin),
        summarise([v for g in default.values() for v in g]).median,
        summarise([v for g in pick.values() for v in g]).median,
        note(default, pick, logs, ratio, options.margin, METRICS[metric].show),
    )
