"""Searches nothing, so that the study measures only the default; the control for all other methods."""

from __future__ import annotations

from collections.abc import Sequence

from heapwright.allocators.space import Point
from heapwright.search.protocol import Observation, Setup


class NoSearch:
    """Proposes no points."""

    def __init__(self, setup: Setup) -> None:
        """Do nothing."""

    def ask(self) -> list[Point]:
        """Return no points."""
        return []

    def tell(self, observations: Sequence[Observation]) -> None:
        """Do nothing."""
