"""Checks that a candidate does the reference's work: it has the same output, and its load has no errors.

An empty output, or one that changes by itself, shows nothing. Then a run that takes far less CPU time and memory than
the reference counts as one that did less work, as if a script ignores that its program failed.
"""

from __future__ import annotations

import hashlib
from collections import Counter

from heapwright.workload.work_done import Metrics, load_errors

_SILENT = ("", hashlib.sha256(b"").hexdigest())  # digests of outputs that show nothing
# Shares of the reference's least values. A run below all of them is taken to have done less work: we know of no
# allocator or setting that saves so much of both.
_LESS_WORK = {"cpu_s": 0.1, "peak_rss_bytes": 0.5}


class OutputCheck:
    """The reference's output for each input, as digests, and whether it is the same in every run.

    The digest of the reference's first run of an input is that input's reference digest. Where a later run of the
    reference has another one, the output is unstable: it changes by itself, so no candidate's output is checked.
    """

    def __init__(self) -> None:
        self._reference: dict[str, str] = {}
        self._seen: Counter[str] = Counter()
        self._unstable: set[str] = set()
        self._has_errors: set[str] = set()
        self._least: dict[tuple[str, str], float] = {}  # of the reference, by input and metric

    def learn(self, input_: str, digest: str, metrics: Metrics | None = None) -> bool:
        """Take in the output of a run of the reference, and the errors of its load.

        Args:
            input_: name of the input.
            digest: see `Outcome.digest`; empty where nothing is compared.
            metrics: of the run.

        Returns:
            Whether this run is the first to show that the output is unstable.
        """
        self._seen[input_] += 1
        if load_errors([metrics or {}]):
            self._has_errors.add(input_)
        for name in _LESS_WORK:
            value = (metrics or {}).get(name)
            if value is not None:
                self._least[input_, name] = min(value, self._least.get((input_, name), value))
        if not digest or digest == self._reference.setdefault(input_, digest) or input_ in self._unstable:
            return False
        self._unstable.add(input_)
        return True

    def seen(self, input_: str) -> int:
        """The number of runs of the reference so far."""
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

    def difference(self, input_: str, digest: str, metrics: Metrics, reference: str) -> str:
        """Return why a candidate's run did not do the reference's work, or empty.

        Args:
            input_: name of the input.
            digest: see `Outcome.digest`; empty where nothing is compared.
            metrics: of the run.
            reference: the reference in words: 'the default'.
        """
        if self.changed(input_, digest):
            return f"its output differs from {reference}'s"
        errors = load_errors([metrics])
        if errors and self._seen[input_] and input_ not in self._has_errors:
            return f"its load had {errors}, and the loads of {reference} had none"
        if (digest in _SILENT or input_ in self._unstable) and self._did_less(input_, metrics):
            return f"it took less than a tenth of the CPU time and half of the memory of {reference}: it did less work"
        return ""

    def _did_less(self, input_: str, metrics: Metrics) -> bool:
        """Whether a run took so much less than the reference that it cannot have done the same work."""
        if metrics.get("load_operations") is not None:  # these show its work
            return False
        values = [(metrics.get(name), self._least.get((input_, name)), share) for name, share in _LESS_WORK.items()]
        return all(value is not None and least is not None and value < share * least for value, least, share in values)

    @property
    def any_unstable(self) -> bool:
        """Whether the output is unstable for some input."""
        return bool(self._unstable)
