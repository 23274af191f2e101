"""The state that the stages of one study share: its store, program, options, time budget and interleaved blocks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import msgspec

from heapwright.allocators.direct_calls import direct_calls
from heapwright.allocators.embedded import embedded_name
from heapwright.allocators.preload_obstacles import find_obstacle
from heapwright.allocators.registry import Allocator
from heapwright.allocators.space_spec import SpaceFile
from heapwright.interleaving.blocks import Blocks
from heapwright.interleaving.budget import Budget
from heapwright.interleaving.configuration import DEFAULT, Config
from heapwright.interleaving.progress import Progress
from heapwright.interleaving.records import StoredRun
from heapwright.interleaving.replays import ReplayExecutor, Replays
from heapwright.interleaving.resolution import ADDRESS_SPACE
from heapwright.interleaving.runner import LocalMachine, Machines, Runner
from heapwright.measure.meter import SERIES_POINTS
from heapwright.metrics import METRICS, REPLAYABLE
from heapwright.study import options as opt
from heapwright.study.metering import meter_options_of
from heapwright.study.options import Options
from heapwright.study.store import Store
from heapwright.study.study_bound import bound_of_study
from heapwright.trace.recordings import Recordings, as_replayed, reference_allocator
from heapwright.tuning.config_cache import ConfigCache
from heapwright.workload.execute import Executor
from heapwright.workload.model import Workload


class ExtraSpace(msgspec.Struct):
    """A space beside those of the allocators, as stored in the study.

    Attributes:
        space: its parameter-space file.
        title: its name for people, without the version.
        version: of the runtime; empty if it is unknown.
        program: path of the runtime's executable; empty for a space that is no runtime's.
        libraries: paths of the libraries whose malloc of their own these settings are about; none for other spaces.
        sentence: the message about it for the user.
    """

    space: SpaceFile
    title: str
    version: str = ""
    program: str = ""
    libraries: tuple[str, ...] = ()
    sentence: str = ""


class Session:
    """One session of a study: what its stages read and change.

    Args:
        store: the study file, open for writing; it holds the options already.
        workload: the program and its inputs.
        allocators: those to search. With one, the study searches its settings, against its own defaults. With
            several, the allocator is searched too, against the program as it is.
        options: the study's options.
        progress: receives messages for the user.
        machines: where blocks run; None for this machine. Recordings and tests whether an allocator takes over
            always run on this machine.
        began: when the session began, in seconds of the monotonic clock; the time since then is charged to the
            study. None: now.
        recorded: the recordings and their replays, if the workload is recordings: no program runs. With several
            allocators, the reference of the recordings takes the place of the program as it is.
        added: spaces that the user adds to those of the allocators.

    Attributes:
        threads: whether the program has more than one thread; known after calibration.
        proof: whether the budget holds a confirmation. predicts: if not, whether replays can predict.
        noise: standard deviation of the log ratio of two runs, by objective.
        calibrated: runs of the default that count.
        extras: spaces beside those of the allocators (`ExtraSpace`): of the program's runtime, and `added`.
            Known after the program's first run. extra_levels: how many levels of their settings are screened.
        runtime_first: whether a runtime holds most of the memory, so that its settings are screened even if there is no
            time to screen allocators.
        whole_s: seconds kept for one whole run at the end of a study of prefixes.
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
        recorded: tuple[Recordings, Replays] | None = None,
        added: Sequence[SpaceFile] = (),
    ) -> None:
        self.store = store
        self.workload = workload
        self.allocators = tuple(allocators)
        self.added = tuple(added)
        self.extras: tuple[ExtraSpace, ...] = ()
        self.extra_levels = 0
        self.runtime_first = False
        self.options = options
        self.progress = progress
        self.recordings = recorded[0] if recorded else None
        self._replays = recorded[1] if recorded else None
        stored = (store.meta.recordings or {}).get("inputs", {})
        self._keep_recordings({name: recording.get("misfit") for name, recording in stored.items()})
        only = self.allocators[0] if len(self.allocators) == 1 else None
        base = workload.base_environment()  # the program's environment before any setting of ours
        first = only or (reference_allocator(self.recordings) if self.recordings else None)
        env = first.environment(base) if first else {}
        default = store.config(only.name if only else DEFAULT, {}, env)
        self.config_cache = ConfigCache(store, default, base, workload.program)
        self.executor = self.make_executor(options.timeout or workload.file.timeout, first=True)
        self.machines = machines or LocalMachine()
        self.timed = any(METRICS[m].kind == "time" for m in options.objectives)
        runner = self._runner()
        self.budget = Budget(
            0.0 if options.axes else max(0.0, options.budget_s - self._report_s(began)),
            store.meta.stopped_s,
            lambda spent_s: store.update(stopped_s=spent_s),
            began,
        )
        self.blocks = Blocks(store, runner, options.seed, progress, self.budget)
        self.blocks.padded = not ADDRESS_SPACE.issuperset(options.objectives)
        self.blocks.unusable = self.config_cache.unusable
        self.threads = True
        self.proof, self.predicts = True, False
        self.noise: tuple[float, ...] = ()
        self.calibrated: list[StoredRun] = []
        self.whole_s = 0.0
        self._bound_sentence = ""  # the last sentence on how much can be gained

    def _report_s(self, began: float | None) -> float:
        """Seconds of a time budget that are kept for the report, estimated from the time of start-up."""
        report_s = self.store.meta.report_s
        if report_s is None:
            start_up_s = 0.0 if began is None else time.monotonic() - began
            report_s = min(opt.REPORT_SHARE * self.options.budget_s, opt.REPORT_STARTS * start_up_s)
            self.store.update(report_s=report_s)
        return report_s

    @property
    def default(self) -> Config:
        """The configuration that all others are compared with."""
        return self.config_cache.default

    @property
    def spent_s(self) -> float:
        """Seconds of the study's time spent so far."""
        return self.budget.spent_s

    @property
    def left_s(self) -> float:
        """Seconds left of a time budget, without those kept for a whole run at the end."""
        return max(0.0, self.budget.left_s - self.whole_s)

    @property
    def run_s(self) -> float:
        """Seconds that one run of the program costs at present."""
        return self.blocks.typical.seconds

    @property
    def objectives_given(self) -> bool:
        """Whether the user chose the objectives. Studies of older versions do not say; they keep theirs."""
        return self.store.meta.objectives_given in (True, None)

    def phase(self, name: str) -> None:
        """Store how far the study is."""
        self.store.update(phase=name, spent_s=self.spent_s)

    def say_saving_bound(self) -> None:
        """Tell the user how much can be gained, if that is known and has changed."""
        known = bound_of_study(self.store) if self.recordings is None else None
        if known is not None and known.sentence not in ("", self._bound_sentence):
            self._bound_sentence = known.sentence
            self.progress.note(known.sentence)

    def why_not_replayable(self) -> str:
        """The reason against replays, as far as it does not depend on the parameter space; empty if there is none."""
        unreplayable = [m for m in self.options.objectives if m not in REPLAYABLE]
        if unreplayable:
            return f"a replay does not measure {METRICS[unreplayable[0]].label}"
        if own := next((a for a in self.allocators if a.embedded), None):
            return f"{embedded_name(own)} is linked into it, and a recording sees none of its allocations"
        if self.store.meta.managed.get("reach") == "glibc":
            return "it is linked statically, so it cannot be recorded"
        program = self.workload.program()
        obstacle = find_obstacle(program)
        if obstacle is not None and obstacle.certain:
            return obstacle.why
        why = "" if self.workload.container else direct_calls(program, self.workload.base_environment())
        return f"{why}, and only calls of malloc are recorded" if why else ""

    def make_executor(self, timeout: float, first: bool = False) -> Executor:
        """An executor that runs and measures the program.

        Args:
            timeout: seconds until a run is stopped; 0 for no limit.
            first: the study's first runs: they also measure proportional memory, which a tree of processes needs,
                and divide memory by its holder.
        """
        meter_options = meter_options_of(self.options, timeout, SERIES_POINTS)
        meter_options = replace(
            meter_options, pss=meter_options.pss or (first and not self.objectives_given), parts=first
        )
        if self._replays is not None:
            return ReplayExecutor(self._replays, meter_options, self.store.references)
        return Executor(self.workload, meter_options, self.store.references)

    def _runner(self) -> Runner:
        if self._replays is not None:
            return self.machines.for_replays(self.executor, self.timed)
        return self.machines.for_program(self.executor, self.timed)

    def prepare(self) -> None:
        """Make recordings ready for replays, so that the first replay takes no longer than others."""
        if self._replays is not None:
            for input_ in self.workload.inputs:
                self._replays.prepare(input_)
            self._keep_recordings(self._replays.misfits)

    def _keep_recordings(self, misfits: Mapping[str, float | None]) -> None:
        """Store the facts of the recordings, with how far replays on the recorded malloc are from them."""
        if self.recordings is not None:
            self.recordings.note_misfits({k: v for k, v in misfits.items() if k in self.recordings.inputs})
            self.store.update(recordings=asdict(self.recordings))

    def as_run(self, allocator: Allocator) -> Allocator:
        """The allocator as it is preloaded: for recordings of a program with a malloc of its own, glibc is, too."""
        return allocator if self.recordings is None else as_replayed(allocator, self.recordings)

    def executor_of(self, workload: Workload) -> Executor:
        """An executor like the present one, for a variant of the workload."""
        return Executor(workload, self.executor.options, self.store.references)

    def use_executor(self, timeout: float) -> None:
        """Run the program with this timeout, in seconds, and with the present options from now on."""
        self.executor = self.make_executor(timeout)
        self.blocks.runner = self._runner()

    def set_objectives(self, objectives: tuple[str, ...]) -> None:
        """Minimise these metrics from now on."""
        if self.options.objectives != objectives:
            self.options = msgspec.structs.replace(self.options, objectives=objectives)
            self.store.update(options=msgspec.to_builtins(self.options))

    def charge(self, work: str) -> None:
        """Charge the time since the last charge to work that is not a run, and store the charge."""
        self.store.update(charged={**self.store.meta.charged, work: self.budget.charge(work)})

    def charged_before(self, work: str) -> bool:
        """Whether an earlier session did this work. If so, its stored charge counts again."""
        charge = self.store.meta.charged.get(work)
        if charge is not None:
            self.budget.recall(charge, work)
        return charge is not None
