"""The benchmark suite over allocators and threads, fairly.

For each round, benchmark and thread count one block: every allocator once, in random order, and in the same block the
void allocator where its cost is taken off. So slow drift of the machine cancels in ratios and in differences. Before,
each allocator runs each program once as a warm-up, in which the loader is asked whether it took over.

What corrupts, crashes, hangs or is not loaded fails in its cell (benchmark, allocator, threads), with the reason, and
the others go on.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from heapwright.allocators.registry import Allocator
from heapwright.allocators.takeover import judge
from heapwright.comparison.bench_results import Cell, derive
from heapwright.comparison.suite import Benchmark
from heapwright.errors import HeapwrightError
from heapwright.experiment.interleave import random_order, random_pad, run_batches
from heapwright.experiment.progress import Progress
from heapwright.experiment.runner import Here, Job, Machines, Result, RunsInputs, Work
from heapwright.experiment.warm_up import run_with_bindings
from heapwright.files import NATIVE
from heapwright.measure.host import describe_host
from heapwright.measure.meter import MeterOptions
from heapwright.workload.execute import Executor, Outcome, ending
from heapwright.workload.model import Input, Workload, WorkloadFile

CORRUPT = 3  # the programs' status for a block that does not hold what was written
VOID = "void"
_PATIENCE = 3  # so many hangs, and an allocator is not run any more
_METERED = ("peak_rss_bytes", "minor_faults", "major_faults")
_OF_PROCESS = ("wall_s", "user_s", "sys_s", "cpu_s")


@dataclass
class Suite:
    """What came of it.

    Attributes:
        name: of the suite.
        allocators: the reference first.
        cells: (benchmark, allocator, threads) → what was measured; in order.
        voids: (benchmark, threads) → the void's runs.
        rounds: how many were wanted.
        interrupted: whether it was stopped before its end.
        host: describes the machine.
    """

    name: str
    quick: bool
    benchmarks: Sequence[Benchmark]
    allocators: Sequence[Allocator]
    rounds: int
    cells: dict[tuple[str, str, int], Cell] = field(default_factory=dict)
    voids: dict[tuple[str, int], Cell] = field(default_factory=dict)
    interrupted: bool = False
    host: dict[str, Any] = field(default_factory=describe_host)

    @property
    def reference(self) -> str:
        """What ratios are to."""
        return self.allocators[0].name

    def threads(self, benchmark: str) -> list[int]:
        """At which counts a benchmark ran."""
        return sorted({threads for name, _, threads in self.cells if name == benchmark})


def program_path(name: str) -> Path:
    """An installed benchmark program.

    Raises:
        HeapwrightError: it is not there.
    """
    path = NATIVE / "benchmarks" / name
    if not os.access(path, os.X_OK):
        raise HeapwrightError(f"there is no benchmark program {path}", "run 'make build', or reinstall heapwright")
    return path


def suite_workload(benchmarks: Sequence[Benchmark]) -> Workload:
    """The benchmark programs as a workload whose inputs say what is run.

    Raises:
        HeapwrightError: one is not there.
    """
    programs = sorted({b.program for b in benchmarks})
    inputs = tuple(Input(name, args=[str(program_path(name))]) for name in programs)
    return Workload(WorkloadFile(command=["{args}"]), Path.cwd(), inputs)


def suite_executor(workload: Workload, timeout: float) -> Executor:
    """Runs under the polling meter: the others stop a program at each mapping call, which would charge allocators
    for every one they make.
    """
    options = MeterOptions(backend="poll", timeout=timeout)
    return Executor(workload, options, workload.cwd / "references", keep_output=True)


def why_failed(outcome: Outcome) -> str:
    """What went wrong with a run, or empty."""
    run = outcome.run
    said = run.stderr_tail.strip().splitlines()[-1:]
    if run.timed_out:
        return "hung: stopped at the time limit"
    if run.exit_code == CORRUPT:
        return f"corrupted memory: {said[0][:200]}" if said else "corrupted memory"
    if run.exit_code:
        return ending(run.exit_code) + (f": {said[0][:200]}" if said else "")
    return "" if _read(outcome) else "it printed no result"


def _read(outcome: Outcome) -> dict[str, float | None]:
    """The numbers a program printed; none if that was no JSON object."""
    try:
        found = msgspec.json.decode(outcome.output)
    except msgspec.DecodeError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {k: v for k, v in found.items() if v is None or (isinstance(v, int | float) and not isinstance(v, bool))}


def metrics_of(outcome: Outcome) -> dict[str, float | None]:
    """The program's own figures of its measured part, and the meter's of the whole process tree."""
    found = {k: v for k, v in _read(outcome).items() if k not in ("threads", "seed")}
    found |= {f"process_{key}": outcome.run.metrics.get(key) for key in _OF_PROCESS}
    found |= {key: outcome.run.metrics.get(key, found.get(key)) for key in _METERED}
    falls = [key for key in found if key.startswith("fall") and key.endswith("_idle_rss_bytes")]
    if falls:
        found["fall_idle_rss_bytes"] = found[max(falls)]
    return found


class Bencher:
    """Runs benchmarks.

    Args:
        threads: the counts wanted; a benchmark may need others (`Benchmark.thread_counts`).
        executor: runs a program: what an input's words say, and keeps what it prints.
        seed: of the order, of padding and of the programs' own work, which is the same for all in a round.
        base: the environment that allocators add theirs to.
        machines: where blocks are run; warm-ups are here.
    """

    def __init__(
        self,
        suite: Suite,
        threads: Sequence[int],
        executor: RunsInputs,
        seed: int,
        progress: Progress,
        base: Mapping[str, str],
        machines: Machines | None = None,
        where: Callable[[str], Path] = program_path,
    ) -> None:
        self.suite = suite
        self.executor = executor
        self.seed = seed
        self.progress = progress
        self.base = dict(base)
        self.machines = machines or Here()
        self._hangs: dict[str, int] = {}
        self._paths = {b.program: str(where(b.program)) for b in suite.benchmarks}
        self._allocators = list(suite.allocators)
        for benchmark in suite.benchmarks:
            for count in benchmark.thread_counts(threads):
                for allocator in suite.allocators:
                    cell = Cell(benchmark, allocator.name, count)
                    suite.cells[benchmark.name, allocator.name, count] = cell
                if benchmark.void:
                    suite.voids[benchmark.name, count] = Cell(benchmark, VOID, count)

    def run(self) -> Suite:
        """Warm-up, then the rounds. Ctrl-C ends it early; what was measured is kept."""
        suite = self.suite
        try:
            self.progress.phase("bench.warm", len(self._paths) * len(self._allocators))
            for program in self._paths:
                for at in range(len(self._allocators)):
                    self._warm_up(program, at)
            self.progress.phase("bench", suite.rounds * (len(suite.cells) + len(suite.voids)))
            self._rounds()
        except KeyboardInterrupt:
            suite.interrupted = True
        derive(suite.cells, suite.voids, suite.reference)
        return suite

    def _warm_up(self, program: str, at: int) -> None:
        """A short run in which the loader tells who got malloc; what is not loaded is not run any more."""
        allocator = self._allocators[at]
        cells = [
            c for c in self.suite.cells.values() if c.benchmark.program == program and c.allocator == allocator.name
        ]
        if self._given_up(cells):
            return
        benchmark = cells[0].benchmark
        words = [self._paths[program], *benchmark.command(min(c.threads for c in cells), self.seed, quick=True)]
        outcome, found = run_with_bindings(self.executor, Input(program, args=words), allocator.environment(self.base))
        self.progress.ran(True)
        failure = why_failed(outcome)
        if outcome.run.timed_out:
            self._hung(allocator.name)
        elif not failure:
            self._allocators[at], failure = judge(allocator, words[0], found)
        else:
            return  # what fails here is shown by the measured runs
        for cell in cells:
            cell.failure = failure

    def _rounds(self) -> None:
        """As many blocks at a time as there are machines, so that who hangs is soon given up."""
        suite = self.suite
        suite.host = self.machines.host or suite.host
        runner = self.machines.for_program(self.executor, timed=True)
        blocks = [
            (number, benchmark, count)
            for number in range(suite.rounds)
            for benchmark in suite.benchmarks
            for count in suite.threads(benchmark.name)
        ]

        def take(result: Result) -> None:
            number, benchmark, count = blocks[result.job.block]
            self._measured(number, self._cells(benchmark, count)[result.job.config], result.outcome)

        run_batches(runner, len(blocks), lambda at: self._block(at, *blocks[at]), take)

    def _cells(self, benchmark: Benchmark, count: int) -> list[Cell]:
        """The allocators' cells in order, and the void's. A job's configuration is a place in this list."""
        cells = [self.suite.cells[benchmark.name, a.name, count] for a in self._allocators]
        void = self.suite.voids.get((benchmark.name, count))
        return [*cells, void] if void else cells

    def _block(self, at: int, number: int, benchmark: Benchmark, count: int) -> Work:
        """All allocators, and the void, once."""
        cells = self._cells(benchmark, count)
        for cell in cells:
            self._given_up([cell])
        runs = random_order(enumerate(cells), f"{self.seed}/{number}/{benchmark.name}/{count}")
        jobs = [self._job(at, number, place, cell) for place, cell in runs if not cell.failure]
        return Work(tuple(jobs))

    def _job(self, block: int, number: int, place: int, cell: Cell) -> Job:
        void = place == len(self._allocators)
        options = cell.benchmark.command(cell.threads, self.seed + number, self.suite.quick, empty=void)
        input_ = Input(f"{cell.benchmark.name} {cell.threads}", args=[self._paths[cell.benchmark.program], *options])
        environment = {"LD_PRELOAD": ""} if void else self._allocators[place].environment(self.base)
        pad = random_pad(f"{self.seed}/{number}/{cell.benchmark.name}/{cell.threads}/{cell.allocator}")
        return Job("bench", block, input_, place, environment, pad)

    def _measured(self, number: int, cell: Cell, outcome: Outcome) -> None:
        self.progress.ran(True)
        cell.failure = cell.failure or why_failed(outcome)
        if outcome.run.timed_out:
            self._hung(cell.allocator)
        if not cell.failure:
            cell.runs[number] = metrics_of(outcome)

    def _hung(self, name: str) -> None:
        self._hangs[name] = self._hangs.get(name, 0) + 1

    def _given_up(self, cells: Sequence[Cell]) -> bool:
        """Whether the cells' allocator has hung too often to be waited for again."""
        if self._hangs.get(cells[0].allocator, 0) < _PATIENCE:
            return False
        for cell in cells:
            cell.failure = cell.failure or f"not run: it had hung {_PATIENCE} times"
        return True


def repeated(allocators: Sequence[Allocator]) -> list[Allocator]:
    """The same, with another name for each one that comes again: to compare an allocator with itself."""
    seen: dict[str, int] = {}
    found = []
    for allocator in allocators:
        times = seen[allocator.name] = seen.get(allocator.name, 0) + 1
        found.append(allocator if times == 1 else dataclasses.replace(allocator, name=f"{allocator.name}-{times}"))
    return found
