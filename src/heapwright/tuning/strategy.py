"""Chooses a study's search method and the points that its search tries first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from heapwright.allocators.space import Point, Space
from heapwright.interleaving.records import StoredRun
from heapwright.search.auto import choose
from heapwright.search.methods import make_strategy
from heapwright.search.protocol import Setup, Strategy
from heapwright.study import options as opt
from heapwright.study.evaluations import not_repeated_sentence
from heapwright.tuning import warm_start
from heapwright.tuning.search_loop import Evaluator, Search
from heapwright.tuning.session import Session


def search_of(session: Session, space: Space, evaluator: Evaluator, initial_runs: Sequence[StoredRun] = ()) -> Search:
    """A search of this study.

    Args:
        session: the study's session.
        space: the parameter space.
        evaluator: measures configurations, on the program or on replays.
        initial_runs: runs of this evaluator that count already.
    """

    def keep(generations: dict[int, int]) -> None:
        now = {str(id_): generation for id_, generation in generations.items()}
        session.store.update(generations={**now, **session.store.meta.generations})

    return Search(
        space,
        evaluator,
        session.config_cache,
        session.options,
        session.workload.train,
        session.budget,
        initial_runs,
        keep,
    )


def search_on(
    session: Session, search: Search, first: Sequence[Point], watch: Callable[[], bool] = lambda: True
) -> None:
    """Search with the study's strategy, and note the configurations that an interruption left behind.

    Args:
        session: the study's session.
        search: the search.
        first: points to evaluate first.
        watch: called after every batch; False ends the search.
    """
    search.note_stored_runs(session.store.runs(search.evaluator.phase))
    search.run(first, lambda setup: strategy_of(session, setup), watch)
    if search.not_repeated:
        session.store.update(strayed=len(search.not_repeated))
        session.progress.note(not_repeated_sentence(len(search.not_repeated)))


def strategy_of(session: Session, setup: Setup) -> Strategy:
    """The search strategy of this study."""
    return make_strategy(_method(session, setup), setup)


def warm_points(session: Session, space: Space) -> list[Point]:
    """Points to try first: good settings of the studies named with --warm-start."""
    return warm_start.points_of_settings(space, _warm_settings(session))


def _method(session: Session, setup: Setup) -> str:
    """The method's name. The choice of 'auto' is stored, and stays when the budget grows."""
    if session.options.method != "auto":
        return session.options.method
    chosen = session.store.meta.method
    if not chosen:
        name, why = choose(replace(setup, budget=setup.budget or _evaluations_in_time(session)), not setup.budget)
        chosen = {"name": name, "why": why}
        session.store.update(method=chosen)
    session.progress.note(f"search method: {chosen['name']} ({chosen['why']})")
    return str(chosen["name"])


def _evaluations_in_time(session: Session) -> int:
    """About how many evaluations a time budget holds."""
    seconds = max(0.0, session.budget.limit_s - session.spent_s)
    runs_of_each_input = seconds / max(session.run_s, 1e-3) / len(session.workload.train)
    return max(1, round(runs_of_each_input * opt.BLOCK / (opt.BLOCK + 1)))


def _warm_settings(session: Session) -> list[dict[str, str]]:
    """Good settings of other studies. They are stored when first read, because those studies may change."""
    settings = session.store.meta.warm
    if settings is None:
        max_settings = max(opt.BLOCK, session.options.evaluations // 3)
        paths = [Path(p) for p in session.options.warm_start]
        settings = warm_start.good_settings(paths, [a.name for a in session.allocators], max_settings)
        session.store.update(warm=settings)
    return settings
