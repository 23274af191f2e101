"""Defines the results of the API's functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heapwright.interleaving.stats import Ratio, Summary


@dataclass(frozen=True)
class Measurement:
    """Runs of one command.

    Attributes:
        runs: metric key → value, one dictionary for each run; None where a metric could not be measured.
        summary: metric key → summary of all runs; metrics that were not measured are missing.
        meter: the meter's back end: notify, ptrace or poll.
        host: description of the machine.
    """

    runs: list[dict[str, Any]]
    summary: dict[str, Summary]
    meter: str
    host: dict[str, Any]


@dataclass(frozen=True)
class AllocatorResult:
    """One allocator of a comparison.

    Attributes:
        version: of the library; None if unknown.
        failure: why it could not be measured; None if it was.
        runs: metric key → value, with `round` and `input`, one dictionary for each run.
        summary: metric key → summary of all runs.
        ratio: metric key → ratio to the reference with its 95% interval; NaN ends after one round. A
            metric that is 0 in one run of a round and not in the other has no ratio and is missing.
    """

    version: str | None
    failure: str | None
    runs: list[dict[str, Any]]
    summary: dict[str, Summary]
    ratio: dict[str, Ratio]


@dataclass(frozen=True)
class ComparisonResult:
    """A comparison of allocators.

    Attributes:
        reference: name of the allocator that all others are compared with.
        allocators: by name, the reference first.
        warnings: sentences about the measurement.
        host: description of the machine.
    """

    reference: str
    allocators: dict[str, AllocatorResult]
    warnings: list[str]
    host: dict[str, Any]


@dataclass(frozen=True)
class ReplayResult(Measurement):
    """Replays of a trace.

    Attributes:
        events: calls in the trace.
        events_per_s: calls per second, median of the runs.
        peak_live_bytes: largest sum of live blocks.
    """

    events: int
    events_per_s: float
    peak_live_bytes: int


@dataclass(frozen=True)
class Pick:
    """A setting that a study recommends.

    Attributes:
        allocator: name of the allocator.
        settings: key → value as text.
        env: the variables that apply it.
        claim: one sentence, with intervals; 'In the search: …; not confirmed.' for a pick of a search alone.
        search: metric key → ratio to the default in the search. Luck selected it, so it is optimistic.
        confirmed: metric key → ratio in fresh pairs with its 95% interval; empty if nothing was confirmed. A metric
            that is 0 in one run of a pair and not in the other has no ratio and is missing.
        verdict: metric key → 'better', 'worse', 'same' or 'unproven'.
    """

    allocator: str
    settings: dict[str, str]
    env: dict[str, str]
    claim: str
    search: dict[str, float]
    confirmed: dict[str, Ratio]
    verdict: dict[str, str]
