"""The journey through a study: calibrate → search → shortlist → minify → confirm.

It is taken from the start every time; what is stored already answers at once (see `store`). Minify comes
before the confirmation so that what is confirmed, on fresh runs, is exactly what is shipped.
"""

from __future__ import annotations

import math
import os

from heapwright.allocators.probe import effective_glibc
from heapwright.allocators.registry import Allocator
from heapwright.allocators.space import Space, preloading
from heapwright.errors import HeapwrightError
from heapwright.measure.meter import MeterOptions
from heapwright.metrics import METRICS
from heapwright.search import pareto
from heapwright.search.protocol import Setup, Told, make_strategy
from heapwright.study import options as opt
from heapwright.study.blocks import Blocks, Candidate, Progress, gather
from heapwright.study.confirm import confirm
from heapwright.study.minify import minify
from heapwright.study.options import Options
from heapwright.study.stats import relative_noise
from heapwright.study.store import Store, StoredRun
from heapwright.study.view import Config, PickName
from heapwright.workload.execute import Executor
from heapwright.workload.model import Workload

SERIES_POINTS = 240
_STALE_BATCHES = 20  # batches in a row with nothing new: the space is exhausted


class Journey:
    """One study, from its options and its store to its picks.

    Args:
        store: open for writing; must hold the options already.
        allocator: whose settings are searched.
        progress: who watches.
    """

    def __init__(
        self, store: Store, workload: Workload, allocator: Allocator, options: Options, progress: Progress
    ) -> None:
        self.store = store
        self.workload = workload
        self.allocator = allocator
        self.options = options
        self.progress = progress
        self.default = store.config(allocator.name, {}, preloading(allocator.file.allocator.preload, self.base_env()))
        self.configs: dict[int, Config] = {self.default.id: self.default}
        executor = self._executor(options.timeout or workload.file.timeout)
        self.blocks = Blocks(store, executor, options.seed, progress)
        self.space: Space | None = None

    def run(self) -> None:
        """Takes the whole journey.

        Raises:
            HeapwrightError: the command does not work by itself, or nothing can be measured or stored.
            KeyboardInterrupt: everything measured so far is kept.
        """
        self._phase("calibrate")
        space = self._calibrate()
        self._phase("search")
        runs = self._search(space)
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

    def _calibrate(self) -> Space:
        """Runs the default alone: does it work, is its output stable, how noisy is it, does it use threads?"""
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
        space = self.allocator.space(threads, self.options.expert)
        if self.options.params:
            space = space.restrict(self.options.params)
        if not space.params:
            raise HeapwrightError(f"{self.allocator.name} has no setting that applies to this program")
        for objective in self.options.objectives:
            counted = [r.metrics.get(objective) for r in runs if r.block > 0]
            noise = relative_noise([v for v in counted if v is not None])
            if noise > 0.05:
                label = METRICS[objective].label
                self.progress.note(f"{label} varies by {noise:.0%} between runs of the default: a noisy machine")
        return space

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
        """The configuration of these settings; probed once for whether the loader took them."""
        env = space.environment(settings, base)
        config = self.store.config(self.allocator.name, settings, env)
        if config.settings and not config.effective and space.allocator.probe == "ld.so":
            effective = effective_glibc(self.workload.program(), config.settings, env)
            if effective:
                self.store.set_effective(config.id, effective)
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

    def _search(self, space: Space) -> list[StoredRun]:
        options, base = self.options, self.base_env()
        budget = options.evaluations
        setup = Setup(space, len(options.objectives), budget, options.seed)
        strategy = make_strategy(options.method, setup)
        per_block = (opt.BLOCK + 1) / opt.BLOCK * len(self.workload.train)
        self.progress.phase("search", round(budget * per_block) if budget else None)
        runs: list[StoredRun] = []
        known: dict[int, Candidate] = {}
        block = stale = 0
        while stale < _STALE_BATCHES and not self._over(opt.SEARCH_SHARE):
            points = strategy.ask()
            if not points:
                break
            asked = [self._register(space, space.settings(p), base) for p in points]
            new = list({c.id: c for c in asked if c.id not in known and c.id != self.default.id}.values())
            stale = 0 if new else stale + 1
            new = new[: budget - len(known)] if budget else new
            for start in range(0, len(new), opt.BLOCK):
                if self._over(opt.SEARCH_SHARE):
                    break
                configs = [self.default, *new[start : start + opt.BLOCK]]
                runs += self.blocks.measure("search", block, configs, self.workload.train)
                block += 1
                known = gather(runs, self.configs, self.default.id)
            self._report_best(known)
            if budget and len(known) >= budget:
                break
            zero = (0.0,) * len(options.objectives)
            told = [
                Told(p, zero if c.id == self.default.id else known[c.id].costs(options.objectives))
                for p, c in zip(points, asked, strict=True)
                if c.id in known or c.id == self.default.id
            ]
            if len(told) < len(points):  # time ran out within the batch
                break
            strategy.tell(told)
        return runs

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
                    register=lambda settings: self._register(space, settings, base),
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
