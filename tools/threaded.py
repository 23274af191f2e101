#!/usr/bin/env python3
"""Compares allocators on real threaded programs: the figures in docs/results/reaper.md.

Makes its own inputs in a directory, runs `heapwright compare` for each program that is installed,
and prints tables of wall time, CPU time, peak and mean resident memory relative to the reference,
with geometric means. For all of them:

    apt-get install xz-utils pigz pbzip2 zstd p7zip-full graphicsmagick povray redis-server memcached \\
      default-jdk-headless ruby nodejs z3 git
    .venv/bin/python tools/threaded.py -n 5
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

from comparing import add_options, report
from threaded_inputs import make_inputs

# mimalloc without huge pages, because no other allocator here asks for them.
ALLOCATORS = "mimalloc2-nothp,mimalloc3-nothp,rpmalloc,snmalloc,jemalloc,tcmalloc,glibc,reaper,exgen,reaper-secure"

# The command's first word and the programs in `needs` must be installed. Output is compared if it
# is the same every time.
PROGRAMS: dict[str, dict[str, Any]] = {
    "xz": {"command": "xz -1 -T2 --block-size=512KiB -c text"},
    "pigz": {"command": "pigz -p 2 -c -n text"},
    "pbzip2": {"command": "pbzip2 -p2 -1 -b1 -c -k text"},
    "zstd": {"command": "zstd -q -7 -T2 -c text"},
    "7z": {"command": "7z a -mx=1 -mmt=2 -so -txz -an text"},
    "sort": {"command": "sort --parallel=2 -S 64M text"},
    "git": {
        "command": "git -C repository pack-objects -q --all --threads=2 --depth=50 out",
        "cleanup": "sh -c 'rm -f repository/out-*'",
        "env": {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"},
        "output": {"compare": "none"},
    },
    "z3": {"command": "z3 parallel.smt2", "output": {"compare": "none"}},
    "gm": {"command": "gm convert in.ppm -blur 2x1 -resize 60% -sharpen 1x1 ppm:-"},
    "povray": {
        "command": "povray -D -GA +WT2 +Iscene.pov +Oout.ppm +FP +W240 +H180 +A0.3",
        "output": {"compare": "none"},  # the picture contains the date
    },
    "java": {"command": "java -Xmx256m -XX:+UseParallelGC Job.java"},
    "python3": {"command": "/usr/bin/python3 threads.py"},
    "ruby": {"command": "ruby --disable-gems threads.rb"},
    "perl": {"command": "perl threads.pl", "env": {"PERL_HASH_SEED": "1"}},
    "node": {"command": "node threads.js"},
    "redis": {
        "command": "redis-server --port 0 --unixsocket redis.socket --loglevel warning --io-threads 2 --save ''",
        "needs": ["redis-benchmark"],
        "output": {"compare": "none"},
        "server": {
            "ready": "redis-cli -s redis.socket ping",
            "load": "redis-benchmark -s redis.socket -q -n 2000 -r 2000 -d 300 -t set,get,lpush,hset",
        },
    },
    "memcached": {
        "command": "memcached -u root -s memcached.socket -t 2 -m 256",
        "setup": "rm -f memcached.socket",  # an old socket would pass the check `ready`
        "output": {"compare": "none"},
        "server": {
            "ready": "test -S memcached.socket",
            "load": "/usr/bin/python3 memcached_load.py memcached.socket",
        },
    },
}
COMMANDS = ("command", "setup", "cleanup", "ready", "load")  # lists of words in workload.toml


def write_workload(name: str, folder: Path) -> Path:
    """Writes the program's workload.toml; strings and lists have the same form in JSON and TOML."""

    def lines(table: dict[str, Any]) -> list[str]:
        values = {key: shlex.split(value) if key in COMMANDS else value for key, value in table.items()}
        return [f"{key} = {json.dumps(value)}" for key, value in values.items()]

    program = {key: value for key, value in PROGRAMS[name].items() if key != "needs"}
    text = lines({key: value for key, value in program.items() if not isinstance(value, dict)})
    for key, value in program.items():
        if isinstance(value, dict):
            text += [f"[{key}]", *lines(value)]
    path = folder / f"{name}.toml"
    path.write_text("\n".join(text) + "\n")
    return path


def installed(name: str) -> bool:
    """Whether everything that the program needs is installed."""
    needs = [PROGRAMS[name]["command"].split()[0], *PROGRAMS[name].get("needs", [])]
    return all(shutil.which(word) for word in needs)


def main() -> None:
    """Compares all programs and prints Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    add_options(parser, ALLOCATORS, "out/threaded", 5)
    args = parser.parse_args()
    make_inputs(args.folder)
    wanted = args.programs.split(",") if args.programs else list(PROGRAMS)
    programs = {
        name: ["--workload", str(write_workload(name, args.folder).resolve())] for name in wanted if installed(name)
    }
    metrics = ("wall_s", "cpu_s", "peak_rss_bytes", "mean_rss_bytes")
    report(programs, args, metrics)


if __name__ == "__main__":
    main()
