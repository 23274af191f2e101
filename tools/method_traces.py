#!/usr/bin/env python3
"""Records the traces of examples/search-methods.toml: short runs of real programs.

The programs are those of tools/programs.py with less work, so that a replay takes some hundredths of a second.

    .venv/bin/python tools/method_traces.py out/method-traces
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import programs

SMALLER = {
    "q.pl": ("300000", "60000"),
    "q.sql": ("150000", "40000"),
    "q.lua": ("300000", "60000"),
    "q.py": ("30000", "6000"),
}
ENVIRONMENT = {"PERL_HASH_SEED": "0", "PYTHONHASHSEED": "0", "PYTHONMALLOC": "malloc"}


def commands() -> dict[str, list[str]]:
    """The programs: name → words."""
    compiler = subprocess.run(["gcc", "-print-prog-name=cc1"], capture_output=True, text=True, check=True)
    names = ("perl", "sqlite3", "python3", "lua", "gawk", "jq", "xsltproc")
    return {
        **{name: programs.PROGRAMS[name] for name in names},
        "cc1": [compiler.stdout.strip(), "-quiet", "-O2", "c.c", "-o", "out.s"],
    }


def make_inputs(folder: Path) -> None:
    """Write the inputs, smaller than those of tools/programs.py."""
    programs.make_inputs(folder)
    for name, (old, new) in SMALLER.items():
        (folder / name).write_text(programs.SCRIPTS[name].replace(old, new))
    words = (folder / "words.txt").read_text().splitlines(keepends=True)
    (folder / "words.txt").write_text("".join(words[:60000]))
    (folder / "in.json").write_text(json.dumps(json.loads((folder / "in.json").read_text())[:5000]))
    head, items = (folder / "in.xml").read_text().split("<site>")
    few = "".join(f"{item}</item>" for item in items.split("</item>")[:5000])
    (folder / "in.xml").write_text(f"{head}<site>{few}</site>")
    functions = (folder / "c.c").read_text().splitlines(keepends=True)
    (folder / "c.c").write_text("".join(functions[:40]))


def main() -> None:
    """Record every program that is installed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path, help="where the traces go; inputs and outputs go to its folder 'inputs'")
    args = parser.parse_args()
    inputs = args.folder.absolute() / "inputs"
    make_inputs(inputs)
    heapwright = Path(sys.executable).with_name("heapwright")
    for name, words in commands().items():
        if shutil.which(words[0]) is None:
            sys.stderr.write(f"{name} is not installed: {words[0]}\n")
            continue
        trace = args.folder.absolute() / f"{name}.hwt"
        command = [heapwright, "record", "-q", "-o", trace, "--", *words]
        subprocess.run(
            command, cwd=inputs, env={**os.environ, **ENVIRONMENT}, stdout=subprocess.DEVNULL, check=True
        )  # fmt: skip


if __name__ == "__main__":
    main()
