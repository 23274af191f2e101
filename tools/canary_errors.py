#!/usr/bin/env python3
"""Counts how often `heapwright canary` claims a difference where there is none, and finds one that is there.

Simulates canaries: samples every 5 s of two groups, whose load is shared and wanders, with noise of each instance that
is correlated over minutes (AR(1)). Each canary is judged as it goes on, at every look; one claim at any look counts.
Kinds: `plain`; `slow`, whose noise is correlated over ten minutes; `restarts`, in which an instance restarts now and
then and fills up again; `drift`, in which one instance's memory climbs (a claim of a level would be wrong); and `gain`,
in which the treatment takes 5 % less; `quiet`: with half the noise.

    .venv/bin/python tools/canary_errors.py --series 2000
"""

from __future__ import annotations

import argparse
import random

import numpy as np

from heapwright.canary.blocks import SAMPLES_PER_BLOCK, Blocks
from heapwright.canary.judge import FIRST_LOOK, judge

EVERY_S = 5.0
MARGIN = 0.01
NOISE = 0.02  # standard deviation of an instance's noise
KINDS = ("plain", "slow", "restarts", "drift", "gain", "gain, quiet")


def ar1(rng: np.random.Generator, count: int, minutes: float, deviation: float) -> np.ndarray:
    """An AR(1) series whose correlation falls by e in so many minutes."""
    rho = float(np.exp(-EVERY_S / 60 / minutes))
    steps = rng.normal(0, deviation * np.sqrt(1 - rho**2), count)
    found = np.empty(count)
    found[0] = rng.normal(0, deviation)
    for i in range(1, count):
        found[i] = rho * found[i - 1] + steps[i]
    return found


def simulate(kind: str, hours: float, rng: np.random.Generator) -> Blocks:
    """One canary with an instance on each side."""
    count = int(hours * 3600 / EVERY_S)
    load = ar1(rng, count, 60, 0.3)
    sides = []
    for side in range(2):
        log = load + ar1(rng, count, 10 if kind == "slow" else 2, NOISE / 2 if "quiet" in kind else NOISE)
        if kind == "restarts":
            since = 0
            for i in range(count):
                since = 0 if rng.random() < EVERY_S / 3600 else since + 1
                log[i] -= 0.5 * np.exp(-since * EVERY_S / 120)
        if kind == "drift" and side:
            log += np.linspace(0, 0.2, count)
        if kind.startswith("gain") and side:
            log += np.log(0.95)
        sides.append(np.exp(log).reshape(-1, SAMPLES_PER_BLOCK).mean(axis=1))
    blocks = Blocks()
    blocks.times = [(i + 0.5) * EVERY_S * SAMPLES_PER_BLOCK for i in range(len(sides[0]))]
    blocks.control, blocks.treatment = sides[0].tolist(), sides[1].tolist()
    return blocks


def first_claim(blocks: Blocks) -> tuple[str, int] | None:
    """The first claim of a difference at any look, and the number of blocks it took."""
    count = FIRST_LOOK
    while count <= len(blocks.times):
        part = Blocks(blocks.times[:count], blocks.control[:count], blocks.treatment[:count])
        found = judge(part, MARGIN)
        if found.verdict in ("lower", "higher"):
            return found.verdict, count
        count *= 2
    return None


def main() -> None:
    """Simulate and print the rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=2000, help="canaries of each kind")
    parser.add_argument("--hours", type=float, default=4.3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print("| kind | claims of a difference | within an hour | blocks of a minute until the claim, median |")
    print("|---|--:|--:|--:|")
    for kind in KINDS:
        rng = np.random.default_rng([args.seed, *kind.encode()])
        claims = [first_claim(simulate(kind, args.hours, rng)) for _ in range(args.series)]
        made = [claim for claim in claims if claim]
        hour = sum(count <= 60 for _, count in made)
        middle = sorted(count for _, count in made)[len(made) // 2] if made else "n/a"
        print(f"| {kind} | {len(made) / args.series:.1%} | {hour / args.series:.1%} | {middle} |", flush=True)


if __name__ == "__main__":
    random.seed(1)
    main()
