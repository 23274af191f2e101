"""Measures what recording a sample costs a program: pairs of runs with and without, interleaved.

    .venv/bin/python tools/sample_cost.py [-n PAIRS] [--sample N] [--max-cost PERCENT] > cost.md

CPU is the user and system time of the program, from wait4; of redis-server that of its INFO command after a fixed
load. The runs of a pair follow each other, in alternating order. The median of the ratios has a 95% interval from
order statistics (binomial). Where Valgrind is installed, the tool also counts the instructions that a pair of malloc
and free takes more, and simulates how many more data accesses of a program miss a cache of 1 MiB, such as an L2.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from scipy.stats import binom

sys.path.insert(0, str(Path(__file__).resolve().parent))
from record_cost import PERL, busiest, cpu, programs

from heapwright.trace.record import recording_environment
from heapwright.trace.sampling import DEFAULT_PERCENT, Sampling

REQUESTS = 50_000
# The programs of record_cost.py, with so much more work that each takes about two seconds of CPU
# time: a sample of a short program may cost some 10 ms in any case.
LONGER = {"1500000": "6000000", "1000000": "40000000", PERL: PERL.replace("200000", "1000000")}
LOOP = """
#include <stdlib.h>
int main(int argc, char **argv) {
  (void)argv;
  for (int i = 0; i < 1000000 * (argc - 1); ++i) {
    void *volatile block = malloc(48);
    free(block);
  }
}
"""


def redis_cpu(folder: Path, env: Mapping[str, str]) -> float:
    """Runs redis-server with a fixed load; returns its user and system seconds."""
    socket = folder / "redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", ""]
    server = subprocess.Popen(command, env=dict(env), stdout=subprocess.DEVNULL)
    while not socket.exists():
        time.sleep(0.01)
    load = ["redis-benchmark", "-s", str(socket), "-q", "-n", str(REQUESTS), "-t", "set,get,lpush,hset", "-d", "100"]
    subprocess.run([*load, "-r", "50000"], check=True, stdout=subprocess.DEVNULL)
    answer = subprocess.run(["redis-cli", "-s", str(socket), "info", "cpu"], check=True, capture_output=True, text=True)
    subprocess.run(["redis-cli", "-s", str(socket), "shutdown", "nosave"], check=False, capture_output=True)
    server.wait()
    return sum(float(v) for v in re.findall(r"^used_cpu_(?:sys|user):([\d.]+)", answer.stdout, re.MULTILINE))


def interval(ratios: list[float]) -> tuple[float, float]:
    """A 95% interval of the median of ratios, from order statistics."""
    ordered = sorted(ratios)
    low = int(binom.ppf(0.025, len(ordered), 0.5))
    return ordered[max(0, low - 1)], ordered[min(len(ordered) - 1, len(ordered) - low)]


def instructions(program: Path, env: Mapping[str, str], millions: int) -> int:
    """Counts the instructions of the loop program under callgrind."""
    return count(r"Collected : (\d+)", ["callgrind"], [str(program), *["x"] * millions], env)


def misses(command: list[str], env: Mapping[str, str]) -> int:
    """Counts the data accesses of a program that miss a cache of 1 MiB, in a simulation without a second core."""
    caches = ["--cache-sim=yes", "--D1=32768,8,64", "--LL=1048576,16,64"]
    return count(r"LLd misses:\s+([\d,]+)", ["cachegrind", *caches], command, env)


def count(pattern: str, tool: list[str], command: list[str], env: Mapping[str, str]) -> int:
    """Runs a command under a tool of Valgrind; returns the number that its output has at the pattern."""
    words = ["valgrind", f"--tool={tool[0]}", f"--{tool[0]}-out-file=/dev/null", *tool[1:], *command]
    done = subprocess.run(words, env=dict(env), check=True, capture_output=True, text=True)
    found = re.search(pattern, done.stderr)
    if found is None:
        raise SystemExit(f"{tool[0]} counted nothing")
    return int(found[1].replace(",", ""))


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=41, metavar="PAIRS")
    parser.add_argument("--sample", type=int, default=64, metavar="N")
    parser.add_argument("--max-size", type=int, default=16 << 20, metavar="BYTES")
    parser.add_argument("--max-cost", type=int, default=DEFAULT_PERCENT, metavar="PERCENT")
    args = parser.parse_args()
    sampling = Sampling(rate=args.sample, max_bytes=args.max_size, max_percent=args.max_cost)
    with tempfile.TemporaryDirectory() as name:
        folder, raw = Path(name), Path(name) / "raw"
        built = programs(folder)
        runs: dict[str, Callable[[Mapping[str, str]], float]] = {
            title: lambda env, command=command: cpu([LONGER.get(w, w) for w in command], dict(env))  # type: ignore[misc]
            for title, command in built.items()
        }
        if shutil.which("redis-server"):
            runs["redis-server"] = lambda env: redis_cpu(folder, env)
        print("| program | CPU without | median ratio, 95% | pairs | sample left |\n|---|---|---|---|---|")
        for title, run in runs.items():
            ratios, seconds = [], []
            for pair in range(args.n):
                shutil.rmtree(raw, ignore_errors=True)
                raw.mkdir()
                both = {False: dict(os.environ), True: recording_environment(raw, None, True, os.environ, sampling)}
                took = {with_it: run(both[with_it]) for with_it in ((False, True) if pair % 2 else (True, False))}
                ratios.append(took[True] / took[False])
                seconds.append(took[False])
            left = busiest(raw)[1].sample
            low, high = interval(ratios)
            each = f"{statistics.median(ratios):.3f} [{low:.3f}, {high:.3f}]"
            print(f"| {title} | {statistics.median(seconds):.2f} s | {each} | {args.n} | 1 in {left} |")
            sys.stdout.flush()
        if shutil.which("valgrind"):
            source = folder / "loop.c"
            source.write_text(LOOP)
            subprocess.run(["gcc", "-O1", "-o", folder / "loop", source], check=True)
            more = []
            for env in (dict(os.environ), recording_environment(folder, None, True, os.environ, sampling)):
                more.append(instructions(folder / "loop", env, 2) - instructions(folder / "loop", env, 1))
            print(
                f"\nA malloc and a free: {more[0] / 1e6:.1f} instructions without, {more[1] / 1e6:.1f} with the sample."
            )
            churn = [built["churn"][0], "300000"]
            print(f"\n| churn, {churn[1]} rounds | accesses that miss 1 MiB | ratio |\n|---|---|---|")
            plain = misses(churn, os.environ)
            print(f"| without | {plain:,} | 1 |")
            for rate in (args.sample, 16 * args.sample):
                shutil.rmtree(raw, ignore_errors=True)
                raw.mkdir()
                unthinned = Sampling(rate=rate, max_bytes=args.max_size, max_percent=0)
                with_it = misses(churn, recording_environment(raw, None, True, os.environ, unthinned))
                print(f"| 1 in {rate} | {with_it:,} | {with_it / plain:.3f} |")


if __name__ == "__main__":
    main()
