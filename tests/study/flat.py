"""Sweeps a setting that the program ignores, in memory, on machines whose noise is known.

`tools/flat_landscapes.py` counts over many sweeps what tests/study/test_flat_landscapes.py checks over some.
"""

from __future__ import annotations

import math
import random
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from heapwright.report.progress import SilentProgress
from heapwright.study.landscape_judge import landscape_result_of
from heapwright.study.landscape_result import LandscapeResult
from heapwright.study.options import Options
from heapwright.study.schema import TABLES
from heapwright.study.store import Store
from heapwright.tuning import landscape
from heapwright.tuning.session import Session
from heapwright.workload.execute import Outcome
from heapwright.workload.model import Input, Workload, WorkloadFile

from ..allocators.spaces import number
from .fakes import Effect, Settings, World, install, nothing, toy_allocator

TOY = toy_allocator(number("size", 1, 1 << 30, unit="B"))
SLOW = math.log(1.6)


def normal(rng: random.Random) -> Iterator[float]:
    """Independent noise of 2%."""
    while True:
        yield rng.gauss(0, 0.02)


def drift_and_jumps(rng: random.Random) -> Iterator[float]:
    """The speed is a random walk of 0.5% a run, and jumps by 10% once in 20 runs."""
    speed = 0.0
    while True:
        speed += rng.gauss(0, 0.005) + (rng.choice([-0.1, 0.1]) if rng.random() < 0.05 else 0)
        yield speed + rng.gauss(0, 0.02)


def modes(share: float, noise: float = 0.02) -> Callable[[random.Random], Iterator[float]]:
    """Each run is slow, by 60%, with this probability."""

    def course(rng: random.Random) -> Iterator[float]:
        while True:
            yield rng.gauss(0, noise) + SLOW * (rng.random() < share)

    return course


def spells(stay: float) -> Callable[[random.Random], Iterator[float]]:
    """The machine is slow half of the time, for so many runs on end."""

    def course(rng: random.Random) -> Iterator[float]:
        slow = False
        while True:
            slow ^= rng.random() < 1 / stay
            yield rng.gauss(0, 0.02) + SLOW * slow

    return course


def outliers(rng: random.Random) -> Iterator[float]:
    """One run in twenty takes 1.5 to 5 times as long."""
    while True:
        yield rng.gauss(0, 0.02) + (math.log(rng.uniform(1.5, 5)) if rng.random() < 0.05 else 0)


def student(rng: random.Random) -> Iterator[float]:
    """Student's t with 3 degrees of freedom, times 2%."""
    while True:
        yield 0.02 * rng.gauss(0, 1) / math.sqrt(rng.gammavariate(1.5, 2) / 3)


def lognormal(rng: random.Random) -> Iterator[float]:
    """A run is slowed down by a log-normal share of 2%."""
    while True:
        yield 0.02 * rng.lognormvariate(0, 1)


def rare_pages(rng: random.Random) -> Iterator[float]:
    """As peak memory often is: the same in nearly every run; one in ten has 1% more."""
    while True:
        yield 0.01 * (rng.random() < 0.1)


COURSES: dict[str, Callable[[random.Random], Iterator[float]]] = {
    "normal, 2%": normal,
    "drift and jumps": drift_and_jumps,
    "two modes, half of the runs slow": modes(0.5),
    "two modes, 20% slow": modes(0.2),
    "two modes, 10% slow": modes(0.1),
    "two modes, 20% slow; noise 0.1%": modes(0.2, 0.001),
    "slow for 3 runs, half of the time": spells(3),
    "slow for 10 runs, half of the time": spells(10),
    "5% outliers, × 1.5 to 5": outliers,
    "Student's t with 3 degrees": student,
    "log-normal, σ = 1": lognormal,
    "equal but for one run in ten": rare_pages,
}


class NoisyWorld(World):
    """A machine whose runs follow a course."""

    def __init__(self, course: Iterator[float], effect: Effect) -> None:
        super().__init__(effect=effect)
        self.course = course

    def run(self, input_: Input, settings: Settings, pad: int) -> Outcome:
        """One run, slowed down by the next value of the course."""
        outcome = super().run(input_, settings, pad)
        shift = math.exp(next(self.course))
        metrics = {key: None if v is None else v * shift for key, v in outcome.run.metrics.items()}
        return replace(outcome, run=replace(outcome.run, metrics=metrics))


def sweep(
    course: Callable[[random.Random], Iterator[float]],
    seed: int,
    *,
    axes: tuple[str, ...] = ("size:1:1048576:1",),
    replicates: int = 1,
    effect: Effect = nothing,
    patch: pytest.MonkeyPatch,
) -> LandscapeResult:
    """A whole sweep, in memory."""
    install(NoisyWorld(course(random.Random(seed)), effect), patch)
    options = Options(allocator="toy", axes=axes, seed=seed, objectives=("cpu_s",), replicates=replicates)
    db = sqlite3.connect(":memory:")
    db.executescript(TABLES)
    inputs = (Input("default"),)
    workload = Workload(WorkloadFile(command=["true"], input=list(inputs)), Path("/"), inputs)
    with Store(Path("/nowhere"), db, None) as store:
        store.update(
            options=msgspec.to_builtins(options),
            spaces={"toy": msgspec.to_builtins(TOY.file)},
            identity=workload.identity(),
        )
        landscape.sweep(Session(store, workload, [TOY], options, SilentProgress()))
        return landscape_result_of(store)


def is_flat(landscape: LandscapeResult) -> bool:
    """Whether nothing is said of it: no shape, no best point."""
    return landscape.smoothness.verdict.startswith("flat") and not landscape.gains
