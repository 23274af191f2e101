"""Tests measure, record and run with a workload file: its inputs, its server, its conditions of success."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs

from .conftest import Heapwright
from .workloads import free_port, log_of, write_inputs, write_server

ONE = "line of one|a b last|me||7|data|made\n"
TWO = "line of two|2 last|me|9|7|data|made\n"


@pytest.fixture
def inputs(heapwright: Heapwright) -> str:
    return str(write_inputs(heapwright.folder))


@pytest.fixture
def server(heapwright: Heapwright) -> str:
    return str(write_server(heapwright.folder, free_port()))


def setups(heapwright: Heapwright) -> int:
    """Returns how many set-ups were made, and checks that each was cleaned up."""
    assert not (heapwright.folder / "data/made").exists()
    return len((heapwright.folder / "setups").read_text().splitlines())


# measure


def test_measure_runs_every_input(inputs: str, heapwright: Heapwright) -> None:
    done = heapwright("measure", "--workload", inputs, "-n", "3", "--json", "m.json")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(ONE + TWO), "the first run's output of each"
    assert [line for line in done.out.splitlines() if line.startswith("input ")] == ["input one", "input the second"]
    assert done.out.count("peak resident memory ") == 2
    assert setups(heapwright) == 6
    found = json.loads((heapwright.folder / "m.json").read_text())
    assert [r["input"] for r in found["runs"]] == ["one"] * 3 + ["the second"] * 3
    assert found["summary"]["peak_rss_bytes"]["median"] > 0
    assert found["workload"] == inputs
    assert list(found["inputs"]) == ["one", "the second"]
    assert found["inputs"]["the second"]["command"][-2:] == ["2", "last"]
    for name, one in found["inputs"].items():
        rss = [r["peak_rss_bytes"] for r in found["runs"] if r["input"] == name]
        assert (one["summary"]["peak_rss_bytes"]["min"], one["summary"]["peak_rss_bytes"]["max"]) == (
            min(rss),
            max(rss),
        )


def test_measure_of_one_input(inputs: str, heapwright: Heapwright) -> None:
    done = heapwright("measure", "--workload", inputs, "--input", "the second")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(TWO + "metric ")
    assert setups(heapwright) == 1


def test_env_sets_a_variable_for_the_command_alone(inputs: str, server: str, heapwright: Heapwright) -> None:
    """The variable overrides the workload file, as a study's setting does; neither set-up nor load sees it."""
    words = ["--env", "MALLOC_ARENA_MAX=3", "--env", "WHO=you=me"]
    done = heapwright("measure", "-q", "--workload", inputs, "--input", "one", *words)
    assert done.out == ONE.replace("|me|", "|you=me|").replace("|7|", "|3|")
    assert (heapwright.folder / "setups").read_text() == "me\n"
    done = heapwright("measure", "-q", "--workload", server, "--env", "GLIBC_TUNABLES=glibc.malloc.arena_max=1")
    assert (done.status, done.err) == (0, "")
    assert log_of(heapwright.folder) == [["serve", "glibc.malloc.arena_max=1", "me"], ["load", "-", "me"]]


def test_a_static_program_follows_glibcs_tunables(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    """A static glibc program reads the tunables, so they reach it."""
    words = ["measure", "--json", "-", "--env", "GLIBC_TUNABLES=glibc.malloc.top_pad=67108864"]
    heaps = [
        json.loads(heapwright(*some, "--", str(program("mapping_calls", "-static"))).out)["runs"][0]["peak_heap_bytes"]
        for some in (words, words[:3])
    ]
    assert heaps[0] > heaps[1] + (48 << 20)


def test_measure_loads_a_server_and_stops_it(server: str, heapwright: Heapwright) -> None:
    done = heapwright("measure", "--workload", server, "-n", "2", "--json", "m.json")
    assert (done.status, done.err) == (0, ""), "ended by its stop signal, it has not failed"
    assert [who for who, *_ in log_of(heapwright.folder)] == ["serve", "load", "serve", "load"]
    found = json.loads((heapwright.folder / "m.json").read_text())
    assert [r["exit_code"] for r in found["runs"]] == [128 + 15] * 2
    assert "input default" not in done.out


@pytest.mark.parametrize(
    ("change", "status", "failure"),
    [
        (('"5"]', '"5"]\nstop = "SIGKILL"'), 0, ""),
        (('"load"', '"laod"'), 1, "the load command failed with status 1"),
        (("tiny_server.py", "no_server.py"), 2, "ended before it was ready"),
    ],
)
def test_a_server_or_load_that_fails_is_one_line(
    change: tuple[str, str], status: int, failure: str, server: str, heapwright: Heapwright
) -> None:
    text = Path(server).read_text()
    if change[0] == '"load"':  # change only the load
        head, tail = text.split("load = ")
        text = head + "load = " + tail.replace(*change).replace('"5"', '"x"')
    else:
        text = text.replace(*change)
    Path(server).write_text(text)
    done = heapwright("measure", "-q", "--workload", server)
    assert done.status == status, done.err
    assert (f"heapwright: warning: a run failed: {failure}" in done.err) == bool(failure)


def test_a_load_whose_output_cannot_be_read_is_the_reason(server: str, heapwright: Heapwright) -> None:
    with Path(server).open("a") as file:
        file.write('[server.load_metrics]\nformat = "json"\n')
    done = heapwright("tune", "--minimize", "cpu_per_op", "--workload", server)
    assert done.status == 1
    why = "[server.load_metrics] found no figure in the load's output (format = 'json')"
    assert f"(cpu_per_op_s) cannot be measured here ({why})" in done.err


def test_cpu_time_that_nobody_knows_is_no_objective(heapwright: Heapwright) -> None:
    code = "import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    ends_before_its_child = "if os.fork() == 0:\n    time.sleep(0.2 if os.fork() else 0.5)\n    os._exit(0)\n"
    done = heapwright("tune", "--", sys.executable, "-c", f"{code}{ends_before_its_child}time.sleep(0.6)")
    assert done.status == 1
    assert "CPU time (cpu_s) cannot be measured here (CPU time and page faults are not known: 'python" in done.err
    assert "'--meter ptrace' counts them, or choose other metrics)" in done.err


def test_figures_leave_out_failed_runs(heapwright: Heapwright) -> None:
    once = "if test -e seen; then exit 1; fi; touch seen"
    (heapwright.folder / "w.toml").write_text(f"command = {json.dumps(['sh', '-c', once])}\n")
    done = heapwright("measure", "--workload", "w.toml", "-n", "2", "--json", "m.json")
    assert done.status == 1
    assert done.out.splitlines()[-1] == "the figures leave out failed runs: 1 of 2 runs failed"
    found = json.loads((heapwright.folder / "m.json").read_text())
    first, second = found["runs"]
    assert (first["failure"], second["failure"]) == (None, "exit status 1")
    assert found["summary"]["wall_s"]["median"] == found["summary"]["wall_s"]["max"] == first["wall_s"]
    assert found["inputs"]["default"]["summary"] == found["summary"]
    done = heapwright("measure", "--workload", "w.toml", "--json", "m.json", "--html", "m.html")
    assert "the run failed: exit status 1" in (heapwright.folder / "m.html").read_text()
    assert done.out.startswith("no figures (n/a): the run failed; if status 1 is not a failure: success = [0, 1]")
    found = json.loads((heapwright.folder / "m.json").read_text())
    assert set(found["summary"].values()) == {None}
    assert found["runs"][0]["wall_s"] > 0


def test_success_is_as_the_workload_file_defines_it(heapwright: Heapwright) -> None:
    (heapwright.folder / "w.toml").write_text(
        'command = ["sh", "-c", "echo why >&2; exit $WITH"]\nsuccess = [3]\n'
        '[[input]]\nname = "good"\nenv = { WITH = "3" }\n[[input]]\nname = "bad"\nenv = { WITH = "4" }\n'
    )
    done = heapwright("measure", "-q", "--workload", "w.toml", "--input", "good")
    assert (done.status, done.err) == (0, "why\n")
    done = heapwright("measure", "-q", "--workload", "w.toml", "-n", "2")
    assert done.status == 4
    assert done.err.splitlines()[-1] == "heapwright: warning: a run on input 'bad' failed: exit status 4"


@pytest.mark.parametrize("verb", ["measure", "record", "run"])
def test_options_that_contradict_the_workload_file_are_refused(
    verb: str, inputs: str, server: str, heapwright: Heapwright
) -> None:
    start = [verb, "s.study"] if verb == "run" else [verb]
    cases = [
        (["--workload", inputs, "--", "true"], "a command and --workload cannot both be given (leave out one of them)"),
        (["--workload", inputs, "--input", "thr"], "unknown input 'thr' (known: one, the second)"),
        (
            ["--input", "one", "--", "true"],
            "--input needs a workload file (add --workload FILE)",
        ),
        (["--workload", "none.toml"], "cannot read none.toml: No such file or directory"),
        ([], "there is no command to run (put it after --, for example: -- ./prog args)"),
    ]
    if verb == "measure":
        cases += [
            (
                ["--env", "NAME", "--", "true"],
                "argument --env: 'NAME' is not NAME=VALUE (see 'heapwright measure --help')",
            ),
            (
                ["--workload", server, "--instructions", "callgrind"],
                "a server cannot run under callgrind, because no load runs there (leave out --instructions)",
            ),
        ]
    for words, message in cases:
        done = heapwright(*start, *words)
        assert (done.status, done.out, done.err) == (2, "", f"heapwright: {message}\n")


# record


def test_record_of_the_first_input(inputs: str, heapwright: Heapwright) -> None:
    done = heapwright("record", "-o", "t.hwt", "--workload", inputs, "--json", "t.json", "-q")
    assert (done.status, done.out, done.err) == (0, ONE, "")
    assert setups(heapwright) == 1
    found = json.loads((heapwright.folder / "t.json").read_text())
    assert found["exit_code"] == 0
    assert found["processes"][0]["allocations"] > 0
    assert not list(heapwright.folder.glob(".*"))


def test_record_of_another_input_without_children(inputs: str, heapwright: Heapwright) -> None:
    words = ["--workload", inputs, "--input", "the second", "-q"]
    counts = []
    for number, more in enumerate(([], ["--no-children"])):
        done = heapwright("record", "-o", f"t{number}.hwt", *words, *more, "--json", "t.json")
        assert (done.status, done.out, done.err) == (0, TWO, "")
        counts.append(len({p["pid"] for p in json.loads((heapwright.folder / "t.json").read_text())["processes"]}))
    assert counts == [3, 1], "the shell, basename and cat; the shell alone"


def test_record_of_a_server(server: str, heapwright: Heapwright) -> None:
    """The recording contains neither the shell that starts the server nor its load."""
    done = heapwright("record", "-o", "t.hwt", "--workload", server, "--json", "t.json")
    assert done.status == 0, done.err
    found = json.loads((heapwright.folder / "t.json").read_text())
    assert [Path(p["executable"]).name.startswith("python") for p in found["processes"]] == [True]
    assert found["processes"][0]["allocations"] > 100
    assert [who for who, *_ in log_of(heapwright.folder)] == ["serve", "load"]


def test_record_of_a_run_that_fails(server: str, heapwright: Heapwright) -> None:
    Path(server).write_text(Path(server).read_text().replace('"load", "5"', '"load", "x"'))
    done = heapwright("record", "-o", "t.hwt", "--workload", server)
    assert done.status == 1
    assert "heapwright: warning: the run failed: the load command failed with status 1: ValueError: " in done.err
    assert (heapwright.folder / "t.hwt").exists(), "the recording should be kept, as that of a failing command is"


# run


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, program: Callable[..., Path]) -> str:
    """A finished study with one setting that is certain to help."""
    heapwright = Heapwright(tmp_path_factory.mktemp("study"), report=False, forked=True)
    words = ["--params", "top_pad", "--method", "grid", "--pairs", "6:6", "--minimize", "mapping_calls"]
    words += ["--proxy", "none", "--no-runtime", "--no-minify"]
    done = heapwright("tune", "--study", "s.study", *words, "--", str(program("mapping_calls")))
    assert done.status == 0, done.err
    return str(heapwright.folder / "s.study")


def test_run_uses_command_directory_and_input_of_the_file(inputs: str, study: str, heapwright: Heapwright) -> None:
    """`run` uses the file's command, directory, variables and stdin, but makes no set-up."""
    (heapwright.folder / "data/made").write_text("made\n")
    for name, said in ((None, ONE), ("the second", TWO)):
        done = heapwright("run", study, "--workload", inputs, *(["--input", name] if name else []))
        assert (done.status, done.out) == (0, said)
        assert done.err.startswith("heapwright: the study measured another program")
    assert not (heapwright.folder / "setups").exists()


def test_run_keeps_what_the_file_sets_beside_the_setting(study: str, heapwright: Heapwright) -> None:
    (heapwright.folder / "w.toml").write_text(
        'command = ["sh", "-c", "echo $GLIBC_TUNABLES"]\n[env]\nGLIBC_TUNABLES = "glibc.malloc.arena_max=1"\n'
    )
    out = heapwright("run", study, "--workload", "w.toml").out
    assert out.startswith("glibc.malloc.arena_max=1:glibc.malloc.top_pad=")


@needs.with_command("redis-server")
def test_another_server_on_the_same_port_is_refused(heapwright: Heapwright) -> None:
    """Regression: a redis that already listened answered the ready command and took the load of the one started."""
    port = free_port()
    client = ["redis-cli", "-p", str(port)]
    other = subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""], stdout=subprocess.DEVNULL
    )
    (heapwright.folder / "redis.toml").write_text(
        f'command = ["redis-server", "--port", "{port}", "--bind", "127.0.0.1", "--save", ""]\n'
        f'[output]\ncompare = "none"\n[server]\nready = {json.dumps([*client, "ping"])}\n'
        f'load = ["redis-benchmark", "-p", "{port}", "-q", "-n", "2000", "-t", "set"]\n'
    )
    try:
        while subprocess.run([*client, "ping"], capture_output=True).returncode:
            assert other.poll() is None
            time.sleep(0.02)
        for words in (["record", "-o", "r.hwt"], ["measure"], ["tune", "--study", "s.study", "--budget", "1"]):
            done = heapwright(*words, "--workload", "redis.toml")
            assert done.status == 1
            assert (
                f"heapwright: port {port} already answers before the server is started (stop the other server"
                in done.err
            )
            assert done.err.count("already answers") == 1
            assert not (heapwright.folder / "r.hwt").exists()
        count = subprocess.run([*client, "dbsize"], capture_output=True, text=True, check=True).stdout
        assert count == "0\n", "the other server got no load"
    finally:
        other.terminate()
        other.wait()
    done = heapwright("measure", "--workload", "redis.toml")
    assert done.status == 0, done.err
