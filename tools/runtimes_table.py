#!/usr/bin/env python3
"""Tunes the programs of examples/runtimes/ for malloc alone, the runtime alone and both: the table in docs/runtimes.md.

The studies of a program have the same budget, and each confirms its picks on fresh pairs with the plain program.
An existing study continues, or gives its result at once if it is complete. A missing program is left out.

    .venv/bin/python tools/runtimes_table.py --budget 3m
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from comparing import HEAPWRIGHT

PYENV = Path.home() / ".pyenv/versions"  # its shims are no programs
ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "examples" / "runtimes"
DOTNET = ROOT / "build/dotnet/dnv/net/runtime/.net/dotnet"  # of `make build/.dotnet`
PAGES = [str(ROOT / "docs" / page) for page in ("reliability.md", "workload.md", "spaces.md")]
PROGRAMS = {
    "python": ["/usr/bin/python3", "orders.py"],
    "python3.13": [str(next(PYENV.glob("3.13*/bin/python3.13"), "python3.13")), "orders.py"],
    "ruby": ["ruby", "orders.rb"],
    "node": ["node", "orders.js"],
    "java": ["java", "-cp", ".", "Orders"],
    "dotnet": [str(DOTNET), "Orders.dll"],
    "go": ["./orders-go"],
    "openmp": ["./orders-openmp"],
    "ocaml": ["./orders-ocaml"],
    "r": ["Rscript", "orders.R"],
    "bdwgc": ["./trees-bdwgc"],
    "erlang": ["erl", "-noshell", "-run", "orders", "main", "-s", "init", "stop"],
    "elixir": ["elixir", "orders.exs"],
    "haskell": ["pandoc", "-t", "html", "-o", "/dev/null", *PAGES],
    "mono": ["mono", "Orders.exe"],
    "pypy": ["pypy3", "orders.py"],
    "php": ["php", "-n", "orders.php"],
}
# Program → the file that building it makes, and the command. A study of an older build would not
# continue.
BUILDS = {
    "java": ("Orders.class", ["javac", "Orders.java"]),
    "dotnet": ("Orders.dll", ["mcs", "-optimize+", "-out:Orders.dll", "Orders.cs"]),
    "go": ("orders-go", ["go", "build", "-o", "orders-go", "orders.go"]),
    "openmp": ("orders-openmp", ["gcc", "-O2", "-fopenmp", "-o", "orders-openmp", "orders.c"]),
    "ocaml": ("orders-ocaml", ["ocamlopt", "-o", "orders-ocaml", "orders.ml"]),
    "bdwgc": ("trees-bdwgc", ["gcc", "-O2", "-o", "trees-bdwgc", "trees_bdwgc.c", "-lgc"]),
    "erlang": ("orders.beam", ["erlc", "orders.erl"]),
    "mono": ("Orders.exe", ["mcs", "-optimize+", "-out:Orders.exe", "Orders.cs"]),
}


def _prepare(name: str, folder: Path) -> bool:
    """Builds a program in the folder; returns whether it can run."""
    made, build = BUILDS.get(name, ("", []))
    if build and not (folder / made).exists():
        if not shutil.which(build[0]):
            return False
        subprocess.run(build, cwd=folder, check=True)
    program = PROGRAMS[name][0]
    return shutil.which(folder / program if made and program.startswith("./") else program) is not None


def _runtime(name: str, folder: Path) -> dict[str, Any]:
    """The runtime of a program and its settings, as `doctor` tells them; only a name if a launcher starts it."""
    done = subprocess.run(
        [HEAPWRIGHT, "doctor", "--json", "-", "--", *PROGRAMS[name]],
        cwd=folder,
        stdout=subprocess.PIPE,
        check=False,  # doctor ends with 1 if something is missing on this machine
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)["runtimes"]
    return found[0] if found else {"name": name, "title": name, "version": "", "searched": []}


def _halves(runtime: dict[str, Any]) -> dict[str, list[str]]:
    """The options of `tune` for each half, and for both."""
    both: dict[str, list[str]] = {"both": []}
    if runtime["name"] == "go" or not runtime["searched"]:  # Go has no malloc: there is one half
        return both
    keys = ",".join(f"{runtime['name']}.{key}" for key in runtime["searched"])
    return {"malloc": ["--no-runtime"], "runtime": ["--allocators", "glibc", "--params", keys], **both}


def _tune(name: str, half: str, folder: Path, options: list[str]) -> dict[str, Any]:
    """Runs one study.

    Args:
        name: The program's name in PROGRAMS.
        half: The name of the study: malloc, runtime or both.
        folder: The folder of the programs, for the studies too.
        options: Options of `tune`.

    Returns:
        The study's JSON.
    """
    file = f"{name}-{half}"
    words = [str(HEAPWRIGHT), "tune", "-q", "--study", f"{file}.study", "--json", f"{file}.json", *options, "--"]
    began = time.monotonic()
    done = subprocess.run([*words, *PROGRAMS[name]], cwd=folder, env={**os.environ, "LC_ALL": "C"}, check=False)
    if done.returncode:
        raise SystemExit(f"{file}: status {done.returncode}")
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    sys.stderr.write(f"{file}: {time.monotonic() - began:.0f} s; load averages at its end {load}\n")
    found: dict[str, Any] = json.loads((folder / f"{file}.json").read_text())
    return found


def _change(found: dict[str, Any]) -> str:
    low, high = found["low"] - 1, found["high"] - 1
    verdict = "" if found["verdict"] in ("better", "worse") else f", {found['verdict']}"
    return f"{found['ratio'] - 1:+.1%} [{low:+.1%}, {high:+.1%}]{verdict}"


def _rows(title: str, half: str, study: dict[str, Any]) -> list[str]:
    """Formats a line for each distinct pick, or one line with the claim if there is none.

    Args:
        title: The runtime and its version.
        half: malloc, runtime or both.
        study: The study's JSON.
    """
    by_env: dict[str, list[str]] = {}
    for pick, found in study["picks"].items():
        by_env.setdefault(json.dumps(found["env"]), []).append(pick)
    lines = []
    for names in by_env.values():
        found = study["picks"][names[0]]
        setting = " ".join([found["allocator"], *(f"{key}={value}" for key, value in found["settings"].items())])
        objection = f" ({found['objection'].split(' (')[0]})" if found.get("objection") else ""
        memory = next(metric for metric in found["confirmed"] if metric.startswith("peak_"))  # or that of a tree
        changes = " | ".join(_change(found["confirmed"][metric]) for metric in (memory, "cpu_s"))
        lines.append(f"| {title} | {half} | {' and '.join(names)}: `{setting}`{objection} | {changes} |")
    if not lines:
        lines.append(f"| {title} | {half} | none: {study['claim'].split('. ')[0].rstrip('.')} | | |")
    return lines


def main() -> None:
    """Tunes all programs and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="only these, separated by commas")
    parser.add_argument("--halves", default="malloc,runtime,both", help="only these, separated by commas")
    parser.add_argument("--folder", type=Path, default=Path("out/runtimes"))
    parser.add_argument("--budget", help="budget of each study (default: tune's own)")
    args = parser.parse_args()
    shutil.copytree(SOURCES, args.folder, dirs_exist_ok=True)
    budget = ["--budget", args.budget] if args.budget else []
    sys.stdout.write(f"| program | searched | pick | peak memory | CPU time |\n|{'---|' * 5}\n")
    for name in args.programs.split(","):
        if not _prepare(name, args.folder):
            sys.stderr.write(f"{name}: not on this machine\n")
            continue
        runtime = _runtime(name, args.folder)
        for half, options in _halves(runtime).items():
            if half not in args.halves.split(","):
                continue
            study = _tune(name, half, args.folder, [*budget, *options])
            title = f"{runtime['title']} {runtime['version'] or ''}".strip()
            sys.stdout.write("\n".join(_rows(title, half, study)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
