"""No search at all: a study that measures the default and ends. What every other method is held against."""

from __future__ import annotations

from collections.abc import Sequence

from heapwright.allocators.space import Point
from heapwright.search.protocol import Observation, Setup


class Default:
    """Asks for nothing."""

    def __init__(self, setup: Setup) -> None:
        """There is nothing to prepare."""

    def ask(self) -> list[Point]:
        """Nothing."""
        return []

    def tell(self, told: Sequence[Observation]) -> None:
        """Nothing to learn."""
