"""Measures how many evaluations a second one worker and two workers make, for replays without timing.

    tools/cluster_speed.py TRACE [ROUNDS]

Starts a scheduler and two workers, each pinned to a core. In every round the same blocks run on one
worker and on both, in random order. The ratio is computed within the round. docs/cluster.md quotes
the last line.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from heapwright.allocators.registry import get_allocator
from heapwright.cluster.dask_runner import DaskMachines
from heapwright.cluster.settings import Settings
from heapwright.cluster.transport import needs_of
from heapwright.cluster.worker_pool import WorkerPool
from heapwright.interleaving.replays import Replays
from heapwright.interleaving.runner import Job, Work
from heapwright.measure.meter import MeterOptions
from heapwright.workload.model import Input, Workload, WorkloadFile

PORT = 18786
BLOCKS, RUNS = 10, 6


def main() -> None:
    """Starts a scheduler and two workers, and measures."""
    trace, rounds = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    cores = sorted(os.sched_getaffinity(0))[:2]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dask = [sys.executable, "-m", "dask"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
        address = f"tcp://127.0.0.1:{PORT}"
        words = [*dask, "scheduler", "--host", "127.0.0.1", "--port", str(PORT), "--no-dashboard"]
        started = [subprocess.Popen(words, **quiet)]  # type: ignore[call-overload]
        try:
            for core in cores:
                words = ["taskset", "-c", str(core), *dask, "worker", address, "--nthreads", "1", "--no-nanny"]
                started.append(subprocess.Popen([*words, "--no-dashboard"], **quiet))  # type: ignore[call-overload]
            measure(trace, rounds, address, folder)
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait()


def measure(trace: Path, rounds: int, address: str, folder: Path) -> None:
    """Runs interleaved rounds on one worker and on two, and prints the rates.

    Args:
        trace: The trace to replay.
        rounds: How many rounds to run.
        address: The scheduler's address.
        folder: The folder of the workload.
    """
    inputs = (Input("one"),)
    workload = Workload(WorkloadFile(command=["sh"]), folder, inputs)
    needs = needs_of(workload, [get_allocator("glibc")], folder)
    with WorkerPool(Settings(address), print, None) as pool:
        while pool.start(needs, "", None) < 2:
            time.sleep(0.5)
        machines = DaskMachines(pool, needs, 2)
        with Replays(workload, {"one": trace}, MeterOptions()) as replays:
            runner = machines.for_replays(replays, timed=False)
            run(runner, 2, 4)  # both workers fetch the trace and make it ready
            ratios = []
            for number in range(rounds):
                rates = {}
                for workers in random.sample((1, 2), 2):
                    rates[workers] = run(runner, workers, BLOCKS)
                ratios.append(rates[2] / rates[1])
                load = os.getloadavg()[0]
                print(
                    f"round {number}: one worker {rates[1]:.1f}, two {rates[2]:.1f} evaluations/s,"
                    f" ratio {ratios[-1]:.2f}, load {load:.1f}",
                    flush=True,
                )
    low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
    print(f"two workers make {middle:.2f} times the evaluations of one (rounds: {low:.2f} to {high:.2f})")


def run(runner: object, workers: int, blocks: int) -> float:
    """Measures the evaluations a second.

    Args:
        runner: The `DaskRunner` that runs the blocks.
        workers: How many workers to use.
        blocks: How many blocks to run.
    """
    from heapwright.cluster.dask_runner import DaskRunner

    assert isinstance(runner, DaskRunner)
    runner._single = workers == 1
    for block in range(blocks):
        jobs = tuple(Job("replay", block, Input("one"), n + 1, {}, n) for n in range(RUNS))
        runner.submit(Work(jobs))
    began = time.monotonic()
    with closing(runner.results()) as results:
        count = sum(not r.outcome.failure for r in results)
    assert count == blocks * RUNS
    return count / (time.monotonic() - began)


if __name__ == "__main__":
    main()
