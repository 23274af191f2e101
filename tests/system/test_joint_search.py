"""Tests studies that search several allocators at once, with the installed command on real programs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from heapwright.allocators.registry import find_allocators
from tests import needs
from tests.conftest import PROGRAMS

from .conftest import Heapwright

ASKED = [name for name in ("glibc", "jemalloc", "mimalloc2", "exgen") if name in find_allocators()]


def test_one_study_of_several_allocators(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    words = ["tune", "--allocators", ",".join(ASKED), "--params", "mmap_threshold,dirty_decay_ms,purge_delay,keep"]
    words += ["--minimize", "peak_heap", "--budget", "8", "--pairs", "6:6", "--no-minify"]
    words += ["--study", "s.study", "--json", "-"]
    command = ["--", str(program("mapping_calls"))]
    done = heapwright(*words, *command)
    assert done.status == 0, done.err
    assert "allocators to search, best at its defaults first: " in done.err
    found = json.loads(done.out)
    assert found["evaluations"] >= len(ASKED) - 1
    for pick in [*found["picks"].values(), *found["front"]]:
        assert pick["allocator"] in ASKED
        assert ("LD_PRELOAD" in pick["env"]) == (pick["allocator"] != "glibc")
        assert set(pick) >= {"allocator", "settings", "env"}
    for name, pick in found["picks"].items():
        env = heapwright("run", "s.study", "--pick", name, "--", "env").out.splitlines()
        variables = dict(line.split("=", 1) for line in env if "=" in line)
        assert {key: variables.get(key) for key in pick["env"]} == pick["env"]
        shipped = json.loads(heapwright("apply", "s.study", "--pick", name, "--format", "json").out)
        assert (shipped["allocator"], shipped["env"]) == (pick["allocator"], pick["env"])
    again = heapwright(*words, *command)
    assert json.loads(again.out)["picks"] == found["picks"]


def test_an_allocator_that_does_not_take_over_is_reported(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    words = [
        "tune",
        "--allocators",
        "glibc,exgen",
        "--budget",
        "2",
        "--pairs",
        "6:6",
        "--no-minify",
        "--study",
        "s.study",
        "--json",
        "-",
    ]
    done = heapwright(*words, "--", str(program("mapping_calls", "-static")))
    assert done.status == 0, done.err
    assert "not loaded" not in done.err, "one sentence is for all that cannot be searched"
    found = json.loads(done.out)
    assert {e["allocator"] for e in found["front"]} <= {"glibc", "default"}
    assert (found["runtime"], found["managed"]["reach"]) == (None, "glibc")
    assert found["managed"]["sentence"] in done.err


@pytest.mark.parametrize(
    ("env", "complaint"),
    [
        ({"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=128k"}, "is read as 128, or dropped: "),
        (
            {"MALLOC_CONF": "narenas:2,lg_tcache_max=12,thp:never"},
            "drops it and all that follows (thp:never): write lg_",
        ),
        (
            {"MALLOC_TRIM_THRESHOLD": "65536"},
            "no glibc reads MALLOC_TRIM_THRESHOLD; did you mean MALLOC_TRIM_THRESHOLD_?",
        ),
    ],
)
@pytest.mark.few(1)
def test_bad_settings_in_the_environment(heapwright: Heapwright, env: dict[str, str], complaint: str) -> None:
    done = heapwright("measure", "-q", "--", "true", env=env)
    (line,) = [text for text in done.err.splitlines() if text.startswith("heapwright: warning: ")]
    assert complaint in line
    assert done.status == 0
    checks = json.loads(heapwright("doctor", "--json", "-", env=env).out)["checks"]
    assert any(complaint in c["detail"] and not c["works"] for c in checks if c["name"] == "setting")
    listed = heapwright("allocators", "--json", "-", env=env)
    assert any(complaint in text for text in json.loads(listed.out)["environment"])


def test_a_workloads_own_environment_is_checked(heapwright: Heapwright) -> None:
    (heapwright.folder / "w.toml").write_text('command = ["true"]\n[env]\nMALLOC_ARENA_MAX_ = "2"\n')
    done = heapwright("compare", "-n", "1", "-q", "--allocators", "glibc", "--workload", "w.toml")
    assert "no glibc reads MALLOC_ARENA_MAX_; did you mean MALLOC_ARENA_MAX?" in done.err


def test_a_preset_says_what_it_lacks(heapwright: Heapwright) -> None:
    done = heapwright("tune", "--preset", "landscape", "--allocators", "exgen", "--", "true")
    assert (done.status, "this preset has no space for exgen" in done.err) == (2, True)


def test_glibc_is_not_searched_in_a_musl_program(heapwright: Heapwright, tmp_path: Path) -> None:
    prog = tmp_path / "prog"
    subprocess.run([needs.command("musl-gcc"), "-o", prog, PROGRAMS / "mapping_calls.c"], check=True)
    done = heapwright("tune", "--allocators", "glibc,exgen", "--budget", "2", "--study", "s.study", "--", str(prog))
    assert done.status == 1
    assert "glibc is not searched: glibc's settings do not reach prog: its C library is musl" in done.err
    assert "exgen is not searched: exgen cannot be loaded into prog: its C library is musl" in done.err
    assert "no allocator can be searched in this program" in done.err


def test_a_musl_program_is_not_searched_on_replays(heapwright: Heapwright, tmp_path: Path) -> None:
    prog = tmp_path / "prog"
    subprocess.run([needs.command("musl-gcc"), "-o", prog, PROGRAMS / "mapping_calls.c"], check=True)
    param = '[[param]]\nkey = "mood"\nenv = "MOOD"\ntype = "enum"\nvalues = ["lean", "plain"]\nexplain = "A mood."\n'
    (heapwright.folder / "own.toml").write_text(f'[allocator]\nname = "own"\n{param}')
    options = ["--space", "own.toml", "--proxy", "replay", "--budget", "2", "--study", "s.study"]
    done = heapwright("tune", *options, "--", str(prog))
    assert done.status == 1
    assert "cannot be searched on replays: prog cannot be recorded: its C library is musl" in done.err
