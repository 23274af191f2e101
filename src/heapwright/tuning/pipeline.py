"""The tuning pipeline of a study: calibrate → search → shortlist → minify → confirm.

It is taken from the start every time; what is stored already answers at once (see `store`). Minify comes
before the confirmation so that what is confirmed, on fresh runs, is exactly what is shipped.

The search is on replays of the program's allocations where that is cheaper and holds (see `proxy`); its front is then
raced on the program. Everything after that is on the program.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from heapwright.allocators.joint import ALLOCATOR, JointSpace, join, restricted
from heapwright.allocators.registry import Allocator
from heapwright.allocators.space import Point, Space
from heapwright.errors import HeapwrightError
from heapwright.experiment.blocks import Blocks
from heapwright.experiment.budget import Budget, Need, Typical, allot
from heapwright.experiment.candidates import Candidate
from heapwright.experiment.configuration import DEFAULT, Config
from heapwright.experiment.phases import Phase
from heapwright.experiment.progress import Progress
from heapwright.experiment.records import StoredRun
from heapwright.experiment.runner import Here, Machines
from heapwright.experiment.stats import relative_noise
from heapwright.measure.meter import MeterOptions, least_intrusive_backend, needs_pss
from heapwright.metrics import METRICS
from heapwright.search.auto import choose
from heapwright.search.protocol import Setup, Strategy, make_strategy
from heapwright.study import matters
from heapwright.study import options as opt
from heapwright.study.claim import tree_sentence
from heapwright.study.options import Options
from heapwright.study.policy import aims_of
from heapwright.study.prefix import Kept, Whole, find_prefix, kept_prefix, missed, whole_ratios
from heapwright.study.store import Store
from heapwright.study.view import PickName
from heapwright.tuning import allocator_screening, warm
from heapwright.tuning.config_cache import ConfigCache
from heapwright.tuning.confirm import confirm, fitting_rows, pairs_needed
from heapwright.tuning.managed import reachable
from heapwright.tuning.minify import minify_each
from heapwright.tuning.plan import Plan, make_plan
from heapwright.tuning.reach import check_reach, take_over
from heapwright.tuning.references import references
from heapwright.tuning.replay_search import ReplaySearch
from heapwright.tuning.search_loop import Evaluator, Search
from heapwright.tuning.shortlist import choose_picks, measure_again
from heapwright.tuning.stages import SETTINGS, needs_from
from heapwright.workload.execute import Executor
from heapwright.workload.model import Workload, whole_only, with_prefix
from heapwright.workload.program import ProgramIdentity, settle

SERIES_POINTS = 240


def metering(options: Options, timeout: float, series: int = 0) -> MeterOptions:
    """How a study's runs are measured.

    Args:
        timeout: seconds a run may take; 0 for any time.
        series: at most so many points of memory over time.
    """
    return MeterOptions(
        backend=least_intrusive_backend(options.meter, options.objectives, options.massif),
        massif=options.massif,
        series=series,
        timeout=timeout,
        callgrind=options.callgrind,
        pss=needs_pss(options.objectives),
    )


class TuningPipeline:
    """One study, from its options and its store to its picks.

    Args:
        store: open for writing; must hold the options already.
        allocators: those to search. Of a single one only the settings are searched, against its own defaults; of
            several the allocator is searched too, against the program as it is.
        progress: who watches.
        began: when the session began, on the monotonic clock; the time since then counts. None: now.
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
        began: float | None = None,
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
        self.config_cache = ConfigCache(store, default, base, workload.program)
        self.executor = self._executor(options.timeout or workload.file.timeout, first=True)
        self.machines = machines or Here()
        self.timed = any(METRICS[m].kind == "time" for m in options.objectives)
        runner = self.machines.for_program(self.executor, self.timed)
        self.budget = Budget(
            0.0 if options.axes else max(0.0, options.budget_s - self._report_s(began)),
            store.meta.stopped_s,
            lambda spent_s: store.update(stopped_s=spent_s),
            began,
        )
        self.blocks = Blocks(store, runner, options.seed, progress, self.budget)
        self.blocks.unusable = self.config_cache.unusable
        self.threads = True
        self.proof, self.predicts = True, False
        self.noise: tuple[float, ...] = ()
        self.calibrated: list[StoredRun] = []
        self._said = ""  # how much can be won
        self._whole_s = 0.0  # seconds that are kept for a whole run at the end

    def _report_s(self, began: float | None) -> float:
        """Seconds of a time budget that are kept for the report, by how long this machine took to begin."""
        kept: float | None = self.store.meta.report_s
        if kept is None:
            took = 0.0 if began is None else time.monotonic() - began
            kept = min(opt.REPORT_SHARE * self.options.budget_s, opt.REPORT_STARTS * took)
            self.store.update(report_s=kept)
        return kept

    @property
    def default(self) -> Config:
        """What everything is compared with."""
        return self.config_cache.default

    def run(self) -> None:
        """Run the whole pipeline.

        Raises:
            HeapwrightError: the command does not work by itself, or nothing can be measured or stored.
            KeyboardInterrupt: everything measured so far is kept.
        """
        if self.options.axes:
            raise HeapwrightError(f"{self.store.path} is a landscape", "name another file with --study for a new one")
        self.phase(Phase.CALIBRATE)
        self.threads = self._calibrate()
        self.say_matters()
        if not self.allocators:
            self.phase(Phase.DONE)
            return
        if not self.proof:
            self._predict()
            return
        space, begun = self._space(self.threads)
        runs = self._search(space, begun)
        self._begin(Phase.SHORTLIST)
        picks = self._shortlist(runs)
        searched = {name: c.config.id for name, c in picks.items()}
        if searched != self.store.meta.searched:
            self.store.update(searched=searched, picks={})
        self._begin(Phase.MINIFY, {c.config.id: len(c.config.settings) for c in picks.values()}.values())
        final = self._minify(space, picks)
        self._begin(Phase.CONFIRM)
        self._confirm(final, len({run.config for run in runs} - {self.default.id}))
        self._run_whole(final)
        self.phase(Phase.DONE)

    def phase(self, name: str) -> None:
        """Notes how far the study is."""
        self.store.update(phase=name, spent_s=self.spent_s)

    def say_matters(self) -> None:
        """Say how much can be won, where that is known and was not said so before."""
        known = matters.of_study(self.store)
        if known is not None and known.sentence != self._said:
            self._said = known.sentence
            self.progress.note(known.sentence)

    @property
    def spent_s(self) -> float:
        """Seconds of the study's time that are spent."""
        return self.budget.spent_s

    @property
    def left_s(self) -> float:
        """Seconds left of a time budget, less those for a whole run at the end."""
        return max(0.0, self.budget.left_s - self._whole_s)

    @property
    def run_s(self) -> float:
        """Seconds that one run of the program costs at present."""
        return self.blocks.typical.seconds

    def _begin(self, stage: str, settings: Collection[int] = ()) -> None:
        """Note a stage, and set what it may spend: every later stage keeps the time it needs.

        Args:
            settings: how many each pick has, once that is known.
        """
        self.phase(stage)
        needs = self._needs(stage, settings)
        self.progress.left(self._foresee(needs).total_s)
        if self.budget.limited:
            self.budget.set_limit(allot(self.left_s, self.run_s, needs)[stage])

    def _needs(self, stage: str, settings: Collection[int] = ()) -> dict[str, Need]:
        """What this stage and later ones can use of the time."""
        counts = (len(self.workload.train), len(self.workload.test), len(self.allocators))
        left = self.left_s / self.run_s if self.run_s else math.inf
        needs = needs_from(stage, self.options, *counts, self.threads, tuple(settings) or SETTINGS, left)
        return needs if self.proof else {name: need for name, need in needs.items() if name == Phase.SEARCH}

    def _foresee(self, needs: Mapping[str, Need]) -> Plan:
        return make_plan(needs, self.run_s, self.left_s, self.options.budget_s or math.inf, self._whole_s)

    def _plan(self, first: Sequence[StoredRun]) -> None:
        """Say after the first runs what the study will do; whether it can prove anything, of whole runs or of prefixes.

        Args:
            first: of each input.
        """
        plan = self._foresee(self._needs(Phase.ALLOCATORS))
        if not plan.proof:
            plan = self._plan_prefixes(first, plan)
        self.proof, self.predicts = plan.proof, plan.predicts
        self.progress.note(plan.sentence())
        kept = {"total_s": plan.total_s, "enough_s": plan.enough_s, "began_s": self.spent_s, "proof": float(plan.proof)}
        self.store.update(plan=kept)

    def _plan_prefixes(self, first: Sequence[StoredRun], plan: Plan) -> Plan:
        """A plan with prefixes of runs, where they show what whole runs would and a proof fits; else the plan as it is.

        From here on the study's runs end there, and its objectives are those that show by then.
        """
        file = self.workload.file
        settled = self._objectives_given or file.prefix is not None or whole_only(file) or self.options.callgrind
        found = None if settled else find_prefix(first, self.options.objectives)
        if found is None:
            return plan
        prefix, objectives = found
        before, options, whole_s = self.blocks.typical, self.options, self.run_s * len(first)
        self.blocks.typical = Typical()
        self.blocks.typical.add(prefix.seconds)
        self.options = msgspec.structs.replace(options, objectives=objectives)
        for self._whole_s in (whole_s, 0.0):
            shorter = self._foresee(self._needs(Phase.ALLOCATORS))
            if shorter.everything or (shorter.proof and not self._whole_s):
                break
        else:
            self.blocks.typical, self.options = before, options
            return plan
        self.workload = with_prefix(self.workload, prefix)
        kept = kept_prefix(self.store)
        self.store.update(
            options=msgspec.to_builtins(self.options),
            prefix=msgspec.to_builtins(Kept(prefix, whole_s, kept.whole if kept else None)),
        )
        return replace(shorter, prefix=prefix.shown(), whole=plan)

    def _executor(self, timeout: float, first: bool = False) -> Executor:
        """Runs the program. Its first runs have proportional memory too, which a tree of processes needs."""
        how = metering(self.options, timeout, SERIES_POINTS)
        how = replace(how, pss=how.pss or (first and not self._objectives_given), parts=first)
        return Executor(self.workload, how, self.store.references)

    @property
    def _objectives_given(self) -> bool:
        """Whether the user chose the objectives; studies of before say nothing and keep theirs."""
        return bool(self.store.meta.objectives_given in (True, None))

    def _choose_objectives(self, runs: Sequence[StoredRun]) -> None:
        """Of a tree of processes minimise proportional memory, unless the user says otherwise.

        A sum of resident memory counts the pages that processes share once for each of them, so it hides gains.
        """
        if self._objectives_given:
            return
        processes = max((run.extra.get("processes") or 1 for run in runs), default=1)
        usual = self._usual_objectives()
        self._set_objectives(usual)
        instead = tuple(METRICS[m].in_tree or m for m in usual)
        if processes < 2 or any(run.metrics.get(m) is None for run in runs for m in instead):
            return
        self._set_objectives(instead)
        self.store.update(tree=processes)
        self.progress.note(tree_sentence(processes))

    def _usual_objectives(self) -> tuple[str, ...]:
        """What is minimised where the user does not say: the default's objectives that the runs can be compared in."""
        prefix = self.workload.file.prefix
        return tuple(m for m in Options().objectives if prefix is None or prefix.compares(m))

    def _set_objectives(self, objectives: tuple[str, ...]) -> None:
        if self.options.objectives == objectives:
            return
        self.options = msgspec.structs.replace(self.options, objectives=objectives)
        self.store.update(options=msgspec.to_builtins(self.options))

    def _charge(self, work: str) -> None:
        """Charge work that is no run: the time since the last charge. It is kept, as are the charges of runs."""
        self.store.update(charged={**self.store.meta.charged, work: self.budget.charge(work)})

    def _charged(self, work: str) -> bool:
        """Whether this work was done in an earlier session; then its charge counts as it did there."""
        charge: float | None = self.store.meta.charged.get(work)
        if charge is not None:
            self.budget.recall(charge, work)
        return charge is not None

    # calibrate

    def _calibrate(self) -> bool:
        """Whether the program has threads. Runs the default alone: does it work, is its output stable, how noisy?"""
        if not self._charged("start"):
            self._charge("start")
        self._check_reach()
        train = {i.name for i in self.workload.train}
        counts = {i.name: opt.CALIBRATE_RUNS if i.name in train else 2 for i in self.workload.inputs}
        self.progress.phase(Phase.CALIBRATE, sum(counts.values()))
        runs: list[StoredRun] = []
        for input_ in self.workload.inputs:
            runs += self.blocks.measure(Phase.CALIBRATE, 0, [self.default], [input_])
            self._check_objectives(runs[-1])
        self._settle_program()
        self._choose_objectives(runs)
        if not self._keep_reachable(runs):
            return True
        self._plan(runs)
        self.executor = self._executor(self.executor.options.timeout)
        self.blocks.runner = self.machines.for_program(self.executor, self.timed)
        if not self.proof:
            counts = dict.fromkeys(counts, 1)
        for input_ in self.workload.inputs:
            count = counts[input_.name]
            if self.budget.limited:
                in_time = opt.CALIBRATE_SHARE * self.budget.total_s / len(counts) / max(self.run_s, 1e-3)
                count = max(min(2, count), min(count, math.floor(in_time)))
            runs += self.blocks.measure_all(Phase.CALIBRATE, 1, [[self.default]] * (count - 1), [input_])
        walls = [r.metrics["wall_s"] or 0.0 for r in runs]
        timeout = self.options.timeout or self.workload.file.timeout or max(10.0, 10 * max(walls))
        self.executor = self._executor(timeout)
        self.blocks.runner = self.machines.for_program(self.executor, self.timed)
        threads = any((r.extra.get("threads") or 2) > 1 for r in runs)
        self.calibrated = [r for r in runs if r.block > 0] or runs  # each input's first warms caches
        if self.proof and kept_prefix(self.store) is not None and missed(runs, self.options.objectives):
            self.progress.note("the peak of a whole run does not show in its prefixes: nothing can be proven by them")
            self.proof = self.predicts = False
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

    def _check_reach(self) -> None:
        """Of a single allocator: its settings must reach the program. Asked once."""
        if len(self.allocators) > 1 or self._charged("reach"):
            return
        first = self.workload.train[0]
        program = self.workload.program(first)
        why = check_reach(self.executor, self.allocators[0], self.config_cache.base, program, first)
        if why:
            raise HeapwrightError(why)
        self._charge("reach")

    def _keep_reachable(self, first: Sequence[StoredRun]) -> bool:
        """Leave out allocators that cannot reach the program, say who manages its memory; whether any is left."""
        base, busiest = self.config_cache.base, next(filter(None, map(matters.busiest, first)), "")
        self.allocators, managed = reachable(
            self.store, self.executor, self.allocators, base, self.workload, self.budget, busiest
        )
        if managed is not None and self.allocators:  # else the study's claim says it
            self.progress.note(managed.sentence)
        return bool(self.allocators)

    def _settle_program(self) -> None:
        """Leave the files that the program itself writes out of its identity, once it has run."""
        kept = self.store.meta.program
        identity = msgspec.convert(kept, ProgramIdentity) if kept else None
        if identity is not None and not identity.settled:
            self.store.update(program=msgspec.to_builtins(settle(identity)))

    # allocators

    def _space(self, threads: bool) -> tuple[Space, list[StoredRun]]:
        """Where to search, and what is measured already: every allocator at its defaults, if there are several."""
        if len(self.allocators) == 1:
            space = self.allocators[0].space(threads, self.options.expert)
            if self.options.params:
                space = space.restrict(self.options.params)
            if not space.params:
                raise HeapwrightError(f"{self.allocators[0].name} has no setting that applies to this program")
            return space, []
        self._begin(Phase.ALLOCATORS)
        entered = allocator_screening.enter(
            self.store,
            self.executor,
            self.allocators,
            self.blocks,
            self.config_cache,
            lambda allocator: self._space_of(allocator, threads),
            self.workload,
        )
        spaces = {name: entrant.space for name, entrant in entered.entrants.items()}
        entrants = {name: entrant.config for name, entrant in entered.entrants.items()}
        order, failed = allocator_screening.ranked(entered.runs, self.default, entrants, self.options.objectives)
        out = entered.out | failed
        self.store.update(not_searched=out)
        for name, why in out.items():
            self.progress.note(f"{name} is not searched: {why}")
        if not order:
            raise HeapwrightError("no allocator can be searched in this program", "'heapwright compare' shows each")
        self.progress.note(f"searched together, best at its defaults first: {', '.join(order)}")
        useless = {entrants[name].id for name in failed}
        return join([spaces[name] for name in order]), [r for r in entered.runs if r.config not in useless]

    def _space_of(self, allocator: Allocator, threads: bool) -> Space:
        """The space of one of several allocators."""
        space = allocator.space(threads, self.options.expert)
        return restricted(space, self.options.params) if self.options.params else space

    def _check_objectives(self, run: StoredRun) -> None:
        for key in self.options.objectives:
            if run.metrics.get(key) is None:
                self.store.forget_runs()  # without an objective they are of no use to anyone
                hint = {
                    "instructions": "count them with --instructions=callgrind",
                    "massif_peak_bytes": "it needs --massif-compat",
                }.get(key, "'heapwright doctor' tells why; choose another with --minimize")
                raise HeapwrightError(f"{METRICS[key].label} ({key}) cannot be measured here", hint)

    def _predict(self) -> None:
        """Without time for a proof: what replays of the recorded allocations predict, if there is time for that."""
        best = None
        if self.predicts:
            best = ReplaySearch(self, self._loaded(), []).predict()
        predicted = None
        if best is not None:
            ratios = {m: math.exp(best.cost(m) or 0.0) for m in self.options.objectives}
            predicted = {"config": best.config.id, "ratios": ratios}
        self.store.update(predicted=predicted, picks={}, too_short={"run_s": self.run_s, "searched": 0.0})
        self.phase(Phase.DONE)

    def _loaded(self) -> Space:
        """The space of the allocators that become this program's malloc; none of them is measured."""
        if len(self.allocators) == 1:
            return self._space(self.threads)[0]
        asked = {a.name: take_over(self.store, self.executor, a, self.config_cache.base, self.workload, self.budget)
                 for a in self.allocators}  # fmt: skip
        self.store.update(not_searched={name: why for name, (able, why) in asked.items() if able is None})
        able = [self._space_of(a, self.threads) for a, _ in asked.values() if a is not None]
        if not able:
            raise HeapwrightError("no allocator can be searched in this program", "'heapwright compare' shows each")
        return join(able)

    # search

    def _search(self, space: Space, begun: list[StoredRun]) -> list[StoredRun]:
        """Runs of the program to choose from."""
        self._begin(Phase.SEARCH)
        replay_search = ReplaySearch(self, space, begun)
        if replay_search.run():
            return replay_search.measured
        self.phase(Phase.SEARCH)
        evaluator = Evaluator(Phase.SEARCH, self.blocks, noise=self.noise)
        search = self.search_on(space, evaluator, replay_search.measured)
        search.go(self.warm_points(space), self.strategy)
        return search.runs

    def search_on(self, space: Space, evaluator: Evaluator, begun: Sequence[StoredRun] = ()) -> Search:
        """A search of this study."""
        return Search(space, evaluator, self.config_cache, self.options, self.workload.train, self.budget, begun)

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
        chosen = self.store.meta.method
        if not chosen:
            name, why = choose(replace(setup, budget=setup.budget or self._evaluations_in_time()))
            chosen = {"name": name, "why": why}
            self.store.update(method=chosen)
        self.progress.note(f"search method: {chosen['name']} ({chosen['why']})")
        return str(chosen["name"])

    def _evaluations_in_time(self) -> int:
        """About how many evaluations a time budget holds."""
        in_time = max(0.0, self.budget.limit_s - self.spent_s) / max(self.run_s, 1e-3) / len(self.workload.train)
        return max(1, round(in_time * opt.BLOCK / (opt.BLOCK + 1)))

    def _warm_settings(self) -> list[dict[str, str]]:
        """Good settings of other studies; read once and kept, because those studies may go on or go away."""
        kept: list[dict[str, str]] | None = self.store.meta.warm
        if kept is None:
            most = max(opt.BLOCK, self.options.evaluations // 3)
            kept = warm.good_settings(
                [Path(p) for p in self.options.warm_start], [a.name for a in self.allocators], most
            )
            self.store.update(warm=kept)
        return kept

    # shortlist

    def _shortlist(self, runs: list[StoredRun]) -> dict[PickName, Candidate]:
        """The picks, from candidates that were measured again."""
        candidates = measure_again(
            runs,
            self.blocks,
            self.config_cache.configs,
            self.default,
            self.workload.train,
            aims_of(self.options),
        )
        return choose_picks(candidates, aims_of(self.options))

    # minify, confirm

    def _minify(self, space: Space, picks: dict[PickName, Candidate]) -> dict[PickName, Config]:
        """The picks without settings that do nothing; picks of which nothing is left are dropped."""
        smaller, cut = minify_each(
            {name: candidate.config for name, candidate in picks.items()},
            blocks=self.blocks,
            register=lambda who, settings: self.config_cache.config(
                space, {ALLOCATOR: who, **settings} if isinstance(space, JointSpace) else settings
            ),
            inputs=self.workload.train,
            objectives=self.options.objectives,
            margin=self.options.margin,
            noise=self.noise,
        )
        for name in cut:
            self.progress.note(f"{name} pick: no time was left to drop settings that do nothing")
        self.store.update(unminified=sorted({picks[name].config.id for name in cut}))
        return {name: config for name, config in smaller.items() if not config.is_default}

    def _confirm(self, final: dict[PickName, Config], searched: int) -> None:
        """Confirm the picks beside the usual advice; picks that there is no time to confirm are dropped.

        Args:
            searched: how many settings ran.
        """
        configs = list({c.id: c for c in final.values()}.values())
        usual = {name: c for name, c in self._references().items() if not c.is_default}
        rows = fitting_rows(configs, list(usual.values()), self.blocks, self.workload.test, self.options)
        kept = {c.id for c in [*rows.picks, *rows.references]} if rows else set()
        self.store.update(
            picks={name: config.id for name, config in final.items() if config.id in kept},
            unconfirmed=[name for name, config in final.items() if config.id not in kept],
            references={name: c.id for name, c in usual.items() if c.id in kept},
        )
        needed = pairs_needed(len(self.workload.test), len(self.options.objectives))
        lack = {"pairs": needed, "seconds": 2 * needed * len(self.workload.test) * self.run_s, "run_s": self.run_s}
        too_short = self.budget.limited and ((rows is None and bool(final)) or not searched)
        few = rows is None and 0 < searched < opt.ENOUGH_EVALUATIONS and self.options.method != "grid"
        self.store.update(too_short={**lack, "searched": float(searched)} if too_short or few else None)
        if rows is None:
            return
        confirm(self.default, rows, self.blocks, self.workload.test, self.options)

    def _run_whole(self, final: Mapping[PickName, Config]) -> None:
        """After a study of prefixes: one whole run of each input under the choice, if there is time."""
        kept, chosen = kept_prefix(self.store), next(iter(final.values()), None)
        if kept is None or chosen is None or chosen.id not in self.store.meta.picks.values():
            return
        if kept.whole is not None and kept.whole.config == chosen.id:
            self.budget.recall(kept.whole.charged_s)
            return
        if self.budget.limited and self.budget.left_s < kept.run_s:
            return
        inputs = self.workload.inputs
        self.progress.phase(Phase.WHOLE_RUN, len(inputs))
        executor = Executor(with_prefix(self.workload, None), self.executor.options, self.store.references)
        outcomes = [executor.run(input_, chosen.env) for input_ in inputs]
        first = [run for run in self.store.runs() if run.phase == Phase.CALIBRATE and run.block == 0]
        failure = next((o.failure for o in outcomes if o.failure), "")
        ratios = {} if failure else whole_ratios(outcomes, first, inputs, self.options.objectives)
        whole = Whole(chosen.id, failure, ratios, self.budget.charge())
        self.store.update(prefix=msgspec.to_builtins(msgspec.structs.replace(kept, whole=whole)))

    def _references(self) -> dict[str, Config]:
        """The usual advice for this program; none where a study is of one allocator's own settings."""
        if len(self.allocators) == 1:
            return {}
        base = self.config_cache.base

        def works(allocator: Allocator) -> Allocator | None:
            able, _ = take_over(self.store, self.executor, allocator, base, self.workload, self.budget)
            return able

        def config(allocator: Allocator, settings: dict[str, str]) -> Config:
            return self.config_cache.config(allocator.space(threads=True, expert=True), settings)

        return references(base, self.threads, works, config)
