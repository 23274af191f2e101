"""Opens the cluster of `--cluster`: connects, checks the workers, and records their kind and work in the study."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from heapwright.allocators.registry import Allocator
from heapwright.cluster.dask_runner import DaskMachines, search_word
from heapwright.cluster.settings import read_settings
from heapwright.cluster.transport import check_texts, needs_of
from heapwright.cluster.worker_pool import WorkerPool
from heapwright.interleaving.phases import Phase
from heapwright.study.store import Store
from heapwright.terminal_text import counted
from heapwright.workload.model import Workload

_SHOW_S = 2.0  # seconds between two updates of the display
_MAX_SHOWN = 8  # workers in the live display


@contextmanager
def cluster(
    text: str,
    workload: Workload,
    allocators: Sequence[Allocator],
    note: Callable[[str], None],
    store: Store | None = None,
    references: Path | None = None,
    show: Callable[[str], None] = lambda _: None,
    worker: str = "",
) -> Iterator[DaskMachines]:
    """Connect to a cluster for the duration of a context.

    A study uses one kind of machine: that of its first runs, or of most workers at its beginning. The number of
    blocks that a search requests at once stays as it was at first, because the search's decisions depend on it.

    Args:
        text: the argument of `--cluster`.
        workload: the program to run.
        allocators: all allocators that may be run.
        note: shows one line to the user.
        store: the study; None if there is none.
        references: see `Executor`; default: the study's.
        show: shows lines on the workers' state, which replace the lines before.
        worker: address of the only worker to use; empty for all.

    Raises:
        HeapwrightError: there is no scheduler, no usable worker, or an environment variable that cannot be sent.
    """
    check_texts(os.environ)
    stored: dict[str, Any] = (store.meta.cluster if store else None) or {}
    kind = stored.get("kind")
    if kind is None and store is not None and store.runs(Phase.CALIBRATE):
        kind = store.meta.host
    settings = replace(read_settings(text), worker=worker)
    references_path = references or (store.references.absolute() if store else Path.cwd() / "references")
    needs = needs_of(workload, list(allocators), references_path)
    with WorkerPool(settings, note, kind) as pool:
        fit = pool.start(needs, search_word(workload), os.environ.get("PATH"))
        slots = stored.get("slots") or settings.slots or fit
        note(f"{fit} worker{'s' * (fit != 1)} at {pool.address} can be used")
        stored |= {"kind": pool.kind, "slots": slots}
        before = stored.get("workers", [])
        shown = 0.0

        def record(finished: bool = False) -> None:
            nonlocal shown
            if finished or time.monotonic() - shown >= _SHOW_S:
                shown = time.monotonic()
                show("\n".join(worker_lines(pool.activity(), _MAX_SHOWN)))
                if store is not None:
                    store.update(cluster={**stored, "workers": [*before, *pool.activity()]})

        record()
        try:
            yield DaskMachines(pool, needs, slots, record)
        finally:
            record(finished=True)
            for line in worker_lines(pool.activity()):
                note(line)


def worker_lines(workers: Sequence[dict[str, Any]], limit: int | None = None) -> list[str]:
    """Return a line on each worker's work; of more than `limit` workers only the busiest, and a line on the others."""
    used = [w for w in workers if w["blocks"]]
    if limit is not None and len(used) > limit:
        busiest = sorted(used, key=lambda w: w["busy_s"], reverse=True)[:limit]
        return [
            *worker_lines(busiest),
            f"and {counted(len(used) - limit, 'more worker')}: {counted(sum(w['runs'] for w in used), 'run')} in all",
        ]
    return [
        f"worker {w['worker']} ({w['machine']}): {counted(w['runs'], 'run')} in {counted(w['blocks'], 'block')},"
        f" busy {w['busy_s']:.0f} s of {w['present_s']:.0f} s ({w['busy_s'] / max(w['present_s'], 1e-9):.0%})"
        f"{', lost' if w['lost'] else ''}"
        for w in used
    ]
