"""Checks that a candidate's output equals the reference's."""

from __future__ import annotations

from collections import Counter


class OutputCheck:
    """The reference's output for each input, as digests, and whether it is the same in every run.

    The digest of the reference's first run of an input is that input's reference digest. Where a later run of the
    reference has another one, the output is unstable: it changes by itself, so no candidate's output is checked.
    """

    def __init__(self) -> None:
        self._reference: dict[str, str] = {}
        self._seen: Counter[str] = Counter()
        self._unstable: set[str] = set()

    def learn(self, input_: str, digest: str) -> bool:
        """Take in the output of a run of the reference.

        Args:
            input_: name of the input.
            digest: see `Outcome.digest`; empty where nothing is compared.

        Returns:
            Whether this run is the first to show that the output is unstable.
        """
        self._seen[input_] += 1
        if not digest or digest == self._reference.setdefault(input_, digest) or input_ in self._unstable:
            return False
        self._unstable.add(input_)
        return True

    def seen(self, input_: str) -> int:
        """How many runs of the reference were taken in."""
        return self._seen[input_]

    def changed(self, input_: str, digest: str) -> bool:
        """Whether a candidate's output differs from the reference's where that is stable and known.

        Args:
            input_: name of the input.
            digest: see `Outcome.digest`; empty where nothing is compared.
        """
        if not digest or input_ in self._unstable:
            return False
        return digest != self._reference.get(input_, digest)

    @property
    def any_unstable(self) -> bool:
        """Whether the output is unstable for some input."""
        return bool(self._unstable)
