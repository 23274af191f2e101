"""Measures the overhead of the meter: five programs bare and metered, in interleaved pairs. Prints a Markdown table.

    .venv/bin/python tools/meter_cost.py [--pairs 21] [--backend notify]
    .venv/bin/python tools/meter_cost.py --pss [--pairs 21] [--backend notify]

With `--pss` it measures the overhead of reading proportional memory: programs with much memory,
metered with and without it. It then also prints the ratio of the CPU time that the meter reports
for the program itself.

Both sides are timed from outside, so the meter's start and end and its CPU time are part of its
cost. The tool prints the median of the pairs' ratios with the 95% bootstrap interval of that
median.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.stats import bootstrap

from heapwright.measure.meter import meter_path

_PERL = 'my %h; $h{"key ".($_*7919%300000)} .= "x"x($_%13) for 1..2500000; print scalar(keys %h), "\\n";'
_PYTHON = """
import json
rows = [{"id": i, "name": "n%d" % i, "tags": ["a", "b", str(i)], "value": i / 7} for i in range(60000)]
for _ in range(8):
    rows = json.loads(json.dumps(rows))
print(len(rows))
"""
_STL = """
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>
template <int N> struct Row { std::map<std::string, std::vector<std::variant<int, std::string>>> cells; };
template <int N> std::size_t fill(const std::string& text) {
  Row<N> row;
  std::regex words("[a-z]+");
  for (std::sregex_iterator i(text.begin(), text.end(), words), end; i != end; ++i)
    row.cells[i->str()].emplace_back(N);
  std::unordered_map<std::string, std::function<int()>> calls;
  for (auto& [key, value] : row.cells) calls[key] = [n = value.size()] { return int(n); };
  std::ostringstream out;
  for (auto& [key, call] : calls) out << key << call();
  return out.str().size();
}
int main() { std::cout << fill<1>("a b") + fill<2>("c d") + fill<3>("e f") + fill<4>("g h") << std::endl; }
"""
_CHURN = """
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>
static std::uint64_t churn(std::uint64_t seed) {
  std::vector<std::vector<char>> live(2000);
  std::uint64_t sum = 0;
  for (int i = 0; i < 40000000; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    std::size_t size = 16 + (seed >> 33) % 600;
    if (seed % 4096 == 0) size *= 1000;
    auto& slot = live[(seed >> 40) % live.size()];
    slot = std::vector<char>(size, char(i));
    sum += slot[size / 2];
  }
  return sum;
}
int main() {
  std::uint64_t sums[2];
  std::thread other([&] { sums[1] = churn(2); });
  sums[0] = churn(1);
  other.join();
  std::printf("%d\\n", int(sums[0] + sums[1]));
}
"""

# Arguments: MiB, and a number of children (0: none). The children read all of this memory, write a
# tenth, and map and unmap. The work is divided among them.
_SHARED = """
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static void work(volatile char* block, std::size_t size, std::uint64_t seed, int times) {
  for (int i = 0; i < times; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    block[(seed >> 20) % size];
    if (i % 8 == 0) block[(seed >> 20) % (size / 10)] = char(i);
    if (i % 20000 == 0) {
      void* const more = mmap(nullptr, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      std::memset(more, 1, 1 << 18);
      munmap(more, 1 << 18);
    }
  }
}
int main(int, char** argv) {
  const std::size_t size = std::size_t(std::atoi(argv[1])) << 20;
  const int children = std::atoi(argv[2]);
  char* const block = static_cast<char*>(std::malloc(size));
  std::memset(block, 1, size);
  for (int i = 0; i < children; ++i) {
    if (fork() == 0) {
      work(block, size, i, 20000000 / children);
      _exit(0);
    }
  }
  if (children == 0) work(block, size, 1, 20000000);
  while (wait(nullptr) > 0) {}
}
"""


def prepare_large(folder: Path) -> dict[str, list[str]]:
    """Builds the program with much memory; returns its commands by name."""
    (folder / "shared.cpp").write_text(_SHARED)
    subprocess.run(["g++", "-O2", "-o", folder / "shared", folder / "shared.cpp"], check=True)
    return {
        "one process of 64 MiB": [f"{folder}/shared", "64", "0"],
        "one process of 1 GiB": [f"{folder}/shared", "1024", "0"],
        "2 children that share 512 MiB": [f"{folder}/shared", "512", "2"],
        "8 children that share 64 MiB": [f"{folder}/shared", "64", "8"],
    }


def prepare(folder: Path) -> dict[str, list[str]]:
    """Writes and builds the inputs of the programs; returns their commands by name."""
    rng = random.Random(1)
    with (folder / "lines").open("w") as file:
        while file.tell() < 30_000_000:
            file.writelines(f"{rng.getrandbits(48):012x} {i % 997} some text of a line\n" for i in range(10_000))
    (folder / "stl.cpp").write_text(_STL)
    (folder / "churn.cpp").write_text(_CHURN)
    subprocess.run(["g++", "-O2", "-pthread", "-o", folder / "churn", folder / "churn.cpp"], check=True)
    return {
        "sort of a 30 MB file": ["sort", "-o", f"{folder}/sorted", f"{folder}/lines"],
        "perl, a hash of 300,000 keys": ["perl", "-e", _PERL],
        "g++ -c of an STL-heavy file": ["g++", "-O1", "-c", "-o", f"{folder}/stl.o", f"{folder}/stl.cpp"],
        "python, json there and back": ["/usr/bin/python3", "-c", _PYTHON],
        "C++ churn, 2 threads": [f"{folder}/churn"],
    }


def run(command: list[str]) -> tuple[float, float]:
    """Runs a command; returns its wall and CPU seconds, measured from outside."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"})
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def own_cpu(ledger: Path) -> float:
    """The CPU seconds of the program in the meter's JSON."""
    found = json.loads(ledger.read_text())
    return float(found["user_s"] + found["sys_s"])


def show(ratios: list[float]) -> str:
    """Formats median and interval: '1.004 [0.998, 1.011]'."""
    found = bootstrap((np.array(ratios),), np.median, method="percentile", rng=np.random.default_rng(1))
    low, high = found.confidence_interval
    return f"{np.median(ratios):.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=21)
    parser.add_argument("--backend", default="notify", choices=("notify", "ptrace", "poll"))
    parser.add_argument("--pss", action="store_true", help="measure the overhead of reading proportional memory")
    args = parser.parse_args()
    order = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ledger = folder / "ledger"
        meter = [str(meter_path()), "--backend", args.backend, "--output", str(ledger)]
        before, after = ([*meter, "--"], [*meter, "--pss", "--"]) if args.pss else ([], [*meter, "--"])
        titles = ("with / without --pss", "without") if args.pss else ("metered / bare", "bare")
        own = " | the program's own CPU time" if args.pss else ""
        print(f"| program | wall time, {titles[0]} ({args.backend}) | CPU time{own} | {titles[1]} |")
        print("|---|---|---|---|" + ("---|" if args.pss else ""))
        for title, command in (prepare_large if args.pss else prepare)(folder).items():
            run(command)
            walls, cpus, owns, bare_walls = [], [], [], []
            for _ in range(args.pairs):
                sides = [("before", [*before, *command]), ("after", [*after, *command])]
                order.shuffle(sides)
                took = {}
                for side, words in sides:
                    ledger.unlink(missing_ok=True)  # as in normal use: some file systems flush when a file is replaced
                    took[side] = (*run(words), *([own_cpu(ledger)] if args.pss else []))
                walls.append(took["after"][0] / took["before"][0])
                cpus.append(took["after"][1] / took["before"][1])
                bare_walls.append(took["before"][0])
                if args.pss:
                    owns.append(took["after"][2] / took["before"][2])
            own = f" | {show(owns)}" if args.pss else ""
            print(f"| {title} | {show(walls)} | {show(cpus)}{own} | {np.median(bare_walls):.2f} s |", flush=True)


if __name__ == "__main__":
    main()
