"""Tests which bugs a hardened build reports, over all sizes: the table in docs/allocators.md."""

from __future__ import annotations

import collections
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs
from tests.allocator.conftest import FLAGS, Malloc, bundled_malloc

END, LATE, TWICE = "was written beyond its end", "was written after it was freed", "was free already"
INSIDE, FOREIGN = "is inside a block or in memory that belongs to no block", "is not a block of this allocator"
ORIGIN, SIZE = "was allocated by another kind of function", "has another size than the one given"


@pytest.fixture(scope="module", params=["exgen-secure", "reaper-secure"])
def hardened(request: pytest.FixtureRequest) -> Malloc:
    return bundled_malloc(request.param)


@pytest.fixture
def tell(hardened: Malloc, program: Callable[..., Path]) -> Callable[..., tuple[int, collections.Counter[str]]]:
    """Runs one kind of bug; returns how often it was made, and the messages about it."""

    def run(kind: str, options: str = "on_error=report") -> tuple[int, collections.Counter[str]]:
        words = (program("allocator_hardened", *FLAGS, "-w"), kind)
        done = hardened.run(*words, env={"EXGEN_OPTIONS": options, "REAPER_OPTIONS": options})
        assert done.returncode == 0, done.stderr.decode()[-500:]
        *said, bugs = done.stdout.decode().splitlines()
        assert not said
        text = (re.sub(r"^.*?0x[0-9a-f]+(, which)? ", "", line) for line in done.stderr.decode().splitlines())
        told = (line.partition(" (")[0] for line in text)
        return int(bugs), collections.Counter(told)

    return run


Tell = Callable[..., tuple[int, collections.Counter[str]]]


@pytest.mark.parametrize("options", ["on_error=report", "on_error=report,wipe=0", "on_error=report,quarantine=0"])
@pytest.mark.few(2)
def test_a_program_without_bugs_is_left_alone(tell: Tell, options: str) -> None:
    assert tell("none", options) == (0, {})


def test_a_write_behind_a_block_of_any_size_is_noticed(tell: Tell) -> None:
    bugs, told = tell("overflow")
    assert bugs > 10_000
    assert told == {END: bugs}


def test_a_write_behind_a_long_block_that_has_grown_is_refused(tell: Tell) -> None:
    assert tell("grown") == (47, {})


def test_a_write_before_a_block_is_noticed(tell: Tell) -> None:
    """It is the last of the neighbour's mark."""
    bugs, told = tell("underflow")
    assert bugs > 300
    assert told == {END: bugs}


# All sizes take a while, and both builds have the same code for it.
@pytest.mark.parametrize("hardened", ["exgen-secure", needs.long("reaper-secure")], indirect=True)
def test_a_write_after_free_at_any_offset_is_noticed(tell: Tell) -> None:
    bugs, told = tell("late")
    assert bugs > 1500
    assert told == {LATE: bugs}


def test_a_second_free_is_noticed(tell: Tell) -> None:
    bugs, told = tell("double")
    assert bugs > 10_000
    assert told.total() == bugs
    assert set(told) <= {TWICE, FOREIGN, INSIDE}


def test_a_free_by_two_threads_at_once_is_noticed(tell: Tell) -> None:
    """One of them is told; it may have seen the block while the other one wiped it."""
    bugs, told = tell("race")
    assert told.total() == bugs
    assert set(told) <= {TWICE, END}


def test_a_free_inside_a_block_is_noticed(tell: Tell) -> None:
    bugs, told = tell("inside")
    assert bugs > 20_000
    assert told.total() == bugs
    assert set(told) <= {INSIDE, FOREIGN}


def test_a_free_by_the_wrong_function_is_noticed(tell: Tell) -> None:
    bugs, told = tell("mismatch")
    assert told == {ORIGIN: bugs // 8 * 6, SIZE: bugs // 8 * 2}
    assert tell("mismatch", "on_mismatch=report") == (bugs, told)
    assert tell("mismatch", "on_mismatch=ignore") == (bugs, {})


def test_blocks_are_handed_out_in_random_order(tell: Tell) -> None:
    """Eight blocks stand in order by chance in one of 40,320 cases; the allocator carves more of small ones."""
    ascending, told = tell("order")
    assert ascending <= 1, "of more than twenty classes"
    assert told == {}


def test_a_freed_block_is_not_handed_out_next(tell: Tell) -> None:
    assert tell("reuse") == (0, {})
