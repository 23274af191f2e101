"""Searches on replays of the program's allocations: record, check, search, race.

During the search, blocks on the program check whether replays still rank configurations as the program does. If they
do, the Pareto front of the replays races on the program, with replicates. Settings whose effect a replay does not show
join the race unsearched. If replays do not rank configurations as the program does, `run` returns False, and the search
continues with runs of the program.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from heapwright.allocators.joint import ALLOCATOR, JointSpace, has_extras, not_replayable, replayable
from heapwright.allocators.memory_manager import MemoryManager
from heapwright.allocators.space import Space
from heapwright.errors import HeapwrightError
from heapwright.interleaving.blocks import Blocks
from heapwright.interleaving.candidates import Candidate, Program, gather
from heapwright.interleaving.configuration import Config
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.records import StoredRun
from heapwright.interleaving.replays import Replays
from heapwright.interleaving.stats import ratio_interval, summarise
from heapwright.search import pareto
from heapwright.study import agreement
from heapwright.study import options as opt
from heapwright.study.policy import aims_of
from heapwright.study.study_bound import searches_malloc
from heapwright.trace.record import NoCallsError
from heapwright.tuning import proxy
from heapwright.tuning.huge_pages import huge_page_points
from heapwright.tuning.same_calls import CallsComparison, check_calls
from heapwright.tuning.search_loop import Evaluator, Search
from heapwright.tuning.session import Session
from heapwright.tuning.shortlist import choose_picks
from heapwright.tuning.strategy import search_of, search_on, warm_points

_MIN_REPLAY_RUNS = 3  # if the search has time for fewer runs of the program, a recording is not worth its time
_RUNTIME_RUNS = 24  # further runs of the program for settings of a runtime, which replays do not show


class ReplaySearch:
    """The search on replays of one session.

    Args:
        session: the study's session.
        space: the parameter space.
        initial_runs: runs of the program that count already.

    Attributes:
        measured: runs of the program, including those made here.
        tried: number of configurations, besides the default, that were replayed.
        why: why the replays cannot be used, or empty.
    """

    def __init__(self, session: Session, space: Space, initial_runs: Sequence[StoredRun]) -> None:
        self.session = session
        self.options = session.options
        self.space = replayable(space)
        self._whole_space = space
        self.measured = list(initial_runs)
        self.tried = 0
        self._forced = self.options.proxy == "replay"
        self.why = ""
        self._error_sentence = ""  # how far replays of allocators at their defaults are from the program
        self._checks = 0
        self._next_check = 0
        self._recording_only = False  # there is no time for runs of the program besides the recording
        self._replayed_again: Candidate | None = None

    def predict(self) -> Candidate | None:
        """The best setting by the prediction of replays, without runs of the program; None if none is better.

        Its figures are those of fresh replays: of many settings, the best one is also the luckiest.
        """
        self._recording_only = True
        self.run()
        found = None if self.why else self._replayed_again
        if found is None:
            return None
        logs = [found.logs.get(objective, {}) for objective in self.options.objectives]
        gains = any(any(groups.values()) and ratio_interval(groups, self.options.seed).high < 1 for groups in logs)
        return found if gains else None

    def run(self) -> bool:
        """Search on replays; whether that completed the search. Stored runs answer at once.

        A program without a call of malloc needs no search. The study stores this as who manages its memory: nobody.

        Raises:
            HeapwrightError: nothing can be measured or stored, or the user asked for replays and they are impossible.
        """
        session = self.session
        why = self._why_not_replayed()
        if why is None:
            session.phase(Phase.RECORD)
            session.progress.phase(Phase.RECORD, len(session.workload.train))
            try:
                traces, program_s, calls = self._record()
            except HeapwrightError as error:
                if self._forced:
                    raise
                why = error.message
                if isinstance(error, NoCallsError) and self._end_without_calls(why):
                    return True
                if isinstance(error, proxy.ElsewhereError):
                    self._end(why, f"Nothing can be said about this command: {why}")
                    return True
        if why is not None:
            self._leave_to_program(why)
            return False
        if calls.faithful is not True and calls.sentence:
            session.progress.note(calls.sentence)
        search = self._search_on_replays(traces, program_s)
        session.store.update(
            proxy={
                "used": True,
                "why": self.why,
                "checked": " ".join(filter(None, [calls.sentence, self._error_sentence])),
                "program_s": session.run_s,
                "replay_s": self._replay_s(search),
                "slots": search.evaluator.blocks.runner.slots,
            }
        )
        self.tried = len(search.known.keys() - {session.default.id})
        if self.why:
            if not self._recording_only:
                session.progress.note(f"the search goes on with the program itself: {self.why}")
            return False
        self.measured += [] if self._recording_only else self._race(search)
        return True

    def _why_not_replayed(self) -> str | None:
        """Why replays cannot replace the program; empty: the user does not want them; None: they can."""
        if self.options.proxy == "none":
            return ""
        min_runs = _MIN_REPLAY_RUNS + (_RUNTIME_RUNS if has_extras(self._whole_space) else 0)
        needed_s = min_runs * len(self.session.workload.train) * self.session.run_s
        if not self._forced and not self._recording_only and self.session.budget.over(needed_s):
            return "there is no time to record it"
        why = self.session.why_not_replayable()
        if not why and not self.space.params:
            why = "a replay does not show the effect of the settings to search"
        if not why:
            return None
        if self._forced:
            raise HeapwrightError(f"the program cannot be searched on replays: {why}", "leave out --proxy replay")
        return why

    def _record(self) -> tuple[dict[str, Path], dict[str, float], CallsComparison]:
        """Record each input.

        Returns:
            The traces, how long the program takes (`proxy.program_seconds`), and whether recordings of the same input
            have the same calls.

        Raises:
            HeapwrightError: the program cannot be recorded, or its recordings do not show what it does.
        """
        session = self.session
        inputs = session.workload.train
        traces, facts = proxy.record_inputs(session.store, session.workload, session.executor, inputs, session.budget)
        program = agreement.program_values(session.calibrated)
        proxy.check_measured(facts)
        unaccounted = proxy.unaccounted(facts, traces, program)
        if unaccounted:
            raise HeapwrightError(unaccounted, "leave out --proxy replay")
        calls = check_calls(session, session.workload, session.executor, facts)
        if calls.why:
            raise HeapwrightError(calls.why, "leave out --proxy replay")
        session.say_saving_bound()
        return traces, proxy.program_seconds(session.workload, facts, program), calls

    def _end_without_calls(self, why: str) -> bool:
        """End the study because the program does not call malloc; False if settings may matter all the same.

        With several inputs it is unknown, because the recording stops at the first input without a call. A space of
        the user's own may be that of the program's own allocator.

        Args:
            why: the error of the recording.
        """
        session = self.session
        if len(session.workload.inputs) > 1 or has_extras(self._whole_space) or not searches_malloc(session.store):
            return False
        name = Path(session.workload.program(session.workload.train[0])).name
        self._end(why, f"No call of malloc was seen in {name}, so no malloc or setting can help: keep the default.")
        return True

    def _end(self, why: str, sentence: str) -> None:
        """End the study with this sentence as its claim, because a search would say nothing.

        Args:
            why: the error of the recording.
            sentence: the claim.
        """
        managed = MemoryManager("", "none", sentence)
        proxy_facts = {"used": False, "why": why}
        self.session.store.update(managed=managed._asdict(), runtimes={}, proxy=proxy_facts)
        self.why = why

    def _leave_to_program(self, why: str) -> None:
        """Note why replays cannot replace the program; tell the user, unless there is only the recording."""
        self.why = why
        if self._recording_only:
            return
        if why:
            self.session.progress.note(f"the search runs the program itself: {why}")
        self.session.store.update(proxy={"used": False, "why": why})

    def _search_on_replays(self, traces: dict[str, Path], program_s: dict[str, float]) -> Search:
        """Search on replays of these traces for the replays' share of the time.

        Args:
            traces: input name → trace.
            program_s: input name → seconds of a run of the program, where replays are to take its pace.
        """
        session = self.session
        budget = session.budget
        share = opt.REPLAY_SHARE_WITH_RUNTIME if has_extras(self._whole_space) else opt.REPLAY_SHARE
        share = opt.REPLAY_SHARE_ALONE if self._recording_only else share
        share_s = share * (budget.limit_s - budget.spent_s)
        program = self._replayed_program()

        def to_candidates(runs: Sequence[StoredRun]) -> dict[int, Candidate]:
            predicted = gather(runs, session.config_cache.configs, session.default.id, program)
            return agreement.anchored(predicted, self._on_program())

        with Replays(session.workload, traces, session.executor.options, program_s=program_s) as replays:
            runner = session.machines.for_replays(replays, session.timed)
            blocks = Blocks(session.store, runner, self.options.seed, session.progress, budget)
            search = search_of(session, self.space, Evaluator(Phase.REPLAY, blocks, to_candidates))
            with budget.limited_to(share_s):
                self._search(search)
            if self._recording_only and not self.why:
                self._replay_pick_again(search)
        return search

    def _search(self, search: Search) -> None:
        session = self.session
        session.phase(Phase.REPLAY)
        anchors = [c.config for c in self._on_program().values() if not c.failure]
        search.evaluator.blocks.phase(Phase.CHECK, len(anchors) or None)
        search.measure(anchors)
        self._say_errors(search)
        self._next_check = len(search.known) + 2 * opt.BLOCK
        if self._may_go_on(search):
            first = [*warm_points(session, self.space), *huge_page_points(session, self.space)]
            search_on(session, search, first, lambda: self._may_go_on(search))
        if not self.why and not self._checks:  # a short search has not been checked yet
            self._check(search)

    def _replay_pick_again(self, search: Search) -> None:
        """Replay the best setting again, in fresh pairs with the default."""
        picks = choose_picks(search.feasible(), aims_of(self.options))
        pick = next(iter(picks.values()), None)
        if pick is None or search.evaluator.to_candidates is None:
            return
        group = [self.session.default, pick.config]
        inputs = self.session.workload.train
        blocks = search.evaluator.blocks
        blocks.phase(Phase.REPLAY_PICK, opt.FRESH_REPLAYS * len(group) * len(inputs))
        first = blocks.first_block(Phase.REPLAY_PICK, group)
        runs = blocks.measure_all(Phase.REPLAY_PICK, first, [group] * opt.FRESH_REPLAYS, inputs)
        self._replayed_again = search.evaluator.to_candidates(runs).get(pick.config.id)

    def _say_errors(self, search: Search) -> None:
        """Compare replays of each allocator at its defaults with the program's runs; tell the user of large errors."""
        program = self._replayed_program()
        replayed = gather(search.runs, self.session.config_cache.configs, self.session.default.id, program)
        noise = dict(zip(self.options.objectives, self.session.noise, strict=True))
        errors = agreement.anchor_errors(replayed, self._on_program(), self.options.objectives, noise)
        self._error_sentence = agreement.errors_sentence(errors)
        if any(error.beyond_chance for error in errors):
            self.session.progress.note(self._error_sentence)

    def _replayed_program(self) -> Program:
        """The program's values under the default, for the process that is replayed."""
        return agreement.replayed_program(self.session.calibrated, self.session.store.meta.recorded)

    def _on_program(self) -> dict[int, Candidate]:
        """Runs of the program that replays can stand in for: not those under a runtime's setting.

        Such a setting is called RUNTIME.KEY. The space does not tell: it lacks those that the screening left out.
        """
        found = gather(self.measured, self.session.config_cache.configs, self.session.default.id)
        return {id_: c for id_, c in found.items() if not any("." in key for key in c.config.settings)}

    def _replay_s(self, search: Search) -> float | None:
        took = [r.elapsed_s for r in search.runs if r.config == self.session.default.id]
        return summarise(took).median if took else None

    def _may_go_on(self, search: Search) -> bool:
        """Whether the search on replays may go on. Now and then, runs of the program check the replays."""
        replay_s, program_s = self._replay_s(search), self.session.run_s
        if not self._forced and replay_s is not None and replay_s > proxy.MAX_REPLAY_TIME_SHARE * program_s:
            self.why = proxy.too_slow(replay_s, program_s)
        if not self.why and len(search.known) >= self._next_check:
            self._check(search)
        return not self.why

    def _check(self, search: Search) -> None:
        if self._recording_only:
            return
        a_block = (1 + opt.BLOCK) * len(self.session.workload.train) * self.session.run_s
        if self.session.budget.over(a_block):
            self._next_check = len(search.known) + proxy.CHECK_EVERY
            return
        self.measured += self._measure_both(search)
        self._checks += 1
        self._next_check = len(search.known) + proxy.CHECK_EVERY
        noise = dict(zip(self.options.objectives, self.session.noise, strict=True))
        found = agreement.check(self._on_program(), search.known, self.options.objectives, noise)
        if found.fails and not self._forced:
            self.why = found.fails

    def _measure_both(self, search: Search) -> list[StoredRun]:
        """Measure a block on the program: the best candidates of the replays, and some others, for the spread."""
        done = self._on_program()
        open_ = [c for c in search.feasible() if c.config.id not in done]
        costs = [c.costs(self.options.objectives) or () for c in open_]
        best = pareto.thin_front(costs, pareto.front(costs), (opt.BLOCK + 1) // 2)
        others = [i for i in range(len(open_)) if i not in best]
        random.Random(f"{self.options.seed}/check/{self._checks}").shuffle(others)
        chosen = [open_[i].config for i in [*best, *others][: opt.BLOCK]]
        if not chosen:
            return []
        session = self.session
        return session.blocks.measure(Phase.CHECK, self._checks, [session.default, *chosen], session.workload.train)

    def _race(self, search: Search) -> list[StoredRun]:
        """Measure the Pareto front of the replays on the program, with replicates."""
        session = self.session
        session.phase(Phase.RACE)
        feasible = search.feasible()
        costs = [c.costs(self.options.objectives) or () for c in feasible]
        finalists = [feasible[i].config for i in pareto.thin_front(costs, pareto.front(costs), opt.RACE)]
        finalists += self._unseen_by_replays(feasible)
        groups = [
            [session.default, *finalists[at : at + opt.BLOCK]]
            for _ in range(opt.RACE_ROUNDS)
            for at in range(0, len(finalists), opt.BLOCK)
        ]
        session.blocks.phase(Phase.RACE, sum(map(len, groups)) * len(session.workload.train))
        runs: list[StoredRun] = []
        first = session.blocks.first_block(Phase.RACE, [session.default, *finalists]) if finalists else 0
        slots = session.blocks.runner.slots
        for at in range(0, len(groups), slots):
            now = groups[at : at + slots]
            if session.budget.over(sum(map(len, now)) * len(session.workload.train) * session.run_s):
                break
            runs += session.blocks.measure_all(Phase.RACE, first + at, now, session.workload.train)
        return runs

    def _unseen_by_replays(self, predicted: Sequence[Candidate]) -> list[Config]:
        """Each level whose effect a replay does not show, with the best predicted settings of its allocator."""
        space, found = self._whole_space, []
        for allocator, key, level in not_replayable(space):
            own = [c for c in predicted if c.config.allocator == allocator]
            best = min(own, key=lambda c: sum(c.costs(self.options.objectives) or ()), default=None)
            settings = {**(best.config.settings if best else {}), key: level}
            point = {ALLOCATOR: allocator, **settings} if isinstance(space, JointSpace) else settings
            found.append(self.session.config_cache.config(space, point))
        return found
