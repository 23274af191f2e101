#!/usr/bin/env python3
"""Measures how well a replay predicts its program: the figures in docs/results/fidelity.md.

Records each program under glibc's malloc without settings. Then runs the program and the replay of
that trace under every allocator and setting, interleaved, and compares their memory and time.

A program has memory that is not from malloc: its image, stacks, its own mappings. The pair with
glibc's malloc without settings gives it: base = program - replay. The prediction for every other
allocator and setting is replay + base. Its error is relative to the program's measurement. The pair
that gave the base is not in the statistics. typical() says which value of several runs is compared.

    .venv/bin/python tools/fidelity.py -n 3 --json out/fidelity.json --markdown out/fidelity.md
    .venv/bin/python tools/fidelity.py --address-space --json out/peaks.json --markdown out/peaks.md

--address-space compares the peaks of address space instead (fidelity_peaks.py).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fidelity_peaks
import sample_servers
from fidelity_programs import FIRST_MEASURED_LATER, REFUSED
from fidelity_programs import Program as Program
from fidelity_programs import bench as bench  # these are also for other tools
from fidelity_programs import known_programs as known_programs
from fidelity_tables import markdown
from fidelity_tables import percentile as percentile  # also for other tools

import programs
from heapwright.allocators.registry import Allocator, get_allocator
from heapwright.measure.meter import MeterOptions, run_metered
from heapwright.trace.pack import pack
from heapwright.trace.replay import ReadyTrace, environment, make_ready, replay_once

ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc2-nothp", "rpmalloc", "exgen", "snmalloc", "tbbmalloc")
SETTINGS: tuple[dict[str, str], ...] = (
    {"mmap_threshold": "32768"},
    {"mmap_threshold": "4194304"},
    {"mmap_threshold": "33554432", "trim_threshold": "1073741824"},
    {"trim_threshold": "65536"},
    {"trim_threshold": "33554432"},
    {"top_pad": "0"},
    {"top_pad": "4194304"},
    {"top_pad": "33554432"},
    {"arena_max": "1"},
    {"tcache_count": "0"},
    {"tcache_count": "127"},
    {"mxfast": "0"},
    {"mmap_max": "0"},
    {"mxfast": "160", "tcache_count": "0"},
    {"mmap_threshold": "16384", "trim_threshold": "16384", "top_pad": "0"},
    {"tcache_count": "1024"},
    {"hugetlb": "1"},
    {"arena_max": "1", "top_pad": "33554432"},
)


@dataclass
class Config:
    """An allocator with settings."""

    allocator: Allocator
    settings: dict[str, str]

    @property
    def name(self) -> str:
        """The name in tables: the allocator and its settings."""
        return " ".join([self.allocator.name, *(f"{k}={v}" for k, v in self.settings.items())])


def record(program: Program, folder: Path, trace: Path) -> dict[str, Any]:
    """Records the program three times, a server under its load, and keeps the shortest trace.

    A replay uses the recorded times, and other load on the machine makes them longer.

    Args:
        program: The program to record.
        folder: The folder of its inputs.
        trace: Where to write the trace.

    Returns:
        The trace's number of events, and its size in bytes.
    """
    env = {**os.environ, "LC_ALL": "C", **program.env}
    least = float("inf")
    for _ in range(3):
        draft = (folder / "draft.hwt").resolve()
        words = [str(programs.HEAPWRIGHT), "record", "-q", "--force", "--no-children", "-o", str(draft)]
        words += ["--", *program.command]
        process = subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if load := sample_servers.LOADS.get(program.name):
            load(lambda: None)
        _, errors = process.communicate()
        if process.returncode:
            raise SystemExit(f"{program.name}: {errors.decode().strip()}")
        with make_ready(draft) as ready:
            took = ready.operations.recorded_s
        if took < least:
            least = took
            draft.replace(trace)
    packed, warning = pack(trace, folder / "again.hwt")
    if warning:
        print(f"{program.name}: {warning}", file=sys.stderr)
    return {"events": packed.events, "bytes": packed.bytes}


def run_program(program: Program, config: Config, folder: Path) -> dict[str, float | None]:
    """Runs `program` in `folder` with the allocator of `config` under the meter, and again for its mean memory.

    A server runs once, under its load; it has pauses, so its mean is over wall time.

    Returns peak and mean memory in bytes and CPU time in seconds; empty if the program failed.
    """
    base = {**os.environ, "LC_ALL": "C", **program.env}
    env = environment(config.allocator, config.settings, base)
    if program.name in sample_servers.LOADS:
        found = sample_servers.run_program(program, env, folder)
        return {"peak_rss_bytes": found["peak"], "mean_rss_bytes": found["mean"], "cpu_s": found["cpu"]}
    options = MeterOptions(backend="poll")  # stops no thread: docs/meter.md, back ends
    ran = run_metered(program.command, options, env=env, cwd=folder)
    if ran.exit_code:
        return {}
    mean, cpu = mean_over_cpu(program.command, env, folder)
    return {"peak_rss_bytes": ran.metrics["peak_rss_bytes"], "mean_rss_bytes": mean, "cpu_s": cpu}


def mean_over_cpu(command: list[str], env: dict[str, str], folder: Path) -> tuple[float, float]:
    """Runs a process and averages its resident memory over its CPU time.

    CPU time equals wall time if nothing else runs. The meter's mean is over wall time: on a busy machine it depends on
    where the process waits for a processor. `command` runs in `folder` with the environment `env`.

    Returns the mean in bytes, and the CPU time in seconds.
    """
    page = os.sysconf("SC_PAGE_SIZE")
    weighted, before = 0.0, 0.0
    process = subprocess.Popen(
        command, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    clock = (~process.pid << 3) | 2  # the process's CPU clock, as clock_getcpuclockid computes it
    resident = 0
    with Path(f"/proc/{process.pid}/statm").open("rb", buffering=0) as statm:
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            try:
                now = time.clock_gettime(clock)
                statm.seek(0)
                # statm says 0 while the process ends: use the last value before that.
                seen = int(statm.read().split()[1]) * page or resident
            except (OSError, IndexError):
                break
            weighted += (now - before) * (seen + resident) / 2
            before, resident = now, seen
            time.sleep(0.001)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return weighted / before if before else 0.0, usage.ru_utime + usage.ru_stime


def replay_environment(config: Config, linked: str) -> dict[str, str]:
    """The environment of a replay; `linked` is the malloc that the program is linked with, or empty."""
    env = environment(config.allocator, config.settings, os.environ)
    if linked and linked != config.allocator.preload:
        env["LD_PRELOAD"] = f"{config.allocator.preload or config.allocator.path}:{linked}"
    return env


def run_replay(ready: ReadyTrace, config: Config, linked: str) -> dict[str, float | None]:
    """Replays once; does not subtract the replayer's own memory, which is the same in all replays and cancels."""
    replayed = replay_once(ready, MeterOptions(), replay_environment(config, linked))
    if replayed.failure or replayed.report is None:
        print(f"replay of {ready.trace} under {config.name}: {replayed.failure}", file=sys.stderr)
        return {}
    metrics = replayed.run.metrics
    return {
        "peak_rss_bytes": metrics["peak_rss_bytes"],
        "mean_rss_bytes": replayed.mean_rss_bytes,
        "calls_cpu_s": replayed.report.calls_cpu_s,
        "cpu_s": metrics["cpu_s"],
        "wall_s": replayed.report.elapsed_s,
    }


def study(program: Program, configs: list[Config], folder: Path, rounds: int) -> dict[str, Any]:
    """Runs a program and its replay under all configurations, interleaved.

    Args:
        program: The program.
        configs: The configurations, the default first.
        folder: The folder of its inputs, for the trace too.
        rounds: How many rounds to run.

    Returns:
        The trace's facts, and for 'program' and 'replay' the runs of each configuration by name.
    """
    trace = folder / f"{program.name}.hwt"
    told = record(program, folder, trace)
    real: dict[str, list[Any]] = {c.name: [] for c in configs}
    played: dict[str, list[Any]] = {c.name: [] for c in configs}
    with make_ready(trace) as ready:
        for number in range(rounds):
            order = [configs[0]] * 2 + list(
                configs
            )  # all errors depend on the default, so it runs three times as often
            random.Random(f"{program.name}/{number}").shuffle(order)
            for config in order:
                real[config.name].append(run_program(program, config, folder))
                played[config.name].append(run_replay(ready, config, program.linked))
        told |= {"threads": ready.operations.threads, "calls": ready.operations.events, "own_cpu_s": ready.own_cpu_s}
    return {
        **told,
        "program": real,
        "replay": played,
    }


def main() -> None:
    """Measures all programs and prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-n", "--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("out/fidelity"))
    parser.add_argument("--programs", default="", help="only these, separated by commas")
    parser.add_argument("--allocators", help="default: " + ",".join(ALLOCATORS) + "; other ones with --address-space")
    parser.add_argument("--json", type=Path, help="file for all measurements; --show reads it")
    parser.add_argument("--show", action="store_true", help="measure nothing: print the tables of the file --json")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--address-space", action="store_true", help="compare peaks of mapped memory, one run each")
    args = parser.parse_args()
    glibc = get_allocator("glibc")
    default = Config(glibc, {})
    configs = [default, *(Config(glibc, s) for s in SETTINGS)]
    allocators = fidelity_peaks.ALLOCATORS if args.address_space else ALLOCATORS
    names = allocators if args.allocators is None else args.allocators.split(",")
    configs += [Config(get_allocator(name), {}) for name in names if name]
    results: dict[str, Any] = {}
    if args.json and args.json.is_file():
        results = json.loads(args.json.read_text())
    if not args.show:
        args.folder.mkdir(parents=True, exist_ok=True)
        programs.make_inputs(args.folder)
        known = {program.name: program for program in known_programs(args.folder)}
        known |= {server.name: server for server in sample_servers.servers(args.folder) if server.name not in known}
        if "redis" in known:  # it is linked with jemalloc, so glibc takes its place for the recording and the base
            known["redis"].linked = get_allocator("jemalloc").preload
            known["redis"].env = {"LD_PRELOAD": str(glibc.path)}
        usual = fidelity_peaks.PROGRAMS if args.address_space else [n for n in known if n not in REFUSED]
        for name in args.programs.split(",") if args.programs else [n for n in usual if n in known]:
            program = known[name]
            if args.address_space:
                results[program.name] = fidelity_peaks.study(program, configs, args.folder)
            else:
                results[program.name] = study(program, configs, args.folder, args.rounds)
            print(f"{program.name} ", end="", file=sys.stderr, flush=True)
            if args.json:
                args.json.write_text(json.dumps(results, indent=1))
    if args.address_space:
        text = fidelity_peaks.markdown(results, default.name)
    else:
        text = markdown(results, FIRST_MEASURED_LATER, default.name)
    if args.markdown:
        args.markdown.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
