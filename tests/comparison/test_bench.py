"""Tests the suite's runner with programs that are not run: order, padding, warm-ups, failures of all kinds."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from heapwright.allocators.registry import Allocator, get_allocator
from heapwright.allocators.space_spec import AllocatorSpec, SpaceFile
from heapwright.comparison.bench import Bencher, Suite, repeated, why_failed
from heapwright.comparison.suite import BENCHMARKS, SUITES, choose_benchmarks
from heapwright.errors import UsageError
from heapwright.measure.meter import Run
from heapwright.report.benchmarks import latex, markdown, text
from heapwright.report.progress import SilentProgress
from heapwright.workload.execute import Outcome
from heapwright.workload.model import Input

Mood = Callable[[Sequence[str], Mapping[str, str]], Outcome | None]


def allocator(name: str) -> Allocator:
    """An allocator without a library, so the loader is not asked about it."""
    return Allocator(name, None, None, False, "", SpaceFile(AllocatorSpec(name)), {"WHO": name})


def ran(exit_code: int = 0, timed_out: bool = False, stderr: str = "", output: str | None = None) -> Outcome:
    figures = {"wall_s": 0.5, "cpu_s": 0.4, "operations": 1000, "live_bytes": 1000, "cycles": None}
    run = Run({"peak_rss_bytes": 5000.0, "wall_s": 0.6}, exit_code, timed_out, "", "poll", stderr_tail=stderr)
    return Outcome(run, "", "", json.dumps(figures) if output is None else output)


class Machine:
    """Stands for an executor. Runs nothing and notes every call."""

    def __init__(self, mood: Mood | None = None) -> None:
        self.mood = mood
        self.seen: list[tuple[str, str, list[str]]] = []
        self.pads: list[int] = []

    def run(self, input_: Input, environment: Mapping[str, str], pad: int, _stop: threading.Event | None, /) -> Outcome:
        words = input_.args
        self.pads.append(pad)
        self.seen.append((environment.get("WHO", "void"), words[0], list(words[1:])))
        return (self.mood and self.mood(words, environment)) or ran()

    def measured(self) -> list[tuple[str, str, list[str]]]:
        return [s for s in self.seen if "--quick" not in s[2]]


def bench(
    machine: Machine,
    suite: str = "server",
    names: Sequence[str] = "abc",
    rounds: int = 2,
    threads: Sequence[int] = (1, 2),
) -> Suite:
    found = Suite(suite, False, choose_benchmarks(suite, False), [allocator(n) for n in names], rounds)
    return Bencher(found, threads, machine, 1, SilentProgress(), {}, where=Path).run()


def test_every_block_has_all_allocators_in_changing_order() -> None:
    machine = Machine()
    bench(machine, rounds=8)
    runs = machine.measured()
    orders = ["".join(who for who, *_ in runs[at : at + 3]) for at in range(0, len(runs), 3)]
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    assert len(orders) == 8 * 2
    assert len(set(orders)) > 2


def test_order_and_padding_stay_the_same_between_versions() -> None:
    machine = Machine()
    bench(machine, "realistic", rounds=1, threads=(1,))
    assert "".join(who[0] for who, *_ in machine.seen) == "abcacbvbacvbcva"
    assert machine.pads[:6] == [0, 0, 0, 3756, 1563, 1506]


def test_work_is_the_same_within_a_block_and_changes_with_the_round() -> None:
    machine = Machine()
    bench(machine, threads=(2,))
    runs = machine.measured()
    assert {tuple(words) for _, _, words in runs[:3]} == {("--threads", "2", "--seed", "1")}
    assert {tuple(words) for _, _, words in runs[3:]} == {("--threads", "2", "--seed", "2")}


def test_the_void_runs_in_every_block_without_any_allocator() -> None:
    machine = Machine()
    found = bench(machine, "realistic", threads=(1,))
    blocks = [s for s in machine.measured() if s[0] == "void"]
    # realistic and realistic-realloc with one thread, realistic-handover with two; two rounds
    assert len(blocks) == 6
    assert all("--void" in words for _, _, words in blocks)
    assert set(found.voids) == {("realistic", 1), ("realistic-handover", 2), ("realistic-realloc", 1)}
    assert found.cells["realistic", "a", 1].medians["ns_per_pair"] == 0


def test_failures_stay_in_their_cell() -> None:
    def mood(words: Sequence[str], environment: Mapping[str, str]) -> Outcome | None:
        broken = environment.get("WHO") == "b" and "--quick" not in words and words[2] == "2"
        return ran(139) if broken else None

    found = bench(Machine(mood))
    assert found.cells["server", "b", 2].failure == "killed by SIGSEGV"
    assert found.cells["server", "b", 1].measured
    assert found.cells["server", "c", 2].measured


def test_an_allocator_that_hangs_is_given_up() -> None:
    machine = Machine(lambda _, e: ran(137, timed_out=True) if e.get("WHO") == "b" else None)
    found = bench(machine, "all")
    assert sum(who == "b" for who, *_ in machine.seen) == 3
    failures = {c.failure for c in found.cells.values() if c.allocator == "b"}
    assert failures == {"hung: stopped at the time limit", "not run: it had hung 3 times"}
    assert all(c.measured for c in found.cells.values() if c.allocator != "b")


def test_an_interrupted_suite_keeps_its_results() -> None:
    def mood(words: Sequence[str], _: Mapping[str, str]) -> Outcome | None:
        if "--quick" not in words and words[4] == "2":  # the second round
            raise KeyboardInterrupt
        return None

    found = bench(Machine(mood))
    assert found.interrupted
    assert found.cells["server", "b", 1].medians["wall_s"] == 0.5
    for page in (text(found, 200), markdown(found, []), latex(found, [])):
        assert "Interrupted before its end: the figures are those of the runs made so far, at most 2 inter" in page


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (ran(), ""),
        (ran(3, stderr="x\ncorruption: block 0x1 of 8 bytes\n"), "corrupted memory: corruption: block 0x1 of 8 bytes"),
        (ran(134), "killed by SIGABRT"),
        (ran(1, stderr="out of memory: 64 bytes\n"), "exit status 1: out of memory: 64 bytes"),
        (ran(137, timed_out=True), "hung: stopped at the time limit"),
        (ran(output="no json"), "it printed no result"),
        (ran(output="[1]"), "it printed no result"),
    ],
)
def test_the_reason_of_a_failure(what: Outcome, why: str) -> None:
    assert why_failed(what) == why


def test_a_name_given_twice_gets_another() -> None:
    assert [a.name for a in repeated([allocator(n) for n in "aba"])] == ["a", "b", "a-2"]


@pytest.mark.parametrize("suite", ["all", *SUITES])
@pytest.mark.parametrize("quick", [True, False])
def test_names_are_unique(suite: str, quick: bool) -> None:
    names = [b.name for b in choose_benchmarks(suite, quick)]
    assert names
    assert len(names) == len(set(names))


def test_a_benchmark_runs_with_the_thread_counts_that_it_supports() -> None:
    by_name = {b.name: b for b in BENCHMARKS}
    assert by_name["n-to-1"].thread_counts([1, 2, 4]) == [3, 4]
    assert by_name["phases"].thread_counts([2, 4]) == [1]
    assert by_name["scalability-4000k"].thread_counts([2, 4]) == [4]
    assert by_name["n-to-1"].command(4, 1, True)[-1] == "producers=3"


def test_an_unknown_suite_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown suite 'servre'"):
        choose_benchmarks("servre", False)


def test_glibc_is_not_preloaded() -> None:
    assert get_allocator("glibc").preload == ""
