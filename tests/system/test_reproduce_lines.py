"""Tests the command lines in a report and at the terminal that measure a setting by hand: each works unchanged."""

from __future__ import annotations

import html
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests import needs

from .conftest import Done, Heapwright, environment
from .workloads import free_port, log_of, write_inputs, write_server

SHORT = ["--allocators", "glibc", "--params", "top_pad", "--proxy", "none", "--budget", "1", "--pairs", "6:6"]
SHORT += ["--no-minify", "--study", "s.study", "--seed", "3"]


def tuned(heapwright: Heapwright, *words: str) -> list[str]:
    """Tunes; returns the lines to measure by hand from the page and the terminal, the default's first."""
    heapwright.report = True
    done = heapwright("tune", *SHORT, *words)
    assert done.status == 0, done.err
    page = (heapwright.folder / "s.html").read_text()
    found = re.findall(r"<(?:pre|code)[^>]*>([^<]*heapwright measure[^<]*)</(?:pre|code)>", page)
    lines = [html.unescape(line) for line in found]
    lines += [line.strip() for line in done.out.splitlines() if "heapwright measure" in line]
    assert any(map(tunables, lines)), "those of the settings tried"
    assert not all(map(tunables, lines)), "that of the default"
    return sorted(dict.fromkeys(lines), key=tunables)


def given(heapwright: Heapwright, line: str, folder: Path) -> Done:
    """Runs a line as a user who pastes it into a shell.

    Args:
        heapwright: the installed command, which the line finds in PATH.
        line: the shell line.
        folder: the working directory.
    """
    path = f"{heapwright.path.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        line, shell=True, cwd=folder, env={**environment(), "PATH": path}, capture_output=True, text=True, timeout=240
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


def tunables(line: str) -> str:
    """The GLIBC_TUNABLES value in a line; empty if there is none."""
    found = re.search(r"GLIBC_TUNABLES=([\w.:=]+)", line)
    return found[1] if found else ""


def test_the_line_of_a_report_measures_a_command(heapwright: Heapwright) -> None:
    script = 'echo "<$GLIBC_TUNABLES>" >> seen'
    lines = tuned(heapwright, "--", "sh", "-c", script)
    (heapwright.folder / "seen").unlink()
    for line in lines:
        assert "--workload" not in line
        done = given(heapwright, line, heapwright.folder)
        assert (done.status, done.err) == (0, "")
        assert "peak resident memory" in done.out
        assert (heapwright.folder / "seen").read_text() == f"<{tunables(line)}>\n" * 10
        (heapwright.folder / "seen").unlink()


def test_the_line_of_a_report_measures_the_confirmed_input(
    heapwright: Heapwright, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The lines work in any directory, with set-up and clean-up, on the input that the study was confirmed on."""
    file = write_inputs(heapwright.folder)
    text = file.read_text().replace("$MALLOC_ARENA_MAX|", "$MALLOC_ARENA_MAX|$GLIBC_TUNABLES|")
    file.write_text(text.replace("[env]\n", '[output]\ncompare = "none"\n[env]\n'))
    lines = tuned(heapwright, "--workload", "w.toml")
    for line in lines:
        (heapwright.folder / "setups").unlink()
        assert f"--workload {file} --input 'the second' -n 10" in line
        done = given(heapwright, line, tmp_path_factory.mktemp("elsewhere"))
        assert (done.status, done.err) == (0, "")
        said, table = done.out.split("\n", 1)
        assert said == f"line of two|2 last|me|9|7|{tunables(line)}|data|made"
        assert "peak resident memory" in table
        assert (heapwright.folder / "setups").read_text() == "me\n" * 10
        assert not (heapwright.folder / "data/made").exists()


@pytest.mark.long
def test_the_line_of_a_report_loads_a_server(heapwright: Heapwright, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The lines start, load and stop the server; as in the study, only the server gets the setting."""
    write_server(heapwright.folder, free_port())
    lines = tuned(heapwright, "--workload", "server.toml")
    log_of(heapwright.folder)
    for line in lines:
        done = given(heapwright, line, tmp_path_factory.mktemp("elsewhere"))
        assert (done.status, done.err) == (0, "")
        assert "peak resident memory" in done.out
        expected = [["serve", tunables(line) or "-", "me"], ["load", "-", "me"]]
        assert log_of(heapwright.folder) == expected * 10


@needs.with_command("redis-server")
@pytest.mark.long
def test_the_line_of_a_report_loads_redis(heapwright: Heapwright) -> None:
    """Regression: the report's line was `measure -- redis-server` without its load, and it hung."""
    port = free_port()
    (heapwright.folder / "redis.toml").write_text(
        f'command = ["redis-server", "--port", "{port}", "--save", ""]\n[output]\ncompare = "none"\n[server]\n'
        f'ready = ["redis-cli", "-p", "{port}", "ping"]\n'
        f'load = ["redis-benchmark", "-p", "{port}", "-q", "-n", "2000", "-t", "set"]\n'
    )
    heapwright.report = True
    words = ["--allocators", "exgen", "--budget", "1"]
    words += ["--proxy", "none", "--pairs", "6:6", "--study", "s.study"]
    done = heapwright("tune", *words, "--workload", "redis.toml")
    assert done.status == 0, done.err
    page = (heapwright.folder / "s.html").read_text()
    found = re.findall(r"<(?:pre|code)[^>]*>([^<]*heapwright measure[^<]*)</(?:pre|code)>", page)
    for line in dict.fromkeys(map(html.unescape, found)):
        done = given(heapwright, line.replace("-n 10", "-n 2"), heapwright.folder)
        assert done.status == 0, done.err
        assert re.search(r"^peak resident memory +\d", done.out, re.M)
