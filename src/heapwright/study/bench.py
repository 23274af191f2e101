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
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import msgspec

from heapwright.allocators.registry import Allocator
from heapwright.allocators.takeover import judge, watch_environment
from heapwright.errors import HeapwrightError
from heapwright.measure.meter import MeterOptions, Run, run_metered
from heapwright.study.bench_results import Cell, derive
from heapwright.study.blocks import Progress
from heapwright.study.suite import Benchmark
from heapwright.workload.execute import ending, pad_environment

CORRUPT = 3  # the programs' status for a block that does not hold what was written
VOID = "void"
_PAD = 4096  # a page: covers every alignment of the stack
_PATIENCE = 3  # so many hangs, and an allocator is not run any more
_METERED = ("peak_rss_bytes", "minor_faults", "major_faults")
_OF_PROCESS = ("wall_s", "user_s", "sys_s", "cpu_s")


@dataclass(frozen=True)
class Ran:
    """One run of a program: as it was metered, and what it printed."""

    run: Run
    output: str


Runner = Callable[[Sequence[str], Mapping[str, str]], Ran]


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
    """

    name: str
    quick: bool
    benchmarks: Sequence[Benchmark]
    allocators: Sequence[Allocator]
    rounds: int
    cells: dict[tuple[str, str, int], Cell] = field(default_factory=dict)
    voids: dict[tuple[str, int], Cell] = field(default_factory=dict)
    interrupted: bool = False

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
    path = Path(str(files("heapwright"))) / "_native/benchmarks" / name
    if not os.access(path, os.X_OK):
        raise HeapwrightError(f"there is no benchmark program {path}", "run 'make build', or reinstall heapwright")
    return path


def metered(timeout: float) -> Runner:
    """Runs under the polling meter: the others stop a program at each mapping call, which would charge allocators
    for every one they make.
    """
    options = MeterOptions(backend="poll", timeout=timeout)

    def run(words: Sequence[str], environment: Mapping[str, str]) -> Ran:
        with tempfile.TemporaryFile() as output:
            found = run_metered(words, options, env=environment, keep=output)
            output.seek(0)
            return Ran(found, output.read().decode(errors="replace"))

    return run


def why_failed(ran: Ran) -> str:
    """What went wrong with a run, or empty."""
    said = ran.run.stderr_tail.strip().splitlines()[-1:]
    if ran.run.timed_out:
        return "hung: stopped at the time limit"
    if ran.run.exit_code == CORRUPT:
        return f"corrupted memory: {said[0][:200]}" if said else "corrupted memory"
    if ran.run.exit_code:
        return ending(ran.run.exit_code) + (f": {said[0][:200]}" if said else "")
    return "" if _read(ran) else "it printed no result"


def _read(ran: Ran) -> dict[str, float | None]:
    """The numbers a program printed; none if that was no JSON object."""
    try:
        found = msgspec.json.decode(ran.output)
    except msgspec.DecodeError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {k: v for k, v in found.items() if v is None or (isinstance(v, int | float) and not isinstance(v, bool))}


def metrics_of(ran: Ran) -> dict[str, float | None]:
    """The program's own figures of its measured part, and the meter's of the whole process tree."""
    found = {k: v for k, v in _read(ran).items() if k not in ("threads", "seed")}
    found |= {f"process_{key}": ran.run.metrics.get(key) for key in _OF_PROCESS}
    found |= {key: ran.run.metrics.get(key, found.get(key)) for key in _METERED}
    falls = [key for key in found if key.startswith("fall") and key.endswith("_idle_rss_bytes")]
    if falls:
        found["fall_idle_rss_bytes"] = found[max(falls)]
    return found


class Bencher:
    """Runs benchmarks.

    Args:
        allocators: the reference first.
        threads: the counts wanted; a benchmark may need others (`Benchmark.thread_counts`).
        run: how to run a program.
        seed: of the order, of padding and of the programs' own work, which is the same for all in a round.
    """

    def __init__(
        self,
        suite: Suite,
        threads: Sequence[int],
        run: Runner,
        seed: int,
        progress: Progress,
        base: Mapping[str, str],
        where: Callable[[str], Path] = program_path,
    ) -> None:
        self.suite = suite
        self.run_program = run
        self.seed = seed
        self.progress = progress
        self.base = dict(base)
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
            for number in range(suite.rounds):
                for benchmark in suite.benchmarks:
                    for count in suite.threads(benchmark.name):
                        self._block(benchmark, count, number)
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
        with tempfile.TemporaryDirectory(prefix="heapwright-") as name:
            environment = {**self.base, **allocator.environment(self.base), **watch_environment(Path(name))}
            ran = self.run_program(words, environment)
            self.progress.ran(True)
            failure = why_failed(ran)
            if ran.run.timed_out:
                self._hung(allocator.name)
            elif not failure:
                self._allocators[at], failure = judge(allocator, words[0], Path(name))
            else:
                return  # what fails here is shown by the measured runs
        for cell in cells:
            cell.failure = failure

    def _block(self, benchmark: Benchmark, count: int, number: int) -> None:
        """All allocators, and the void, once."""
        cells = [(self.suite.cells[benchmark.name, a.name, count], a) for a in self._allocators]
        runs: list[tuple[Cell, Allocator | None]] = [pair for pair in cells if not pair[0].failure]
        void = self.suite.voids.get((benchmark.name, count))
        if void and not void.failure:
            runs.append((void, None))
        random.Random(f"{self.seed}/{number}/{benchmark.name}/{count}").shuffle(runs)
        for cell, allocator in runs:
            if not self._given_up([cell]):
                self._measure(cell, allocator, number)

    def _measure(self, cell: Cell, allocator: Allocator | None, number: int) -> None:
        options = cell.benchmark.command(cell.threads, self.seed + number, self.suite.quick, empty=allocator is None)
        environment = {k: v for k, v in self.base.items() if k != "LD_PRELOAD"}
        if allocator is not None:
            environment = {**self.base, **allocator.environment(self.base)}
        pad = random.Random(f"{self.seed}/{number}/{cell.benchmark.name}/{cell.threads}/{cell.allocator}")
        environment = pad_environment(environment, pad.randrange(_PAD))
        ran = self.run_program([self._paths[cell.benchmark.program], *options], environment)
        self.progress.ran(True)
        cell.failure = why_failed(ran)
        if ran.run.timed_out:
            self._hung(cell.allocator)
        if not cell.failure:
            cell.runs[number] = metrics_of(ran)

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
