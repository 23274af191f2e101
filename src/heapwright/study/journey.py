"""The journey through a study: calibrate → search → shortlist → minify → confirm.

It is taken from the start every time; what is stored already answers at once (see `store`). Minify comes
before the confirmation so that what is confirmed, on fresh runs, is exactly what is shipped.

The search is on replays of the program's allocations where that is cheaper and holds (see `proxy`); its front is then
raced on the program. Everything after that is on the program.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from heapwright.allocators.joint import ALLOCATOR, JointSpace, join, restricted
from heapwright.allocators.registry import Allocator
from heapwright.allocators.space import Point, Space
from heapwright.errors import HeapwrightError
from heapwright.measure.meter import MeterOptions, gentlest
from heapwright.metrics import METRICS
from heapwright.search import pareto
from heapwright.search.auto import choose
from heapwright.search.protocol import Setup, Strategy, make_strategy
from heapwright.study import contest, warm
from heapwright.study import options as opt
from heapwright.study.blocks import Blocks, Candidate, Progress, gather
from heapwright.study.confirm import confirm
from heapwright.study.minify import minify
from heapwright.study.options import Options
from heapwright.study.register import Register
from heapwright.study.replaying import Replaying
from heapwright.study.runner import Here, Machines
from heapwright.study.searching import Ground, Search
from heapwright.study.stats import relative_noise
from heapwright.study.store import Store, StoredRun
from heapwright.study.view import DEFAULT, Config, PickName
from heapwright.workload.execute import Executor
from heapwright.workload.model import Workload

SERIES_POINTS = 240


class Journey:
    """One study, from its options and its store to its picks.

    Args:
        store: open for writing; must hold the options already.
        allocators: those to search. Of a single one only the settings are searched, against its own defaults; of
            several the allocator is searched too, against the program as it is.
        progress: who watches.
        machines: where blocks are run; whether an allocator takes over, and recordings, are a matter of this one.
    """

    def __init__(
        self,
        store: Store,
        workload: Workload,
        allocators: Sequence[Allocator],
        options: Options,
        progress: Progress,
        machines: Machines | None = None,
    ) -> None:
        self.store = store
        self.workload = workload
        self.allocators = tuple(allocators)
        self.options = options
        self.progress = progress
        alone = self.allocators[0] if len(self.allocators) == 1 else None
        base = {**os.environ, **workload.file.env}  # what the target sees before any setting of ours
        env = alone.environment(base) if alone else {}
        default = store.config(alone.name if alone else DEFAULT, {}, env)
        self.register = Register(store, default, base, workload.program)
        self.executor = self._executor(options.timeout or workload.file.timeout)
        self.machines = machines or Here()
        self.timed = any(METRICS[m].kind == "time" for m in options.objectives)
        runner = self.machines.for_program(self.executor, self.timed)
        self.blocks = Blocks(store, runner, options.seed, progress)
        self.blocks.unusable = self.register.unusable
        self.replays: Blocks | None = None
        self.recording_s = 0.0
        self.noise: tuple[float, ...] = ()
        self.calibrated: list[StoredRun] = []
        self.run_s = 0.0

    @property
    def default(self) -> Config:
        """What everything is compared with."""
        return self.register.default

    def run(self) -> None:
        """Takes the whole journey.

        Raises:
            HeapwrightError: the command does not work by itself, or nothing can be measured or stored.
            KeyboardInterrupt: everything measured so far is kept.
        """
        if self.options.axes:
            raise HeapwrightError(f"{self.store.path} is a landscape", "name another file with --study for a new one")
        self.phase("calibrate")
        threads = self._calibrate()
        space, begun = self._space(threads)
        runs = self._search(space, begun)
        self.phase("shortlist")
        candidates = self._shortlist(runs)
        picks = self._choose(candidates)
        searched = {name: c.config.id for name, c in picks.items()}
        if searched != self.store.get("searched"):
            self.store.put({"searched": searched, "picks": {}})
        self.phase("minify")
        final = self._minify(space, picks)
        self.store.put({"picks": {name: config.id for name, config in final.items()}})
        self.phase("confirm")
        self._confirm(final)
        self.phase("done")

    def phase(self, name: str) -> None:
        """Notes how far the study is."""
        self.store.put({"phase": name, "spent_s": self.spent_s})

    @property
    def spent_s(self) -> float:
        """Seconds that runs, recordings and replays took."""
        return self.blocks.spent_s + self.recording_s + (self.replays.spent_s if self.replays else 0.0)

    def _executor(self, timeout: float) -> Executor:
        how = MeterOptions(
            backend=gentlest(self.options.meter, self.options.objectives, self.options.massif),
            massif=self.options.massif,
            series=SERIES_POINTS,
            timeout=timeout,
            callgrind=self.options.callgrind,
        )
        return Executor(self.workload, how, self.store.references)

    def over(self, share: float) -> bool:
        """Whether this share of a time budget is spent."""
        return bool(self.options.budget_s) and self.spent_s >= share * self.options.budget_s

    def _search_over(self) -> bool:
        return self.over(opt.SEARCH_SHARE)

    # calibrate

    def _calibrate(self) -> bool:
        """Whether the program has threads. Runs the default alone: does it work, is its output stable, how noisy?"""
        train = {i.name for i in self.workload.train}
        plan = [(i, opt.CALIBRATE_RUNS if i.name in train else 2) for i in self.workload.inputs]
        self.progress.phase("calibrate", sum(n for _, n in plan))
        runs: list[StoredRun] = []
        for input_, count in plan:
            runs += self.blocks.measure("calibrate", 0, [self.default], [input_])
            self._check_objectives(runs[-1])
            again = [[self.default]] * (count - 1)
            runs += self.blocks.measure_all("calibrate", 1, again, [input_])
        walls = [r.metrics["wall_s"] or 0.0 for r in runs]
        timeout = self.options.timeout or self.workload.file.timeout or max(10.0, 10 * max(walls))
        self.executor = self._executor(timeout)
        self.blocks.runner = self.machines.for_program(self.executor, self.timed)
        threads = any((r.extra.get("threads") or 2) > 1 for r in runs)
        self.run_s = sum(r.elapsed_s for r in runs) / len(runs)
        self.calibrated = [r for r in runs if r.block > 0]  # each input's first warms caches
        noises = []
        for objective in self.options.objectives:
            counted = [r.metrics.get(objective) for r in runs if r.block > 0]
            noise = relative_noise([v for v in counted if v is not None])
            noises.append(math.sqrt(2) * noise)  # of a ratio of two runs
            if noise > 0.05:
                label = METRICS[objective].label
                self.progress.note(f"{label} varies by {noise:.0%} between runs of the default: a noisy machine")
        self.noise = tuple(noises)
        return threads

    # allocators

    def _space(self, threads: bool) -> tuple[Space, list[StoredRun]]:
        """Where to search, and what is measured already: every allocator at its defaults, if there are several."""
        base = self.register.base
        if len(self.allocators) == 1:
            space = self.allocators[0].space(threads, self.options.expert)
            if self.options.params:
                space = space.restrict(self.options.params)
            if not space.params:
                raise HeapwrightError(f"{self.allocators[0].name} has no setting that applies to this program")
            return space, []
        self.phase("allocators")
        able, out = contest.take_over(
            self.store, self.executor, self.allocators, base, self.workload.program(), self.workload.train[0]
        )
        spaces = {a.name: a.space(threads, self.options.expert) for a in able}
        if self.options.params:
            spaces = {name: restricted(space, self.options.params) for name, space in spaces.items()}
        entrants = {name: self.register.config(space, {}) for name, space in spaces.items()}
        runs = contest.at_defaults(self.blocks, self.default, entrants, self.workload.train)
        order, failed = contest.ranked(runs, self.default, entrants, self.options.objectives)
        out |= failed
        self.store.put({"not_searched": out})
        for name, why in out.items():
            self.progress.note(f"{name} is not searched: {why}")
        if not order:
            raise HeapwrightError("no allocator can be searched in this program", "'heapwright compare' shows each")
        self.progress.note(f"searched together, best at its defaults first: {', '.join(order)}")
        return join([spaces[name] for name in order]), [
            r for r in runs if r.config not in self._useless(entrants, failed)
        ]

    @staticmethod
    def _useless(entrants: dict[str, Config], failed: dict[str, str]) -> set[int]:
        return {config.id for name, config in entrants.items() if name in failed}

    def _check_objectives(self, run: StoredRun) -> None:
        for key in self.options.objectives:
            if run.metrics.get(key) is None:
                self.store.forget_runs()  # without an objective they are of no use to anyone
                hint = {
                    "instructions": "count them with --instructions=callgrind",
                    "massif_peak_bytes": "it needs --massif-compat",
                }.get(key, "'heapwright doctor' tells why; choose another with --minimize")
                raise HeapwrightError(f"{METRICS[key].label} ({key}) cannot be measured here", hint)

    # search

    def _search(self, space: Space, begun: list[StoredRun]) -> list[StoredRun]:
        """Runs of the program to choose from."""
        replaying = Replaying(self, space, begun)
        if replaying.run():
            return replaying.measured
        self.phase("search")
        ground = Ground("search", self.blocks, noise=self.noise)
        search = self.search_on(space, ground, replaying.measured)
        search.go(self.warm_points(space), self.strategy)
        return search.runs

    def search_on(self, space: Space, ground: Ground, begun: Sequence[StoredRun] = ()) -> Search:
        """A search of this study."""
        return Search(space, ground, self.register, self.options, self.workload.train, self._search_over, begun)

    def strategy(self, setup: Setup) -> Strategy:
        """The strategy of this study."""
        return make_strategy(self._method(setup), setup)

    def warm_points(self, space: Space) -> list[Point]:
        """What is to be tried first: the default's neighbours, or what did well in other studies."""
        return warm.points(space, self._warm_settings())

    def _method(self, setup: Setup) -> str:
        """The method's name; what 'auto' has chosen once stays, also when the budget grows."""
        if self.options.method != "auto":
            return self.options.method
        chosen = self.store.get("method")
        if chosen is None:
            name, why = choose(replace(setup, budget=setup.budget or self._evaluations_in_time()))
            chosen = {"name": name, "why": why}
            self.store.put({"method": chosen})
        self.progress.note(f"search method: {chosen['name']} ({chosen['why']})")
        return str(chosen["name"])

    def _evaluations_in_time(self) -> int:
        """About how many evaluations a time budget holds."""
        in_time = opt.SEARCH_SHARE * self.options.budget_s / max(self.run_s, 1e-3) / len(self.workload.train)
        return max(1, round(in_time * opt.BLOCK / (opt.BLOCK + 1)))

    def _warm_settings(self) -> list[dict[str, str]]:
        """Good settings of other studies; read once and kept, because those studies may go on or go away."""
        kept: list[dict[str, str]] | None = self.store.get("warm")
        if kept is None:
            most = max(opt.BLOCK, self.options.evaluations // 3)
            kept = warm.good_settings(
                [Path(p) for p in self.options.warm_start], [a.name for a in self.allocators], most
            )
            self.store.put({"warm": kept})
        return kept

    # shortlist

    def _feasible(self, candidates: dict[int, Candidate]) -> list[Candidate]:
        return [c for c in candidates.values() if c.costs(self.options.objectives) is not None]

    def _shortlist(self, runs: list[StoredRun]) -> dict[int, Candidate]:
        """Measures the front again: the best of many single runs owes its place partly to luck."""
        objectives = self.options.objectives
        feasible = self._feasible(gather(runs, self.register.configs, self.default.id))
        costs = [c.costs(objectives) or () for c in feasible]
        members = pareto.thin_front(costs, pareto.front(costs), opt.SHORTLIST)
        rounds = opt.SHORTLIST_ROUNDS if members else 0
        self.progress.phase("shortlist", rounds * (len(members) + 1) * len(self.workload.train))
        configs = [self.default, *(feasible[i].config for i in members)]
        again: list[StoredRun] = []
        first = self.blocks.first_block("shortlist", configs) if members else 0
        again += self.blocks.measure_all("shortlist", first, [configs] * rounds, self.workload.train)
        shortlisted = {c.id for c in configs}
        relevant = [r for r in [*runs, *again] if r.config in shortlisted]
        return gather(relevant, self.register.configs, self.default.id)

    def _choose(self, candidates: dict[int, Candidate]) -> dict[PickName, Candidate]:
        """The three picks: best in the first memory objective, in the first time objective, and in between; each only
        where the default is not better still.
        """
        objectives = self.options.objectives
        feasible = self._feasible(candidates)
        if not feasible:
            return {}
        costs = [c.costs(objectives) or () for c in feasible]
        members = pareto.front(costs)
        picks: dict[PickName, Candidate] = {}
        kinds: list[tuple[PickName, str]] = [("memory", "memory"), ("time", "time")]
        for name, kind in kinds:
            at = next((i for i, m in enumerate(objectives) if METRICS[m].kind == kind), None)
            if at is None:
                continue
            best = min(members, key=lambda i, at=at: (costs[i][at], sum(costs[i])))  # type: ignore[misc]
            if costs[best][at] < 0:  # or the default is best in it
                picks[name] = feasible[best]
        middle = pareto.balanced(costs, members)
        if (len(objectives) > 1 or not picks) and pareto.weighed(costs[middle]) < 0:
            picks["balanced"] = feasible[middle]
        return picks

    # minify, confirm

    def _minify(self, space: Space, picks: dict[PickName, Candidate]) -> dict[PickName, Config]:
        final: dict[PickName, Config] = {}
        done: dict[int, Config] = {}
        cut: list[int] = []  # searched configurations that there was no time to try setting by setting
        for name, candidate in picks.items():
            config = candidate.config
            if config.id not in done:
                done[config.id], finished = minify(
                    config,
                    phase=f"minify.{name}",
                    blocks=self.blocks,
                    register=lambda settings, who=config.allocator: self.register.config(  # type: ignore[misc]
                        space, {ALLOCATOR: who, **settings} if isinstance(space, JointSpace) else settings
                    ),
                    inputs=self.workload.train,
                    objectives=self.options.objectives,
                    margin=self.options.margin,
                    stop=lambda: self.over(opt.MINIFY_SHARE),
                )
                if not finished:
                    cut.append(config.id)
                    self.progress.note(f"{name} pick: no time was left to drop settings that do nothing")
            if not done[config.id].is_default:
                final[name] = done[config.id]
        self.store.put({"unminified": cut})
        return final

    def _confirm(self, final: dict[PickName, Config]) -> None:
        if not final:
            return
        configs = list({c.id: c for c in final.values()}.values())
        confirm(
            [self.default, *configs],
            blocks=self.blocks,
            inputs=self.workload.test,
            options=self.options,
            over=lambda: self.over(1.0),
        )
