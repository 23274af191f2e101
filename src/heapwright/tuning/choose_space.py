"""Builds the parameter space that a study searches: one allocator's settings, or several allocators and theirs."""

from __future__ import annotations

from collections.abc import Mapping

from heapwright.allocators.in_image import not_in_image
from heapwright.allocators.joint import join, replayable, restricted
from heapwright.allocators.registry import Allocator
from heapwright.allocators.space import Space
from heapwright.errors import HeapwrightError
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.records import StoredRun
from heapwright.study.left_out import not_searched
from heapwright.tuning import allocator_screening
from heapwright.tuning.runtimes import as_it_is, screened_extras
from heapwright.tuning.schedule import begin
from heapwright.tuning.session import Session
from heapwright.tuning.takeover_check import NO_TIME, explain_crashes, take_over


def screened_space(session: Session) -> tuple[Space, list[StoredRun]]:
    """The space to search, and the runs that screened its allocators: each at its defaults, if there are several.

    Raises:
        HeapwrightError: nothing can be searched, or nothing can be measured.
    """
    if len(session.allocators) == 1:
        return screened_extras(session, _only_space(session))
    begin(session, Phase.ALLOCATORS)
    screened = allocator_screening.screen_allocators(
        session.store,
        session.executor,
        session.allocators,
        session.blocks,
        session.config_cache,
        lambda allocator: _space_of(session, allocator),
        session.workload,
    )
    spaces = {name: allocator.space for name, allocator in screened.accepted.items()}
    configs = {name: allocator.config for name, allocator in screened.accepted.items()}
    order, failed = allocator_screening.rank_allocators(
        screened.runs, session.default, configs, session.options.objectives
    )
    failures = {name: (screened.accepted[name].allocator, why) for name, why in failed.items()}
    explained = explain_crashes(
        session.store, session.executor, failures, session.config_cache.base, session.workload, session.budget
    )
    rejected = screened.rejected | explained | _not_in_image(session)
    session.store.update(not_searched=rejected)
    for sentence in not_searched(rejected):
        session.progress.note(sentence)
    if not order and session.runtime_first and NO_TIME in rejected.values():
        return screened_extras(session, join([as_it_is().space(session.threads, session.options.expert)]))
    if not order:
        raise _nothing_to_search(rejected)
    session.progress.note(f"allocators to search, best at its defaults first: {', '.join(order)}")
    failed_configs = {configs[name].id for name in failed}
    space, more = screened_extras(session, join([spaces[name] for name in order]))
    return space, [*(r for r in screened.runs if r.config not in failed_configs), *more]


def loaded_space(session: Session) -> Space:
    """The space of the allocators that become the program's malloc, without a measurement of any of them.

    Raises:
        HeapwrightError: there is none.
    """
    if len(session.allocators) == 1:
        return _only_space(session)
    base = session.config_cache.base
    asked = {
        a.name: take_over(session.store, session.executor, a, base, session.workload, session.budget)
        for a in session.allocators
    }
    out = {name: why for name, (able, why) in asked.items() if able is None}
    session.store.update(not_searched=out | _not_in_image(session))
    able = [_space_of(session, a) for a, _ in asked.values() if a is not None]
    if not able:
        raise _nothing_to_search(out)
    return join(able)


def _nothing_to_search(rejected: Mapping[str, str]) -> HeapwrightError:
    """The error that no allocator is searched.

    Args:
        rejected: allocator → why it is not searched.
    """
    if NO_TIME in rejected.values():
        return HeapwrightError(f"no allocator is searched: {NO_TIME}", "give a larger --budget")
    return HeapwrightError("no allocator can be searched in this program", "'heapwright compare' shows each")


def _not_in_image(session: Session) -> dict[str, str]:
    """Return why allocators are not searched in an image."""
    container = session.workload.container
    return not_in_image(container.image.platform, container.image.libraries) if container is not None else {}


def _only_space(session: Session) -> Space:
    """The space of a study of a single allocator."""
    allocator = session.allocators[0]
    session.store.update(not_searched=_not_in_image(session))
    space = allocator.space(session.threads, session.options.expert)
    if session.options.params:
        keys = [key for key in session.options.params if not _is_of_extra_space(session, key)]
        space = space.restrict(keys) if keys or not session.extras else restricted(space, [])
    space = _shown(session, space)
    if not space.params and not session.extra_levels:
        raise HeapwrightError(f"{allocator.name} has no setting that applies to this program")
    return space


def _is_of_extra_space(session: Session, key: str) -> bool:
    """Whether a key is of a space beside the allocators': NAME.KEY."""
    return key.partition(".")[0] in {extra.space.allocator.name for extra in session.extras}


def _space_of(session: Session, allocator: Allocator) -> Space:
    """The space of one of several allocators."""
    space = allocator.space(session.threads, session.options.expert)
    return _shown(session, restricted(space, session.options.params) if session.options.params else space)


def _shown(session: Session, space: Space) -> Space:
    """The space without settings whose effect replays do not show, if the study is of recordings."""
    if session.recordings is None:
        return space
    found = replayable(space)
    hidden = [p.key for p in space.params if p not in found.params]
    if hidden:
        session.progress.note(
            f"{space.allocator.name}: {', '.join(hidden)} not searched, because a replay does not show the effect"
        )
        session.store.update(hidden={**session.store.meta.hidden, space.allocator.name: hidden})
    return found
