"""Says how many runs each stage of a study can use, so that a time budget can be divided among the stages to come."""

from __future__ import annotations

import math
from collections.abc import Sequence

from heapwright.study import options as opt
from heapwright.study.budget import Need
from heapwright.study.confirm import SPARE, pairs_needed
from heapwright.study.contest import ROUNDS
from heapwright.study.options import Options

# Before the shortlist nobody knows how many picks will differ, and how many settings each will have.
SETTINGS = (4, 4)


def needs_from(
    stage: str,
    options: Options,
    train: int,
    test: int,
    allocators: int,
    threads: bool,
    settings: Sequence[int] = SETTINGS,
) -> dict[str, Need]:
    """The needs of a stage and of all that come after it, the most important stage first.

    Args:
        stage: one of `options.STAGES`.
        train, test: how many inputs are searched and confirmed on.
        allocators: how many a study searches.
        threads: whether the program has more than one.
        settings: how many each pick has.
    """
    several = allocators > 1
    beside = 0 if not several else opt.REFERENCES if threads else 1
    least_rows = 1 + min(beside, 1)
    least_pairs = pairs_needed(test, least_rows * len(options.objectives))
    pairs = min(options.pairs_max, max(options.pairs_min, least_pairs))
    in_blocks = train * (1 + 1 / opt.BLOCK)  # runs of one allocator, with its share of the default's
    asked = allocators if several else 0
    needs = {
        "confirm": Need(
            test * (1 + least_rows) * math.ceil(SPARE * least_pairs),
            test * (1 + len(settings) + beside) * max(pairs, options.pairs_max / 2),
            share=0.25,
        ),
        "allocators": Need(asked and (1 + opt.BLOCK) * train, asked * (1 + ROUNDS * in_blocks), share=0.15),
        "minify": Need(
            sum(n + 1 + 2 * opt.MINIFY_LEAST_ROUNDS for n in settings if n) * train,
            sum(3 * n for n in settings) * opt.MINIFY_ROUNDS * train,
            share=0.15,
        ),
        "shortlist": Need(
            2 * (1 + opt.SHORTLIST_LEAST) * train, opt.SHORTLIST_MOST * (1 + opt.SHORTLIST) * train, share=0.1
        ),
        "search": Need((1 + opt.BLOCK) * train, math.inf, share=0.5),
    }
    to_come = opt.STAGES[opt.STAGES.index(stage) :]
    return {name: need for name, need in needs.items() if name in to_come}
