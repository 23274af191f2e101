"""Records of runs, and where an experiment keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StoredRun:
    """One run as stored.

    Attributes:
        phase: calibrate, allocators, replay, check, search, shortlist, minify.PICK, confirm, landscape.
        block: within the phase; runs of one block are compared with each other.
        failure: why it does not count, or empty.
        digest: what stands for its output.
        extra: threads, mappings, meter, warnings, exit code, kind of machine (host), and which (machine) if elsewhere;
            seconds of the study's time (charged_s).
    """

    phase: str
    block: int
    input: str
    config: int
    elapsed_s: float
    failure: str
    digest: str
    metrics: dict[str, float | None]
    extra: dict[str, Any]
    series: dict[str, list[float]] | None = None

    def charged_s(self, slots: int = 1) -> float:
        """Seconds of the study's time that the run cost (`budget`); of an older study its own time over the slots."""
        return float(self.extra.get("charged_s", self.elapsed_s / slots))
