"""What `tune` shows while it works: a live line on a terminal, plain lines elsewhere; always on stderr."""

from __future__ import annotations

import os
import sys
import time
from typing import Self

_PLAIN_EVERY_S = 10.0
_OPEN_END = ("minify", "confirm")  # phases that end when the data allow
_TITLES = {
    "calibrate": "measuring the default",
    "allocators": "measuring every allocator",
    "record": "recording its allocations",
    "replay": "searching on replays",
    "check": "do replays rank as the program does?",
    "race": "measuring what the replays liked",
    "search": "searching",
    "shortlist": "measuring the best again",
    "landscape": "sweeping",
    "minify": "dropping what does nothing",
    "compare": "comparing",
    "bench": "benchmarks",
    "bench.warm": "warming up",
    "confirm": "confirming on fresh runs",
}


def title(phase: str) -> str:
    """A phase's name for people; 'minify.time' names its pick."""
    if phase in _TITLES:
        return _TITLES[phase]
    name, _, pick = phase.partition(".")
    return _TITLES.get(name, name) + (f" ({pick} pick)" if pick else "")


class Silent:
    """No progress at all (`--quiet`); also the base of the others: a context manager that hears everything."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def phase(self, name: str, runs: int | None) -> None:
        """A phase begins."""

    def ran(self, fresh: bool) -> None:
        """A run ended."""

    def best(self, text: str) -> None:
        """The best so far."""

    def note(self, text: str) -> None:
        """Something to know."""


class Plain(Silent):
    """Lines for logs: one when a phase begins and ends, one every ten seconds between."""

    def __init__(self) -> None:
        self._title = ""
        self._done = self._kept = 0
        self._total: int | None = None
        self._began = self._spoke = time.monotonic()
        self._best = ""
        self._open_end = False

    def __exit__(self, *_: object) -> None:
        self._end()

    def phase(self, name: str, runs: int | None) -> None:
        """Says what begins and how many runs it may take."""
        self._end()
        self._title, self._total, self._done, self._kept = title(name), runs, 0, 0
        self._open_end = name.partition(".")[0] in _OPEN_END
        self._began = self._spoke = time.monotonic()

    def ran(self, fresh: bool) -> None:
        """Counts, and says so now and then."""
        self._done += 1
        self._kept += not fresh
        if time.monotonic() - self._spoke >= _PLAIN_EVERY_S:
            self._spoke = time.monotonic()
            self._say(f"{self._title}: {self._done}{self._of()} runs{self._eta()}")

    def best(self, text: str) -> None:
        """Kept for the end of the phase."""
        self._best = text

    def note(self, text: str) -> None:
        """A line."""
        self._say(text)

    def _of(self) -> str:
        if not self._total or self._done > self._total:  # more than was foreseen: then no total is known
            return ""
        return f" of {'at most ' if self._open_end else ''}{self._total}"

    def _eta(self) -> str:
        fresh = self._done - self._kept
        if not self._total or not fresh or self._done >= self._total:
            return ""
        left = (self._total - self._done) * (time.monotonic() - self._began) / fresh
        return f", about {left:.0f} s left"

    def _end(self) -> None:
        if self._title and self._done:
            kept = f" ({self._kept} kept from before)" if self._kept else ""
            best = f"; {self._best}" if self._best else ""
            self._say(f"{self._title}: {self._done} runs{kept}, {time.monotonic() - self._began:.0f} s{best}")
        self._title = self._best = ""

    def _say(self, text: str) -> None:
        sys.stderr.write(f"heapwright: {text}\n")
        sys.stderr.flush()


class Live(Plain):
    """A bar with a clock on a terminal; the lines of `Plain` scroll above it."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[best]}"),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=None, best="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        super().__exit__()

    def phase(self, name: str, runs: int | None) -> None:
        """A new bar."""
        super().phase(name, runs)
        most = ", at most" if self._open_end and runs else ""
        self._bar.reset(self._task, description=title(name) + most, total=runs, best="")

    def ran(self, fresh: bool) -> None:
        """One further."""
        self._done += 1
        self._kept += not fresh
        total = self._total if self._total is None else max(self._total, self._done)
        self._bar.update(self._task, advance=1, total=total)

    def best(self, text: str) -> None:
        """Beside the bar."""
        super().best(text)
        self._bar.update(self._task, best=text)

    def _say(self, text: str) -> None:
        self._console.print(f"heapwright: {text}", markup=False)


def make_progress(quiet: bool) -> Silent:
    """What fits where stderr goes."""
    if quiet:
        return Silent()
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return Live()
    return Plain()
