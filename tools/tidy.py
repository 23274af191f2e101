"""Runs clang-tidy on the sources that changed since clang-tidy last passed them, on all cores.

    .venv/bin/python tools/tidy.py [--analyzer] BUILD SOURCE...

The checks are those of .clang-tidy without clang-analyzer-*, which takes four times as long as all others together.
With --analyzer they are clang-analyzer-* alone: `make lint` leaves them out, `make analyze` runs them.

BUILD is the build folder of CMake, with compile_commands.json. The exit status is 1 if clang-tidy
finds anything. BUILD/tidy (BUILD/tidy-analyzer) has an empty file for each source that passed. Its name is a hash of
everything the result depends on: the source, the headers it includes from native/, its compile
command, the configuration of clang-tidy, and the versions of clang-tidy, the compiler and the C
library. A source that fails leaves no file, so it is checked again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from includes import includes_of

TIDY = Path(sys.executable).parent / "clang-tidy"
QUICK = "-clang-analyzer-*"  # added to the checks of .clang-tidy
ANALYZER = "-*,clang-analyzer-*"


def family(source: Path, root: Path) -> list[Path]:
    """The source and every file that it includes by `#include "…"`, directly or not, in a fixed order."""
    found, new = {source.resolve()}, [source.resolve()]
    while new:
        named = (path for _, _, path in includes_of(new.pop(), root) if path)
        more = set(named) - found
        found |= more
        new += more
    return sorted(found)


def versions() -> bytes:
    """The versions of the tools and of the system's headers, on which the results depend too."""
    commands = ([str(TIDY), "--version"], ["c++", "--version"], ["ldd", "--version"])
    return b"".join(subprocess.run(words, capture_output=True, check=True).stdout for words in commands)


def configuration(source: Path) -> bytes:
    """The .clang-tidy files that hold for a source: those in its folder and in the folders above."""
    files = (folder / ".clang-tidy" for folder in source.resolve().parents)
    return b"\0".join(file.read_bytes() for file in files if file.is_file())


def key(source: Path, root: Path, command: str, tools: bytes) -> str:
    """A hash of all that clang-tidy's result for a source depends on.

    Args:
        source: the file to check.
        root: the folder that quoted includes may be relative to.
        command: how the build compiles the source; empty if it does not.
        tools: the versions of the tools.
    """
    total = hashlib.sha256()
    for part in (tools, configuration(source), command.encode()):
        total.update(hashlib.sha256(part).digest())
    for file in family(source, root):
        total.update(str(file).encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def check(source: str, build: Path, checks: str) -> tuple[bool, str]:
    """Runs clang-tidy; returns whether the source passes, and what clang-tidy prints."""
    words = [str(TIDY), "--quiet", f"--checks={checks}", "-p", str(build), source]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode == 0, done.stdout


def main(build: Path, sources: list[str], analyzer: bool) -> int:
    """Checks what changed, by the path-sensitive checks or by all others; returns the exit status."""
    root = Path("native").resolve()
    database = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    commands = {entry["file"]: json.dumps(entry, sort_keys=True) for entry in database}
    passed = build / ("tidy-analyzer" if analyzer else "tidy")
    passed.mkdir(exist_ok=True)
    tools = versions()
    keys = {name: key(Path(name), root, commands.get(str(Path(name).resolve()), ""), tools) for name in sources}
    # The largest first: no core then waits for one long file at the end.
    changed = sorted((n for n in sources if not (passed / keys[n]).exists()), key=lambda n: -Path(n).stat().st_size)
    failed, checks = 0, ANALYZER if analyzer else QUICK
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for name, (good, text) in zip(changed, pool.map(lambda one: check(one, build, checks), changed), strict=True):
            if good:
                (passed / keys[name]).touch()
            else:
                failed += 1
                print(text, end="", flush=True)
    for old in passed.iterdir():
        if old.name not in keys.values():
            old.unlink()
    print(f"clang-tidy: {len(changed)} of {len(sources)} sources changed, {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Runs clang-tidy on the sources that it has not passed yet.")
    parser.add_argument("--analyzer", action="store_true", help="run the checks clang-analyzer-* alone")
    parser.add_argument("build", type=Path, metavar="BUILD", help="the build folder of CMake")
    parser.add_argument("sources", nargs="+", metavar="SOURCE")
    options = parser.parse_args()
    sys.exit(main(options.build, options.sources, options.analyzer))
