"""Defines the messages that a measurement sends to its observer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from heapwright.interleaving.configuration import Config


class Progress(Protocol):
    """Observes a measurement. The measuring thread calls it."""

    def phase(self, name: str, runs: int | None) -> None:
        """A phase of this name begins, with about `runs` runs to come (None: unknown)."""
        ...

    def limit(self, seconds: float) -> None:
        """The present phase takes at most this many seconds."""
        ...

    def left(self, seconds: float, later: float = 0.0) -> None:
        """The whole study ends in about this many seconds; its later stages take `later` of them."""
        ...

    def ran(self, fresh: bool) -> None:
        """A run ended now (fresh), or was found in the store (not fresh)."""
        ...

    def best(self, text: str) -> None:
        """The incumbent, in a few words."""
        ...

    def tried(self, config: Config, ratios: Mapping[str, float]) -> None:
        """A configuration has been measured; `ratios` maps each objective to its ratio to the default."""
        ...

    def note(self, text: str) -> None:
        """A message for the user."""
        ...
