"""Measures the CPU time that a study with 200 workers takes in the coordinator.

The scheduler, the Dask workers and the study file are real. The runs are not: each sleeps for as
long as gives the wanted number of evaluations a second.

    tools/cluster_coordinator.py [WORKERS [EVALUATIONS_A_SECOND [SECONDS]]]

The figure is the CPU time of this process (runner, client, study file) divided by the time from
first to last result. The workers are objects of Dask's class in a few processes, each with its own
connection to the scheduler.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

PORT = 18787
RUNS = 6  # in a block: the default and five candidates
PROCESSES = 4
ADDRESS = f"tcp://127.0.0.1:{PORT}"


async def workers(count: int, run_s: float) -> None:
    """Starts `count` workers in this process; each of their runs sleeps for `run_s` seconds."""
    import contextlib

    from distributed import Worker

    from heapwright.cluster import worker
    from heapwright.measure.meter import Run
    from heapwright.metrics import NUMERIC
    from heapwright.workload.execute import Outcome
    from heapwright.workload.model import Input

    class Sleeps:
        def run(
            self, _input: Input, _env: Mapping[str, str], pad: int, _stop: threading.Event | None = None, /
        ) -> Outcome:
            time.sleep(run_s)
            metrics: dict[str, float | None] = dict.fromkeys(NUMERIC, 1000.0 + pad)
            return Outcome(Run(metrics, 0, False, "d" * 64, "fake", [], 1, 30), "d" * 64, "")

    worker._one_at_a_time = contextlib.nullcontext()  # type: ignore[assignment]
    worker._prepared = lambda _recipe: Sleeps()  # type: ignore[assignment,return-value]
    worker._LOOK_S = 5.0
    made = [await Worker(ADDRESS, nthreads=1, dashboard=False, memory_limit=0) for _ in range(count)]
    await asyncio.gather(*(w.finished() for w in made))


def main() -> None:
    """Starts a scheduler and workers, and measures."""
    if sys.argv[1:2] == ["--workers"]:
        asyncio.run(workers(int(sys.argv[2]), float(sys.argv[3])))
        return
    count, rate, seconds = (int(a) for a in [*sys.argv[1:4], *["200", "100", "30"][len(sys.argv) - 1 :]])
    with tempfile.TemporaryDirectory() as name:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": name}
        words = [sys.executable, "-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", str(PORT)]
        started = [subprocess.Popen([*words, "--no-dashboard"], **quiet)]  # type: ignore[call-overload]
        try:
            time.sleep(3)
            words = [sys.executable, __file__, "--workers", str(count // PROCESSES), str(count / rate)]
            for _ in range(PROCESSES):
                started.append(subprocess.Popen(words, **quiet))  # type: ignore[call-overload]
            measure(count, rate * seconds, Path(name))
        finally:
            for process in reversed(started):
                process.kill()
                process.wait()


def measure(count: int, evaluations: int, folder: Path) -> None:
    """Measures the coordinator and prints the result.

    Args:
        count: The number of workers.
        evaluations: How many evaluations to make.
        folder: Where to write the study.
    """
    from heapwright.cluster.dask_runner import DaskMachines
    from heapwright.cluster.settings import Settings
    from heapwright.cluster.transport import needs_of
    from heapwright.cluster.worker_pool import WorkerPool
    from heapwright.interleaving.blocks import Blocks
    from heapwright.measure.meter import MeterOptions
    from heapwright.report.progress import SilentProgress
    from heapwright.study.store import open_writable_study
    from heapwright.workload.execute import Executor
    from heapwright.workload.model import Input, Workload, WorkloadFile

    inputs = (Input("one"),)
    workload = Workload(WorkloadFile(command=["sh"]), folder, inputs)
    needs = needs_of(workload, [], folder)
    with WorkerPool(Settings(ADDRESS), print, None) as pool, open_writable_study(folder / "s.study") as store:
        while (fit := pool.start(needs, "", None)) < count:
            print(f"{fit} workers", flush=True)
            time.sleep(1)
        executor = Executor(workload, MeterOptions(), folder)
        runner = DaskMachines(pool, needs, count).for_program(executor, timed=False)
        blocks = Blocks(store, runner, 1, SilentProgress())
        configs = [store.config("toy", {"k": str(n)}, {"TOY": str(n)}) for n in range(RUNS)]
        blocks.measure_all("warm", 0, [configs] * count, inputs)  # now every worker is known and checked
        cpu, began = time.process_time(), time.monotonic()
        made = blocks.measure_all("search", 0, [configs] * (evaluations // RUNS), inputs)
        cpu, wall = time.process_time() - cpu, time.monotonic() - began
        used = sum(m.blocks > 1 for m in pool.members.values())
    print(
        f"{count} workers ({used} used), {len(made)} evaluations in {wall:.1f} s: {len(made) / wall:.0f} a second;"
        f" the coordinator used {cpu:.1f} s of CPU: {cpu / wall:.0%} of a core (load {os.getloadavg()[0]:.1f})"
    )


if __name__ == "__main__":
    main()
