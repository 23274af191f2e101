"""Tests that order and padding follow from a key, and that batches have the size of the runner."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heapwright.interleaving.interleave import PAD_BYTES, random_order, random_pad, run_batches, submitted
from heapwright.interleaving.runner import Job, JobResult, Work
from heapwright.workload.model import Input

from .fakes import FakeProgram, FakeRunner


def work(block: int, configs: int = 2) -> Work:
    input_ = Input("default")
    return Work(tuple(Job("p", block, input_, id_, {"WHO": f"{block}.{id_}"}, 0) for id_ in range(configs)))


@given(st.lists(st.integers()), st.text())
def test_an_order_has_every_item_and_depends_on_the_key_alone(items: list[int], key: str) -> None:
    found = random_order(iter(items), key)
    assert sorted(found) == sorted(items)
    assert random_order(items, key) == found


@given(st.text())
def test_a_pad_is_less_than_a_page_and_depends_on_the_key_alone(key: str) -> None:
    assert 0 <= random_pad(key) < PAD_BYTES
    assert random_pad(key) == random_pad(key)


def test_stored_studies_depend_on_these_draws() -> None:
    """A study that was begun with an older version is resumed with the same order and padding."""
    assert random_order("abcde", "7/search/4/small") == ["b", "d", "a", "c", "e"]
    assert [random_pad(f"7/search/3/small/{config}") for config in (1, 2, 3)] == [3179, 3904, 527]


def test_batches_are_made_after_the_results_of_earlier_ones() -> None:
    runner = FakeRunner(FakeProgram(), slots=2)
    seen: list[str] = []

    def make(number: int) -> Work:
        seen.append(f"make {number}")
        return work(number)

    def take(result: JobResult) -> None:
        seen.append(f"take {result.job.block}.{result.job.config}")

    run_batches(runner, 3, make, take)
    assert seen == [
        *("make 0", "make 1", "take 0.0", "take 0.1", "take 1.0", "take 1.1"),
        *("make 2", "take 2.0", "take 2.1"),
    ]
    assert [len(batch) for batch in runner.batches] == [2, 1, 0]


def test_a_block_without_jobs_is_not_submitted() -> None:
    runner = FakeRunner(FakeProgram())
    with submitted(runner, [work(0, configs=0), work(1)]) as results:
        assert [r.job.block for r in results] == [1, 1]
    assert [len(batch) for batch in runner.batches] == [1, 0]


def test_leaving_early_cancels_the_rest() -> None:
    program = FakeProgram()
    runner = FakeRunner(program)
    with submitted(runner, [work(0), work(1)]) as results:
        next(results)
    assert runner.cancelled == 1
    assert len(program.made) == 1
    assert list(results) == []
