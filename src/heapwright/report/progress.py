"""Shows the progress of `tune` on stderr: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from heapwright.interleaving.phases import Phase
from heapwright.metrics import METRICS, show_estimate
from heapwright.terminal_text import console, counted, say, visible
from heapwright.units import percent

if TYPE_CHECKING:
    from rich.console import Group
    from rich.progress import ProgressColumn
    from rich.table import Table

    from heapwright.interleaving.configuration import Config

_PLAIN_EVERY_S = 10.0
_WAIT_S = 30.0  # for the first run, before `_WAITING` is printed
_FRONT_LINES = 8  # rows of the live display
# Phases that start a new Pareto front: predictions of replays and measurements of the program are
# never mixed.
_NEW_FRONT = (Phase.REPLAY, Phase.RACE, Phase.SEARCH)
# Phases that may end before their number of runs, as soon as the data suffice.
_OPEN_END = (Phase.MINIFY, Phase.CONFIRM, Phase.VERIFY)
# Phases that begin with the first run of the command, which has no time limit.
_FIRST = (Phase.CALIBRATE, "compare.warm")
_TITLES = {
    Phase.CALIBRATE: "measuring the default",
    Phase.ALLOCATORS: "measuring every allocator",
    Phase.RUNTIMES: "trying the runtime's settings",
    Phase.RECORD: "recording the program's allocations",
    Phase.REPLAY: "searching on replays",
    Phase.REPLAY_WITH_RUNTIME: "searching on replays under the runtime's setting",
    Phase.REPLAY_PICK: "replaying the best setting again",
    Phase.CHECK: "checking that replays rank as the program does",
    Phase.RACE: "measuring the predicted front",
    Phase.SEARCH: "searching",
    Phase.SHORTLIST: "measuring the best again",
    Phase.LANDSCAPE: "sweeping the landscape",
    Phase.MINIFY: "removing settings without effect",
    "compare.warm": "warming up",
    "compare": "comparing",
    "bench": "running benchmarks",
    "bench.warm": "warming up",
    Phase.CONFIRM: "confirming on fresh runs",
    "verify": "measuring fresh pairs",
}


_NO_RUN = f"no run has ended in {_WAIT_S:.0f} s"
_WAITING = (
    f"{_NO_RUN}. If the command never ends by itself, as a server does not, or leaves a process running, press Ctrl-C,"
    " and describe it in a workload file with a [server] table (docs/workload.md). --timeout limits a run"
)
_WAITING_FOR_SERVER = f"{_NO_RUN}: it lasts until the load has ended and the server has stopped. --timeout limits a run"


def title(phase: str) -> str:
    """Return the text for a phase; 'minify.time' becomes 'removing settings without effect (time pick)'."""
    if phase in _TITLES:
        return _TITLES[phase]
    name, _, pick = phase.partition(".")
    return _TITLES.get(name, name) + (f" ({pick} pick)" if pick else "")


class SilentProgress:
    """Shows nothing (`--quiet`). The base class of the other displays, which are context managers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def phase(self, name: str, runs: int | None) -> None:
        """Report that a phase begins.

        Args:
            name: a member of `Phase`, perhaps with a pick: 'minify.time'.
            runs: how many runs it makes at most; None where that is not known.
        """

    def limit(self, seconds: float) -> None:
        """Report that the phase takes so many seconds at most."""

    def left(self, seconds: float, later: float = 0.0) -> None:
        """Report that the whole study takes about so many seconds from now, and its later stages `later` of them."""

    def ran(self, fresh: bool) -> None:
        """Report that a run ended; `fresh` is false for a run that an earlier session stored."""

    def best(self, text: str) -> None:
        """Report the best result so far."""

    def tried(self, config: Config, ratios: Mapping[str, float]) -> None:
        """Report that a configuration was measured; `ratios` maps each objective to its ratio to the default."""

    def note(self, text: str) -> None:
        """Report a message to the user."""

    def machines(self, text: str) -> None:
        """Report the state of a cluster's workers in a few lines, which replace the lines before."""


class ParetoFront:
    """The Pareto front of the configurations measured so far.

    Attributes:
        members: configuration id → its label and its ratio to the default for each objective.
    """

    def __init__(self) -> None:
        self.members: dict[int, tuple[str, Mapping[str, float]]] = {}

    def add(self, config: Config, ratios: Mapping[str, float]) -> None:
        """Add a configuration, or replace its earlier ratios."""
        from heapwright.search.pareto import dominates

        costs = tuple(ratios.values())
        self.members.pop(config.id, None)
        others = {i: tuple(m[1][key] for key in ratios) for i, m in self.members.items()}
        if any(dominates(other, costs) or other == costs for other in others.values()):
            return
        self.members = {i: m for i, m in self.members.items() if not dominates(costs, others[i])}
        settings = ", ".join(f"{k}={v}" for k, v in config.settings.items())
        self.members[config.id] = (f"{config.allocator}: {settings}" if settings else config.allocator, ratios)

    def table(self) -> Table:
        """Return a table of at most `_FRONT_LINES` members, sorted by the first objective.

        Of more members it shows evenly spaced ones, including both ends.
        """
        from rich.table import Table

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        rows = sorted(self.members.values(), key=lambda m: tuple(m[1].values()))
        count = min(len(rows), _FRONT_LINES)
        shown = [rows[round(i * (len(rows) - 1) / max(1, count - 1))] for i in range(count)]
        for key in shown[0][1] if shown else []:
            table.add_column(METRICS[key].short, justify="right", no_wrap=True, min_width=8)
        heading = f"Pareto front: {len(rows)}; change from default"
        table.add_column(heading, no_wrap=True, overflow="ellipsis", ratio=1)
        for label, ratios in shown:
            table.add_row(*map(percent, ratios.values()), visible(label))
        return table


class PlainProgress(SilentProgress):
    """Prints lines for logs: one at the end of each phase and before each note, and one every ten seconds.

    Args:
        serves: whether the runs are those of a server with its load.
    """

    def __init__(self, serves: bool = False) -> None:
        self._serves = serves
        self._title = ""
        self._done = self._stored = self._printed = 0  # runs; the last: when the line of the phase was printed
        self._total: int | None = None
        self._began = self._last_line = time.monotonic()
        self._best = ""
        self._open_end = False
        self._limit_s = math.inf  # seconds that the phase may take
        self._study_end = math.inf  # expected end of the study, on the monotonic clock
        self._later_s = 0.0  # seconds of the study's later stages
        self._waiting: threading.Timer | None = None

    def __exit__(self, *_: object) -> None:
        self._end()

    def phase(self, name: str, runs: int | None) -> None:
        """End the phase before and begin this one; prints nothing yet."""
        self._end()
        if name in _FIRST and self._waiting is None:
            self._waiting = threading.Timer(_WAIT_S, self._say, [_WAITING_FOR_SERVER if self._serves else _WAITING])
            self._waiting.daemon = True
            self._waiting.start()
        self._title, self._total, self._done, self._stored, self._printed = title(name), runs, 0, 0, 0
        self._open_end = name.partition(".")[0] in _OPEN_END
        self._began = self._last_line = time.monotonic()
        self._limit_s = math.inf

    def limit(self, seconds: float) -> None:
        """Bound the estimate of the time left in this phase."""
        self._limit_s = seconds

    def left(self, seconds: float, later: float = 0.0) -> None:
        """Set the expected end of the study."""
        self._study_end, self._later_s = time.monotonic() + seconds, later

    def ran(self, fresh: bool) -> None:
        """Count the run; print a line if ten seconds have passed since the last one."""
        self._stop_waiting()
        self._done += 1
        self._stored += not fresh
        if time.monotonic() - self._last_line >= _PLAIN_EVERY_S:
            self._last_line = time.monotonic()
            self._say(f"{self._title}: {self._runs()}{self._eta()}")

    def best(self, text: str) -> None:
        """Keep the text for the line at the end of the phase."""
        self._best = text

    def note(self, text: str) -> None:
        """Print the text as a line, after that of the runs before it."""
        self._say_runs()
        self._say(text)

    def _runs(self) -> str:
        if not self._total or self._done > self._total:  # more runs than planned: the total is not known
            return counted(self._done, "run")
        return f"{self._done} of {'at most ' if self._open_end else ''}{counted(self._total, 'run')}"

    def _eta(self) -> str:
        """Return the time left in the phase and in the study, where they are known."""
        fresh = self._done - self._stored
        if not self._total or not fresh or self._done >= self._total:
            return self._study_eta(0.0)
        took = time.monotonic() - self._began
        by_runs = (self._total - self._done) * took / fresh
        left = max(0.0, min(by_runs, self._limit_s - took))
        at_most = self._open_end or left < by_runs
        in_study = self._study_eta(0.0 if at_most else left)
        return f", {'at most' if at_most else 'about'} {left:.0f} s left{in_study}" if left >= 1 else in_study

    def _study_eta(self, phase_left: float) -> str:
        """Return the time left in the study: at least that of its phase and of its later stages (seconds)."""
        if not math.isfinite(self._study_end):
            return ""
        left = max(self._study_end - time.monotonic(), phase_left + self._later_s)
        if left <= 0:  # the last stage takes longer than expected
            return ""
        return f"; the study: about {show_estimate(left)} left"

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()

    def _end(self) -> None:
        self._stop_waiting()
        self._say_runs()
        self._title = self._best = ""

    def _say_runs(self) -> None:
        """Print the line of the phase, unless no run ended since it was printed."""
        if self._title and self._done > self._printed:
            self._printed = self._done
            earlier = f" ({self._stored} from an earlier session)" if self._stored else ""
            best = f"; {self._best}" if self._best else ""
            runs = counted(self._done, "run")
            self._say(f"{self._title}: {runs}{earlier}, {time.monotonic() - self._began:.0f} s{best}")

    def _say(self, text: str) -> None:
        say(text)


class LiveProgress(PlainProgress):
    """Shows a progress bar with the Pareto front below it on a terminal; the lines of `PlainProgress` scroll above."""

    def __init__(self, serves: bool = False) -> None:
        super().__init__(serves)
        from rich.live import Live as Display
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
        from rich.table import Column

        self._console = console(stderr=True)
        self._front = ParetoFront()
        self._workers = ""
        whole = Column(no_wrap=True)
        self._bar = Progress(
            _description_column(),
            BarColumn(bar_width=10),
            MofNCompleteColumn(table_column=whole),
            TimeRemainingColumn(table_column=whole),
            console=self._console,
        )
        self._task = self._bar.add_task("starting", total=None)
        self._display = Display(
            get_renderable=self._render,
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
        """Start a new bar."""
        super().phase(name, runs)
        if name in _NEW_FRONT:
            self._front = ParetoFront()
        at_most = ", at most" if self._open_end and runs else ""
        self._bar.reset(self._task, description=title(name) + at_most, total=runs)

    def ran(self, fresh: bool) -> None:
        """Advance the bar by one run."""
        self._stop_waiting()
        self._done += 1
        self._stored += not fresh
        total = self._total if self._total is None else max(self._total, self._done)
        self._bar.update(self._task, advance=1, total=total)

    def tried(self, config: Config, ratios: Mapping[str, float]) -> None:
        """Add the configuration to the front if nothing dominates it."""
        self._front.add(config, ratios)

    def machines(self, text: str) -> None:
        """Show the text below the front."""
        self._workers = text

    def _render(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        front = [self._front.table()] if self._front.members else []
        return Group(self._bar, *front, *([Text(self._workers, "dim")] if self._workers else []))

    def _say(self, text: str) -> None:
        self._console.print(f"heapwright: {visible(text)}")


def _description_column() -> ProgressColumn:
    """Return the column of the phase. On a narrow terminal it is cut, so that the numbers stay whole."""
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Description(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(task.description, no_wrap=True, overflow="ellipsis")

    return Description()


def make_progress(quiet: bool, serves: bool = False) -> SilentProgress:
    """Return the display that fits stderr: none if quiet, live on a terminal, else plain lines.

    Args:
        quiet: whether to show nothing.
        serves: whether the runs are those of a server with its load.
    """
    if quiet:
        return SilentProgress()
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return LiveProgress(serves)
    return PlainProgress(serves)
