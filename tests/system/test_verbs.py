"""Tests each verb by itself, as a user would call it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heapwright.metrics import METRICS, NUMERIC

from .conftest import Heapwright, environment

# Nearly all verbs here are the installed command: no forks.

VERBS = ("tune", "compare", "bench", "measure", "apply", "run", "report", "doctor", "allocators")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, program: Callable[..., Path]) -> Path:
    """A finished study with one setting that is certain to help, made once."""
    heapwright = Heapwright(tmp_path_factory.mktemp("finished"), report=False, forked=True)
    words = ["tune", "--params", "top_pad", "--method", "grid", "--pairs", "6:6", "--minimize", "mapping_calls"]
    words += ["--proxy", "none", "--no-runtime", "--no-minify"]
    done = heapwright(*words, "--study", "s.study", "--", str(program("mapping_calls")))
    assert done.status == 0, done.err
    return heapwright.folder / "s.study"


@pytest.fixture
def heapwright(tmp_path: Path) -> Heapwright:
    """The installed command, working in a fresh directory."""
    return Heapwright(tmp_path)


@pytest.fixture
def study(heapwright: Heapwright, finished: Path) -> Path:
    """A copy of the finished study in the test's folder."""
    return Path(shutil.copy(finished, heapwright.folder))


def measured(heapwright: Heapwright, *words: str) -> dict[str, Any]:
    done = heapwright("measure", "--json", "-", *words)
    found: dict[str, Any] = json.loads(done.out)
    return found


# help


def test_help_names_every_verb(heapwright: Heapwright) -> None:
    done = heapwright("--help")
    assert (done.status, done.err) == (0, "")
    for verb in VERBS:
        assert re.search(rf"^    {verb}\s", done.out, re.M), verb


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.few(2)  # tests/cli/test_help.py asks each verb
def test_each_verb_has_help_with_an_example(verb: str, heapwright: Heapwright) -> None:
    done = heapwright(verb, "--help")
    assert (done.status, done.err) == (0, "")
    assert re.search(rf"examples?:\n  .*heapwright {verb}", done.out), done.out


def test_help_imports_nothing_heavy(heapwright: Heapwright) -> None:
    # These modules make a command slow to start. The test asserts this cause rather than times.
    code = "import sys, heapwright.cli.main as m\nm.main(['--help'])\n"
    code += "print(sorted({'numpy', 'scipy', 'pymoo', 'matplotlib', 'rich', 'jinja2'} & set(sys.modules)))"
    python = str(heapwright.path.parent / "python")
    out = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, env=environment()).stdout
    assert out.splitlines()[-1] == "[]"


# measure


def test_measure_gives_every_metric_of_the_contract(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    found = measured(heapwright, "-n", "3", "--", str(program("large_blocks")))
    assert found["schema_version"] == 1
    assert found["meter"] in ("notify", "ptrace", "poll")
    assert len(found["runs"]) == 3
    for run in found["runs"]:
        assert set(METRICS) <= set(run)
        assert 40 << 20 < run["peak_rss_bytes"] < 60 << 20
        assert run["cpu_s"] == pytest.approx(run["user_s"] + run["sys_s"])
        assert run["mean_rss_bytes"] <= run["peak_rss_bytes"] <= run["peak_vm_bytes"]
        assert run["output_sha256"] == hashlib.sha256(b"66\n").hexdigest()
    for metric in NUMERIC:
        values = [r[metric] for r in found["runs"]]
        summary = found["summary"][metric]
        if None in values:
            assert summary is None, metric
        else:
            assert set(summary) == {"median", "min", "max", "mad"}
            assert (summary["min"], summary["max"]) == (min(values), max(values))


def test_measure_counts_shared_pages_once(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    tree = [str(program("behaviours")), "share", "2", "0", "0"]
    found = measured(heapwright, "--", *tree)["summary"]
    assert 64 << 20 <= found["peak_pss_bytes"]["median"] <= 70 << 20
    assert found["peak_rss_bytes"]["median"] >= 192 << 20
    done = heapwright("measure", "--", *tree)
    assert re.search(r"^peak proportional memory +6\d\.\d MiB$", done.out, re.M), done.out
    assert re.search(r"^mean proportional memory +\d+\.\d MiB$", done.out, re.M), done.out
    assert re.search(r"^peak memory of the cgroup +", done.out, re.M), done.out


def test_measure_passes_output_and_status_on(heapwright: Heapwright) -> None:
    done = heapwright("measure", "-q", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.status, done.out, done.err) == (7, "out\n", "err\n")
    done = heapwright("measure", "-q", "--", "sh", "-c", "kill -TERM $$")
    assert done.status == 128 + 15
    done = heapwright("measure", "-q", "--timeout", "0.2", "--", "sleep", "5")
    assert done.err == "heapwright: warning: a run failed: timed out after 0.2 s\n"


def test_a_result_that_cannot_be_written_is_said(heapwright: Heapwright) -> None:
    line = [str(heapwright.path), "measure", "--json", "-", "--", "true"]
    for where, why in (
        (">&-", "stdout is closed, so '-' cannot be written (name a file)"),
        (">/dev/full", "stdout: No"),
    ):
        done = subprocess.run(["sh", "-c", f'exec "$@" {where}', "sh", *line], capture_output=True, text=True)
        assert done.returncode == 1
        assert done.stderr.startswith(f"heapwright: {why}")


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["measure", "--help"], []])
def test_a_help_that_cannot_be_written_is_said(words: list[str], heapwright: Heapwright) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([heapwright.path, *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "heapwright: stdout: No space left on device\n")


def test_measure_counts_the_runs_that_fail(heapwright: Heapwright) -> None:
    """A single run's own stderr and status tell of its failure, but not of a signal."""
    heapwright.forked = True
    killed = "was killed by SIGKILL"
    for runs, command, text in [
        ("3", "exit 3", "3 of 3 runs ended with exit status 3"),
        ("2", "kill -9 $$", "2 of 2 runs were killed by SIGKILL"),
        ("1", "kill -9 $$", f"the run {killed}"),
        ("2", "test -e once && kill -9 $$; : >once", f"1 of 2 runs {killed}"),
        ("1", "exit 3", ""),
        ("2", "exit 0", ""),
    ]:
        done = heapwright("measure", "-q", "-n", runs, "--", "sh", "-c", command)
        assert done.err == (f"heapwright: warning: {text}\n" if text else ""), command
    assert heapwright("measure", "-q", "-n", "2", "--success", "3", "--", "sh", "-c", "exit 3").err == ""


def test_measure_prints_a_table_with_units(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    done = heapwright("measure", "--", str(program("large_blocks")))
    assert done.status == 0
    assert re.search(r"^peak resident memory +4\d\.\d MiB$", done.out, re.M), done.out
    assert re.search(r"^Massif peak +n/a$", done.out, re.M)


def test_words_after_the_dashes_are_the_targets(heapwright: Heapwright) -> None:
    done = heapwright("measure", "-q", "--", "printf", "%s|", "--json", "--", "a b", "$HOME", "*")
    assert done.out == "--json|--|a b|$HOME|*|"


def test_a_command_has_empty_stdin_by_default(heapwright: Heapwright) -> None:
    assert heapwright("measure", "-q", "--", "cat").out == ""


def test_instructions_by_callgrind(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    found = measured(heapwright, "--instructions", "callgrind", "--", str(program("moody")))
    # Fills 8 MiB four times, by 1 to 64 bytes an instruction; starting takes about 100,000
    # instructions.
    assert 1e5 < found["runs"][0]["instructions"] < 1e8


# apply, run, report


@pytest.mark.long
def test_the_printed_setting_takes_effect(heapwright: Heapwright, study: Path, program: Callable[..., Path]) -> None:
    command = str(program("mapping_calls"))
    plain = measured(heapwright, "--", command)["runs"][0]["mapping_calls"]
    env = heapwright("apply", study.name)
    assert env.status == 0
    settings = re.search(r"^export GLIBC_TUNABLES=(\S+)$", env.out, re.M)
    assert settings
    tuned = measured(heapwright, "--", "env", f"GLIBC_TUNABLES={settings[1]}", command)["runs"][0]["mapping_calls"]
    # The few calls of env itself count too, because it is the same process.
    assert tuned < plain - 20

    wrapper = heapwright.folder / "wrapper"
    wrapper.write_text(heapwright("apply", study.name, "--format", "shell").out)
    wrapper.chmod(0o755)
    assert measured(heapwright, "--", "./wrapper", command)["runs"][0]["mapping_calls"] < plain - 20
    assert measured(heapwright, "--", "./wrapper")["runs"][0]["mapping_calls"] < plain - 20  # alone: the tuned command

    ran = heapwright("run", study.name, "--", "sh", "-c", "echo $GLIBC_TUNABLES; exit 5")
    assert (ran.status, ran.out) == (5, f"{settings[1]}\n")
    own = {"GLIBC_TUNABLES": "glibc.malloc.mxfast=0"}
    ran = heapwright("run", study.name, "--", "sh", "-c", "echo $GLIBC_TUNABLES", env=own)
    assert ran.out == f"glibc.malloc.mxfast=0:{settings[1]}\n"


@pytest.mark.parametrize("fmt", ["env", "shell", "systemd", "docker", "slurm", "json"])
@pytest.mark.few(1)
def test_every_format_says_what_was_proven(fmt: str, heapwright: Heapwright, study: Path) -> None:
    done = heapwright("apply", study.name, "--format", fmt)
    assert (done.status, done.err) == (0, "")
    assert "glibc.malloc.top_pad=" in done.out
    assert "fresh interleaved pairs" in done.out


def test_apply_and_run_do_not_import_all_of_scipy_stats(heapwright: Heapwright, study: Path) -> None:
    """That takes seconds on a slow machine."""
    code = "import sys, heapwright.cli.main as m\nm.main(['apply', sys.argv[1]])\n"
    code += "print('scipy.stats' in sys.modules)"
    python = str(heapwright.path.parent / "python")
    done = subprocess.run([python, "-c", code, study], capture_output=True, text=True, check=True, env=environment())
    assert done.stdout.splitlines()[-1] == "False"


def test_a_study_without_that_pick(heapwright: Heapwright, study: Path) -> None:
    done = heapwright("apply", study.name, "--pick", "memory")
    assert done.status == 1
    assert re.fullmatch(r"heapwright: s\.study has no 'memory' pick \(it has: .*\)\n", done.err)


def test_a_report_is_made_again_and_read_back(heapwright: Heapwright, study: Path) -> None:
    done = heapwright("report", study.name, "-o", "r.html")
    assert (done.status, done.out) == (0, "r.html\n")
    extracted = heapwright("report", "--extract", "r.html")
    assert extracted.status == 0
    assert "top_pad" in extracted.out
    json.loads(extracted.out)


# doctor, allocators


def test_doctor_fails_if_there_is_no_such_program(heapwright: Heapwright) -> None:
    done = heapwright("doctor", "--", "nosuch")
    assert done.status == 1
    assert "there is no program nosuch" in done.out
    assert heapwright("doctor", "-q", "--", "perl").status == 0


def test_doctor_tells_what_works(heapwright: Heapwright) -> None:
    done = heapwright("doctor", "--json", "d.json")
    assert done.status == 0
    assert "glibc" in done.out
    checks = json.loads((heapwright.folder / "d.json").read_text())["checks"]
    names = {c["name"] for c in checks}
    assert {"meter: notify", "meter: ptrace", "meter: poll", "hardware counters"} <= names
    assert {"proportional memory", "memory cgroup"} <= names
    for check in checks:
        assert check["works"] or check["remedy"] or check["detail"], check
    allocators = [c["name"] for c in checks if c["name"].startswith("allocator: ")]
    assert "allocator: hoard" in allocators
    assert len(allocators) == len(set(allocators))


def test_allocators_lists_every_setting(heapwright: Heapwright) -> None:
    done = heapwright("allocators", "--json", "-")
    glibc, missing = json.loads(done.out)["allocators"][0], json.loads(done.out)["missing"]
    assert {"name", "version", "path", "bundled", "preload", "parameters"} <= set(glibc)
    assert glibc["name"] == "glibc"
    assert not glibc["bundled"]
    assert Path(glibc["path"]).exists()
    listed = {p["key"] for p in glibc["parameters"]} | {s["key"] for s in glibc["not_searched"]}
    assert {"mmap_threshold", "trim_threshold", "top_pad", "mmap_max", "arena_max", "tcache_count"} <= listed
    assert {"name": "hoard", "remedy": "get its library, and set HEAPWRIGHT_ALLOCATORS=hoard=PATH"} in missing
    assert heapwright("allocators").out.startswith("glibc 2.")
