"""Tests programs with an allocator of their own: `tune` searches by its variables, or says why it cannot."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.conftest import PROGRAMS
from tests.embedded import build_prefixed_jemalloc

from .conftest import Heapwright
from .test_tune import result, rows

# The note that the Go compiler leaves in its programs.
GO_NOTE = '.section .note.go.buildid,"a",@note\n.long 3, 4, 4\n.asciz "Go"\n.balign 4\n.ascii "abcd"\n'
QUICK = ["--study", "s.study", "--minimize", "peak_rss", "--pairs", "6:6", "--no-minify", "--json", "-"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_prefixed_jemalloc(tmp_path_factory.mktemp("embedded"))


@pytest.fixture
def embedded(heapwright: Heapwright, built: Path) -> Path:
    """A program with jemalloc linked in under prefixed names, as the Rust crate does it."""
    return Path(shutil.copy2(built, heapwright.folder))


@pytest.mark.long
def test_a_gain_is_proven_by_its_own_variable(embedded: Path, heapwright: Heapwright) -> None:
    words = [*QUICK, "--params", "dirty_decay_ms", "--budget", "6", "--method", "sobol"]
    done = heapwright("tune", *words, "--", f"./{embedded.name}")
    found = result(done)
    assert "is linked into embedded_jemalloc and serves its allocations" in done.err
    pick = found["picks"]["memory"]
    assert pick["allocator"] == "jemalloc"
    (variable,) = pick["env"]
    assert variable == "_RJEM_MALLOC_CONF"
    assert pick["confirmed"]["peak_rss_bytes"]["verdict"] == "better"
    assert pick["confirmed"]["peak_rss_bytes"]["ratio"] < 0.9
    assert found["managed"]["reach"] == "embedded"
    assert not found["proxy"]["used"]
    assert "linked into it" in found["proxy"]["why"]
    runs = rows(heapwright.folder / "s.study", "SELECT count(*) FROM run")
    again = result(heapwright("tune", *words, "--", f"./{embedded.name}"))
    assert rows(heapwright.folder / "s.study", "SELECT count(*) FROM run") == runs, "a finished study runs nothing"
    assert again["picks"] == found["picks"]
    applied = heapwright("apply", "s.study")
    assert f"_RJEM_MALLOC_CONF={pick['env'][variable]}" in applied.out
    assert "LD_PRELOAD" not in applied.out
    ran = heapwright("run", "s.study", "--", f"./{embedded.name}")
    assert (ran.status, ran.out, ran.err) == (0, "done\n", "")


def test_other_allocators_are_refused(embedded: Path, heapwright: Heapwright) -> None:
    before = sorted(heapwright.folder.iterdir())
    for names in ("exgen", "exgen,reaper", "glibc"):
        done = heapwright("tune", "--allocators", names, "--", f"./{embedded.name}")
        assert (done.status, done.out) == (1, "")
        (line,) = done.err.splitlines()
        assert line.startswith(f"heapwright: {names.partition(',')[0]} cannot serve embedded_jemalloc: jemalloc 5.")
        assert "--allocator" in line
    sweep = ["landscape", "--allocator", "glibc", "--param", "mxfast"]
    assert "glibc cannot serve embedded_jemalloc" in heapwright(*sweep, "--", f"./{embedded.name}").err
    assert sorted(heapwright.folder.iterdir()) == before


def test_a_shell_that_starts_it_is_not_searched(embedded: Path, heapwright: Heapwright) -> None:
    """The shell's malloc could be replaced, but another program uses the memory."""
    done = heapwright("tune", *QUICK, "--budget", "2", "--", "sh", "-c", f"./{embedded.name} 300; true")
    found = result(done)
    assert found["claim"].startswith("Most memory of this command is of embedded_jemalloc, which it starts. jemalloc 5")
    assert f"heapwright tune -- {embedded.resolve()} …" in found["claim"]
    assert (found["picks"], found["evaluations"]) == ({}, 0)


def test_of_a_static_program_that_a_shell_starts_only_glibcs_settings_are_searched(
    program: Callable[..., Path], heapwright: Heapwright
) -> None:
    """The shell loads an allocator, but the program that uses the memory does not."""
    static = program("holders", "-static")
    words = [*QUICK, "--search-only", "--budget", "1"]
    done = heapwright("tune", *words, "--", "sh", "-c", f"{static}; true")
    managed = result(done)["managed"]
    assert managed["reach"] == "glibc"
    assert managed["sentence"].startswith(f"Most memory of this command is of {static.name}, which it starts. ")
    assert "measuring every allocator" not in done.err


def test_the_name_of_an_embedded_allocator_means_the_embedded_one(embedded: Path, heapwright: Heapwright) -> None:
    words = [*QUICK, "--search-only", "--params", "thp", "--budget", "1", "--allocators", "exgen,jemalloc"]
    done = heapwright("tune", *words, "--", f"./{embedded.name}")
    assert result(done)["managed"]["reach"] == "embedded"
    assert "exgen cannot serve embedded_jemalloc" in done.err


def test_compare_has_the_program_as_it_is(embedded: Path, heapwright: Heapwright) -> None:
    done = heapwright("compare", "-n", "1", "--allocators", "glibc,exgen", "--json", "-", "--", f"./{embedded.name}")
    assert done.status == 1, "nothing but the reference could be measured"
    found: dict[str, Any] = json.loads(done.out)
    assert found["reference"] == "default"
    failures = {name: row["failure"] for name, row in found["allocators"].items()}
    assert not failures["default"]
    for name in ("glibc", "exgen"):
        assert failures[name].startswith("not loaded: jemalloc 5.")
        assert failures[name].endswith("is linked into the program")


def test_settings_by_hand_are_held_against_it(embedded: Path, heapwright: Heapwright) -> None:
    words = ("measure", "-q", "--", f"./{embedded.name}")
    assert "warning" not in heapwright(*words, env={"_RJEM_MALLOC_CONF": "narenas:1"}).err
    assert "narena:1 is ignored" in heapwright(*words, env={"_RJEM_MALLOC_CONF": "narena:1"}).err
    assert "reads _RJEM_MALLOC_CONF" in heapwright(*words, env={"MALLOC_CONF": "narenas:1"}).err


def test_a_go_program_ends_at_once(heapwright: Heapwright) -> None:
    """Regression: `tune` tried six allocators ('not loaded: statically linked') and then searched glibc's settings."""
    (heapwright.folder / "note.s").write_text(GO_NOTE)
    heapwright.report = True
    go, sources = str(heapwright.folder / "go"), [PROGRAMS / "moody.c", heapwright.folder / "note.s"]
    subprocess.run([needs.command("gcc"), "-static", "-o", go, *sources], check=True)
    done = heapwright("tune", "--study", "s.study", "--json", "-", "--exit-code", "--", go)
    assert done.status == 3, done.err
    found = json.loads(done.out)
    assert "is a Go program" in found["claim"]
    assert "GOGC" in found["claim"]
    assert found["runtime"] == {"name": "go"}
    assert (found["picks"], found["evaluations"]) == ({}, 0)
    assert rows(heapwright.folder / "s.study", "SELECT count(*) FROM run") == [(1,)]
    assert "statically" not in done.err
    assert "is a Go program" in (heapwright.folder / "s.html").read_text()
    shown = heapwright("tune", "--study", "s.study", "--", go)
    assert shown.out.count("is a Go program") == 1


def test_a_static_program_that_starts_others_is_searched(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    """Nothing can be preloaded into the static program, but into the programs that it starts."""
    words = ["tune", *QUICK, "--search-only", "--budget", "2", "--allocators", "glibc,exgen"]
    starts, other = str(program("starts_another", "-static")), str(program("mapping_calls"))
    found = result(heapwright(*words, "--", starts, other))
    assert found["managed"] is None
    assert not any("exgen was not searched" in text for text in found["warnings"])


RUST = """
[package]
name = "churn"
version = "0.1.0"
edition = "2021"
[dependencies]
{crate} = "{version}"
[profile.release]
strip = true
"""
MAIN = """
#[global_allocator]
static GLOBAL: {type} = {type};
fn main() {{
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for i in 0..200_000usize {{
        kept.push(vec![(i & 255) as u8; 16 + i % 1000]);
        if i % 3 == 0 {{ kept.swap_remove(i / 7); }}
    }}
    println!("{{}}", kept.len());
}}
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("crate", "version", "kind", "family", "variable"),
    [
        ("mimalloc", "0.1", "mimalloc::MiMalloc", "mimalloc", "MIMALLOC_"),
        ("tikv-jemallocator", "0.6", "tikv_jemallocator::Jemalloc", "jemalloc", "_RJEM_MALLOC_CONF"),
    ],
)
def test_the_allocator_of_a_rust_program_is_tuned(
    crate: str, version: str, kind: str, family: str, variable: str, heapwright: Heapwright
) -> None:
    needs.command("cargo")
    folder = heapwright.folder / "churn"
    (folder / "src").mkdir(parents=True)
    (folder / "Cargo.toml").write_text(RUST.format(crate=crate, version=version))
    (folder / "src/main.rs").write_text(MAIN.format(type=kind))
    made = subprocess.run(["cargo", "build", "--release"], cwd=folder, capture_output=True, text=True, check=False)
    if made.returncode:
        needs.machine_cannot(f"build the crate {crate} ({made.stderr.strip().splitlines()[-1][:80]})")
    program = folder / "target/release/churn"
    done = heapwright("tune", *QUICK, "--budget", "12", "--", str(program))
    found = result(done)
    assert found["managed"]["sentence"].startswith(f"{family} ")
    assert found["evaluations"] == 12
    searched = {name for entry in found["front"] for name in entry["env"]}
    assert all(name.startswith(variable) for name in searched)
