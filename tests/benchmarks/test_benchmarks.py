"""Tests that each benchmark program runs, is deterministic for a seed, and detects memory corruption."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heapwright.files import NATIVE

FOLDER = NATIVE / "benchmarks"
NAMES = sorted(path.name for path in FOLDER.glob("bench-*"))
# These check the contents of all of their blocks; others keep no block long enough, or check only
# parts.
CHECKED = ["bench-batch", "bench-producer-consumer", "bench-realistic", "bench-server"]


def run(name: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [FOLDER / name, "--quick", *words], capture_output=True, text=True, check=False, env={**os.environ, **env}
    )


def result(name: str, *words: str, **env: str) -> dict[str, Any]:
    done = run(name, *words, **env)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_all_are_installed() -> None:
    assert len(NAMES) == 17


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_each_prints_one_json_object(name: str, threads: int) -> None:
    found = result(name, "--threads", str(threads), "--seed", "5")
    assert found["threads"] == threads
    assert found["seed"] == 5
    assert found["quick"] is True
    assert found["operations"] > 0
    assert found["wall_s"] > 0
    assert found["ns_per_operation"] == pytest.approx(found["wall_s"] * 1e9 / found["operations"], rel=1e-6)
    assert 0 < found["rss_bytes"] <= found["peak_rss_bytes"]


def test_a_seed_means_the_same_work() -> None:
    first, again, other = (result("bench-realistic", "--seed", seed) for seed in ("1", "1", "2"))
    assert (first["operations"], first["live_bytes"]) == (again["operations"], again["live_bytes"])
    assert (first["operations"], first["live_bytes"]) != (other["operations"], other["live_bytes"])


def test_the_void_allocator_does_the_same_steps() -> None:
    real, void = result("bench-realistic"), result("bench-realistic", "--void")
    assert void["void"] is True
    assert (void["operations"], void["live_bytes"]) == (real["operations"], real["live_bytes"])


@pytest.mark.parametrize("words", [["handover=30"], ["realloc=30"], ["handover=20", "realloc=20"]], ids=" ".join)
def test_handover_and_realloc_change_the_work(words: list[str]) -> None:
    found = result("bench-realistic", "--threads", "2", *words)
    plain = result("bench-realistic", "--threads", "2")
    assert found["operations"] != plain["operations"]


@pytest.mark.parametrize("name", CHECKED)
def test_corruption_fails_the_run(name: str, program: Callable[..., Path]) -> None:
    library = program("bump_malloc", "-shared", "-fPIC")
    done = run(name, "--threads", "1", LD_PRELOAD=str(library), BUMP="overlap")
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("corruption: block 0x")
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--threads", "0"], "bad option: --threads 0"),
        (["--threads", "many"], "bad option: many"),
        (["--fast"], "bad option: --fast"),
        (["steps=x"], "bad option: x"),
    ],
)
def test_bad_options_get_one_line(words: list[str], message: str) -> None:
    done = run("bench-realistic", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
