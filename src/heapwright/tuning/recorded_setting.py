"""Searches malloc's settings on replays of a recording that was made under a setting of the runtime.

Under PYTHONMALLOC=malloc, Python calls malloc for every object, and a recording of Python as it is says nothing about
that. So the program is recorded once more with the most promising such setting, and replays of that recording search
the allocators' settings beside it. Costs are ratios to that setting alone. Their front is only a proposal: the search
then measures it on the program.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from heapwright.allocators.joint import ALLOCATOR, JointSpace, extra_settings, replayable
from heapwright.allocators.space import Point, Space
from heapwright.errors import HeapwrightError
from heapwright.interleaving.blocks import Blocks
from heapwright.interleaving.candidates import Candidate, Program, gather
from heapwright.interleaving.configuration import Config
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.records import StoredRun
from heapwright.interleaving.replays import Replays
from heapwright.interleaving.stats import summarise
from heapwright.metrics import REPLAYABLE
from heapwright.search import pareto
from heapwright.study import agreement
from heapwright.study import options as opt
from heapwright.study.replayed_share import values_of_one_process
from heapwright.tuning import proxy
from heapwright.tuning.config_cache import ConfigCache
from heapwright.tuning.same_calls import check_calls
from heapwright.tuning.search_loop import Evaluator
from heapwright.tuning.session import Session
from heapwright.tuning.strategy import search_of, strategy_of

_MAX_COST_ALONE = 0.5  # sum of log ratios: a setting that alone costs more is not recorded
_MIN_SEARCH_RUNS = 12  # if the search has time for fewer runs of the program, a recording is not worth its time
_PROPOSED = 6  # at most so many members of the front of the replays are measured on the program


class _WithRuntimeSettings(ConfigCache):
    """Configurations of a space without the runtime, with the runtime's settings put beside each.

    Args:
        cache: the study's configurations.
        whole: the whole space.
        fixed: NAME.KEY → value of the runtime's settings.
        single_setting_config: the configuration with these settings alone; it takes the place of the default.
    """

    def __init__(
        self, cache: ConfigCache, whole: JointSpace, fixed: Mapping[str, str], single_setting_config: Config
    ) -> None:
        self.store, self.base, self.default = cache.store, cache.base, single_setting_config
        self.configs, self.unusable = cache.configs, cache.unusable
        self._cache, self._whole, self._fixed = cache, whole, fixed

    def config(self, space: Space, settings: Mapping[str, str]) -> Config:
        """The configuration of these settings and the runtime's."""
        return self._cache.config(self._whole, {ALLOCATOR: space.allocator.name, **settings, **self._fixed})


def points_under_runtime_setting(session: Session, space: Space, measured: Sequence[StoredRun]) -> list[Point]:
    """Points that replays under a setting of the runtime find good; empty if there is nothing to record.

    Args:
        session: the study's session.
        space: the whole space.
        measured: the runs of the program so far, among them the screening of the runtime's settings.
    """
    chosen = _best_setting_that_changes_calls(session, space, measured)
    if chosen is None or not isinstance(space, JointSpace) or _replays_cannot_help(session, replayable(space)):
        return []
    budget = session.budget
    try:
        with budget.limited_to(opt.REPLAY_SHARE_WITH_RUNTIME * (budget.limit_s - budget.spent_s)):
            return _search(session, space, chosen)
    except HeapwrightError as error:
        what = ", ".join(f"{key}={value}" for key, value in chosen.config.settings.items())
        session.progress.note(f"malloc's settings beside {what} are searched on the program only: {error.message}")
        return []
    finally:
        session.phase(Phase.SEARCH)


def _replays_cannot_help(session: Session, space: Space) -> bool:
    """Whether replays cannot help: not wanted, of no use for the objectives, without settings or without time."""
    needed_s = _MIN_SEARCH_RUNS * len(session.workload.train) * session.run_s
    return (
        session.options.proxy == "none"
        or not space.params
        or any(metric not in REPLAYABLE for metric in session.options.objectives)
        or session.store.meta.managed.get("reach", "all") != "all"
        or any(allocator.embedded for allocator in session.allocators)
        or session.budget.over(needed_s)
    )


def _best_setting_that_changes_calls(session: Session, space: Space, measured: Sequence[StoredRun]) -> Candidate | None:
    """The best setting, alone under the program's own malloc, with which the program calls malloc otherwise."""
    if not isinstance(space, JointSpace):
        return None
    changing = {f"{e.allocator.name}.{p.key}" for e in space.extras for p in e.params if p.spec.changes_calls}
    found: list[tuple[float, Candidate]] = []
    for candidate in gather(measured, session.config_cache.configs, session.default.id).values():
        config, costs = candidate.config, candidate.costs(session.options.objectives)
        single = len(config.settings) == 1 and set(config.settings) <= changing and "LD_PRELOAD" not in config.env
        if costs is not None and single and sum(costs) < _MAX_COST_ALONE:
            found.append((sum(costs), candidate))
    return min(found, key=lambda one: one[0], default=(0.0, None))[1]


def _search(session: Session, space: JointSpace, single_setting: Candidate) -> list[Point]:
    """Record the program under a setting, search on replays of that, and return the front.

    Args:
        session: the study's session.
        space: the whole space.
        single_setting: the configuration with this setting alone, as measured on the program.

    Raises:
        HeapwrightError: it cannot be recorded, or a replay is not worth its time.
    """
    fixed = extra_settings(space, single_setting.config.settings)
    name = ",".join(f"{key}={value}" for key, value in fixed.items())
    file = session.workload.file
    under = dataclasses.replace(
        session.workload, file=msgspec.structs.replace(file, env={**file.env, **single_setting.config.env})
    )
    program: Program = {
        (input_, metric): value * math.exp(single_setting.cost(metric) or 0.0)
        for (input_, metric), value in agreement.program_values(session.calibrated).items()
    }
    session.phase(Phase.RECORD)
    session.progress.phase(Phase.RECORD, len(under.train))
    executor = session.executor_of(under)
    traces, facts = proxy.record_inputs(session.store, under, executor, under.train, session.budget, name)
    unaccounted = proxy.unaccounted(facts, traces, program)
    if unaccounted:
        raise HeapwrightError(unaccounted)
    calls = check_calls(session, under, executor, facts, name)
    if calls.why:
        raise HeapwrightError(calls.why)
    program = values_of_one_process(program, facts, session.calibrated)

    def to_candidates(runs: Sequence[StoredRun]) -> dict[int, Candidate]:
        return gather(runs, session.config_cache.configs, single_setting.config.id, program)

    return _replayed(
        session,
        space,
        _WithRuntimeSettings(session.config_cache, space, fixed, single_setting.config),
        traces,
        to_candidates,
    )


def _replayed(
    session: Session,
    space: JointSpace,
    configs: _WithRuntimeSettings,
    traces: Mapping[str, Path],
    to_candidates: Callable[[Sequence[StoredRun]], dict[int, Candidate]],
) -> list[Point]:
    """Search on replays of these traces, and return the front as points of the whole space.

    Args:
        session: the study's session.
        space: the whole space.
        configs: makes configurations with the setting in them.
        traces: input → its recording.
        to_candidates: turns replays into candidates of the program.

    Raises:
        HeapwrightError: a replay takes too long.
    """
    session.phase(Phase.REPLAY)
    with Replays(session.workload, traces, session.executor.options) as replays:
        runner = session.machines.for_replays(replays, session.timed)
        blocks = Blocks(session.store, runner, session.options.seed, session.progress, session.budget)
        search = search_of(session, replayable(space), Evaluator(Phase.REPLAY_WITH_RUNTIME, blocks, to_candidates))
        search.config_cache = configs

        def replay_s() -> float:
            took = [run.elapsed_s for run in search.runs if run.config == configs.default.id]
            return summarise(took).median if took else 0.0

        def worth() -> bool:
            return replay_s() <= proxy.MAX_REPLAY_TIME_SHARE * session.run_s

        anchors = [configs.config(part, {}) for part in _parts(replayable(space))]
        search.measure([config for config in anchors if config.id != configs.default.id] or [configs.default])
        if worth():
            search.run([], lambda setup: strategy_of(session, setup), worth)
    feasible = search.feasible()
    if not worth() and not feasible:
        raise HeapwrightError(proxy.too_slow(replay_s(), session.run_s))
    costs = [c.costs(session.options.objectives) or () for c in feasible]
    front = [feasible[i].config for i in pareto.thin_front(costs, pareto.front(costs), _PROPOSED)]
    points = [space.point({ALLOCATOR: config.allocator, **config.settings}) for config in front]
    return [point for point in points if point is not None]


def _parts(space: Space) -> Sequence[Space]:
    return space.parts if isinstance(space, JointSpace) else (space,)
