"""Defines the benchmarks: the program and options of each, its thread counts, and the metrics that count.

The head of a program's source (native/benchmarks) says which workload it models, and its origin.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from heapwright.errors import unknown

Scope = Literal["all", "largest", "one"]


@dataclass(frozen=True)
class Benchmark:
    """One benchmark.

    Attributes:
        name: as in tables and JSON.
        suite: name of its suite on the command line.
        program: file name in _native/benchmarks.
        words: options besides threads, seed and --quick; `{others}` is the thread count less one.
        full: further options for a full run, where the program's own defaults would take too long.
        scope: 'all': runs at all thread counts; 'largest': only at the largest; 'one': only with one thread.
        min_threads: number of threads that it needs; smaller counts are raised to it.
        time: metric that measures speed.
        memory: metric that measures memory.
        iterations: iterations of each thread, in benchmarks that differ in this number; otherwise None.
        quick: True: only in quick runs; False: only in full runs; None: in both.
    """

    name: str
    suite: str
    program: str
    words: tuple[str, ...] = ()
    full: tuple[str, ...] = ()
    scope: Scope = "all"
    min_threads: int = 1
    time: str = "wall_s"
    memory: str = "peak_rss_bytes"
    iterations: int | None = None
    quick: bool | None = None

    @property
    def void(self) -> bool:
        """Whether the cost of the void allocator is subtracted."""
        return self.program == "bench-realistic"

    def thread_counts(self, wanted: Iterable[int]) -> list[int]:
        """Return the thread counts at which it runs, given the counts that the user wants."""
        match self.scope:
            case "one":
                return [1]
            case "largest":
                return [max(wanted)]
            case "all":
                return sorted({max(count, self.min_threads) for count in wanted})

    def command(self, threads: int, seed: int, quick: bool, empty: bool = False) -> list[str]:
        """Return the program's options.

        Args:
            threads: number of threads.
            seed: seed of the program's work.
            quick: whether the run is a quick one.
            empty: whether the program uses the void allocator.
        """
        words = [*self.words, *(() if quick else self.full)]
        own = [word.format(others=threads - 1) for word in words]
        flags = [*(["--quick"] if quick else []), *(["--void"] if empty else [])]
        return ["--threads", str(threads), "--seed", str(seed), *flags, *own]


def _realistic(name: str, *words: str, min_threads: int = 1, full: tuple[str, ...] = ()) -> Benchmark:
    return Benchmark(
        name,
        "realistic",
        "bench-realistic",
        words,
        full,
        min_threads=min_threads,
        time="ns_per_pair",
        memory="overhead",
    )


def _iterations(count: int, quick: bool) -> Benchmark:
    name = f"scalability-{count // 1000}k"
    words = (f"iterations={count}",)
    return Benchmark(name, "openmp", "bench-scalability", words, scope="largest", iterations=count, quick=quick)


def _burst(name: str, *words: str, min_threads: int = 1, quick: bool | None = None) -> Benchmark:
    return Benchmark(f"burst-{name}", "burst", "bench-burst", words, min_threads=min_threads, time="cpu_s", quick=quick)


def _large(name: str, *words: str, steps: int) -> tuple[Benchmark, Benchmark]:
    """A benchmark of large blocks, and the same with a tenth of the steps for quick runs."""
    return (
        Benchmark(name, "large", "bench-large", (*words, f"steps={steps}"), time="cpu_s", quick=False),
        Benchmark(name, "large", "bench-large", (*words, f"steps={steps // 10}"), time="cpu_s", quick=True),
    )


def _pages(name: str, *words: str, quick: bool | None = None) -> Benchmark:
    return Benchmark(
        f"pages-{name}", "pages", "bench-pages", words, time="cpu_s", memory="fallen_rss_bytes", quick=quick
    )


_SMALLER = ("mib=256", "steps=1000000")

BENCHMARKS: tuple[Benchmark, ...] = (
    _realistic("realistic"),
    _realistic("realistic-handover", "handover=20", min_threads=2, full=_SMALLER),
    _realistic("realistic-realloc", "realloc=20", full=_SMALLER),
    Benchmark("correctness", "openmp", "bench-correctness"),
    Benchmark("scalability", "openmp", "bench-scalability"),
    *(_iterations(count, True) for count in (100_000, 300_000, 1_000_000)),
    *(_iterations(count, False) for count in (250_000, 500_000, 1_000_000, 2_000_000, 4_000_000)),
    Benchmark("cache-thrash", "openmp", "bench-cache-sharing"),
    Benchmark("cache-scratch", "openmp", "bench-cache-sharing", ("passive=1",)),
    Benchmark("server", "server", "bench-server"),
    Benchmark("shared-cache", "shared-cache", "bench-shared-cache", time="cpu_s"),
    Benchmark("producer-consumer", "producer-consumer", "bench-producer-consumer"),
    Benchmark("n-to-1", "producer-consumer", "bench-producer-consumer", ("producers={others}",), min_threads=3),
    Benchmark("1-to-n", "producer-consumer", "bench-producer-consumer", ("producers=1",), min_threads=3),
    Benchmark("unbounded", "producer-consumer", "bench-producer-consumer", ("bounded=0",)),
    Benchmark("batch", "batch", "bench-batch"),
    *(_burst(str(count), f"blocks={count}") for count in (32, 1000, 10_000, 100_000)),
    _burst("reverse", "order=1"),
    _burst("random", "order=2"),
    _burst("random-100000", "blocks=100000", "order=2"),
    _burst("keep", "keep=8"),
    _burst("1000-bytes", "size=1000"),
    _burst("40000-bytes", "blocks=20", "size=40000"),
    _burst("300000-bytes", "blocks=10", "size=300000"),
    *(_burst(f"ladder-{count}", f"blocks={count}", "ladder=1") for count in (1000, 10_000)),
    _burst("ladder-random", "ladder=1", "order=2"),
    _burst("ladder-keep", "ladder=1", "keep=8"),
    # Four times as long: with several threads, an allocator's steady state shows only after many
    # bursts.
    _burst("ladder-long", "ladder=1", "order=2", "operations=16000000", quick=False),
    *(_burst(f"ring-{count}", f"blocks={count}", "ring=1", "ladder=1") for count in (1000, 10_000)),
    _burst("handover", "handover=1", min_threads=2),
    _burst("handover-1000", "handover=1", "blocks=1000", min_threads=2),
    _burst("handover-16384-bytes", "handover=1", "blocks=64", "size=16384", min_threads=2),
    _burst("spread", "handover=2", min_threads=2),
    Benchmark("phases", "phases", "bench-phases", scope="one", memory="fall_idle_rss_bytes"),
    _pages("random", "random=1"),
    *(_pages(str(mib), f"mib={mib}", quick=False) for mib in (16, 64, 256, 1024)),
    Benchmark("realloc-growth", "realloc-growth", "bench-realloc-growth", scope="one"),
    Benchmark("large", "large", "bench-large"),
    *_large("large-many", "min=32", "max=512", "held=2000", steps=300_000),
    *_large("large-buffers", "min=32", "max=256", "held=4", steps=2_000_000),
    *_large("large-replaced", "min=64", "max=1000", "held=32", steps=200_000),
    *_large("large-changing", "min=1024", "max=4096", "held=1", steps=40_000),
    *_large("large-zeroed", "min=1024", "max=4096", "held=1", "zeroed=1", steps=40_000),
    Benchmark("kinds", "large", "bench-kinds", time="cpu_s"),
    Benchmark("thread-exit", "thread-exit", "bench-thread-exit", memory="rss_bytes"),
    Benchmark("fork-storm", "fork-storm", "bench-fork-storm"),
    Benchmark("startup", "startup", "bench-startup", scope="one", memory="empty_rss_bytes"),
)

SUITES: tuple[str, ...] = tuple(dict.fromkeys(b.suite for b in BENCHMARKS))


def choose_benchmarks(suite: str, quick: bool) -> Sequence[Benchmark]:
    """Return the benchmarks of a suite, or of all suites.

    Args:
        suite: name of the suite, or 'all'.
        quick: whether the run is a quick one.

    Raises:
        UsageError: there is no such suite.
    """
    if suite != "all" and suite not in SUITES:
        raise unknown("suite", suite, ["all", *SUITES])
    return [b for b in BENCHMARKS if suite in ("all", b.suite) and b.quick in (None, quick)]
