"""The messages that a measurement sends to its observer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from heapwright.experiment.configuration import Config


class Progress(Protocol):
    """What a study tells whoever watches. Called from the measuring thread."""

    def phase(self, name: str, runs: int | None) -> None:
        """A phase begins, with about so many runs to come (None: unknown)."""
        ...

    def limit(self, seconds: float) -> None:
        """The phase that has begun takes so many seconds at most."""
        ...

    def left(self, seconds: float) -> None:
        """The whole study takes about so many seconds from now."""
        ...

    def ran(self, fresh: bool) -> None:
        """A run ended (or was found in the store: not fresh)."""
        ...

    def best(self, text: str) -> None:
        """The best so far, in a few words."""
        ...

    def tried(self, config: Config, ratios: Mapping[str, float]) -> None:
        """A setting has been measured: objective → ratio to the default."""
        ...

    def note(self, text: str) -> None:
        """Something the user should know."""
        ...
