"""Simulates how often the 95% interval of a confirmation contains the true ratio. Prints Markdown tables.

    .venv/bin/python tools/coverage.py [--studies 4000] [--before]

A study is a series of pairs: one run of the default beside one of the pick, in random order, on one
machine. For each kind of noise a row shows

    10, 20, 40 pairs    share of intervals that contain the truth, and half the interval's width in per
                        cent of the ratio (median over studies)
    tune                the same with the confirmation's stopping rule (15 to 40 pairs)
    pairs               the mean number of pairs that this rule took
    noted               share of studies whose note beside the ratio says that runs are unusual
    true or noted       share of intervals that contain the truth or have that note

`--before` adds the interval that heapwright used before: a percentile bootstrap widened to
Student's t, with 10 to 40 pairs.

The fourth table draws from real runs (tests/study/data/recorded_pairs.csv says how they were
recorded): pairs at random, and stretches of consecutive pairs in their order of measurement.
The last table is about studies of several inputs.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from heapwright.interleaving.shape import shapes
from heapwright.interleaving.stats import RESAMPLES, mean_errors, ratio_interval
from heapwright.study.options import CONFIRM_LOOK, Options

Rows = NDArray[np.float64]
PAIRS = 40
SLOW = math.log(1.6)  # a slow mode takes 60% longer
RECORDED = Path(__file__).parents[1] / "tests/study/data/recorded_pairs.csv"


@dataclass(frozen=True)
class Sample:
    """Studies: log values (studies, pairs) of both sides in the order of measurement, and the true mean difference."""

    default: Rows
    pick: Rows
    truth: float = 0.0


Model = Callable[[np.random.Generator, int], Sample]


def _noise(rng: np.random.Generator, studies: int, deviation: float) -> tuple[Rows, Rows]:
    return rng.normal(0, deviation, (studies, PAIRS)), rng.normal(0, deviation, (studies, PAIRS))


def _paired(rng: np.random.Generator, course: Rows) -> tuple[Rows, Rows]:
    """The effect of a machine's course, (studies, 2 * pairs), on each side; the order within a pair is random."""
    swap = rng.random((len(course), PAIRS)) < 0.5
    first, second = course[:, ::2], course[:, 1::2]
    return np.where(swap, second, first), np.where(swap, first, second)


def normal(deviation: float) -> Model:
    """Independent normal noise."""
    return lambda rng, studies: Sample(*_noise(rng, studies, deviation))


def wandering(jump_share: float) -> Model:
    """Noise of 2% on a machine whose speed is a random walk of 0.5% a run, with some jumps of 10%."""

    def model(rng: np.random.Generator, studies: int) -> Sample:
        shape = studies, 2 * PAIRS
        steps = rng.normal(0, 0.005, shape) + 0.1 * (rng.random(shape) < jump_share) * rng.choice([-1, 1], shape)
        return Sample(*_paired(rng, np.cumsum(steps, axis=1) + rng.normal(0, 0.02, shape)))

    return model


def modes(
    default: float, pick: float, default_gap: float = SLOW, pick_gap: float = SLOW, deviation: float = 0.02
) -> Model:
    """Each run is in the slow mode with the probability of its side, independently of all others.

    Args:
        default: Share of the default's runs that are slow.
        pick: Share of the pick's runs that are slow.
        default_gap: Log ratio of the slow to the fast mode for the default.
        pick_gap: The same for the pick.
        deviation: Standard deviation of the noise of log values.
    """

    def model(rng: np.random.Generator, studies: int) -> Sample:
        a, b = _noise(rng, studies, deviation)
        a += default_gap * (rng.random(a.shape) < default)
        b += pick_gap * (rng.random(b.shape) < pick)
        return Sample(a, b, pick * pick_gap - default * default_gap)

    return model


def _chain(rng: np.random.Generator, studies: int, runs: int, share: float, stay: float) -> NDArray[np.bool_]:
    """A two-state Markov chain: in the slow state for `stay` runs on average, and in `share` of all runs."""
    leave = 1 / stay
    enter = leave * share / (1 - share) if share else 0.0
    state = rng.random(studies) < share
    found = np.empty((studies, runs), dtype=bool)
    for run in range(runs):
        found[:, run] = state
        state = np.where(state, rng.random(studies) >= leave, rng.random(studies) < enter)
    return found


def machine_modes(share: float, stay: float, pick_gap: float = SLOW) -> Model:
    """The machine changes between a fast and a slow mode, which slows both sides.

    Args:
        share: Share of all runs in the slow mode.
        stay: How many runs the slow mode lasts on average.
        pick_gap: Log ratio of the slow to the fast mode for the pick; SLOW for the default.
    """

    def model(rng: np.random.Generator, studies: int) -> Sample:
        a, b = _noise(rng, studies, 0.02)
        slow = _paired(rng, _chain(rng, studies, 2 * PAIRS, share, stay).astype(float))
        return Sample(a + SLOW * slow[0], b + pick_gap * slow[1], share * (pick_gap - SLOW))

    return model


def own_modes(default: float, pick: float, stay: float) -> Model:
    """Each side has its own slow mode.

    Args:
        default: Share of the default's runs in the slow mode.
        pick: Share of the pick's runs in the slow mode.
        stay: How many runs of its side the slow mode lasts on average.
    """

    def model(rng: np.random.Generator, studies: int) -> Sample:
        a, b = _noise(rng, studies, 0.02)
        a += SLOW * _chain(rng, studies, PAIRS, default, stay)
        b += SLOW * _chain(rng, studies, PAIRS, pick, stay)
        return Sample(a, b, SLOW * (pick - default))

    return model


def outliers(default: float, pick: float, low: float, high: float, deviation: float = 0.02) -> Model:
    """A share of the runs takes `low` to `high` times as long.

    Args:
        default: Share of the default's runs.
        pick: Share of the pick's runs.
        low: The smallest factor.
        high: The largest factor.
        deviation: Standard deviation of the noise of log values.
    """

    def model(rng: np.random.Generator, studies: int) -> Sample:
        a, b = _noise(rng, studies, deviation)
        a += (rng.random(a.shape) < default) * np.log(rng.uniform(low, high, a.shape))
        b += (rng.random(b.shape) < pick) * np.log(rng.uniform(low, high, b.shape))
        mean = float(np.log(np.linspace(low, high, 100_001)).mean())
        return Sample(a, b, mean * (pick - default))

    return model


def student(freedom: float) -> Model:
    """Noise of 2% times Student's t."""

    def model(rng: np.random.Generator, studies: int) -> Sample:
        shape = studies, PAIRS
        return Sample(0.02 * rng.standard_t(freedom, shape), 0.02 * rng.standard_t(freedom, shape))

    return model


def lognormal(sigma: float, both: bool = True) -> Model:
    """Each run is slowed down by a log-normal share of 2%; the default's noise may be normal, of 0.5%."""

    def model(rng: np.random.Generator, studies: int) -> Sample:
        shape = studies, PAIRS
        pick = 0.02 * rng.lognormal(0, sigma, shape)
        default = 0.02 * rng.lognormal(0, sigma, shape) if both else rng.normal(0, 0.005, shape)
        return Sample(default, pick, 0.0 if both else 0.02 * math.exp(sigma**2 / 2))

    return model


# For these models the confirmation's 95% intervals must contain the truth in 93% of studies.
COVERED: dict[str, Model] = {
    "normal, 0.5%": normal(0.005),
    "normal, 1%": normal(0.01),
    "normal, 2%": normal(0.02),
    "slow drift": wandering(0.0),
    "drift and jumps": wandering(0.05),
    "two modes, half of the runs slow": modes(0.5, 0.5),
    "two modes, 20% slow": modes(0.2, 0.2),
    "two modes, 10% slow": modes(0.1, 0.1),
    "10% slow, the pick 40%": modes(0.1, 0.4),
    "half slow, the pick 20%": modes(0.5, 0.2),
    "half slow, the pick never": modes(0.5, 0.0),
    "20% slow, the pick never": modes(0.2, 0.0),
    "20% slow, the pick never; noise 0.3%": modes(0.2, 0.0, deviation=0.003),
    "half slow, by 60%, the pick by 20%": modes(0.5, 0.5, pick_gap=math.log(1.2)),
    "the machine slow for 3 runs, half of the time": machine_modes(0.5, 3),
    "the machine slow for 10 runs, half of the time": machine_modes(0.5, 10),
    "the machine slow for 10 runs, 20% of the time": machine_modes(0.2, 10),
    "the machine slow for 3 runs, by 60%, the pick by 20%": machine_modes(0.5, 3, math.log(1.2)),
    "each slow for 3 of its runs, half of the time": own_modes(0.5, 0.5, 3),
    "each slow for 5 of its runs, half of the time": own_modes(0.5, 0.5, 5),
    "each slow for 3 of its runs, 20% of the time": own_modes(0.2, 0.2, 3),
    "slow for 3 of its runs, half of the time, the pick never": own_modes(0.5, 0.0, 3),
    "5% outliers, × 1.5 to 5": outliers(0.05, 0.05, 1.5, 5),
    "5% outliers, × 1.5 to 5; noise 0.3%": outliers(0.05, 0.05, 1.5, 5, deviation=0.003),
    "5% outliers, × 5": outliers(0.05, 0.05, 5, 5),
    "Student's t with 3 degrees": student(3),
    "log-normal, σ = 1": lognormal(1.0),
}
# These models give too few independent pairs: the interval contains the truth, or a note says why
# the runs are unusual.
NOTED: dict[str, Model] = {
    "the machine slow for 6 runs, by 60%, the pick by 20%": machine_modes(0.5, 6, math.log(1.2)),
    "the same for 6 runs, 20% of the time": machine_modes(0.2, 6, math.log(1.2)),
    "slow for 5 of its runs, half of the time, the pick never": own_modes(0.5, 0.0, 5),
    "slow for 3 of its runs, 20% of the time, the pick never": own_modes(0.2, 0.0, 3),
    "the machine slow for 12 runs, by 60%, the pick by 20%": machine_modes(0.5, 12, math.log(1.2)),
}
# For these models coverage stays below: rare events on one side that few pairs contain, and noise
# skewed on one side.
LIMITS: dict[str, Model] = {
    "10% slow, the pick never": modes(0.1, 0.0),
    "10% slow, the pick never; noise 0.3%": modes(0.1, 0.0, deviation=0.003),
    "5% outliers of the pick only": outliers(0.0, 0.05, 1.5, 5),
    "log-normal, σ = 0.5, the pick only": lognormal(0.5, both=False),
    "log-normal, σ = 1, the pick only": lognormal(1.0, both=False),
}


def recorded() -> Iterator[tuple[str, Model]]:
    """Two models for each program and metric of the recorded pairs: drawn at random, and in stretches."""
    with RECORDED.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    for program in dict.fromkeys(row["program"] for row in rows):
        mine = [row for row in rows if row["program"] == program]
        for metric in ("cpu_s", "peak_rss_bytes"):
            a, b = (np.log([float(row[f"{side} {metric}"]) for row in mine]) for side in ("glibc", "exgen"))
            short = metric.removesuffix("_s").removesuffix("_bytes")
            yield f"{program}, {short}: at random", _drawn(a, b, stretch=False)
            yield f"{program}, {short}: in stretches", _drawn(a, b, stretch=True)


def _drawn(default: Rows, pick: Rows, stretch: bool) -> Model:
    def model(rng: np.random.Generator, studies: int) -> Sample:
        n = len(default)
        if stretch:
            at = (rng.integers(0, n, (studies, 1)) + np.arange(PAIRS)) % n
        else:
            at = rng.integers(0, n, (studies, PAIRS))
        return Sample(default[at], pick[at], float((pick - default).mean()))

    return model


@dataclass(frozen=True)
class Found:
    """Intervals of studies, each (studies,): bounds of log ratios, numbers of pairs, and whether they have a note."""

    low: Rows
    high: Rows
    pairs: Rows
    noted: NDArray[np.bool_]

    def covered(self, truth: float) -> NDArray[np.bool_]:
        """(studies,) array: whether the interval contains the truth."""
        found: NDArray[np.bool_] = (self.low <= truth) & (truth <= self.high)
        return found

    @property
    def width(self) -> float:
        """The median half width, in per cent."""
        return float(np.median(self.high - self.low)) * 50


def interval(rows: Rows) -> Found:
    """Computes for each row the interval of `stats.ratio_interval`; a test checks that both agree."""
    found, shape = mean_errors(rows), shapes(rows)
    half = t.ppf(0.975, found.freedom) * found.error
    matters = np.ptp(rows, axis=1) > Options().margin
    noted = matters & (shape.grouped | (shape.independent <= rows.shape[1] / 2))
    return Found(found.mean - half, found.mean + half, np.full(len(rows), float(rows.shape[1])), noted)


def bootstrap(rows: Rows) -> Found:
    """Computes the interval that heapwright used before."""
    n = rows.shape[1]
    weights = np.random.default_rng(1).multinomial(n, np.full(n, 1 / n), RESAMPLES) / n
    means = np.sort(weights.astype(np.float32) @ rows.T.astype(np.float32), axis=0)
    wide = float(norm.cdf(t.ppf(0.025, n - 1) * math.sqrt(n / (n - 1))))
    low, high = (means[round(q * (RESAMPLES - 1))] for q in (wide, 1 - wide))
    return Found(low, high, np.full(len(rows), float(n)), np.zeros(len(rows), dtype=bool))


def confirmation(rows: Rows, estimate: Callable[[Rows], Found] = interval, first: int = Options().pairs_min) -> Found:
    """Computes intervals with the confirmation's stopping rule (`tuning.confirm.settled`), for one objective.

    Args:
        rows: (studies, pairs) array of differences of log values.
        estimate: Computes the intervals.
        first: The number of pairs at which the rule looks first.
    """
    margin, before = Options().margin, estimate is bootstrap
    low, high, pairs = (np.zeros(len(rows)) for _ in range(3))
    noted = np.zeros(len(rows), dtype=bool)
    going = np.arange(len(rows))
    for n in range(first, PAIRS + 1, CONFIRM_LOOK):
        part = rows[going, :n]
        found = estimate(part)
        half = (np.exp(found.high) - np.exp(found.low)) / 2
        ended = half <= np.maximum(margin, np.abs(np.exp((found.high + found.low) / 2) - 1) / 4)
        if not before:
            ended &= ~(shapes(part).irregular & (np.ptp(part, axis=1) > margin))
        if n + CONFIRM_LOOK > PAIRS:
            ended[:] = True
        at = going[ended]
        low[at], high[at], pairs[at], noted[at] = found.low[ended], found.high[ended], n, found.noted[ended]
        going = going[~ended]
    return Found(low, high, pairs, noted)


def line(name: str, model: Model, studies: int, before: bool) -> str:
    """Formats a row of the table.

    Args:
        name: The row's name.
        model: The noise to simulate.
        studies: How many studies to simulate.
        before: Whether to add the interval that heapwright used before.
    """
    sample = model(np.random.default_rng(20240229), studies)
    rows = sample.pick - sample.default
    cells = []
    if before:
        old = confirmation(rows, bootstrap, first=10)
        cells.append(f"{old.covered(sample.truth).mean():.1%} (± {old.width:.1f})")
    for n in (10, 20, 40):
        found = interval(rows[:, :n])
        cells.append(f"{found.covered(sample.truth).mean():.1%} (± {found.width:.1f})")
    found = confirmation(rows)
    covered = found.covered(sample.truth)
    cells.append(f"**{covered.mean():.1%}** (± {found.width:.1f})")
    cells += [f"{found.pairs.mean():.0f}", f"{found.noted.mean():.0%}", f"{(covered | found.noted).mean():.1%}"]
    return f"| {name} | {' | '.join(cells)} |"


def inputs_line(inputs: int, studies: int) -> str:
    """Formats a row of the table of several inputs: noise of 2%, 15 pairs of each input.

    The inputs of a study are drawn at random from many, whose true log ratios differ by 3% (standard deviation).

    Args:
        inputs: How many inputs each study has.
        studies: How many studies to simulate.
    """
    rng = np.random.default_rng(20240229)
    of_many, of_these = 0, 0
    for seed in range(studies):
        true = rng.normal(0, 0.03, inputs)
        pairs = rng.normal(true[:, None], 0.02, (inputs, 15))
        found = ratio_interval({str(number): list(row) for number, row in enumerate(pairs)}, seed)
        of_many += found.low <= 1 <= found.high
        of_these += found.low <= math.exp(true.mean()) <= found.high
    return f"| {inputs} | {of_many / studies:.1%} | {of_these / studies:.1%} |"


def main() -> None:
    """Simulates and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=4000)
    parser.add_argument("--before", action="store_true")
    args = parser.parse_args()
    heads = ["10 pairs", "20 pairs", "40 pairs", "tune", "pairs", "noted", "true or noted"]
    heads = ["noise", *(["before"] if args.before else []), *heads]
    for models in (COVERED, NOTED, LIMITS, dict(recorded())):
        print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
        for name, model in models.items():
            print(line(name, model, args.studies, args.before), flush=True)
        print()
    print("| inputs | mean of all such inputs | mean of the study's inputs |\n|---|---|---|")
    for inputs in (1, 2, 3, 5, 10, 20):
        print(inputs_line(inputs, args.studies), flush=True)


if __name__ == "__main__":
    main()
