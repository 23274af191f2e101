#!/usr/bin/env python3
"""Counts how often `heapwright canary` claims a difference where there is none, and finds one that is there.

Simulates canaries: readings every 5 s of two groups, whose load is shared and wanders, with noise of each instance that
is correlated over minutes (AR(1)). Each canary is judged as it goes on, at every look; one claim at any look counts.
`KINDS` says what each kind adds.

    .venv/bin/python tools/canary_errors.py --series 2000
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter

from heapwright.canary.blocks import READINGS_PER_BLOCK, RatioSeries
from heapwright.canary.judge import FIRST_LOOK, judge_number

EVERY_S = 5.0
MARGIN = 0.01
PER_HOUR = int(3600 / EVERY_S)


@dataclass(frozen=True)
class Kind:
    """One kind of canary; the figures are of an instance.

    Attributes:
        noise: standard deviation of the AR(1) noise, as a share. minutes: the time in which its correlation falls by e.
        fast: standard deviation of further noise that is correlated over 20 seconds.
        gain: difference of the treatment, as a share. instances: on each side.
        drift: change of the log of the treatment's memory per hour.
        cycle: amplitude of a daily cycle of the load that both share.
        restarts: per hour, after each of which an instance fills up within minutes.
        warm_up: minutes after a restart in which an instance is left out (`--warm-up`).
        level: standard deviation of the level to which an instance starts.
        walk: standard deviation of the step that an instance's level makes in a minute (random walk).
    """

    noise: float = 0.02
    minutes: float = 2.0
    fast: float = 0.0
    gain: float = 0.0
    instances: int = 1
    drift: float = 0.0
    cycle: float = 0.0
    restarts: float = 0.0
    warm_up: float = 1.0
    level: float = 0.0
    walk: float = 0.0


KINDS = {
    "plain": Kind(),
    "daily cycle": Kind(cycle=0.3),
    "slow": Kind(minutes=10),
    "fast and slow": Kind(noise=0.014, minutes=10, fast=0.014),
    "restarts": Kind(restarts=1),
    "restarts, --warm-up 10m": Kind(restarts=1, warm_up=10),
    "drift": Kind(drift=0.2 / 4.3),
    "fast drift": Kind(drift=0.2),
    "drift, slow": Kind(minutes=10, drift=0.2 / 4.3),
    "restart steps, 4 a side": Kind(restarts=1, level=0.03, instances=4),
    "walk, 4 a side": Kind(noise=0.01, walk=0.003, instances=4),
    "restart steps, 1 a side": Kind(restarts=1, level=0.03),
    "walk, 1 a side": Kind(noise=0.01, walk=0.003),
    "gain": Kind(gain=0.05),
    "gain, quiet": Kind(gain=0.05, noise=0.01),
    "gain, fast and slow": Kind(gain=0.05, noise=0.01, minutes=10, fast=0.014),
    "gain, restarts, --warm-up 10m": Kind(gain=0.05, restarts=1, warm_up=10),
    "gain, 4 a side": Kind(gain=0.05, instances=4),
}


def ar1(rng: np.random.Generator, count: int, minutes: float, deviation: float) -> np.ndarray:
    """An AR(1) series whose correlation falls by e in so many minutes."""
    rho = float(np.exp(-EVERY_S / 60 / minutes))
    steps = rng.normal(0, deviation * np.sqrt(1 - rho**2), count)
    steps[0] = rng.normal(0, deviation)
    return np.asarray(lfilter([1], [1, -rho], steps))


def instance(kind: Kind, count: int, rng: np.random.Generator) -> np.ndarray:
    """The log of an instance's memory at each reading, without the shared load; NaN while it is left out."""
    log = ar1(rng, count, kind.minutes, kind.noise)
    if kind.fast:
        log += ar1(rng, count, 1 / 3, kind.fast)
    if kind.walk:
        log += np.cumsum(rng.normal(0, kind.walk * np.sqrt(EVERY_S / 60), count))
    if kind.restarts:
        starts = np.flatnonzero(rng.random(count) < kind.restarts / PER_HOUR)
        for start, end in itertools.pairwise([0, *starts, count]):
            log[start:end] += rng.normal(0, kind.level)
            if start:
                log[start:end] -= 0.5 * np.exp(-np.arange(end - start) * EVERY_S / 120)
                log[start : min(end, start + int(kind.warm_up * 60 / EVERY_S))] = np.nan
    return log


def simulate(kind: Kind, hours: float, rng: np.random.Generator) -> RatioSeries:
    """One canary."""
    count = int(hours * PER_HOUR) // READINGS_PER_BLOCK * READINGS_PER_BLOCK
    at = np.arange(count) / PER_HOUR
    load = ar1(rng, count, 60, 0.3) + kind.cycle * np.sin(2 * np.pi * (at / 24 + rng.random()))
    sides = []
    for shift in (0.0, np.log1p(-kind.gain) + kind.drift * at):
        logs = [load + instance(kind, count, rng) + shift for _ in range(kind.instances)]
        sides.append(np.array([block_means(np.exp(log)) for log in logs]))
    up = ~np.isnan(sides[0]).all(axis=0) & ~np.isnan(sides[1]).all(axis=0)
    control, treatment = sides[0][:, up], sides[1][:, up]
    blocks = RatioSeries()
    blocks.times = ((np.flatnonzero(up) + 0.5) * EVERY_S * READINGS_PER_BLOCK).tolist()
    blocks.control, blocks.treatment = np.nanmean(control, axis=0).tolist(), np.nanmean(treatment, axis=0).tolist()
    blocks.instances = (rows(control), rows(treatment))
    return blocks


def block_means(values: np.ndarray) -> np.ndarray:
    """The mean of the known readings of each block; NaN where there are none."""
    parts = values.reshape(-1, READINGS_PER_BLOCK)
    known = (~np.isnan(parts)).sum(axis=1)
    return np.where(known > 0, np.nansum(parts, axis=1) / np.maximum(known, 1), np.nan)


def rows(side: np.ndarray) -> list[list[float | None]]:
    """The values of each instance in each block; None where it is left out."""
    return [[None if np.isnan(value) else float(value) for value in row] for row in side.T]


def first_claim(blocks: RatioSeries) -> tuple[str, int] | None:
    """The first claim of a difference at any look, and the number of blocks it took."""
    count = FIRST_LOOK
    while count <= len(blocks.times):
        instances = (blocks.instances[0][:count], blocks.instances[1][:count])
        seen = RatioSeries(blocks.times[:count], blocks.control[:count], blocks.treatment[:count], instances)
        found = judge_number(seen, MARGIN)
        if found.verdict in ("lower", "higher"):
            return found.verdict, count
        if found.verdict == "same":  # the canary ends with this claim
            return None
        count *= 2
    return None


def main() -> None:
    """Simulate and print the rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=2000, help="canaries of each kind")
    parser.add_argument("--hours", type=float, default=4.3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this kind")
    args = parser.parse_args()
    print("| kind | claims of a difference | within an hour | blocks of a minute until the claim, median |")
    print("|---|--:|--:|--:|")
    for name in args.kind or KINDS:
        rng = np.random.default_rng([args.seed, *name.encode()])
        claims = [first_claim(simulate(KINDS[name], args.hours, rng)) for _ in range(args.series)]
        made = [claim for claim in claims if claim]
        hour = sum(count <= 60 for _, count in made)
        middle = sorted(count for _, count in made)[len(made) // 2] if made else "n/a"
        print(f"| {name} | {len(made) / args.series:.1%} | {hour / args.series:.1%} | {middle} |", flush=True)


if __name__ == "__main__":
    main()
