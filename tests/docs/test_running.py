"""Runs every command that the documentation shows, page by page and in order, with the installed heapwright.

The tests make up programs, objects, inputs and results of earlier pages; `service.toml` and similar files are the
page's own. They reduce rounds, budgets and allocators (`SHORTER`), because other tests check the figures in the pages.
They omit results/ (its commands take hours), cluster.md (tests/cluster runs those verbs on a real scheduler), and the
tutorial (test_docs.py runs it unchanged).

Every test run covers the README; `pytest --long` (`make torture`) also covers the guides and the pages on single verbs.
Every test run checks all commands against the parser (test_docs.py), and tests/system runs every verb.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from heapwright.errors import NO_GAIN
from tests import needs
from tests.command_server import SERVER
from tests.markdown import code_blocks

from .commands import PAGES, ROOT, Command, commands

HEAPWRIGHT = str(Path(sys.executable).with_name("heapwright"))
ELSEWHERE = ("docs/results/", "docs/cluster.md", "docs/tutorial.md")
RUN = [p for p in PAGES if list(commands(p)) and not str(p.relative_to(ROOT)).startswith(ELSEWHERE)]
PROGRAMS = (
    *("prog", "prog-before", "solver", "data/solver", "job", "simulate", "service", "app/server"),
    *("build/prog", "build/X86/gem5.opt"),
)
# Verb → options put before the command's own program: the last value of an option counts.
FEW = ["--allocators", "glibc,exgen"]
SHORTER = {
    "tune": ["--budget", "2", "--pairs", "6:6", "--proxy", "none", *FEW, "-q"],
    "compare": ["-n", "1", *FEW, "-q"],
    "bench": ["-n", "1", "--quick", "--threads", "1,2", *FEW, "-q"],
    "measure": ["-n", "1"],
    "landscape": ["-n", "1", "--metric", "peak_heap", "--range", "mmap_threshold=64K:256K", "-q"],
    "record": ["--force", "-q"],
    "synth": ["-n", "1"],
    "replay": ["-n", "1"],
}
# Page → the names of its workload or space files, in order.
FILES = {
    "openmp": ["solver.toml"],
    "service-memory": ["service.toml"],
    "workload": ["solver.toml", *[""] * 6, "render.toml"],
    "spaces": ["mine.toml"],
    "in-a-study": ["methods.toml", ""],
}
# Commands that do not end by themselves, or that need resources that a test does not have.
LEFT_OUT = {
    **dict.fromkeys(
        (
            "tune --workload render.toml --allocators jemalloc --minimize mean_rss --budget 300s --study memory.study",
            "tune --workload render.toml --allocators jemalloc --minimize cpu_per_op --budget 240s --study cpu.study",
            "tune --workload render.toml --allocators jemalloc --minimize mean_rss --require p99<=1.1x --budget 240s"
            " --study both.study",
            "tune --workload glibc.toml --minimize p99 --budget 200s --study p99.study",
        ),
        "minutes of load; tests/system tunes a server",
    ),
    **dict.fromkeys(
        (
            "measure --container my-image -n 5 -- work 1500",
            "tune --container my-image --budget 2m --study deb.study -- work 1500",
            "apply deb.study --format docker",
        ),
        "tests/system/test_container.py makes images",
    ),
    "measure --for 30m --workload redis.toml --json soak.json --html soak.html": "half an hour",
    "tune --workload solver.toml --minimize objective,peak_rss": "tests/system/test_plugins.py has an own objective",
    "experiment methods.toml": "tests/system/test_experiment.py runs one",
    "experiment methods.toml --cluster tcp://head:8786": "tests/cluster/test_searches.py runs one",
    "experiment methods.toml --cluster slurm.toml": "needs SLURM",
    "measure -- systemd-run --user --scope --quiet ./prog args": "needs a systemd of the user",
    "compare -n 3 --workload wrk.toml --allocators glibc,jemalloc": "tests/workload/test_work_done.py has such loads",
    "bench": "the whole suite; its verb is run by other lines",
    "bench --quick": "tests/system/test_bench.py runs all programs",
    "record --recover .prog.hwt.abc123.recording -o prog.hwt": "tests/trace kills recorders and recovers",
    "record --recover raw-from-there -o service.hwt": "tests/trace/test_sampling.py exports and recovers",
    **dict.fromkeys(
        (
            "diagnose 4711",
            "diagnose web.service --watch 10",
            "diagnose redis-server --html redis.html",
            "diagnose web.service",
            "diagnose threaded_service",
            "diagnose 26204 26205 26206",
            "diagnose redis-server",
            "diagnose web.service --watch 60",
            "diagnose web.service --json web.json --html web.html",
        ),
        "tests/diagnose has running processes",
    ),
    "canary --control 4711,4712 --treatment 4713,4714 --for 2h --html canary.html": "tests/system/test_canary.py",
    **dict.fromkeys(
        (
            "record -o shop.hwt -- gunicorn -w 2 --threads 8 shop:app",
            "record -o shop-day.hwt --sample 64 --max-size 256M -- gunicorn -w 2 --threads 8 shop:app",
            "record -o shop-peak.hwt --sample 64 --after 10m --for 5m -- gunicorn -w 2 --threads 8 shop:app",
        ),
        "gunicorn may be missing, and serves until it is stopped",
    ),
    "record -o peak.hwt --sample 64 --after 10m --for 2m -- ./service": "the window begins after ten minutes",
    "record -o signal.hwt --sample 64 --window-signal RTMAX -- ./service": "nobody sends the signal",
    "import heaptrack.prog.1234.zst -o prog.hwt": "tests/trace/test_import.py has heaptrack's files",
    **dict.fromkeys(
        (
            "measure --workload examples/http-server.toml -n 3",
            "compare --workload examples/redis.toml --metrics idle_rss,p99,cpu_per_op",
            "tune --workload examples/http-server.toml --minimize p99,cpu_per_op",
            "compare -n 3 --workload examples/redis.toml --allocators glibc,mimalloc,exgen --metrics"
            " idle_rss,p99,cpu_per_op",
            "tune --workload examples/http-server.toml --minimize cpu_per_op --budget 240s",
            "tune --workload redis.toml --minimize cpu_per_op --require p99_ms <= 1.05x --require load_errors <= 0",
            "tune --workload examples/runtimes/python-server.toml --minimize mean_rss,idle_rss"
            " --require load_errors <= 0 --require cpu_per_op <= 1.1x --budget 6m",
        ),
        "tests/system/test_examples.py runs the examples",
    ),
    **dict.fromkeys(
        (
            "diagnose 2755",
            "record --sample 16 -o web.hwt --workload examples/http-server.toml",
            "tune --trace web.hwt --minimize peak_rss,mean_rss --budget 2m --study web.study",
            "verify web.study --max-time 4m --workload examples/http-server.toml",
            "apply web.study",
            "diagnose 24844",
            "record --sample 16 -o redis.hwt --workload examples/redis.toml",
            "tune --trace redis.hwt --minimize peak_rss,mean_rss --budget 2m --study redis.study",
            "verify redis.study --max-time 8m --workload examples/redis.toml",
            "apply redis.study",
            "record --sample 16 -o paused.hwt -- ./paused_service pool 4 1500 8",
            "record --sample 16 --max-cost 0 -o pausedfull.hwt -- ./paused_service pool 4 1500 8",
            "tune --trace pausedfull.hwt --minimize peak_rss,mean_rss --budget 2m --study paused.study",
            "verify paused.study --max-time 2m -- ./paused_service pool 4 1500 8",
            "apply paused.study",
        ),
        "minutes of load; tests/system/test_examples.py and test_tune_trace.py run the verbs",
    ),
    "inspect -- g++ main.o -lpng -o prog": "libpng's development files may be missing",
    "landscape --param mmap_threshold --range mmap_threshold=1:2^35 --metric massif_peak -- z3 problem.smt2": "hours",
    "tune --preset greenmalloc -- ./prog": "500 generations of 24; the guide's is run, shorter",
    "tune --preset landscape -- ./prog": "1000 evaluations under Massif",
    "tune --preset greenmalloc2025 -- ./prog": "500 generations of 24",
    "tune --preset landscape2025 --method magpie -- ./prog": "1000 evaluations under Massif",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, program: Callable[..., Path]) -> Path:
    """A folder with all files that the pages assume."""
    folder = tmp_path_factory.mktemp("around")
    for name in PROGRAMS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(program("stand_in"), folder / name)
    (folder / "parser.cpp").write_text("int parsed() { return 1; }\n")
    (folder / "main.cpp").write_text("#include <cstdlib>\nint main() { std::free(std::malloc(9)); }\n")
    for out, source in (("main.o", "main"), ("parser.o", "parser"), ("solver.o", "main"), ("shapes.o", "parser")):
        subprocess.run(["g++", "-c", "-o", out, f"{source}.cpp"], cwd=folder, check=True)
    subprocess.run(["ar", "rcs", "libshapes.a", "shapes.o"], cwd=folder, check=True)
    for name in ("small.txt", "in.txt", "requests", "other", "numbers.txt"):
        (folder / name).write_text("")
    (folder / "prog.toml").write_text('command = ["./prog"]\n[[input]]\nname = "large"\n')
    (folder / "studies").mkdir()
    (folder / "hey").write_text(
        '#!/bin/sh\nexec python3 -c "import socket\n'
        "for _ in range(9): socket.create_connection(('127.0.0.1', $STAND_IN_PORT)).recv(1000)\n"
        "print('  Requests/sec:\\t90.5\\n  99% in 0.0047 secs\\n  [200]\\t9 responses')\"\n"
    )
    (folder / "hey").chmod(0o755)
    library = Path("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2")
    library = library if library.exists() else Path(HEAPWRIGHT).parents[1] / "lib/none"
    if library.exists():
        shutil.copy(library, folder / "libmine.so")
    run = ["tune", *SHORTER["tune"], "--study", "ready.study", "--", "./prog"]
    for words in (
        run,
        ["record", "-q", "-o", "ready.hwt", "--", "./prog"],
        ["fit", "ready.hwt", "-o", "ready.model"],
        ["export", "ready.hwt", "--format", "wl", "-o", "ready.wl"],
    ):
        subprocess.run([HEAPWRIGHT, *words], cwd=folder, check=True, capture_output=True)
    return folder


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "here")
    return tmp_path / "here"


def shorter(words: list[str]) -> list[str]:
    """Reduces a command's work."""
    at = words.index("--") if "--" in words else len(words)
    more = SHORTER.get(words[0], [])
    if words[0] == "tune" and {"--preset", "--space"} & set(words):
        more = [w for w in more if w not in FEW]
    if "--trace" in words:
        more = [w for w in more if w not in ("--proxy", "none")]
    return [*words[:at], *more, *words[at:]]


def put_what_is_missing(words: list[str], folder: Path) -> None:
    """Creates the studies, traces and models that other pages would have made."""
    made_here = {b for a, b in itertools.pairwise(words) if a in ("--study", "-o", "--json", "--csv")}
    for word in words[: words.index("--") if "--" in words else None]:
        path = folder / word
        ready = folder / f"ready{'.model' if word.endswith('.model.json') else path.suffix}"
        if word not in made_here and path.suffix in (".study", ".hwt", ".model", ".json", ".wl") and not path.exists():
            path.parent.mkdir(exist_ok=True)
            shutil.copy(ready, path)
        if path.suffix == ".html" and "--extract" in words:
            subprocess.run([HEAPWRIGHT, "report", "ready.study", "-o", word], cwd=folder, check=True)


def to_run() -> Iterator[ParameterSet]:
    for page in RUN:
        lines = [c for c in commands(page) if " ".join(c.words) not in LEFT_OUT]
        yield needs.long_unless(page.name == "README.md", page, lines)


@pytest.mark.parametrize(("page", "lines"), list(to_run()), ids=lambda x: x.stem if isinstance(x, Path) else "")
def test_commands_run(page: Path, lines: list[Command], folder: Path) -> None:
    port = free_port()
    names = iter(FILES.get(page.stem, []))
    for block in code_blocks(page):
        name = next(names, "") if block.language == "toml" else ""
        if name:
            (folder / name).write_text(
                "\n".join(block.lines).replace("8080", str(port)).replace("idle = 5", "idle = 0.1") + "\n"
            )
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GLIBC_TUNABLES", "HEAPWRIGHT_"))}
    env |= {"PATH": f"{folder}:{env['PATH']}", "STAND_IN_PORT": str(port)}
    for line in lines:
        words = [w.replace("/studies/app", "studies/app").replace("/app/server", "app/server") for w in line.words]
        words = [w for w in words if w not in ("...", "…")]
        put_what_is_missing(words, folder)
        if "libmine.so" in " ".join(words) and not (folder / "libmine.so").exists():
            continue
        serves = words[0] == "watch" or (words[:2] == ["record", "-o"] and "./service" in words)
        fine = (0, NO_GAIN) if words[0] == "apply" else (0,)  # a study of one second seldom proves a gain
        if serves:
            end_after(3, [HEAPWRIGHT, *shorter(words)], folder, env)
        else:
            status, _, said = SERVER.run([HEAPWRIGHT, *shorter(words)], folder, env, timeout=300)
            if words[0] == "verify" and status == 1 and b"no gain, so there is nothing to verify" in said:
                continue  # for the same reason
            assert status in fine, f"{line}\n{said[-1000:].decode()}"


def end_after(seconds: float, words: list[str], folder: Path, env: dict[str, str]) -> None:
    """Runs a command that does not end by itself, and ends it with Ctrl-C."""
    with subprocess.Popen(
        words, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        process_group=0,
    ) as process:  # fmt: skip
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=30)


def test_every_command_that_is_left_out_is_in_a_page() -> None:
    there = {" ".join(c.words) for page in RUN for c in commands(page)}
    assert not set(LEFT_OUT) - there
