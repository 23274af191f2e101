"""Draws the order and the padding of the runs of a block, and runs blocks batch by batch.

Order and padding follow from a key, which holds the seed and where the run stands (its round or block, its input, its
configuration). They do not depend on earlier draws, so a resumed study makes the same runs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

from heapwright.interleaving.runner import JobResult, Runner, Work

PAD_BYTES = 4096  # a page: covers every alignment of the stack

_T = TypeVar("_T")


def random_order(items: Iterable[_T], key: str) -> list[_T]:
    """Return the items in the random order that this key determines."""
    order = list(items)
    random.Random(key).shuffle(order)
    return order


def random_pad(key: str) -> int:
    """Return the padding that this key determines: bytes added to the environment, 0 to PAD_BYTES − 1.

    See `workload.execute.pad_environment` for why each run is padded.
    """
    return random.Random(key).randrange(PAD_BYTES)


@contextmanager
def submitted(runner: Runner, works: Iterable[Work]) -> Iterator[Iterator[JobResult]]:
    """Submit blocks, and yield the iterator over their results. On exit cancel the jobs that are not done."""
    for work in works:
        if work.jobs:
            runner.submit(work)
    try:
        with closing(runner.results()) as results:
            yield results
    finally:
        runner.cancel()


def run_batches(runner: Runner, count: int, make: Callable[[int], Work], take: Callable[[JobResult], None]) -> None:
    """Run blocks in batches of as many as the runner runs at once.

    Args:
        runner: runs the blocks.
        count: how many blocks there are.
        make: makes the block with this number, from 0. It is called when the results of all earlier batches are
            known, so it can leave out allocators that have failed. A block without jobs is not submitted.
        take: called with each result as soon as it is there.
    """
    for start in range(0, count, runner.slots):
        numbers = range(start, min(start + runner.slots, count))
        with submitted(runner, [make(number) for number in numbers]) as results:
            for result in results:
                take(result)
