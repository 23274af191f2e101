"""Tests compare with a program that is not run: order, padding, failures, outputs."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from heapwright.allocators.registry import Allocator
from heapwright.allocators.space_spec import AllocatorSpec, SpaceFile
from heapwright.comparison import compare as module
from heapwright.comparison.compare import Comparer, Comparison
from heapwright.errors import HeapwrightError
from heapwright.measure.meter import MeterOptions
from heapwright.report.comparison import comparison_json, markdown, show_table
from heapwright.report.progress import SilentProgress
from heapwright.workload.execute import Outcome
from heapwright.workload.model import Input, Workload, WorkloadFile

from ..interleaving.fakes import FakeProgram, outcome

INPUTS = (Input("small"), Input("large"))


def compare(program: FakeProgram, monkeypatch: pytest.MonkeyPatch, rounds: int = 4) -> Comparison:
    """Three allocators that the loader is not asked about: they have no library."""
    monkeypatch.setattr(module, "Executor", lambda *_: program)
    allocators = [Allocator(n, None, None, False, "", SpaceFile(AllocatorSpec(n)), {"WHO": n}) for n in "abc"]
    workload = Workload(WorkloadFile(command=["true"]), Path("/"), INPUTS)
    return Comparer(workload, allocators, MeterOptions(timeout=5), 7, SilentProgress(), {}).run(rounds)


def test_order_and_padding_stay_the_same_between_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    program = FakeProgram()
    compare(program, monkeypatch)
    assert [pad for *_, pad in program.made[:8]] == [0] * 8, "warm-ups, two of the reference"
    assert program.made[8:11] == [("a", "small", 2160), ("a", "large", 3541), ("b", "small", 3285)]
    assert program.fingerprint() == "e8f2e82e5d8cb92c"


def test_every_round_has_every_allocator_on_every_input(monkeypatch: pytest.MonkeyPatch) -> None:
    found = compare(FakeProgram(), monkeypatch)
    for row in found.rows:
        assert set(row.runs) == {(number, name) for number in range(4) for name in ("small", "large")}
        assert row.ratios["cpu_s"].value == 1


def test_an_allocator_that_fails_is_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    program = FakeProgram(lambda who, n: outcome(failure="exit status 1") if who == "b" and n > 5 else outcome())
    found = compare(program, monkeypatch)
    assert [row.failure for row in found.rows] == ["", "exit status 1", ""]
    assert sum(who == "b" for who, *_ in program.made) == 3  # two warm-ups and one run


def test_another_output_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    program = FakeProgram(lambda who, _: outcome("other" if who == "c" else "same"))
    found = compare(program, monkeypatch)
    assert [row.failure for row in found.rows] == ["", "", "its output differs from the reference's"]
    assert found.warnings == []


@pytest.mark.parametrize("who_fails", ["c", "ac"])
def test_errors_of_a_load_are_told_and_never_only_a_candidates(who_fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = FakeProgram(lambda who, _: outcome(load_errors=5.0 * (who in who_fails), load_operations=10.0))
    found = compare(program, monkeypatch)
    if who_fails == "c":
        why = "its load had 5 errors in 10 operations (50%), and the loads of the reference had none"
        assert [row.failure for row in found.rows] == ["", "", why]
        assert found.warnings == []
    else:
        assert [row.failure for row in found.rows] == ["", "", ""]
        text = "had 40 errors in 80 operations (50%): an operation that fails may take less memory and time."
        assert found.warnings == [f"The load under a {text}", f"The load under c {text}"]


def test_an_output_that_changes_by_itself_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def digest(who: str) -> str:
        made.append(who)
        return f"{who} {len(made)}" if who != "a" or made.count("a") > 6 else "same at first"

    found = compare(FakeProgram(lambda who, _: outcome(digest(who))), monkeypatch)
    assert [row.failure for row in found.rows] == ["", "", ""]
    assert found.warnings == ["The output differs from run to run by itself, so equal output was not required."]


def test_a_reference_of_zero_has_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    """In some rounds 'b' has no huge pages either; those rounds alone would say that nothing changes."""

    def answer(who: str, count: int) -> Outcome:
        found = outcome()
        found.run.metrics["huge_bytes"] = 2.0e7 if who == "b" and count % 4 else 0.0
        return found

    found = compare(FakeProgram(answer), monkeypatch, rounds=10)
    rows = {row.allocator.name: row for row in found.rows}
    assert 0 < sum(run.metrics["huge_bytes"] == 0 for run in rows["b"].runs.values()) < 20
    assert "huge_bytes" not in rows["b"].ratios
    assert rows["c"].ratios["huge_bytes"].value == 1, "it is 0 everywhere"
    assert "n/a" in markdown(found, ["huge_bytes"], ["heapwright"])
    assert "'p\ufffdq'" in markdown(found, ["huge_bytes"], ["heapwright", "p\udcffq"]), "a name that is not UTF-8"


def test_an_interrupted_comparison_keeps_its_results(monkeypatch: pytest.MonkeyPatch) -> None:
    def stops(count: int) -> FakeProgram:
        def answer(_who: str, made: int) -> Outcome:
            if made == count:
                raise KeyboardInterrupt
            return outcome()

        return FakeProgram(answer)

    whole = FakeProgram()
    compare(whole, monkeypatch)
    found = compare(stops(len(whole.made) - 1), monkeypatch)
    assert found.interrupted
    assert found.rounds == 4
    assert found.reference.summary["wall_s"].n >= 6
    assert any(text.startswith("Interrupted before its end") for text in found.warnings)
    with pytest.raises(KeyboardInterrupt):
        compare(stops(1), monkeypatch)


def test_a_reference_that_fails_once_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = FakeProgram(lambda who, n: outcome(failure="exit status 1") if who == "a" and n == 14 else outcome())
    found = compare(failing, monkeypatch)
    assert found.error is None
    assert found.warnings == []
    assert [len(row.runs) for row in found.rows] == [8, 8, 8]


def test_a_reference_that_fails_late_keeps_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    late = FakeProgram(lambda who, n: outcome(failure="timed out after 5 s") if who == "a" and n > 25 else outcome())
    found = compare(late, monkeypatch)
    assert found.error is not None
    assert found.error.message.endswith("under a, the reference: timed out after 5 s")
    assert comparison_json(found, ["true"])["error"] == found.error.message
    assert found.rounds == 3
    assert found.rows[1].ratios["cpu_s"].value == 1
    assert found.warnings == ["An error ended the comparison early: the figures are those of the runs made so far."]
    early = FakeProgram(lambda who, n: outcome(failure="timed out") if who == "a" and n > 8 else outcome())
    with pytest.raises(HeapwrightError, match="timed out"):
        compare(early, monkeypatch)


def test_a_reference_that_fails_ends_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    program = FakeProgram(lambda who, _: outcome(failure="exit status 1") if who == "a" else outcome())
    with pytest.raises(HeapwrightError, match="the command fails under a, the reference: exit status 1"):
        compare(program, monkeypatch)


@pytest.mark.parametrize("width", [40, 80])
def test_a_narrow_terminal_cuts_no_figure(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = compare(FakeProgram(lambda who, n: outcome(cpu_s=1 + n % 3 + ord(who) / 100)), monkeypatch)
    metrics, out = ["cpu_s"] * 5, Console(width=width, force_terminal=True, color_system=None)
    with out.capture() as captured:
        widest = show_table(found, metrics, out)
    lines = captured.get().splitlines()
    assert max(map(len, lines)) == widest <= width
    cells = [cell for row in markdown(found, metrics, []).splitlines() for cell in row.strip("| ").split(" | ")]
    assert sum(line.count("]") for line in lines) == sum(cell.count("]") for cell in cells if "[" in cell) == 10
    assert sum(line.startswith("b ") for line in lines) == -(-5 // (1 if width == 40 else 3))
