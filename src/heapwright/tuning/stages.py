"""Estimates how many runs each stage of a study can use, so that a time budget can be divided among the stages."""

from __future__ import annotations

import math
from collections.abc import Sequence

from heapwright.interleaving.budget import StageNeed
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.stats import pairs_needed
from heapwright.study import options as opt
from heapwright.study.options import Options
from heapwright.tuning.allocator_screening import ROUNDS
from heapwright.tuning.confirm import SPARE

# The share of a search's evaluations that run on the program if replays may replace it.
_ON_PROGRAM = 0.6
# The weights of the two screenings, of allocators and of a runtime's settings: the first is of the part that holds most
# of the memory.
_FIRST_SCREENING, _SECOND_SCREENING = 0.15, 0.1
# Settings of each pick, assumed before the shortlist has found the picks.
SETTINGS = (4, 4)


def needs_from(
    stage: str,
    options: Options,
    train: int,
    test: int,
    allocators: int,
    threads: bool,
    settings: Sequence[int] = SETTINGS,
    left_runs: float = math.inf,
    runtime_levels: int = 0,
    runtime_first: bool = False,
) -> dict[str, StageNeed]:
    """The needs of a stage and of all that come after it, the most important stage first.

    Without a search there is nothing to confirm; a pick that was not minified only has settings without effect.

    Args:
        stage: one of `options.STAGES`.
        options: the study's options.
        train, test: number of inputs of the search, and of the confirmation.
        allocators: number of allocators that the study searches.
        threads: whether the program has more than one thread.
        settings: number of settings of each pick.
        left_runs: number of runs for which there is time. If these do not hold a row of usual advice beside a pick,
            and the stages before it, the confirmation needs only the pick.
        runtime_levels: number of levels of the runtime's settings that are screened; 0 without a runtime.
        runtime_first: whether the runtime holds most of the memory. Then the screening of its settings is served
            before that of the allocators, and has its weight.
    """
    several = allocators > 1
    usual_rows = 0 if not several else opt.REFERENCES if threads else 1
    in_blocks = train * (1 + 1 / opt.BLOCK)  # runs of one allocator, with its share of the default's
    asked = allocators if several else 0
    needs: dict[str, StageNeed] = {
        Phase.ALLOCATORS: _allocator_screening_need(asked, train, in_blocks, runtime_first),
        Phase.RUNTIMES: _runtime_screening_need(runtime_levels, in_blocks, several, runtime_first),
        Phase.SEARCH: StageNeed(
            (1 + opt.BLOCK) * train,
            math.inf,
            share=0.5,
            usual=(options.evaluations or math.inf) * in_blocks * (1.0 if options.proxy == "none" else _ON_PROGRAM),
        ),
        Phase.SHORTLIST: StageNeed(
            2 * (1 + opt.SHORTLIST_MIN) * train,
            opt.SHORTLIST_MAX * (1 + opt.SHORTLIST) * train,
            share=0.1,
            usual=opt.SHORTLIST_ROUNDS * opt.SHORTLIST * train,
        ),
        Phase.MINIFY: _minify_need(settings, train),
    }
    if runtime_first:
        needs = {Phase.RUNTIMES: needs[Phase.RUNTIMES], **needs}
    elif not runtime_levels:
        del needs[Phase.RUNTIMES]
    to_come = _stages_to_come(stage, options)
    needs = {name: need for name, need in needs.items() if name in to_come}
    if Phase.CONFIRM not in to_come:
        return needs
    before = sum(need.min_runs for name, need in needs.items() if name != Phase.MINIFY)
    confirmation = _confirmation_need(options, test, len(settings), usual_rows, left_runs - before)
    return {Phase.CONFIRM: confirmation, **needs}


def _confirmation_need(options: Options, test: int, picks: int, usual_rows: int, left_runs: float) -> StageNeed:
    """The need of the confirmation.

    Args:
        options: the study's options.
        test: number of inputs.
        picks: number of picks.
        usual_rows: number of rows of usual advice.
        left_runs: number of runs for which there is time beside the earlier stages.
    """

    def min_runs(rows: int) -> int:
        return test * (1 + rows) * math.ceil(SPARE * pairs_needed(test, rows * len(options.objectives)))

    needed_runs = min_runs(1 + min(usual_rows, 1))
    if needed_runs > left_runs:
        needed_runs = min_runs(1)
    min_pairs = pairs_needed(test, len(options.objectives))
    pairs = min(options.pairs_max, max(options.pairs_min, min_pairs))
    return StageNeed(
        needed_runs,
        test * (1 + picks + usual_rows) * max(pairs, options.pairs_max / 2),
        share=0.25,
        usual=test * ((1 + picks) * (pairs + options.pairs_max) / 2 + usual_rows * pairs),
    )


def _allocator_screening_need(allocators: int, train: int, in_blocks: float, second: bool) -> StageNeed:
    """The need of the screening of allocators.

    Args:
        allocators: number of allocators to screen; 0 for none.
        train: number of inputs of the search.
        in_blocks: runs of one allocator, with its share of the default's.
        second: whether the screening of a runtime's settings is served before it.
    """
    return StageNeed(
        allocators and (1 + opt.BLOCK) * train,
        allocators * (1 + ROUNDS * in_blocks),
        share=_SECOND_SCREENING if second else _FIRST_SCREENING,
        usual=allocators * ROUNDS * in_blocks,
    )


def _minify_need(settings: Sequence[int], train: int) -> StageNeed:
    """The need of minify.

    Args:
        settings: number of settings of each pick.
        train: number of inputs of the search.
    """
    return StageNeed(
        sum(n + 1 + 2 * opt.MINIFY_MIN_ROUNDS for n in settings if n) * train,
        sum(3 * n for n in settings) * opt.MINIFY_ROUNDS * train,
        share=0.15,
        usual=sum(n + 3 for n in settings if n) * opt.MINIFY_ROUNDS * train,
    )


def _runtime_screening_need(levels: int, in_blocks: float, several: bool, first: bool) -> StageNeed:
    """The need of the screening of a runtime's settings.

    Args:
        levels: number of levels that are screened.
        in_blocks: runs of one level, with its share of the default's.
        several: whether the study searches several allocators. Then settings that were never tried alone are hardly
            found. A single allocator's search tries them itself.
        first: whether it is served before the screening of allocators.
    """
    screening = levels * opt.RUNTIME_ROUNDS * in_blocks
    min_screening = min(levels, opt.MIN_RUNTIME_LEVELS) * in_blocks if several else 0.0
    share = _FIRST_SCREENING if first else _SECOND_SCREENING
    return StageNeed(min_screening, screening, share=share, usual=screening)


def _stages_to_come(stage: str, options: Options) -> tuple[str, ...]:
    """The stages from this one on, without those that the options leave out."""
    left_out: tuple[str, ...] = ()
    if options.search_only:
        left_out = Phase.SHORTLIST, Phase.MINIFY, Phase.CONFIRM
    elif not options.minify:
        left_out = (Phase.MINIFY,)
    return tuple(s for s in opt.STAGES[opt.STAGES.index(stage) :] if s not in left_out)
