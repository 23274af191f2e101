"""From `--cluster` to machines: connects, checks the workers, keeps in the study what they are and did."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heapwright.allocators.registry import Allocator
from heapwright.cluster.dask_runner import DaskMachines, search_word
from heapwright.cluster.parcel import needs_of
from heapwright.cluster.pool import Pool
from heapwright.cluster.settings import read_settings
from heapwright.study.store import Store
from heapwright.workload.model import Workload


@contextmanager
def cluster(
    text: str,
    workload: Workload,
    allocators: Sequence[Allocator],
    note: Callable[[str], None],
    store: Store | None = None,
    references: Path | None = None,
) -> Iterator[DaskMachines]:
    """The machines of a cluster, for as long as they are wanted.

    A study is made on one kind of machine: that of its first runs, or of most workers at its beginning. How many
    blocks a search asks for at once stays what it was at first, because what is searched follows from it.

    Args:
        text: what `--cluster` says.
        note: tells people one line.
        store: the study, where there is one.
        references: see `Executor`; default: the study's.

    Raises:
        HeapwrightError: there is no scheduler, or no worker that can be used.
    """
    kept: dict[str, Any] = (store.get("cluster") if store else None) or {}
    kind = kept.get("kind")
    if kind is None and store is not None and store.runs("calibrate"):
        kind = store.get("host")
    settings = read_settings(text)
    where = references or (store.references.absolute() if store else Path.cwd() / "references")
    needs = needs_of(workload, list(allocators), where)
    with Pool(settings, note, kind) as pool:
        fit = pool.start(needs, search_word(workload), os.environ.get("PATH"))
        slots = kept.get("slots") or settings.slots or fit
        note(f"{fit} worker{'s' * (fit != 1)} at {pool.address} can be used")
        kept |= {"kind": pool.kind, "slots": slots}
        if store is not None:
            store.put({"cluster": kept})
        try:
            yield DaskMachines(pool, needs, slots)
        finally:
            told = pool.told()
            if store is not None:
                store.put({"cluster": {**kept, "workers": [*kept.get("workers", []), *told]}})
            for line in summary(told):
                note(line)


def summary(told: Sequence[dict[str, Any]]) -> list[str]:
    """What each worker did, for people."""
    return [
        f"worker {w['worker']} ({w['machine']}): {w['runs']} runs in {w['blocks']} blocks,"
        f" busy {w['busy_s']:.0f} s of {w['present_s']:.0f} s ({w['busy_s'] / max(w['present_s'], 1e-9):.0%})"
        f"{', lost' if w['lost'] else ''}"
        for w in told
        if w["blocks"]
    ]
