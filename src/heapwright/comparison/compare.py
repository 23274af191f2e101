"""Compares allocators on one program: interleaved rounds in random order, and ratios within each round.

A round is a block: every allocator runs once on every input. The first run of every allocator is a warm-up and is not
counted. In it the loader tells whether the allocator became the program's malloc. An allocator that crashes, hangs,
changes the output or is not loaded keeps its row with the reason, and the others are still measured.

The first row is the reference. If the user named none and the program has another malloc than the system's, or if it
uses musl, the reference is the program with nothing changed. It gets a row named 'default'.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from heapwright.allocators.embedded import embedded_name
from heapwright.allocators.library_mallocs import library_warnings
from heapwright.allocators.peers import library_version
from heapwright.allocators.preload_obstacles import find_obstacle
from heapwright.allocators.program_file import read_program
from heapwright.allocators.registry import Allocator
from heapwright.allocators.space_spec import AllocatorSpec, SpaceFile
from heapwright.allocators.takeover import Bindings, deepbind_reason, judge_takeover, other_providers
from heapwright.errors import HeapwrightError
from heapwright.files import scratch_folder
from heapwright.interleaving.binding_runs import run_with_bindings
from heapwright.interleaving.configuration import DEFAULT
from heapwright.interleaving.interleave import random_order, random_pad, run_batches
from heapwright.interleaving.outputs import OutputCheck
from heapwright.interleaving.progress import Progress
from heapwright.interleaving.reach import StartedProgram
from heapwright.interleaving.replays import ReplayExecutor, Replays
from heapwright.interleaving.runner import TRIES, Job, JobResult, LocalMachine, Machines, Work
from heapwright.interleaving.stats import Ratio, Summary, log_ratio, ratio_interval, summarise
from heapwright.measure.host import describe_host
from heapwright.measure.meter import MeterOptions, Run
from heapwright.metrics import NUMERIC
from heapwright.study.take_effect import not_listed, unlisted_note
from heapwright.study.usual_error import prediction_interval
from heapwright.trace.recordings import Recordings
from heapwright.workload.execute import Executor, Outcome, advice, how_it_fails, time_limit
from heapwright.workload.model import Input, Workload
from heapwright.workload.work_done import fixed_time_sentence, fixed_time_warning, load_errors_warning

_UNCHANGED = Allocator(DEFAULT, None, None, False, "", SpaceFile(AllocatorSpec(DEFAULT)))
_OWN = "its own malloc"  # shown where the name of the program's malloc is not known
_REFERENCE_RUNS = 3  # of the reference with equal output, before another output counts as a failure


@dataclass
class Row:
    """The results of one allocator.

    Attributes:
        allocator: the allocator.
        failure: why the allocator does not count and was not run any more, or empty.
        runs: (round, input name) → run, without warm-ups.
        summary: metric → summary of all its runs.
        ratios: metric → ratio to the reference with its 95% confidence interval; after one round the interval is NaN.
            A metric that is 0 in only one of two runs of a round has no ratio.
        malloc: for the program with nothing changed: its malloc, such as 'libjemalloc.so.2'. Otherwise empty.
    """

    allocator: Allocator
    failure: str = ""
    runs: dict[tuple[int, str], Run] = field(default_factory=dict)
    summary: dict[str, Summary] = field(default_factory=dict)
    ratios: dict[str, Ratio] = field(default_factory=dict)
    malloc: str = ""


@dataclass(frozen=True)
class Comparison:
    """The results of a comparison.

    Attributes:
        rows: the rows of all allocators, the reference first.
        rounds: number of rounds.
        warnings: warnings of the meter and about unstable output.
        recordings: the recordings that were replayed in place of the program; None for a program.
        host: description of the machine.
        fixed_time: whether the load of a server runs for a fixed time, so that times cannot be compared.
        interrupted: whether the user stopped it before its end; then `rounds` are those that began.
        error: what ended it early after at least one whole round; then, too, `rounds` are those that began. Or None.
    """

    rows: list[Row]
    rounds: int
    warnings: list[str]
    recordings: Recordings | None = None
    host: dict[str, Any] = field(default_factory=describe_host)
    fixed_time: bool = False
    interrupted: bool = False
    error: HeapwrightError | None = None

    @property
    def reference(self) -> Row:
        """The row that all others are compared with."""
        return self.rows[0]


class Comparer:
    """Runs a comparison.

    Args:
        workload: the program and its inputs.
        allocators: the allocators, the reference first.
        options: how to measure; a timeout of 0 becomes ten times a run of the reference, at least ten seconds.
        seed: determines order, padding and resampling.
        progress: is told of every run.
        base: the environment variables to which allocators add theirs.
        machines: run the rounds; None for this machine. Warm-ups always run on this machine.
        named: whether the user named the reference.
        embedded: the allocator that is linked into the program, or None. If there is one, the other allocators only get
            a row with the reason why they cannot be used.
        recorded: the recordings and their replays, if the workload is recordings: no program runs.
    """

    def __init__(
        self,
        workload: Workload,
        allocators: Sequence[Allocator],
        options: MeterOptions,
        seed: int,
        progress: Progress,
        base: dict[str, str],
        machines: Machines | None = None,
        named: bool = True,
        embedded: Allocator | None = None,
        recorded: tuple[Recordings, Replays] | None = None,
    ) -> None:
        self.workload = workload
        self.recorded = recorded
        self.rows = [Row(a) for a in allocators]
        self.embedded = embedded
        self.named = named
        self.options = options
        self.seed = seed
        self.progress = progress
        self.base = base
        self.machines = machines or LocalMachine()
        self._outputs = OutputCheck()
        self._warmed: set[tuple[str, str]] = set()
        self._succeeded: set[tuple[str, str]] = set()  # preloaded library and input of the reference
        self._own_malloc: list[str] = []  # the libraries of the program's own malloc, which glibc's has replaced
        self._of_libraries: list[str] = []  # warnings of mallocs that libraries carry
        self._deepbind = ""  # a library of the program that keeps the malloc of libc, which crashes the others

    def run(self, rounds: int) -> Comparison:
        """Run the warm-ups, then the rounds. After Ctrl-C, return the results so far, if there are any.

        An error after the first whole round also returns them, with the error.

        Raises:
            HeapwrightError: the reference itself fails before a round is whole, or nothing can be run.
            KeyboardInterrupt: the user stopped it before the first run that counts.
        """
        interrupted, ended_by = False, None
        with scratch_folder() as folder:
            self._executor = self._make_executor(folder / "references")
            if self.embedded is not None:
                self._judge_by_embedded(self.embedded)
            elif self.recorded is None and not self.workload.tells_bindings:
                self._judge_by_musl()
            usable = sum(not row.failure for row in self.rows)
            self.progress.phase("compare.warm", usable * len(self.workload.inputs))
            if not self.named and self.embedded is None:
                self._find_reference()
            for row in self.rows:
                self._warm_up(row)
            usable = sum(not row.failure for row in self.rows)
            self.progress.phase("compare", rounds * usable * len(self.workload.inputs))
            runner = self.machines.for_program(self._executor, timed=True)
            try:
                run_batches(runner, rounds, self._round, self._measured)
            except KeyboardInterrupt:
                rounds, interrupted = len({number for number, _ in self.rows[0].runs}), True
                if not rounds:
                    raise
            except HeapwrightError as error:
                if not self._any_whole_round():
                    raise
                rounds, ended_by = len({number for number, _ in self.rows[0].runs}), error
        if self.recorded:
            self.recorded[0].note_misfits(self.recorded[1].misfits)
        for row in self.rows:
            self._summarise(row, rounds)
        fixed, doubt = self._load_time()
        warnings = [*self._warnings(), *filter(None, [fixed or doubt])]
        recordings = self.recorded[0] if self.recorded else None
        host = self.machines.host or {**describe_host(), **self.workload.where()}
        if interrupted:
            warnings.append("Interrupted before its end: the figures are those of the runs made so far.")
        elif ended_by:
            warnings.append("An error ended the comparison early: the figures are those of the runs made so far.")
        return Comparison(self.rows, rounds, warnings, recordings, host, bool(fixed), interrupted, ended_by)

    def _any_whole_round(self) -> bool:
        """Return whether there is a round in which every allocator without a failure has run on every input."""
        names = [input_.name for input_ in self.workload.inputs]
        usable = [row for row in self.rows if not row.failure]
        return any(all((n, name) in row.runs for row in usable for name in names) for n, _ in self.rows[0].runs)

    def _make_executor(self, references: Path) -> Executor:
        if self.recorded is None:
            return Executor(self.workload, self.options, references)
        return ReplayExecutor(self.recorded[1], self.options, references)

    def _environment(self, row: Row) -> dict[str, str]:
        return row.allocator.environment(self.base)

    def _judge_by_embedded(self, embedded: Allocator) -> None:
        """Make the program with nothing changed the reference, because other allocators cannot replace its malloc."""
        if not self.rows[0].allocator.embedded:
            self.rows.insert(0, Row(_UNCHANGED, malloc=embedded_name(embedded)))
        for row in self.rows[1:]:
            if not row.allocator.embedded:
                row.failure = f"not loaded: {embedded_name(embedded)} is linked into the program"

    def _judge_by_musl(self) -> None:
        """Fail rows of libraries that musl does not load. The reference is the program with nothing changed."""
        container = self.workload.container
        if container is not None and (note := unlisted_note(self.workload, container)):
            self.progress.note(note)
            return
        for row in self.rows:
            if container is not None:
                row.failure = not_listed(self.workload, container, self._environment(row))
            elif obstacle := find_obstacle(self.workload.program(), row.allocator.name, row.allocator.preload):
                row.failure = obstacle.why
        self.rows[:0] = [] if container else [Row(_UNCHANGED, malloc="musl")]  # musl is an allocator of its images

    def _find_reference(self) -> None:
        """Run the program with nothing changed. It becomes the reference if its malloc is not that of the first row."""
        system = self.rows[0].allocator
        if system.preload or not system.path or not self.workload.tells_bindings:
            return
        row = Row(_UNCHANGED)
        self.rows.insert(0, row)
        input_ = self.workload.inputs[0]
        found = self._warm(row, input_)
        others, program = other_providers(system.path, found), read_program(self.workload.program(input_))
        if not others and (found or program is None or not program.static or program.tunables):
            self.rows.remove(row)
            self._warmed.add((system.name, input_.name))
            return
        # If it were not preloaded, the program would keep its own malloc.
        self.rows[1].allocator = dataclasses.replace(system, preload=system.path)
        if program is not None and (not others or str(program.path.resolve()) in others):
            row.malloc = "the Go runtime" if program.go else program.linked or program.family or _OWN
        else:
            row.malloc = Path(others[0]).name
            row.allocator = dataclasses.replace(row.allocator, version=library_version(others[0]), path=others[0])

    def _warm(self, row: Row, input_: Input) -> Bindings:
        """Make a run that is not counted, and return the bindings that the loader made.

        The loader writes them to the program's stdout if it cannot make a file, as in a read-only sandbox. So the
        output of this run says nothing.
        """
        outcome, found = run_with_bindings(self._executor, input_, self._environment(row))
        self._count_warm_up(row, input_, outcome, output=False)
        return found

    def _count_warm_up(self, row: Row, input_: Input, outcome: Outcome, output: bool = True) -> None:
        self.progress.ran(True)
        self._warmed.add((row.allocator.name, input_.name))
        self._judge_outcome(row, input_, outcome, output)

    def _warm_up(self, row: Row) -> None:
        for input_ in self.workload.inputs if not row.failure else ():
            if (row.allocator.name, input_.name) in self._warmed:
                continue
            if row.malloc or not self.workload.tells_bindings:  # the program with nothing changed keeps its malloc
                self._count_warm_up(row, input_, self._executor.run(input_, self._environment(row)))
            else:
                self._check_takeover(row, input_)
            if row.failure:
                return
        if row is self.rows[0]:
            self._run_reference_again()

    def _check_takeover(self, row: Row, input_: Input) -> None:
        """Make runs in which the loader tells whether the allocator is loaded.

        There is a second run if the system's malloc must be preloaded, because the program is linked to another one.
        """
        found = self._warm(row, input_)
        if row.failure:
            if row.allocator.preload and row.failure.startswith("killed by"):
                self._deepbind = self._deepbind or deepbind_reason(row.allocator.preload, found)
            return
        before = row.allocator
        row.allocator, row.failure = judge_takeover(before, self.workload.program(input_), found)
        if row.allocator is not before:
            self._own_malloc = other_providers(row.allocator.preload, found)
            self._check_takeover(row, input_)

    def _run_reference_again(self) -> None:
        """Learn output and time limit from second runs of the reference: the first may have read a cold disk."""
        walls = []
        in_parts = self.recorded is None and self.workload.container is None  # else paths are not of this machine
        self._executor.options = dataclasses.replace(self.options, parts=in_parts)
        for input_ in self.workload.inputs:
            outcome = self._executor.run(input_, self._environment(self.rows[0]))
            self._judge_outcome(self.rows[0], input_, outcome)
            self._judge_started_program(input_, outcome)
            walls.append(outcome.run.metrics["wall_s"] or 0.0)
        limit = self.options.timeout or time_limit(walls, self.workload)
        self._executor.options = dataclasses.replace(self.options, timeout=limit)

    def _judge_started_program(self, input_: Input, outcome: Outcome) -> None:
        """Fail the rows whose allocator does not reach the program with most of the memory, which the command starts.

        The loader tells of the command itself. The other program may be static, or lack the command's environment.
        """
        parts = outcome.run.parts
        self._of_libraries += library_warnings(parts.files_of_other_memory) if parts is not None else []
        busiest = parts.main_program if parts is not None else ""
        own, started = read_program(self.workload.program(input_)), read_program(busiest) if busiest else None
        if started is None or started.passes_on or (own and os.path.realpath(own.path) == os.path.realpath(busiest)):
            return
        program = StartedProgram(self._executor, input_, busiest)
        for row in self.rows:
            if row.allocator.preload and not row.failure:
                row.failure = program.why_not_loaded(row.allocator, self._environment(row))

    def _judge_outcome(self, row: Row, input_: Input, outcome: Outcome, output: bool = True) -> None:
        """Judge an outcome's success and, unless told otherwise, output. A failure of the reference ends it all."""
        reference = row is self.rows[0]
        if outcome.failure and reference:
            succeeded = (row.allocator.preload, input_.name) in self._succeeded
            how = how_it_fails(succeeded)
            if row.allocator.name != DEFAULT:
                how = f"{how.removesuffix(' by itself')} under {row.allocator.name}, the reference"
            step = advice(outcome, succeeded)
            if self._own_malloc:
                own = f"it works with its own malloc ({', '.join(map(os.path.basename, self._own_malloc))})"
                step = f"{own}: leave out --allocators, or name other allocators{f'; {step}' if step else ''}"
            raise HeapwrightError(f"the command {how}: {outcome.failure}", step)
        row.failure = row.failure or outcome.failure
        if reference:
            self._succeeded.add((row.allocator.preload, input_.name))
        if row.failure or not output:
            return
        if reference:
            self._outputs.learn(input_.name, outcome.digest, outcome.run.metrics)
            return
        done = input_.name, outcome.digest, outcome.run.metrics, "the reference"
        while self._outputs.difference(*done) and self._outputs.seen(input_.name) < _REFERENCE_RUNS:
            again = self._executor.run(input_, self._environment(self.rows[0]))
            self._judge_outcome(self.rows[0], input_, again)
        row.failure = self._outputs.difference(*done)

    def _round(self, number: int) -> Work:
        """Return a round: every allocator without a failure, on every input. A job's config is its row's index."""
        order = random_order((at for at, row in enumerate(self.rows) if not row.failure), f"{self.seed}/{number}")
        return Work(
            tuple(
                Job(
                    "compare",
                    number,
                    input_,
                    at,
                    self._environment(self.rows[at]),
                    self._pad(at, number, input_),
                    1 if at else TRIES,
                )
                for at in order
                for input_ in self.workload.inputs
            )
        )

    def _pad(self, at: int, number: int, input_: Input) -> int:
        return random_pad(f"{self.seed}/{number}/{input_.name}/{self.rows[at].allocator.name}")

    def _measured(self, result: JobResult) -> None:
        row, job = self.rows[result.job.config], result.job
        self.progress.ran(True)
        for failure in result.retried:
            self.progress.note(f"{row.allocator.name}, the reference, failed ({failure}); trying again")
        if row.failure:
            return
        self._judge_outcome(row, job.input, result.outcome)
        if not row.failure:
            row.runs[job.block, job.input.name] = result.outcome.run

    def _summarise(self, row: Row, rounds: int) -> None:
        reference = self.rows[0]
        for metric in NUMERIC:
            values = [v for run in row.runs.values() if (v := run.metrics.get(metric)) is not None]
            if values:
                row.summary[metric] = summarise(values)
            logs: dict[str, list[float]] = {}
            for (number, name), run in row.runs.items():
                paired = reference.runs.get((number, name))
                value, other = run.metrics.get(metric), paired.metrics.get(metric) if paired else None
                ratio = log_ratio(value, other)
                if ratio is not None:
                    logs.setdefault(name, []).append(ratio)
                elif value is not None and other is not None:  # one is 0: the other rounds would hide the change
                    logs.clear()
                    break
            if logs and min(len(group) for group in logs.values()) > 1:
                row.ratios[metric] = ratio_interval(logs, self.seed)
            elif logs and rounds == 1:
                value = math.exp(fmean(fmean(group) for group in logs.values()))
                row.ratios[metric] = Ratio(value, math.nan, math.nan)
            if self.recorded and metric in row.ratios and row is not reference:
                name = row.allocator.name
                row.ratios[metric] = prediction_interval(self.recorded[0], metric, row.ratios[metric], name)

    def _warnings(self) -> list[str]:
        found = dict.fromkeys(self._of_libraries)
        if self._outputs.any_unstable:
            found["The output differs from run to run by itself, so equal output was not required."] = None
        if self._deepbind:
            found[f"The program crashes if another malloc is preloaded: {self._deepbind}."] = None
        paths = {os.path.realpath(row.allocator.preload) for row in self.rows if not row.failure}
        if self._own_malloc and not paths.intersection(self._own_malloc):
            found[
                f"The program has a malloc of its own ({', '.join(map(os.path.basename, self._own_malloc))}), and no"
                " row is the program as it is: leave out --allocators to compare with it."
            ] = None
        for row in self.rows:
            for run in row.runs.values():
                for text in run.warnings:
                    found[text] = None
            if text := load_errors_warning((run.metrics for run in row.runs.values()), f" under {row.allocator.name}"):
                found[text] = None
        return list(found)

    def _load_time(self) -> tuple[str, str]:
        """Return the sentence of a load of fixed time, and the warning of one that may be (workload/work_done.py)."""
        if self.workload.file.server is None:
            return "", ""
        inputs = [
            [run.metrics for row in self.rows for (_, name), run in row.runs.items() if name == i.name]
            for i in self.workload.inputs
        ]
        return fixed_time_sentence(inputs), fixed_time_warning(inputs)
