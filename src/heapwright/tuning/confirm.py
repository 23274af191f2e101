"""The confirmation: fresh, randomised, interleaved pairs of each pick and the default.

No run of the search counts here. Of 200 configurations without any effect, the best one seems better than the default
by 2.75 standard deviations of a run, on average.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from heapwright.interleaving.blocks import Blocks
from heapwright.interleaving.candidates import Candidate, gather
from heapwright.interleaving.configuration import Config
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.shape import shapes
from heapwright.interleaving.stats import narrow_enough, pairs_needed, ratio_interval
from heapwright.study.cautions import too_few_pairs
from heapwright.study.options import CONFIRM_LOOK, Options
from heapwright.workload.model import Input

SPARE = 1.2  # the time must hold this multiple of the pairs that a proof of several rows needs


@dataclass(frozen=True)
class Rows:
    """The configurations that a confirmation compares with the default.

    Attributes:
        picks: the most important first.
        references: rows of usual advice; they run in the first blocks only.
        pairs: minimum number of pairs of each input.
    """

    picks: tuple[Config, ...]
    references: tuple[Config, ...]
    pairs: int


def fitting_rows(
    default: Config,
    picks: Sequence[Config],
    references: Sequence[Config],
    blocks: Blocks,
    inputs: Sequence[Input],
    options: Options,
) -> Rows | None:
    """The rows for which the time left can prove something; None if it cannot for a single pick.

    With little time, rows are dropped in this order: all references but one, all picks but the most important, the
    last reference. Fewer rows need fewer pairs. The time must hold more pairs than a proof needs (`SPARE`), because
    runs may turn out slower. A single pick needs no such reserve: without its pairs nothing can be proven at all.

    Args:
        default: the configuration that the rows are compared with.
        picks: the most important first.
        references: rows of usual advice, the most important first.
        blocks: its budget and the cost of its runs say how many pairs fit.
        inputs: the inputs to run.
        options: the study's options.
    """
    left_s = blocks.budget.limit_s - blocks.budget.spent_s if blocks.budget.limited else math.inf
    for chosen, beside in (
        (picks, references),
        (picks, references[:1]),
        (picks[:2], references[:1]),
        (picks[:1], references[:1]),
        (picks[:1], ()),
    ):
        rows = {c.id: c for c in [*chosen, *beside]}
        needed = pairs_needed(len(inputs), len(rows) * len(options.objectives))
        if not rows or (beside and needed > options.pairs_max):
            continue
        a_pair = len(inputs) * blocks.seconds_of([default, *rows.values()])
        fits = left_s / a_pair + 1e-9 if a_pair else math.inf
        spare = SPARE if len(rows) > 1 else 1.0
        if fits >= spare * min(needed, options.pairs_max):
            others = tuple(c for c in beside if c.id not in {p.id for p in chosen})
            pairs = min(max(options.pairs_min, needed), options.pairs_max)
            return Rows(tuple(chosen), others, min(pairs, math.floor(fits)) if math.isfinite(fits) else pairs)
    return None


def confirm(default: Config, rows: Rows, blocks: Blocks, inputs: Sequence[Input], options: Options) -> int:
    """Measure blocks of the default and all rows until every interval of every pick is narrow enough.

    There are at least `rows.pairs` and at most `options.pairs_max` blocks. A configuration that fails in the first
    block is not run again. The number of blocks depends on the widths of the intervals (also relative to the effect)
    and on the regularity of the pairs, which are judged at every fifth block.

    Args:
        default: the configuration that ratios refer to.
        rows: the configurations to compare with it.
        blocks: measures; its budget limits the stage.
        inputs: the inputs to run.
        options: the study's options.

    Returns:
        The number of pairs on the input that has the fewest.
    """
    picks = [default, *rows.picks]
    everything = [*picks, *rows.references]
    further = (options.pairs_max - rows.pairs) * len(picks)
    blocks.phase(Phase.CONFIRM, (rows.pairs * len(everything) + further) * len(inputs))
    needed = pairs_needed(len(inputs), (len(everything) - 1) * len(options.objectives))
    if needed > options.pairs_max:
        blocks.progress.note(too_few_pairs(options.pairs_max, needed))
    first = blocks.first_block(Phase.CONFIRM, everything)
    runs = blocks.measure_all(Phase.CONFIRM, first, [everything], inputs)
    failed = {run.config for run in runs if run.failure}  # these have no result, whatever their further runs do
    picks = [c for c in picks if c.id not in failed]
    rest = [c for c in everything if c.id not in failed]
    if len(rest) > 1:
        runs += blocks.measure_all(Phase.CONFIRM, first + 1, [rest] * (rows.pairs - 1), inputs)
    done = rows.pairs
    while done < options.pairs_max:
        candidates = gather(runs, {c.id: c for c in everything}, default.id)
        a_block = len(inputs) * blocks.seconds_of(picks)
        if blocks.budget.over(a_block) or all(_settled(candidates[c.id], options) for c in rows.picks):
            break
        further = min(CONFIRM_LOOK, options.pairs_max - done)
        while further > 1 and blocks.budget.over(further * a_block):
            further -= 1
        runs += blocks.measure_all(Phase.CONFIRM, first + done, [picks] * further, inputs)
        done += further
    made = Counter(run.input for run in runs if run.config == default.id)
    return min(made[input_.name] for input_ in inputs)


def _settled(candidate: Candidate, options: Options) -> bool:
    if candidate.failure:
        return True
    return all(settled(candidate.logs[m], options) for m in options.objectives if m in candidate.logs)


def settled(groups: Mapping[str, Sequence[float]], options: Options) -> bool:
    """Whether one metric needs no more pairs: the interval is narrow and the pairs are regular.

    A confirmation goes on while the pairs fall into groups, have outliers or come in spells (`interleaving.shape`). It
    ends if the pairs differ from each other by at most the margin: then such differences do not matter.

    Args:
        groups: input name → log ratios of its pairs, in the order of measurement.
        options: the study's options.
    """
    if not narrow_enough(ratio_interval(groups, options.seed), options.margin):
        return False
    return not any(
        max(g) - min(g) > options.margin and shapes(np.asarray(g, dtype=float)[None]).irregular[0]
        for g in groups.values()
        if len(g)
    )
