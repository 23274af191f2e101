"""A simulated program: its measurements follow from its settings, and time from a fake clock.

`World` stands for the machine. `FakeExecutor` takes the place of `workload.execute.Executor`; every run it makes is
noted in the world, so tests can check which runs were made, how often, and in which order.
"""

from __future__ import annotations

import hashlib
import math
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from heapwright.allocators.huge_pages import VARIABLE
from heapwright.allocators.registry import Allocator
from heapwright.allocators.space_spec import AllocatorSpec, GateSpec, ParamSpec, SpaceFile
from heapwright.measure.memory_parts import Breakdown
from heapwright.measure.meter import MeterOptions, Run
from heapwright.metrics import NUMERIC
from heapwright.workload.execute import Outcome
from heapwright.workload.model import Input, Workload

from ..allocators.spaces import number

Settings = dict[str, str]
Effect = Callable[[Settings, str], Mapping[str, float]]

BASE = {"peak_rss_bytes": 1e8, "mean_rss_bytes": 8e7, "cpu_s": 1.0, "wall_s": 1.1, "mapping_calls": 50.0}


def nothing(_settings: Settings, _input: str) -> dict[str, float]:
    """No setting has any effect."""
    return {}


@dataclass
class World:
    """The machine and the program.

    Attributes:
        effect: settings and input name → factor by metric.
        fails: settings → why such a run fails, or nothing.
        prints: settings and number of runs so far → output of the program.
        noise: standard deviation of every run's log values; it follows from the run's padding and place, not from when
            it is made, so that a resumed study measures the same.
        seed: of the noise.
        seconds: duration of a run on the fake clock; its prefix takes less.
        first_s: duration of the first run, if it takes longer.
        peak_at: when a run reaches its peak, as a share of its wall time.
        parts: the memory of the program's first runs, by holder; None if it is not read.
        prefix_s: where the present run ends.
        interrupt_after: after so many runs Ctrl-C comes.
    """

    effect: Effect = nothing
    fails: Callable[[Settings], str] = lambda _s: ""
    prints: Callable[[Settings, int], str] = lambda _s, _n: "output"
    noise: float = 0.0
    drift: Callable[[int], float] = lambda _n: 0.0
    seed: str = ""
    seconds: float = 1.0
    first_s: float = 0.0
    peak_at: float = 1.0
    interrupt_after: int | None = None
    extra: dict[str, float | None] = field(default_factory=dict)
    threads: int = 1
    processes: int = 1
    maps: int = 30
    parts: Breakdown | None = None
    made: list[tuple[str, Settings, int]] = field(default_factory=list)
    clock: float = 0.0
    timeouts: list[float] = field(default_factory=list)
    prefix_s: float = math.inf

    def _times(self, wall_s: float) -> list[float]:
        return [0.0, self.peak_at * wall_s, self.peak_at * wall_s + 1e-9, wall_s]

    def run(self, input_: Input, settings: Settings, pad: int) -> Outcome:
        """One run."""
        if self.interrupt_after is not None and len(self.made) >= self.interrupt_after:
            raise KeyboardInterrupt
        count = len(self.made)
        self.made.append((input_.name, settings, pad))
        self.clock += min(max(self.seconds, 0.0 if count else self.first_s), self.prefix_s)
        rng = random.Random(f"{self.seed}{input_.name}/{settings}/{pad}")
        effect = self.effect(settings, input_.name)
        metrics: dict[str, float | None] = dict.fromkeys(NUMERIC)
        for key, base in BASE.items():
            shift = rng.gauss(0, self.noise) + self.drift(count) if self.noise or self.drift(count) else 0.0
            metrics[key] = base * effect.get(key, 1.0) * math.exp(shift)
        metrics |= self.extra
        failure = self.fails(settings)
        wall_s, memory = metrics["wall_s"] or 0.0, [0.1, 1.0, 1.0, 1.0]
        digest = hashlib.sha256(self.prints(settings, count).encode()).hexdigest()
        run = Run(
            metrics, 0, False, digest, "fake", [], self.threads, self.maps,
            {"t": self._times(wall_s), "rss": memory, "heap": memory, "vm": memory},
            "the last words" if failure else "",
            max_processes=self.processes, parts=self.parts,
        )  # fmt: skip
        return Outcome(run, "" if failure else digest, failure)


def read_settings(env: Mapping[str, str]) -> Settings:
    """The settings in the variable TOY, and whether the process goes without huge pages."""
    found = dict(part.removeprefix("toy.").split("=") for part in env.get("TOY", "").split(":") if part)
    return found | ({"huge_pages": env[VARIABLE]} if VARIABLE in env else {})


def install(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace real programs and real time by the world."""

    class FakeExecutor:
        def __init__(self, workload: Workload, options: MeterOptions, _references: Path) -> None:
            self.workload = workload
            self.options = options
            world.timeouts.append(options.timeout)

        def run(
            self, input_: Input, env: Mapping[str, str], pad: int = 0, _stop: threading.Event | None = None
        ) -> Outcome:
            prefix = self.workload.file.prefix
            world.prefix_s = prefix.seconds if prefix else math.inf
            return world.run(input_, read_settings(env), pad)

    monkeypatch.setattr("heapwright.tuning.session.Executor", FakeExecutor)
    for module in ("runner", "budget"):
        monkeypatch.setattr(f"heapwright.interleaving.{module}.time", SimpleNamespace(monotonic=lambda: world.clock))
    monkeypatch.delenv("TOY", raising=False)
    monkeypatch.setattr("heapwright.study.open.measure_cold_pages", lambda: None)  # real time
    monkeypatch.setattr("heapwright.tuning.runtimes.thp_state", lambda: "madvise")


def toy_allocator(*params: ParamSpec, gates: tuple[str, ...] = ()) -> Allocator:
    """An allocator with these settings in the variable TOY."""
    spec = AllocatorSpec("toy", env="TOY", pair="toy.{key}={value}", join=":")
    params = params or (
        number("threshold", 32, 1024, gate="static"),
        number("pad", 16, 64, gate="static", specials=[0]),
        number("cache", 1, 64, specials=[0]),
        ParamSpec("trim", "explained", type="bool"),
    )
    return Allocator(
        "toy", None, None, False, "", SpaceFile(spec, [GateSpec(g, "e") for g in gates or ("static",)], list(params))
    )
