"""Lists the programs of tools/fidelity.py and prepares their inputs.

Nobody tuned the replayer on those of `untuned`, nor on most of tools/programs.py. Those of `latest` were added after
the replayer was made, on 2026-11-25.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import threaded_inputs

import programs
from heapwright.comparison.bench import program_path

# Threads keep their objects until all threads have made theirs. Without that the peak differs by a
# fifth between runs.
THREADS_PY = """import json, threading
barrier = threading.Barrier(4)
def work(n):
    for k in range(3):
        d = [{"id": i, "t": [str(i + n)] * 3} for i in range(8000)]
        e = json.loads(json.dumps(d))
        barrier.wait()
        d = e = None
        barrier.wait()
ts = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in ts]; [t.join() for t in ts]
"""


@dataclass
class Program:
    """A program to predict.

    Attributes:
        name: Its name in the tables.
        command: Its words; it runs in the folder of inputs.
        env: Variables to add to our environment.
        threads: Whether it has several threads.
        linked: Library of the malloc that it is linked with, if not the C library's; it stays loaded beside any other.
    """

    name: str
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)
    threads: bool = False
    linked: str = ""


def bench(name: str) -> str:
    """The path of an installed benchmark program; scalability is the one with OpenMP."""
    return str(program_path(f"bench-{name}"))


def untuned(folder: Path) -> list[Program]:
    """Programs that nobody tuned the replayer on: scripts of examples/runtimes, and perl with a free hash seed."""
    examples = Path(__file__).resolve().parent.parent / "examples/runtimes"
    interpreters = {"rb": "ruby", "py": "/usr/bin/python3", "pl": "perl", "lua": "lua5.4", "php": "php", "js": "node"}
    for suffix in interpreters:
        shutil.copy(examples / f"orders.{suffix}", folder)
    found = [Program(f"orders-{suffix}", [word, f"orders.{suffix}"]) for suffix, word in interpreters.items()]
    return [*found, Program("perl-free-seed", ["perl", "q.pl"])]


def latest(folder: Path) -> list[Program]:
    """Programs that were added after the replayer was made, on 2026-11-25."""
    rng = random.Random(5)
    edges = [f"n{i} -> n{rng.randrange(i, 500)};\n" for i in range(500) for _ in range(1 + i % 2)]
    (folder / "graph.dot").write_text("digraph g {\n" + "".join(edges) + "}\n")
    (folder / "plot.gp").write_text(
        'set terminal svg\nset output "plot.svg"\nset isosamples 100\nset hidden3d\nsplot sin(x)*cos(y)\n'
    )
    shutil.copyfile(folder / "in.xml", folder / "small.xml")
    threaded_inputs.make_inputs(folder / "threaded")
    return [
        Program("dot", ["dot", "-Tsvg", "-o", "graph.svg", "graph.dot"]),
        Program("mawk", ["mawk", "-f", "q.awk", "words.txt"]),
        Program("tidy", ["tidy", "-xml", "-q", "-o", "tidied.xml", "small.xml"]),
        Program("gnuplot", ["gnuplot", "plot.gp"]),
        Program("pigz", ["pigz", "-p", "2", "-k", "-c", "big.txt"], {}, True),
        Program("pbzip2", ["pbzip2", "-p2", "-c", "-k", "big.txt"], {}, True),
        Program("gm", ["gm", "convert", "threaded/in.ppm", "-blur", "2x1", "-resize", "60%", "ppm:out"], {}, True),
    ]


# `tune` does not replay these: less than a quarter of their memory is from malloc.
REFUSED = frozenset({"python3", "orders-py", "orders-js"})
# Nobody compared these with their replays before 2026-11-25.
FIRST_MEASURED_LATER = frozenset({
    "dot", "mawk", "tidy", "gnuplot", "pigz", "pbzip2", "gm", "orders-lua", "orders-php", "xsltproc", "bash", "povray",
    "clang", "xz", "bench-realistic",
})  # fmt: skip


def known_programs(folder: Path) -> list[Program]:
    """Prepares more inputs in the folder and lists the installed programs."""
    added = latest(folder)  # first: below, in.xml grows
    (folder / "threads.py").write_text(THREADS_PY)
    # The mean is over time and the meter's tick is 10 ms. So programs that take 50 ms in
    # tools/programs.py get more work here.
    (folder / "q.sql").write_text(programs.SCRIPTS["q.sql"].replace("150000", "500000"))
    (folder / "q.lua").write_text(programs.SCRIPTS["q.lua"].replace("300000", "1200000").replace("50000", "200000"))
    (folder / "in.json").write_text(json.dumps(json.loads((folder / "in.json").read_text()) * 2))
    head, items = (folder / "in.xml").read_text().split("<site>")
    (folder / "in.xml").write_text(f"{head}<site>{items.removesuffix('</site>') * 8}</site>")
    rng = random.Random(2)
    words = [f"{rng.randrange(10**9):x}" for _ in range(3000)]
    with (folder / "big.txt").open("w") as out:
        for _ in range(400000):
            out.write(" ".join(rng.choices(words, k=5)) + "\n")
    compiler = subprocess.run(["gcc", "-print-prog-name=cc1plus"], capture_output=True, text=True, check=False)
    (folder / "scene.pov").write_text(threaded_inputs.SCRIPTS["scene.pov"])
    clang = [os.path.realpath(shutil.which("clang") or "clang"), "-fintegrated-cc1"]  # in one process
    # cc1plus gets the preprocessed source, so the included headers need not be in the folder.
    subprocess.run(["g++", "-std=c++20", "-E", "-o", "ledger.ii", "ledger.cpp"], cwd=folder, check=False)
    found = [
        Program(name, words, {"PERL_HASH_SEED": "0"})
        for name, words in programs.PROGRAMS.items()
        if name not in ("python3", "g++", "gcc", "xsltproc")  # below; the compiler proper instead of its driver
    ]
    found += untuned(folder) + added
    found += [
        Program("cc1plus", [compiler.stdout.strip(), "-quiet", "-O1", "-std=c++20", "ledger.ii", "-o", "out.s"]),
        Program("clang", [*clang, "-O1", "-S", "c.c", "-o", "out.s"]),
        Program("povray", ["povray", "-D", "-GA", "+WT2", "+Iscene.pov", "+FP", "+W320", "+H240"], {}, True),
        Program("python3", ["/usr/bin/python3", "q.py"], {"PYTHONHASHSEED": "0"}),
        Program("python3-malloc", ["/usr/bin/python3", "q.py"], {"PYTHONHASHSEED": "0", "PYTHONMALLOC": "malloc"}),
        Program("python3-threads", ["/usr/bin/python3", "threads.py"], {"PYTHONMALLOC": "malloc"}, True),
        Program("xsltproc", ["xsltproc", "t.xsl", "small.xml"]),
        Program("xz", ["xz", "-T2", "-1", "--block-size=1MiB", "-k", "-c", "big.txt"], {}, True),
        Program("sort", ["sort", "--parallel=2", "-S", "64M", "big.txt", "-o", "sorted.txt"], {}, True),
        Program("bench-server", [bench("server"), "--threads", "4", "blocks=20000", "generations=8"], {}, True),
        Program(
            "bench-scalability", [bench("scalability"), "--threads", "2", "held=20000", "iterations=6000000"], {}, True
        ),
        Program("bench-realistic", [bench("realistic"), "--threads", "3", "mib=96", "handover=10"], {}, True),
    ]
    return [p for p in found if shutil.which(p.command[0])]
