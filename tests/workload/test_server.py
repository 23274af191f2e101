"""Tests the metrics of a server's load: phases, figures, CPU time and idle memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heapwright.measure.meter import MeterOptions
from heapwright.measure.meter import Run as MeteredRun
from heapwright.metrics import NUMERIC
from heapwright.workload import server as server_module
from heapwright.workload.execute import Executor, Outcome, advice
from heapwright.workload.load_metrics import LoadMetrics
from heapwright.workload.model import Input, LoadPhase, Output, Server, Workload, WorkloadFile
from tests.processes import alive, wait_for

# Burns 0.3 s of CPU time to start. A child process answers the load's SIGUSR1 with 0.2 s of CPU
# time and 64 MiB of memory, and frees the memory at SIGUSR2.
SERVE = """
import os, signal, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
def work(*_):
    global held
    held = bytearray(64 << 20)
    burn(0.2)
    open("done", "a").write("x")
def rest(*_):
    global held
    held = None
    open("rested", "a").write("x")
burn(0.3)
parent = os.getpid()
if os.fork() == 0:
    signal.signal(signal.SIGUSR1, work)
    signal.signal(signal.SIGUSR2, rest)
    open("pid", "w").write(str(os.getpid()))
    open("up", "w").close()
    while os.getppid() == parent:
        time.sleep(0.01)
else:
    os.wait()
"""
SAY = """echo '{"operations": 10, "p99_ms": 3}'"""
ASK = f'kill -USR1 $(cat pid); while [ "$(cat done)" != "$0" ]; do sleep 0.02; done; {SAY}'
FREE = "kill -USR2 $(cat pid); while [ ! -e rested ]; do sleep 0.02; done"
Run = Callable[..., Outcome]


@pytest.fixture
def run(tmp_path: Path, meter: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the server above once, in a fresh directory."""
    monkeypatch.setenv("HEAPWRIGHT_METER", str(meter))

    def once(server: Server, end_after: float = 0.0, timeout: float = 20.0, code: str = SERVE, **file: Any) -> Outcome:
        setup = ["sh", "-c", "rm -f up done rested pid; : > done"]
        definition = WorkloadFile(
            [sys.executable, "-c", code], setup=setup, output=Output("none"), server=server, **file
        )
        workload = Workload(definition, tmp_path, (Input("default"),))
        return Executor(workload, MeterOptions(timeout=timeout, end_after=end_after), tmp_path / "references").run(
            Input("default"), {}
        )

    return once


def ready(**more: Any) -> Server:
    return Server(ready=["test", "-e", "up"], stop="SIGKILL", **more)


def test_a_fixed_number_of_operations_counts_for_each_load(run: Run) -> None:
    for seconds, counts in ((0.0, (100,)), (1.1, (200, 300, 400, 500))):
        metrics = run(
            ready(load=["sleep", "0.2"], load_metrics=LoadMetrics(operations=100)), end_after=seconds
        ).run.metrics
        count, wall_s = metrics["load_operations"], metrics["wall_s"]
        assert count in counts
        assert count is not None
        assert wall_s is not None
        assert metrics["throughput_per_s"] == pytest.approx(count / wall_s)


def test_a_load_that_takes_too_long_ends_with_its_children(run: Run, tmp_path: Path) -> None:
    outcome = run(ready(load=["sh", "-c", "sleep 600 & echo $! >child; wait"]), timeout=4)
    assert "timed out" in outcome.failure
    child = int((tmp_path / "child").read_text())
    wait_for(lambda: not alive(child))


def test_phases_figures_cpu_and_idle_memory(run: Run) -> None:
    phases = [
        LoadPhase(["sh", "-c", ASK, "x"]),
        LoadPhase(pause=0.3),
        LoadPhase(["sh", "-c", ASK, "xx"]),
        LoadPhase(["sh", "-c", FREE]),
    ]
    outcome = run(ready(phase=phases, idle=0.1, load_metrics=LoadMetrics(format="json")))
    assert (outcome.failure, outcome.run.warnings) == ("", [])
    found = {name: value for name, value in outcome.run.metrics.items() if value is not None}
    assert (found["load_operations"], found["p99_ms"]) == (20, 3)
    assert found["throughput_per_s"] == pytest.approx(20 / found["wall_s"])
    assert "p50_ms" not in found
    of_load = found["cpu_per_op_s"] * 20
    assert 0.4 <= of_load <= found["cpu_s"] - 0.3, "the child's CPU time counts, that of the start does not"
    assert found["idle_rss_bytes"] < found["peak_rss_bytes"] - (48 << 20)


def test_cpu_time_of_children_that_nobody_waits_for_is_not_known(run: Run) -> None:
    ignores = "import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    ends = "if os.fork() == 0:\n    time.sleep(0.2 if os.fork() else 0.5)\n    os._exit(0)\ntime.sleep(0.4)\n"
    outcome = run(ready(load=["sh", "-c", SAY], load_metrics=LoadMetrics(format="json")), code=ignores + ends + SERVE)
    assert outcome.failure == ""
    assert outcome.run.metrics["load_operations"] == 10
    assert {outcome.run.metrics[key] for key in ("cpu_s", "minor_faults", "cpu_per_op_s")} == {None}
    assert "ignores SIGCHLD" in outcome.run.warnings[0]


def test_pauses_are_not_in_the_wall_time(run: Run) -> None:
    outcome = run(ready(phase=[LoadPhase(pause=0.5), LoadPhase(["true"]), LoadPhase(pause=0.5)], idle=0.5))
    assert (outcome.run.metrics["wall_s"] or 0.0) < 1.0
    assert outcome.run.metrics["idle_rss_bytes"]
    assert outcome.run.metrics["load_operations"] is None


def test_figures_are_read_from_a_file_that_the_load_writes(run: Run, tmp_path: Path) -> None:
    how = LoadMetrics(format="json", file="load.json")
    wrote = run(ready(load=["sh", "-c", "echo '{\"operations\": 7}' > load.json"], load_metrics=how))
    assert wrote.run.metrics["load_operations"] == 7
    stale = run(ready(load=["true"], load_metrics=how))
    assert stale.run.metrics["load_operations"] is None, "the file is from the run before"
    assert stale.run.warnings == ["[server.load_metrics] found no figure in the file load.json (format = 'json')"]
    assert json.loads((tmp_path / "load.json").read_text()) == {"operations": 7}


def test_figures_are_read_from_stderr(run: Run) -> None:
    how = LoadMetrics(operations="did ([0-9]+)", p99_ms="p99 (.*)")
    found = run(ready(load=["sh", "-c", "echo starting; echo 'did 8 requests' >&2"], load_metrics=how)).run
    assert found.metrics["load_operations"] == 8
    assert found.warnings == ["[server.load_metrics] found no number for p99_ms in the load's output"]


def test_a_count_that_the_workload_file_gives(run: Run) -> None:
    found = run(ready(load=["true"], load_metrics=LoadMetrics(operations=500))).run
    assert found.metrics["load_operations"] == 500
    assert found.metrics["throughput_per_s"] == pytest.approx(500 / (found.metrics["wall_s"] or 1))
    assert found.warnings == []


def test_a_server_that_ends_during_the_load_fails(run: Run) -> None:
    crash = ["sh", "-c", "kill -SEGV $(cat pid)"]
    assert (
        run(ready(phase=[LoadPhase(crash), LoadPhase(pause=5.0), LoadPhase(["true"])])).failure
        == "ended during the load"
    )
    assert run(ready(load=["sh", "-c", "echo 'no route' >&2; exit 7"])).failure == (
        "the load command failed with status 7: no route"
    )
    assert run(ready(load=crash)).failure == "", "a load may end the server at last"


def test_the_peak_is_at_least_the_idle_memory_and_rates_are_over_the_loads_time() -> None:
    """The kernel's peak lags behind the sum over mappings, because it counts pages in batches."""
    measured = {"wall_s": 9.0, "peak_rss_bytes": 100.0, "returned_bytes": 50.0, "release_rate": 50 / 9}
    run = MeteredRun(dict.fromkeys(NUMERIC) | measured, 0, False, "", "fake")
    for idle, peak in ((120.0, 120.0), (80.0, 100.0), (None, 100.0)):
        found = server_module._with_load(run, server_module._Load(wall_s=2.0, idle_bytes=idle), ready()).metrics
        assert (found["peak_rss_bytes"], found["release_rate"]) == (peak, 25.0)


def test_a_server_that_ends_before_its_last_load_fails(run: Run) -> None:
    """The load may not notice: its tool only counts errors, or it asks rarely."""
    code = "import time\nopen('up', 'w').close()\ntime.sleep(0.3)\n"
    for how in (Server(load=["sleep", "2"]), Server(phase=[LoadPhase(["true"]), LoadPhase(pause=2.0)])):
        how.ready = ["test", "-e", "up"]
        assert run(how, code=code).failure == "ended during the load"


def test_a_server_that_ignores_its_stop_signal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure says that heapwright has killed the server."""
    monkeypatch.setattr(server_module, "STOP_S", 0.5)
    deaf = Server(ready=["test", "-e", "up"], load=["true"], stop="SIGWINCH")
    outcome = run(deaf)
    assert outcome.failure == (
        "the server did not end within 0.5 s of SIGWINCH, so heapwright killed it (set `stop` in the workload file to a"
        " signal that ends it; if the command is a wrapper that does not pass the signal on, such as runuser, use one"
        " that becomes the server, such as setpriv)"
    )
    assert advice(outcome) == "", "the failure itself has the advice"
    failed = run(Server(ready=["test", "-e", "up"], load=["sh", "-c", "exit 7"], stop="SIGWINCH"))
    assert failed.failure == "the load command failed with status 7"


def test_ctrl_c_at_the_start_of_a_server_stops_it(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ctrl-C may come before the processes of the server are known."""
    find_tree, calls = server_module._tree_of, []

    def interrupted_at_first(*words: Any) -> Any:
        calls.append(words)
        if len(calls) > 1:
            return find_tree(*words)
        wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "up").exists())
        raise KeyboardInterrupt

    monkeypatch.setattr(server_module, "_tree_of", interrupted_at_first)
    with pytest.raises(KeyboardInterrupt):
        run(Server(ready=["test", "-e", "up"], load=["true"]), timeout=600)  # the meter ends nothing
    wait_for(lambda: not alive(int((tmp_path / "pid").read_text())))


def test_a_server_in_the_background_is_to_be_started_in_the_foreground(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "STOP_S", 2)
    code = "import os, time\nif os.fork() == 0:\n    time.sleep(0.3)\n    open('up', 'w')\n    time.sleep(600)\n"
    outcome = run(Server(ready=["test", "-e", "up"], load=["true"]), code=code)
    assert outcome.failure == (
        "the server's first process ended before SIGTERM and left others, so heapwright killed it (start it in the"
        " foreground, as `nginx -g 'daemon off;'`)"
    )


@pytest.mark.parametrize("stop", ["SIGTERM", "SIGKILL"])
def test_workers_that_outlive_their_server_are_killed(run: Run, monkeypatch: pytest.MonkeyPatch, stop: str) -> None:
    monkeypatch.setattr(server_module, "STOP_S", 0.5)
    code = "import os, time\nif os.fork() == 0:\n    open('up', 'w').close()\n    time.sleep(600)\nos.wait()\n"
    outcome = run(Server(ready=["test", "-e", "up"], load=["true"], stop=stop), code=code)
    killed = "" if stop == "SIGKILL" else "the server did not end within 0.5 s of SIGTERM, so heapwright killed it"
    assert outcome.failure.partition(" (")[0] == killed
