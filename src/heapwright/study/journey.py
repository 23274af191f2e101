"""The journey through a study: calibrate → search → shortlist → minify → confirm.

It is taken from the start every time; what is stored already answers at once (see `store`). Minify comes
before the confirmation so that what is confirmed, on fresh runs, is exactly what is shipped.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from heapwright.allocators.effect import effective
from heapwright.allocators.joint import ALLOCATOR, JointSpace, join, restricted
from heapwright.allocators.registry import Allocator
from heapwright.allocators.space import Point, Space
from heapwright.errors import HeapwrightError
from heapwright.measure.meter import MeterOptions
from heapwright.metrics import METRICS
from heapwright.search import pareto
from heapwright.search.auto import choose
from heapwright.search.protocol import Setup, Told, make_strategy
from heapwright.study import contest, warm
from heapwright.study import options as opt
from heapwright.study.blocks import Blocks, Candidate, Progress, gather
from heapwright.study.confirm import confirm
from heapwright.study.minify import minify
from heapwright.study.options import Options
from heapwright.study.stats import relative_noise
from heapwright.study.store import Store, StoredRun
from heapwright.study.view import DEFAULT, Config, PickName
from heapwright.workload.execute import Executor
from heapwright.workload.model import Workload

SERIES_POINTS = 240
_STALE_BATCHES = 20  # batches in a row with nothing new: the space is exhausted


@dataclass
class _Searched:
    """What the search has measured so far; `known` by configuration, so that no environment is run twice."""

    runs: list[StoredRun] = field(default_factory=list)
    known: dict[int, Candidate] = field(default_factory=dict)
    block: int = 0


class Journey:
    """One study, from its options and its store to its picks.

    Args:
        store: open for writing; must hold the options already.
        allocators: those to search. Of a single one only the settings are searched, against its own defaults; of
            several the allocator is searched too, against the program as it is.
        progress: who watches.
    """

    def __init__(
        self, store: Store, workload: Workload, allocators: Sequence[Allocator], options: Options, progress: Progress
    ) -> None:
        self.store = store
        self.workload = workload
        self.allocators = tuple(allocators)
        self.options = options
        self.progress = progress
        alone = self.allocators[0] if len(self.allocators) == 1 else None
        env = alone.environment(self.base_env()) if alone else {}
        self.default = store.config(alone.name if alone else DEFAULT, {}, env)
        self.configs: dict[int, Config] = {self.default.id: self.default}
        executor = self._executor(options.timeout or workload.file.timeout)
        self.blocks = Blocks(store, executor, options.seed, progress)
        self.noise: tuple[float, ...] = ()
        self.run_s = 0.0

    def run(self) -> None:
        """Takes the whole journey.

        Raises:
            HeapwrightError: the command does not work by itself, or nothing can be measured or stored.
            KeyboardInterrupt: everything measured so far is kept.
        """
        if self.options.axes:
            raise HeapwrightError(f"{self.store.path} is a landscape", "name another file with --study for a new one")
        self._phase("calibrate")
        threads = self._calibrate()
        space, begun = self._space(threads)
        self._phase("search")
        runs = self._search(space, begun)
        self._phase("shortlist")
        candidates = self._shortlist(runs)
        picks = self._choose(candidates)
        searched = {name: c.config.id for name, c in picks.items()}
        if searched != self.store.get("searched"):
            self.store.put({"searched": searched, "picks": {}})
        self._phase("minify")
        final = self._minify(space, picks)
        self.store.put({"picks": {name: config.id for name, config in final.items()}})
        self._phase("confirm")
        self._confirm(final)
        self.store.put({"phase": "done", "spent_s": self.blocks.spent_s})

    def _phase(self, name: str) -> None:
        self.store.put({"phase": name, "spent_s": self.blocks.spent_s})

    def _executor(self, timeout: float) -> Executor:
        how = MeterOptions(
            backend=self.options.meter,
            massif=self.options.massif,
            series=SERIES_POINTS,
            timeout=timeout,
            callgrind=self.options.callgrind,
        )
        return Executor(self.workload, how, self.store.references)

    def _over(self, share: float) -> bool:
        """Whether this share of a time budget is spent."""
        return bool(self.options.budget_s) and self.blocks.spent_s >= share * self.options.budget_s

    # calibrate

    def _calibrate(self) -> bool:
        """Whether the program has threads. Runs the default alone: does it work, is its output stable, how noisy?"""
        train = {i.name for i in self.workload.train}
        plan = [(i, opt.CALIBRATE_RUNS if i.name in train else 2) for i in self.workload.inputs]
        self.progress.phase("calibrate", sum(n for _, n in plan))
        runs: list[StoredRun] = []
        for input_, count in plan:
            for block in range(count):
                runs += self.blocks.measure("calibrate", block, [self.default], [input_])
                self._check_objectives(runs[-1])
        walls = [r.metrics["wall_s"] or 0.0 for r in runs]
        timeout = self.options.timeout or self.workload.file.timeout or max(10.0, 10 * max(walls))
        self.blocks.executor = self._executor(timeout)
        threads = any((r.extra.get("threads") or 2) > 1 for r in runs)
        self.run_s = sum(r.elapsed_s for r in runs) / len(runs)
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
        base = self.base_env()
        if len(self.allocators) == 1:
            space = self.allocators[0].space(threads, self.options.expert)
            if self.options.params:
                space = space.restrict(self.options.params)
            if not space.params:
                raise HeapwrightError(f"{self.allocators[0].name} has no setting that applies to this program")
            return space, []
        self._phase("allocators")
        able, out = contest.take_over(
            self.store, self.blocks.executor, self.allocators, base, self.workload.program(), self.workload.train[0]
        )
        spaces = {a.name: a.space(threads, self.options.expert) for a in able}
        if self.options.params:
            spaces = {name: restricted(space, self.options.params) for name, space in spaces.items()}
        entrants = {name: self._register(space, {}, base) for name, space in spaces.items()}
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

    def _register(self, space: Space, settings: dict[str, str], base: dict[str, str]) -> Config:
        """The configuration of these settings; probed once for whether the allocator took them."""
        env = space.environment(settings, base)
        own = {key: value for key, value in settings.items() if key != ALLOCATOR}
        part = space.part(settings[ALLOCATOR]) if isinstance(space, JointSpace) else space
        if not own and env == self.default.env:
            return self.default
        config = self.store.config(part.allocator.name, own, env)
        if config.settings and not config.effective:
            found = effective(part.allocator, self.workload.program(), config.settings, env)
            if found:
                self.store.set_effective(config.id, found)
                config = self.store.config_by_id(config.id)
        refused = [
            f"{key}={value}"
            for key, value in config.settings.items()
            if key in config.effective and config.effective[key] != value
        ]
        if refused:
            self.blocks.unusable[config.id] = f"did not take effect: {', '.join(refused)}"
        self.configs[config.id] = config
        return config

    def base_env(self) -> dict[str, str]:
        """What the target sees in its environment before any setting of ours."""
        return {**os.environ, **self.workload.file.env}

    def _search(self, space: Space, begun: list[StoredRun]) -> list[StoredRun]:
        options, found = self.options, _Searched(begun, gather(begun, self.configs, self.default.id))
        per_block = (opt.BLOCK + 1) / opt.BLOCK * len(self.workload.train)
        self.progress.phase("search", round(options.evaluations * per_block) if options.evaluations else None)
        begin = warm.points(space, self._warm_settings())
        known = self._evaluate(space, begin, found)
        setup = Setup(space, len(options.objectives), options.evaluations, options.seed, tuple(known), self.noise)
        strategy = make_strategy(self._method(setup), setup)
        stale = 0
        while stale < _STALE_BATCHES and not self._enough(found):
            points = strategy.ask()
            if not points:
                break
            before = len(found.known)
            told = self._evaluate(space, points, found)
            if len(told) < len(points):  # the budget ended within the batch
                break
            stale = 0 if len(found.known) > before else stale + 1
            strategy.tell(told)
        return found.runs

    def _enough(self, found: _Searched) -> bool:
        """Whether the search's budget is spent."""
        budget = self.options.evaluations
        return self._over(opt.SEARCH_SHARE) or (bool(budget) and len(found.known) >= budget)

    def _evaluate(self, space: Space, points: Sequence[Point], found: _Searched) -> list[Told]:
        """Measures points, each rendered environment once; what the budget did not reach is left out."""
        options, base = self.options, self.base_env()
        asked = [self._register(space, space.settings(p), base) for p in points]
        new = list({c.id: c for c in asked if c.id not in found.known and c.id != self.default.id}.values())
        new = new[: options.evaluations - len(found.known)] if options.evaluations else new
        for start in range(0, len(new), opt.BLOCK):
            if self._over(opt.SEARCH_SHARE):
                break
            configs = [self.default, *new[start : start + opt.BLOCK]]
            found.runs += self.blocks.measure("search", found.block, configs, self.workload.train)
            found.block += 1
            found.known = gather(found.runs, self.configs, self.default.id)
        self._report_best(found.known)
        zero = (0.0,) * len(options.objectives)
        return [
            Told(p, zero if c.id == self.default.id else found.known[c.id].costs(options.objectives))
            for p, c in zip(points, asked, strict=True)
            if c.id in found.known or c.id == self.default.id
        ]

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

    def _report_best(self, known: dict[int, Candidate]) -> None:
        parts = []
        for metric in self.options.objectives:
            costs = [c.cost(metric) for c in known.values() if c.costs(self.options.objectives) is not None]
            best = min((c for c in costs if c is not None), default=None)
            if best is not None:
                parts.append(f"{METRICS[metric].label} {math.expm1(best):+.1%}")
        if parts:
            self.progress.best("best single runs: " + ", ".join(parts))

    # shortlist

    def _feasible(self, candidates: dict[int, Candidate]) -> list[Candidate]:
        return [c for c in candidates.values() if c.costs(self.options.objectives) is not None]

    def _shortlist(self, runs: list[StoredRun]) -> dict[int, Candidate]:
        """Measures the front again: the best of many single runs owes its place partly to luck."""
        objectives = self.options.objectives
        feasible = self._feasible(gather(runs, self.configs, self.default.id))
        costs = [c.costs(objectives) or () for c in feasible]
        members = pareto.thin_front(costs, pareto.front(costs), opt.SHORTLIST)
        rounds = opt.SHORTLIST_ROUNDS if members else 0
        self.progress.phase("shortlist", rounds * (len(members) + 1) * len(self.workload.train))
        configs = [self.default, *(feasible[i].config for i in members)]
        again: list[StoredRun] = []
        first = self.blocks.first_block("shortlist", configs) if members else 0
        for block in range(first, first + rounds):
            again += self.blocks.measure("shortlist", block, configs, self.workload.train)
        shortlisted = {c.id for c in configs}
        relevant = [r for r in [*runs, *again] if r.config in shortlisted]
        return gather(relevant, self.configs, self.default.id)

    def _choose(self, candidates: dict[int, Candidate]) -> dict[PickName, Candidate]:
        """The three picks: best in the first memory objective, in the first time objective, and in between."""
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
            if at is not None:
                picks[name] = feasible[min(members, key=lambda i, at=at: (costs[i][at], sum(costs[i])))]  # type: ignore[misc]
        if len(objectives) > 1 or not picks:
            picks["balanced"] = feasible[pareto.balanced(costs, members)]
        # Nothing to ship where even the searched runs show no gain.
        return {n: c for n, c in picks.items() if min(c.costs(objectives) or (0.0,)) < 0}

    # minify, confirm

    def _minify(self, space: Space, picks: dict[PickName, Candidate]) -> dict[PickName, Config]:
        base = self.base_env()
        final: dict[PickName, Config] = {}
        done: dict[int, Config] = {}
        for name, candidate in picks.items():
            config = candidate.config
            if config.id not in done:
                done[config.id] = minify(
                    config,
                    phase=f"minify.{name}",
                    blocks=self.blocks,
                    register=lambda settings, who=config.allocator: self._register(  # type: ignore[misc]
                        space, {ALLOCATOR: who, **settings} if isinstance(space, JointSpace) else settings, base
                    ),
                    inputs=self.workload.train,
                    objectives=self.options.objectives,
                    margin=self.options.margin,
                    stop=lambda: self._over(opt.MINIFY_SHARE),
                )
            if not done[config.id].is_default:
                final[name] = done[config.id]
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
            over=lambda: self._over(1.0),
        )
