"""The confirmation: fresh, randomised, interleaved pairs of each pick and the default.

Nothing measured during the search counts here: the best of 200 noisy runs 'wins' 2.75 % where there is
nothing to win.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from heapwright.experiment.blocks import Blocks
from heapwright.experiment.candidates import Candidate, gather
from heapwright.experiment.configuration import Config
from heapwright.experiment.phases import Phase
from heapwright.experiment.shape import shapes
from heapwright.experiment.stats import ALPHA, narrow_enough, ratio_interval
from heapwright.study.options import CONFIRM_LOOK, Options
from heapwright.workload.model import Input

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
    blocks.phase(Phase.CONFIRM, (rows.pairs * len(everything) + further) * len(inputs))
    needed = pairs_needed(len(inputs), (len(everything) - 1) * len(options.objectives))
    if needed > options.pairs_max:
        blocks.progress.note(f"{options.pairs_max} pairs can prove nothing here: it takes at least {needed} (--pairs)")
    first = blocks.first_block(Phase.CONFIRM, everything)
    runs = blocks.measure_all(Phase.CONFIRM, first, [everything] * rows.pairs, inputs)
    done = rows.pairs
    while done < options.pairs_max:
        candidates = gather(runs, {c.id: c for c in everything}, default.id)
        a_block = len(picks) * len(inputs) * blocks.typical.seconds
        if blocks.budget.over(a_block) or all(_settled(candidates[c.id], options) for c in rows.picks):
            return
        further = min(CONFIRM_LOOK, options.pairs_max - done)
        while further > 1 and blocks.budget.over(further * a_block):
            further -= 1
        runs += blocks.measure_all(Phase.CONFIRM, first + done, [picks] * further, inputs)
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
