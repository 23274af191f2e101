"""Measures the cost of recording: programs with and without the recorder, interleaved, and bytes per event.

    .venv/bin/python tools/record_cost.py [-n PAIRS] [--events N] > cost.md

CPU is the user and system time of the program, from wait4. With --events the tool records once a
program that makes about N events, and reads its resident memory ten times a second. Then it packs
the raw file, makes it ready and replays it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from heapwright.allocators.registry import get_allocator
from heapwright.measure.meter import MeterOptions, run_metered
from heapwright.trace.info import read_info
from heapwright.trace.pack import Packed, native_program, pack
from heapwright.trace.record import recording_environment
from heapwright.trace.replay import environment, make_ready, replay_once

ROOT = Path(__file__).parents[1]
PERL = (
    'my %h; for my $i (1..200000) { $h{"key$i"} = "value $i" x 3 } my $n = 0; $n += length $h{$_} for keys %h; print $n'
)


def cpu(command: list[str], env: dict[str, str]) -> float:
    """Runs a command; returns its user and system seconds."""
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[0]} ended with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def programs(folder: Path) -> dict[str, list[str]]:
    """Builds the programs (a map of strings, a perl hash, remote frees, large blocks); their commands by name."""
    for name, compiler in (("record_churn.cpp", "g++"), ("record_remote.c", "gcc"), ("record_large.c", "gcc")):
        source = ROOT / "tests/programs" / name
        options = ["-std=c++20"] if compiler == "g++" else []
        subprocess.run([compiler, *options, "-O2", "-pthread", "-o", folder / source.stem, source], check=True)
    return {
        "churn": [str(folder / "record_churn"), "1500000"],
        "perl hash": ["perl", "-e", PERL],
        "remote, 4 threads": [str(folder / "record_remote"), "4", "1000000"],
        "64 KiB, filled": [str(folder / "record_large"), "65536", "200000", "100"],
        "64 KiB, a tenth filled": [str(folder / "record_large"), "65536", "200000", "10"],
        "1 MB, filled": [str(folder / "record_large"), "1000000", "20000", "100"],
    }


def busiest(raw: Path) -> tuple[Path, Packed]:
    """The raw file with the most events."""
    packed = [(file, pack(file, raw / f"{file.stem}.hwt")[0]) for file in raw.glob("*.raw")]
    return max(packed, key=lambda one: one[1].events)


def cost(name: str, command: list[str], pairs: int, folder: Path) -> str:
    """Measures one program and formats a line of the table.

    Args:
        name: The program's name.
        command: Its words.
        pairs: How many pairs of runs to make.
        folder: Where to record.
    """
    raw = folder / "raw"
    without, with_it = [], []
    for _ in range(pairs):
        without.append(cpu(command, dict(os.environ)))
        shutil.rmtree(raw, ignore_errors=True)
        raw.mkdir()
        with_it.append(cpu(command, recording_environment(raw, None, True, os.environ)))
    file, packed = busiest(raw)
    ratio = statistics.median(b / a for a, b in zip(without, with_it, strict=True))
    used = file.stat().st_size - 65536
    each = (min(with_it) - min(without)) / packed.events * 1e9
    return (
        f"| {name} | {packed.events:,} | {packed.events / min(without) / 1e6:.1f} M/s | {min(without):.3f} s | "
        f"{min(with_it):.3f} s | {min(with_it) / min(without):.3f} | {ratio:.3f} | {each:.0f} ns | "
        f"{used / packed.events:.2f} B | {packed.bytes / packed.events:.2f} B |"
    )


def long_run(events: int, folder: Path) -> None:
    """Records about `events` events and reads resident memory ten times a second meanwhile."""
    raw = folder / "long"
    raw.mkdir()
    command = [programs(folder)["churn"][0], str(int(events / 2.36))]
    begin = time.monotonic()
    env = recording_environment(raw, None, True, os.environ)
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    seen = []
    while process.poll() is None:
        try:
            fields = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        seen += [int(line.split()[1]) for line in fields.splitlines() if line.startswith("VmRSS")]
        time.sleep(0.1)
    recorded = time.monotonic() - begin
    steady = seen[len(seen) // 10 :]
    file = max(raw.glob("*.raw"), key=lambda one: one.stat().st_size)
    trace = raw / "long.hwt"
    took, peak = metered("pack", file, trace)
    info = read_info(trace)[0]
    low, high = min(steady) / 1024, max(steady) / 1024
    print(
        f"{info.events:,} events in {recorded:.0f} s; raw {file.stat().st_size / info.events:.2f} B/event, packed "
        f"{trace.stat().st_size / info.events:.2f} in {took:.0f} s with at most {peak:.0f} MiB; "
        f"lost {info.loss.events}; resident after the first tenth {low:.1f} to {high:.1f} MiB",
        flush=True,
    )
    file.unlink()
    long_replay(trace, raw)


def metered(command: str, trace: Path, output: Path) -> tuple[float, float]:
    """Runs heapwright-trace under the meter.

    Args:
        command: The sub-command.
        trace: Its input.
        output: Its output.

    Returns:
        Wall seconds, and peak resident memory in MiB.
    """
    words = [str(native_program("heapwright-trace")), command, str(trace), str(output)]
    run = run_metered(words, MeterOptions(), env=dict(os.environ))
    if run.exit_code:
        raise SystemExit(run.stderr_tail)
    return run.metrics["wall_s"] or 0.0, (run.metrics["peak_rss_bytes"] or 0.0) / 2**20


def long_replay(trace: Path, folder: Path) -> None:
    """Replays a long trace and prints the time and memory of each part."""
    took, peak = metered("expand", trace, folder / "operations")
    size = (folder / "operations").stat().st_size
    (folder / "operations").unlink()
    print(f"made ready in {took:.0f} s with at most {peak:.0f} MiB: {size / 1e9:.1f} GB", flush=True)
    with make_ready(trace, folder) as ready:
        replayed = replay_once(ready, MeterOptions(), environment(get_allocator("glibc"), {}, os.environ))
        if replayed.failure or replayed.report is None:
            raise SystemExit(replayed.failure)
        report = replayed.report
        peak = (replayed.run.metrics["peak_rss_bytes"] or 0.0) / 2**20
        each, own = report.calls_cpu_s / report.events * 1e9, report.own_rss_bytes / 2**20
        live = ready.operations.peak_live_bytes / 2**20
        print(
            f"{report.events:,} calls replayed in {report.elapsed_s:.0f} s, {each:.1f} ns of CPU time each; at most "
            f"{peak:.1f} MiB, of it the replayer's own {own:.2f} MiB; the trace has at most {live:.1f} MiB alive"
        )


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=15, metavar="PAIRS")
    parser.add_argument("--events", type=int, metavar="N", help="make only one recording, of about N events")
    parser.add_argument("--folder", type=Path, default=ROOT / "build", help="folder for temporary recordings")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        if args.events:
            long_run(args.events, Path(name))
            return
        print("| program | events | rate | without | with | of minima | median ratio | an event | raw | packed |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        for title, command in programs(Path(name)).items():
            print(cost(title, command, args.n, Path(name)))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
