"""Runs the benchmark suite under several allocators and thread counts, in randomised blocks.

A block belongs to a round, a benchmark and a thread count. In it every allocator runs once, in random order. Where the
cost of the benchmark itself is subtracted, the block also has a run of the void allocator. So slow drift of the machine
cancels in ratios and in differences. Before the rounds, each allocator runs each program once as a warm-up, in which
the loader tells whether the allocator became the program's malloc.

An allocator that corrupts memory, crashes, hangs or is not loaded fails in its cell (benchmark, allocator, threads).
The cell keeps the reason, and the other cells are measured all the same.
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
from heapwright.allocators.takeover import judge_takeover
from heapwright.comparison.bench_results import Cell, compute_results
from heapwright.comparison.suite import Benchmark
from heapwright.errors import HeapwrightError
from heapwright.files import NATIVE
from heapwright.interleaving.binding_runs import run_with_bindings
from heapwright.interleaving.interleave import random_order, random_pad, run_batches
from heapwright.interleaving.progress import Progress
from heapwright.interleaving.runner import Job, JobResult, LocalMachine, Machines, RunsInputs, Work
from heapwright.measure.host import describe_host
from heapwright.measure.meter import MeterOptions
from heapwright.measure.process_group import describe_exit_status
from heapwright.metrics import METRICS
from heapwright.workload.execute import Executor, Outcome
from heapwright.workload.model import Input, Workload, WorkloadFile

CORRUPT = 3  # exit status of the programs if a block does not hold the bytes that were written to it
VOID = "void"  # name of the allocator that does nothing
_MAX_HANGS = 3  # an allocator that has hung so many times is not run any more


@dataclass
class Suite:
    """A run of the benchmark suite, and its results.

    Attributes:
        name: name of the suite.
        quick: whether the benchmarks are the short ones.
        benchmarks: the benchmarks of the suite.
        allocators: the allocators, the reference first.
        rounds: number of rounds asked for.
        cells: (benchmark, allocator, threads) → its measurements, in the order of the tables.
        voids: (benchmark, threads) → the runs of the void allocator.
        interrupted: whether the user stopped it before its end.
        host: description of the machine.
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
        """Name of the allocator that all others are compared with."""
        return self.allocators[0].name

    def threads(self, benchmark: str) -> list[int]:
        """Return the thread counts of a benchmark, in ascending order."""
        return sorted({threads for name, _, threads in self.cells if name == benchmark})


def program_path(name: str) -> Path:
    """Return the path of an installed benchmark program.

    Raises:
        HeapwrightError: the program is not installed.
    """
    path = NATIVE / "benchmarks" / name
    if not os.access(path, os.X_OK):
        raise HeapwrightError(
            f"there is no benchmark program {path}", "wheels have none: run 'make build' in the sources"
        )
    return path


def suite_workload(benchmarks: Sequence[Benchmark]) -> Workload:
    """Return a workload that has each benchmark program as an input.

    Raises:
        HeapwrightError: a program is not installed.
    """
    programs = sorted({b.program for b in benchmarks})
    inputs = tuple(Input(name, args=[str(program_path(name))]) for name in programs)
    return Workload(WorkloadFile(command=["{args}"]), Path.cwd(), inputs)


def suite_executor(workload: Workload, timeout: float) -> Executor:
    """Return an executor that uses the polling meter and keeps the programs' output.

    The other back ends of the meter stop a program at each mapping call. An allocator would be charged for every
    mapping call that it makes.

    Args:
        workload: see `suite_workload`.
        timeout: seconds until a run is stopped; 0 for no limit.
    """
    options = MeterOptions(backend="poll", timeout=timeout)
    return Executor(workload, options, workload.cwd / "references", keep_output=True)


def why_failed(outcome: Outcome) -> str:
    """Return the reason why a run failed, or empty."""
    run = outcome.run
    words = run.stderr_tail.strip().splitlines()[-1:]
    if run.timed_out:
        return "hung: stopped at the time limit"
    if run.exit_code == CORRUPT:
        return f"corrupted memory: {words[0][:200]}" if words else "corrupted memory"
    if run.exit_code:
        return describe_exit_status(run.exit_code) + (f": {words[0][:200]}" if words else "")
    return "" if _read(outcome) else "it printed no result"


def _read(outcome: Outcome) -> dict[str, float | None]:
    """Return the numbers in the JSON object that a program printed; empty if it printed none."""
    try:
        found = msgspec.json.decode(outcome.output)
    except msgspec.DecodeError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {k: v for k, v in found.items() if v is None or (isinstance(v, int | float) and not isinstance(v, bool))}


def metrics_of(outcome: Outcome) -> dict[str, float | None]:
    """Return the program's own figures of its measured part, and the meter's figures of the whole process tree."""
    found = {k: v for k, v in _read(outcome).items() if k not in ("threads", "seed")}
    found |= {
        metric.bench_key: outcome.run.metrics.get(metric.key, found.get(metric.bench_key))
        for metric in METRICS.values()
        if metric.bench_key
    }
    falls = [key for key in found if key.startswith("fall") and key.endswith("_idle_rss_bytes")]
    if falls:
        found["fall_idle_rss_bytes"] = found[max(falls)]
    return found


class Bencher:
    """Runs benchmarks.

    Args:
        suite: the benchmarks and allocators; the results are stored in it.
        threads: thread counts asked for; a benchmark may need others (`Benchmark.thread_counts`).
        executor: runs the command line that an input's arguments make, and keeps the output.
        seed: determines order, padding and the programs' own work, which is the same for all runs of a round.
        progress: is told of every run.
        base: the environment variables to which allocators add theirs.
        machines: run the blocks; None for this machine. Warm-ups always run on this machine.
        where: program name → path.
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
        self.machines = machines or LocalMachine()
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
        """Run the warm-ups, then the rounds. After Ctrl-C, return the results so far."""
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
        compute_results(suite.cells, suite.voids, suite.reference)
        return suite

    def _warm_up(self, program: str, at: int) -> None:
        """Make a short run in which the loader tells whether the allocator is loaded. If not, its cells fail.

        Args:
            program: name of the program.
            at: index of the allocator.
        """
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
            self._count_hang(allocator.name)
        elif not failure:
            self._allocators[at], failure = judge_takeover(allocator, words[0], found)
        else:
            return  # the measured runs will show the failure
        for cell in cells:
            cell.failure = failure

    def _rounds(self) -> None:
        """Run the blocks in batches, so that an allocator that hangs is soon given up."""
        suite = self.suite
        suite.host = self.machines.host or suite.host
        runner = self.machines.for_program(self.executor, timed=True)
        blocks = [
            (number, benchmark, count)
            for number in range(suite.rounds)
            for benchmark in suite.benchmarks
            for count in suite.threads(benchmark.name)
        ]

        def take(result: JobResult) -> None:
            number, benchmark, count = blocks[result.job.block]
            self._measured(number, self._cells(benchmark, count)[result.job.config], result.outcome)

        run_batches(runner, len(blocks), lambda at: self._block(at, *blocks[at]), take)

    def _cells(self, benchmark: Benchmark, count: int) -> list[Cell]:
        """Return the allocators' cells in order, then the void's. A job's configuration is an index of this list."""
        cells = [self.suite.cells[benchmark.name, a.name, count] for a in self._allocators]
        void = self.suite.voids.get((benchmark.name, count))
        return [*cells, void] if void else cells

    def _block(self, at: int, number: int, benchmark: Benchmark, count: int) -> Work:
        """Return a block: one run of each allocator, and of the void.

        Args:
            at: number of the block.
            number: number of the round.
            benchmark: the benchmark.
            count: number of threads.
        """
        cells = self._cells(benchmark, count)
        for cell in cells:
            self._given_up([cell])
        runs = random_order(enumerate(cells), f"{self.seed}/{number}/{benchmark.name}/{count}")
        jobs = [self._job(at, number, index, cell) for index, cell in runs if not cell.failure]
        return Work(tuple(jobs))

    def _job(self, block: int, number: int, index: int, cell: Cell) -> Job:
        void = index == len(self._allocators)
        options = cell.benchmark.command(cell.threads, self.seed + number, self.suite.quick, empty=void)
        input_ = Input(f"{cell.benchmark.name} {cell.threads}", args=[self._paths[cell.benchmark.program], *options])
        environment = {"LD_PRELOAD": ""} if void else self._allocators[index].environment(self.base)
        pad = random_pad(f"{self.seed}/{number}/{cell.benchmark.name}/{cell.threads}/{cell.allocator}")
        return Job("bench", block, input_, index, environment, pad)

    def _measured(self, number: int, cell: Cell, outcome: Outcome) -> None:
        self.progress.ran(True)
        cell.failure = cell.failure or why_failed(outcome)
        if outcome.run.timed_out:
            self._count_hang(cell.allocator)
        if not cell.failure:
            cell.runs[number] = metrics_of(outcome)

    def _count_hang(self, name: str) -> None:
        self._hangs[name] = self._hangs.get(name, 0) + 1

    def _given_up(self, cells: Sequence[Cell]) -> bool:
        """Whether the allocator of these cells has hung too often to be run again. If so, the cells fail."""
        if self._hangs.get(cells[0].allocator, 0) < _MAX_HANGS:
            return False
        for cell in cells:
            cell.failure = cell.failure or f"not run: it had hung {_MAX_HANGS} times"
        return True


def repeated(allocators: Sequence[Allocator]) -> list[Allocator]:
    """Return the allocators with a new name ('glibc-2') for each repetition: this compares an allocator with itself."""
    seen: dict[str, int] = {}
    found = []
    for allocator in allocators:
        times = seen[allocator.name] = seen.get(allocator.name, 0) + 1
        found.append(allocator if times == 1 else dataclasses.replace(allocator, name=f"{allocator.name}-{times}"))
    return found
