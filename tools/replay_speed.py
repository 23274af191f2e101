#!/usr/bin/env python3
"""Compares searches on replays and under Massif, by speed and by result: docs/results/tune.md.

    .venv/bin/python tools/replay_speed.py --programs z3,sqlite3,gawk,jq --seconds 60 --repeats 3

The papers' method runs one configuration after the other on the program, under `valgrind
--tool=massif --pages-as-heap=yes`. NSGA-II (24 in a generation) minimises the peak over
GreenMalloc's seven settings of glibc. Our method runs on replays, as many at once as there are
cores, and minimises peak resident memory: first with the same settings and NSGA-II, then with our
own space of every allocator and our own search method. The best configuration of each then runs on
the program five times, interleaved with the default.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from papers_tables import COMMANDS

from heapwright.allocators.joint import join
from heapwright.allocators.presets import load_preset, preset_allocators
from heapwright.allocators.registry import ordinary_allocators
from heapwright.allocators.space import Space
from heapwright.measure.meter import MeterOptions, run_metered
from heapwright.search.methods import make_strategy
from heapwright.search.protocol import Observation, Setup
from heapwright.trace.record import record
from heapwright.trace.replay import make_ready, replay_once
from programs import PROGRAMS, make_inputs

Environment = Mapping[str, str]


def massif(command: Sequence[str], env: Environment) -> float | None:
    """The peak that Massif reports, in bytes; None if the program failed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "massif.out"
        words = ["valgrind", "--tool=massif", "--pages-as-heap=yes", "--peak-inaccuracy=0.0", "--time-unit=B"]
        words += [f"--massif-out-file={out}", *command]
        done = subprocess.run(words, env=dict(env), capture_output=True, stdin=subprocess.DEVNULL, check=False)
        if done.returncode or not out.exists():
            return None
        return max(float(x) for x in re.findall(r"^mem_heap_B=(\d+)", out.read_text(), re.MULTILINE))


def search(
    space: Space, method: str, seed: int, seconds: float, at_once: int, measure: Callable[[Environment], float | None]
) -> tuple[dict[str, str], int]:
    """Searches for a given time.

    Args:
        space: The settings to search.
        method: The name of the search method.
        seed: Seed of the method.
        seconds: For how long.
        at_once: How many evaluations run at the same time.
        measure: Measures an environment; returns its cost, or None if it failed.

    Returns:
        The best environment (ours if none is better), and the number of evaluations.
    """
    base = dict(os.environ)
    began, seen = time.monotonic(), dict[str, float | None]()
    envs: dict[str, dict[str, str]] = {}
    default = measure(base)
    strategy = make_strategy(method, Setup(space, 1, 0, seed))
    with ThreadPoolExecutor(at_once) as pool:
        while time.monotonic() - began < seconds:
            points = strategy.ask()
            if not points:
                break
            keys = []
            for point in points:
                env = {**base, **space.environment(space.settings(point), base)}
                keys.append(repr(sorted(env.items())))
                envs[keys[-1]] = env

            def once(key: str) -> float | None:
                late = time.monotonic() - began >= seconds
                return None if late else measure(envs[key])

            new = [key for key in dict.fromkeys(keys) if key not in seen]
            seen.update(zip(new, pool.map(once, new), strict=True))
            costs = [math.log(v / default) if (v := seen[k]) and default else None for k in keys]
            strategy.tell([Observation(p, None if c is None else (c,)) for p, c in zip(points, costs, strict=True)])
    found = {k: v for k, v in seen.items() if v}
    best = min(found, key=lambda k: found[k] or 0.0, default="")
    return (envs[best] if best and default and (found[best] or 0) < default else base), len(found)


def real(command: Sequence[str], env: Environment, rounds: int = 5) -> float:
    """Measures the ratio of peak resident memory under an environment to that of the default.

    Args:
        command: The program.
        env: The environment.
        rounds: How many pairs to run; the result is their median ratio.
    """
    ratios = []
    for _ in range(rounds):
        first, second = (run_metered(command, MeterOptions(), env=e).metrics["peak_rss_bytes"] for e in (None, env))
        ratios.append((second or math.nan) / (first or math.nan))
    return statistics.median(ratios)


def main() -> None:
    """Measures all programs and prints Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--programs", default="z3,sqlite3,gawk,jq")
    parser.add_argument("--folder", type=Path, default=Path("out/speed"))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    make_inputs(args.folder)
    os.chdir(args.folder)
    base, cores = dict(os.environ), len(os.sched_getaffinity(0))
    papers = preset_allocators(load_preset("greenmalloc"), ["glibc"])[0].space(threads=False, expert=True)
    ours = join([a.space(threads=False, expert=False) for a in ordinary_allocators()])
    head = ["program", "Massif", "replay", "evaluations a second", f"in {args.seconds:g} s: Massif, NSGA-II"]
    head += ["replay, NSGA-II, the same settings", "replay, Gaussian process, every allocator"]
    sys.stdout.write(
        f"`tools/replay_speed.py {' '.join(sys.argv[1:])}`\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}\n"
    )
    for name in args.programs.split(","):
        command = {**COMMANDS, **PROGRAMS}[name]
        if shutil.which(command[0]) is None:
            continue
        Path(f"{name}.hwt").unlink(missing_ok=True)
        devnull = os.open(os.devnull, os.O_WRONLY)
        kept = os.dup(1)
        os.dup2(devnull, 1)  # the program's output must not get into the table
        try:
            record(command, Path(f"{name}.hwt"))
        finally:
            os.dup2(kept, 1)
        with make_ready(Path(f"{name}.hwt")) as ready:

            def replay(env: Environment) -> float | None:
                return replay_once(ready, MeterOptions(), env).metrics().get("peak_rss_bytes")

            def under_massif(env: Environment) -> float | None:
                return massif(command, env)  # noqa: B023

            times: dict[str, list[float]] = {"massif": [], "replay": []}
            for _ in range(3):
                for what, measure in (("massif", under_massif), ("replay", replay)):
                    began = time.monotonic()
                    measure(base)
                    times[what].append(time.monotonic() - began)
            slow, fast = (statistics.median(times[x]) for x in ("massif", "replay"))
            cells = [name, f"{slow:.2f} s", f"{fast * 1000:.0f} ms", f"{slow / fast:.0f} × one at a time"]
            for space, method, at_once, measure in (
                (papers, "nsga2", 1, under_massif),
                (papers, "nsga2", cores, replay),
                (ours, "gp", cores, replay),
            ):
                reached, counts = [], []
                for seed in range(1, args.repeats + 1):
                    env, count = search(space, method, seed, args.seconds, at_once, measure)
                    reached.append(real(command, env) - 1)
                    counts.append(count)
                spread = f"{min(reached):+.1%} … {max(reached):+.1%}"
                cells.append(
                    f"{statistics.median(reached):+.1%} ({spread}; {statistics.median(counts):.0f} evaluations)"
                )
        sys.stdout.write(f"| {' | '.join(cells)} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
