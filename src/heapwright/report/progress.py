"""What `tune` shows while it works: a live line on a terminal, plain lines elsewhere; always on stderr."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from heapwright.experiment.phases import Phase
from heapwright.metrics import METRICS, show_estimate
from heapwright.terminal_text import console, say, visible

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from heapwright.experiment.configuration import Config

_PLAIN_EVERY_S = 10.0
_FRONT_LINES = 8  # of the live view
# Phases that have a Pareto front of their own: predictions of replays are not measurements of the program.
_ANEW = (Phase.REPLAY, Phase.RACE, Phase.SEARCH)
_OPEN_END = (Phase.MINIFY, Phase.CONFIRM, Phase.VERIFY)  # phases that end when the data allow
_TITLES = {
    Phase.CALIBRATE: "measuring the default",
    Phase.ALLOCATORS: "measuring every allocator",
    Phase.RECORD: "recording its allocations",
    Phase.REPLAY: "searching on replays",
    Phase.CHECK: "do replays rank as the program does?",
    Phase.RACE: "measuring what the replays liked",
    Phase.SEARCH: "searching",
    Phase.SHORTLIST: "measuring the best again",
    Phase.LANDSCAPE: "sweeping",
    Phase.MINIFY: "dropping what does nothing",
    "compare.warm": "warming up",
    "compare": "comparing",
    "bench": "benchmarks",
    "bench.warm": "warming up",
    Phase.CONFIRM: "confirming on fresh runs",
    "verify": "measuring fresh pairs",
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

    def limit(self, seconds: float) -> None:
        """It takes so many seconds at most."""

    def left(self, seconds: float) -> None:
        """The whole study takes about so many seconds from now."""

    def ran(self, fresh: bool) -> None:
        """A run ended."""

    def best(self, text: str) -> None:
        """The best so far."""

    def tried(self, config: Config, ratios: Mapping[str, float]) -> None:
        """A setting has been measured: objective → ratio to the default."""

    def note(self, text: str) -> None:
        """Something to know."""

    def machines(self, text: str) -> None:
        """What a cluster's workers are doing, in a few lines, in place of what was said before."""


class Front:
    """The settings that nothing tried so far is better than in every objective, kept as they come."""

    def __init__(self) -> None:
        self.members: dict[int, tuple[str, Mapping[str, float]]] = {}

    def add(self, config: Config, ratios: Mapping[str, float]) -> None:
        """Takes a setting in; known ones with their newest figures."""
        self.members.pop(config.id, None)
        if any(_dominates(m, ratios) or m == ratios for _, m in self.members.values()):
            return
        self.members = {i: m for i, m in self.members.items() if not _dominates(ratios, m[1])}
        settings = ", ".join(f"{k}={v}" for k, v in config.settings.items())
        self.members[config.id] = (f"{config.allocator}: {settings}" if settings else config.allocator, ratios)

    def table(self) -> Table:
        """The members, the best in the first objective on top; of many, evenly picked ones with both ends."""
        from rich.table import Table

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        rows = sorted(self.members.values(), key=lambda m: tuple(m[1].values()))
        most = min(len(rows), _FRONT_LINES)
        picked = [rows[round(i * (len(rows) - 1) / max(1, most - 1))] for i in range(most)]
        for key in picked[0][1] if picked else []:
            table.add_column(METRICS[key].short, justify="right", no_wrap=True, min_width=8)
        heading = f"front so far: {len(rows)}, against the default"
        table.add_column(heading, no_wrap=True, overflow="ellipsis", ratio=1)
        for label, ratios in picked:
            table.add_row(*(f"{100 * (r - 1):+.1f}%".replace("-", "−") for r in ratios.values()), visible(label))
        return table


def _dominates(a: Mapping[str, float], b: Mapping[str, float]) -> bool:
    return all(a[k] <= b[k] for k in a) and any(a[k] < b[k] for k in a)


class Plain(Silent):
    """Lines for logs: one when a phase begins and ends, one every ten seconds between."""

    def __init__(self) -> None:
        self._title = ""
        self._done = self._kept = 0
        self._total: int | None = None
        self._began = self._spoke = time.monotonic()
        self._best = ""
        self._open_end = False
        self._most_s = math.inf  # seconds that the phase may take
        self._study_end = math.inf  # on the monotonic clock, as foreseen

    def __exit__(self, *_: object) -> None:
        self._end()

    def phase(self, name: str, runs: int | None) -> None:
        """Says what begins and how many runs it may take."""
        self._end()
        self._title, self._total, self._done, self._kept = title(name), runs, 0, 0
        self._open_end = name.partition(".")[0] in _OPEN_END
        self._began = self._spoke = time.monotonic()
        self._most_s = math.inf

    def limit(self, seconds: float) -> None:
        """Bounds what is said to be left."""
        self._most_s = seconds

    def left(self, seconds: float) -> None:
        """Counts down from here."""
        self._study_end = time.monotonic() + seconds

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
        """What is left of the phase, and of the whole study, where that is known."""
        fresh = self._done - self._kept
        if not self._total or not fresh or self._done >= self._total:
            return self._study_eta(0.0)
        took = time.monotonic() - self._began
        by_runs = (self._total - self._done) * took / fresh
        left = max(0.0, min(by_runs, self._most_s - took))
        at_most = self._open_end or left < by_runs
        return f", {'at most' if at_most else 'about'} {left:.0f} s left{self._study_eta(0.0 if at_most else left)}"

    def _study_eta(self, least: float) -> str:
        left = self._study_end - time.monotonic()
        if not math.isfinite(left) or max(left, least) <= 0:  # it takes longer than was foreseen
            return ""
        return f"; the study: about {show_estimate(max(left, least))}"

    def _end(self) -> None:
        if self._title and self._done:
            kept = f" ({self._kept} kept from before)" if self._kept else ""
            best = f"; {self._best}" if self._best else ""
            self._say(f"{self._title}: {self._done} runs{kept}, {time.monotonic() - self._began:.0f} s{best}")
        self._title = self._best = ""

    def _say(self, text: str) -> None:
        say(text)


class Live(Plain):
    """On a terminal: a bar with a clock, the front so far below it; the lines of `Plain` scroll above."""

    def __init__(self) -> None:
        super().__init__()
        from rich.live import Live as Display
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = console(stderr=True)
        self._front = Front()
        self._workers = ""
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._task = self._bar.add_task("starting", total=None)
        self._display = Display(
            get_renderable=self._shown,
            console=self._console,
            transient=True,
            refresh_per_second=2,
        )

    def __enter__(self) -> Self:
        self._display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._display.stop()
        super().__exit__()

    def phase(self, name: str, runs: int | None) -> None:
        """A new bar."""
        super().phase(name, runs)
        if name in _ANEW:
            self._front = Front()
        most = ", at most" if self._open_end and runs else ""
        self._bar.reset(self._task, description=title(name) + most, total=runs)

    def ran(self, fresh: bool) -> None:
        """One further."""
        self._done += 1
        self._kept += not fresh
        total = self._total if self._total is None else max(self._total, self._done)
        self._bar.update(self._task, advance=1, total=total)

    def tried(self, config: Config, ratios: Mapping[str, float]) -> None:
        """Perhaps on the front."""
        self._front.add(config, ratios)

    def machines(self, text: str) -> None:
        """Under the front."""
        self._workers = text

    def _shown(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        front = [self._front.table()] if self._front.members else []
        return Group(self._bar, *front, *([Text(self._workers, "dim")] if self._workers else []))

    def _say(self, text: str) -> None:
        self._console.print(f"heapwright: {visible(text)}")


def make_progress(quiet: bool) -> Silent:
    """What fits where stderr goes."""
    if quiet:
        return Silent()
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return Live()
    return Plain()
