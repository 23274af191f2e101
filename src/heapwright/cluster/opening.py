"""From `--cluster` to machines: connects, checks the workers, keeps in the study what they are and did."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heapwright.allocators.registry import Allocator
from heapwright.cluster.dask_runner import DaskMachines, search_word
from heapwright.cluster.pool import Pool
from heapwright.cluster.settings import read_settings
from heapwright.cluster.transport import check_texts, needs_of
from heapwright.experiment.phases import Phase
from heapwright.study.store import Store
from heapwright.workload.model import Workload

_SHOW_S = 2.0
_SHOW_MOST = 8  # workers, while the work goes on


@contextmanager
def cluster(
    text: str,
    workload: Workload,
    allocators: Sequence[Allocator],
    note: Callable[[str], None],
    store: Store | None = None,
    references: Path | None = None,
    show: Callable[[str], None] = lambda _: None,
) -> Iterator[DaskMachines]:
    """The machines of a cluster, for as long as they are wanted.

    A study is made on one kind of machine: that of its first runs, or of most workers at its beginning. How many
    blocks a search asks for at once stays what it was at first, because what is searched follows from it.

    Args:
        text: what `--cluster` says.
        note: tells people one line.
        show: tells people what the workers are doing now, in place of what it told before.
        store: the study, where there is one.
        references: see `Executor`; default: the study's.

    Raises:
        HeapwrightError: there is no scheduler, no worker that can be used, or a variable that cannot be sent.
    """
    check_texts(os.environ)
    kept: dict[str, Any] = (store.meta.cluster if store else None) or {}
    kind = kept.get("kind")
    if kind is None and store is not None and store.runs(Phase.CALIBRATE):
        kind = store.meta.host
    settings = read_settings(text)
    where = references or (store.references.absolute() if store else Path.cwd() / "references")
    needs = needs_of(workload, list(allocators), where)
    with Pool(settings, note, kind) as pool:
        fit = pool.start(needs, search_word(workload), os.environ.get("PATH"))
        slots = kept.get("slots") or settings.slots or fit
        note(f"{fit} worker{'s' * (fit != 1)} at {pool.address} can be used")
        kept |= {"kind": pool.kind, "slots": slots}
        before = kept.get("workers", [])
        shown = 0.0

        def keep(finished: bool = False) -> None:
            nonlocal shown
            if finished or time.monotonic() - shown >= _SHOW_S:
                shown = time.monotonic()
                show("\n".join(lines(pool.told(), _SHOW_MOST)))
                if store is not None:
                    store.update(cluster={**kept, "workers": [*before, *pool.told()]})

        keep()
        try:
            yield DaskMachines(pool, needs, slots, keep)
        finally:
            keep(finished=True)
            for line in lines(pool.told()):
                note(line)


def lines(told: Sequence[dict[str, Any]], most: int | None = None) -> list[str]:
    """What each worker did, for people; of more than `most` the busiest, and how many there are besides."""
    used = [w for w in told if w["blocks"]]
    if most is not None and len(used) > most:
        busiest = sorted(used, key=lambda w: w["busy_s"], reverse=True)[:most]
        return [*lines(busiest), f"and {len(used) - most} more workers: {sum(w['runs'] for w in used)} runs in all"]
    return [
        f"worker {w['worker']} ({w['machine']}): {w['runs']} runs in {w['blocks']} blocks,"
        f" busy {w['busy_s']:.0f} s of {w['present_s']:.0f} s ({w['busy_s'] / max(w['present_s'], 1e-9):.0%})"
        f"{', lost' if w['lost'] else ''}"
        for w in used
    ]
