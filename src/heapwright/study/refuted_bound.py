"""Withdraws a bound on the possible saving that the confirmation of the same study refutes.

A recording cannot see which part of a recycled block the program uses: the block's pages are resident from its last
use. `saving_bound` counts them as used, so its bound is too low for a program that leaves most of its blocks untouched.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from heapwright.interleaving.records import StoredRun
from heapwright.study.saving_bound import bound_of_study, bound_sentence
from heapwright.study.store import Store
from heapwright.study.view import Pick, Reference, SavingBound


def bound_after(store: Store, runs: Sequence[StoredRun], confirmed: Sequence[Pick | Reference]) -> SavingBound | None:
    """The bounds of a study, without those that its confirmation refutes; None if nothing is known.

    Args:
        store: the study.
        runs: all its runs.
        confirmed: the configurations that were confirmed.
    """
    bound = bound_of_study(store, runs)
    # A sentence restricted to malloc's own settings, or to some inputs, is about others than the
    # confirmation is.
    restricted = bound is not None and bound.sentence != bound_sentence(bound)
    return bound if bound is None or restricted else unless_refuted(bound, confirmed)


def unless_refuted(bound: SavingBound, confirmed: Sequence[Pick | Reference]) -> SavingBound:
    """The bounds, without those below a saving that fresh pairs prove; the sentence then names them."""
    known = {"peak_rss_bytes": bound.memory_bound, "cpu_s": bound.cpu_bound}
    refuted = {
        metric: share
        for metric, share in known.items()
        if share is not None
        and any(1 - row.confirmed[metric].high > share for row in confirmed if metric in row.confirmed)
    }
    if not refuted:
        return bound
    names = {"peak_rss_bytes": "of peak memory", "cpu_s": "of CPU time"}
    shares = " and ".join(f"{100 * share:.0f}% {names[metric]}" for metric, share in refuted.items())
    return dataclasses.replace(
        bound,
        memory_bound=None if "peak_rss_bytes" in refuted else bound.memory_bound,
        cpu_bound=None if "cpu_s" in refuted else bound.cpu_bound,
        sentence=f"The confirmed saving exceeds the bound before the search (at most {shares}): that bound is wrong.",
    )
