"""Tests `run_metered` on small real commands: output, status, time limits, commands that cannot run."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heapwright.errors import HeapwrightError
from heapwright.measure import meter as module
from heapwright.measure.meter import (
    MeterOptions,
    Run,
    least_intrusive_backend,
    meter_command,
    meter_path,
    needs_pss,
    probe,
    run_metered,
)
from heapwright.metrics import NUMERIC

from ..processes import wait_for

PLAIN = MeterOptions(timeout=60)


@pytest.fixture(autouse=True)
def _use_the_built_meter(meter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEAPWRIGHT_METER", str(meter))


def sh(script: str, options: MeterOptions = PLAIN, **more: object) -> Run:
    return run_metered(["/bin/sh", "-c", script], options, **more)  # type: ignore[arg-type]


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# stdout, stderr, stdin


def test_stdout_is_hashed_forwarded_and_kept() -> None:
    forward, keep = io.BytesIO(), io.BytesIO()
    run = sh("printf 'a\\000b'; echo", forward=forward, keep=keep)
    assert forward.getvalue() == keep.getvalue() == b"a\0b\n"
    assert run.output_sha256 == sha(b"a\0b\n")


def test_much_output_is_whole() -> None:
    keep = io.BytesIO()
    run = run_metered([sys.executable, "-c", "import sys; sys.stdout.write('x' * (5 << 20))"], PLAIN, keep=keep)
    assert len(keep.getvalue()) == 5 << 20
    assert run.output_sha256 == sha(b"x" * (5 << 20))


def test_no_output_has_a_hash_too() -> None:
    assert sh("true").output_sha256 == sha(b"")
    assert sh("exec >&-; exit 0").output_sha256 == sha(b"")


def test_the_end_of_stderr_is_kept() -> None:
    run = sh("yes line | head -10000 >&2; echo the end >&2")
    assert run.stderr_tail.endswith("line\nthe end\n")
    assert len(run.stderr_tail) <= 4096
    assert run.output_sha256 == sha(b"")


def test_the_stdin_of_a_run_is_a_file_or_empty(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"words\n" * 1000)
    assert run_metered(["cat"], PLAIN, stdin=tmp_path / "in").output_sha256 == sha(b"words\n" * 1000)
    assert run_metered(["cat"], PLAIN).output_sha256 == sha(b"")


def test_a_run_has_its_environment_and_directory(tmp_path: Path) -> None:
    run = sh('echo "$A-$HEAPWRIGHT_UNSET"; pwd', env={"A": "b c", "PATH": os.environ["PATH"]}, cwd=tmp_path)
    assert run.output_sha256 == sha(f"b c-\n{tmp_path}\n".encode())


@pytest.mark.parametrize(
    ("code", "tail", "in_container", "message"),
    [
        (-9, "a line of the target\n", False, "the meter ended: killed by SIGKILL"),
        (-9, "heapwright-meter: the command has ended; waiting\n", False, "the meter ended: killed by SIGKILL"),
        (137, "Error: of the target\n", True, "the meter ended: killed by SIGKILL"),
        (1, "Error: of the target\n", False, "the meter ended: exit status 1"),
        (127, "noise\nheapwright-meter: command not found: x\n", False, "command not found: x"),
        (125, "Error: no such image\n", True, "no such image"),
        (125, "docker: no such image.\nSee 'docker run --help'.\n", True, "no such image."),
        (1, "", False, "the meter ended: exit status 1"),
    ],
)
def test_a_failure_of_the_meter_is_told_in_its_own_words(
    code: int, tail: str, in_container: bool, message: str
) -> None:
    assert module._meter_failure(code, tail.encode(), in_container).message == message


CLEANS_UP = """trap 'sleep 1; echo cleaned; exit 3' {0}; echo ready; while :; do sleep 0.05; done"""


def test_an_interrupted_measure_says_how_many_runs_its_figures_have(tmp_path: Path) -> None:
    count = "echo >> runs; [ $(wc -l < runs) -lt 3 ] || exec sleep 60"
    heapwright = "import sys; from heapwright.cli.main import main; sys.exit(main())"
    words = [sys.executable, "-c", heapwright, "measure", "-n", "5", "--", "/bin/sh", "-c", count]
    running = subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    runs = tmp_path / "runs"
    wait_for(lambda: runs.exists() and runs.read_text().count("\n") == 3, seconds=60)
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert err == "heapwright: warning: interrupted: the figures are those of 2 of 5 runs\n\n"
    assert "min … max" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_attended_target_may_handle_the_signal_that_ends_us(number: signal.Signals) -> None:
    """Ctrl-C reaches us, the meter and the target at once; other signals only us."""
    script = CLEANS_UP.format(number.name.removeprefix("SIG"))
    heapwright = "import sys; from heapwright.cli.main import main; sys.exit(main())"
    words = [sys.executable, "-c", heapwright, "measure", "--", "/bin/sh", "-c", script]
    with subprocess.Popen(words, stdout=-1, stderr=subprocess.DEVNULL, text=True, start_new_session=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        assert process.stdout.readline() == "cleaned\n"
    assert process.returncode == 128 + number


@pytest.mark.parametrize("error", [BrokenPipeError, KeyboardInterrupt])
def test_when_we_must_stop_nothing_is_left_running(error: type[BaseException], tmp_path: Path) -> None:
    """If the reader closes its end, or on Ctrl-C, the exception propagates and the process tree ends."""

    class Closed(io.BytesIO):
        def write(self, _data: object) -> int:
            raise error

    pid = tmp_path / "pid"
    with pytest.raises(error):
        sh(f"echo $$ > {pid}; echo hello; exec sleep 60", forward=Closed())
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


# statuses


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)])
def test_the_exit_status_is_that_of_the_command(script: str, status: int) -> None:
    run = sh(script)
    assert (run.exit_code, run.timed_out) == (status, False)


def test_a_run_that_takes_too_long_is_stopped_with_its_children() -> None:
    keep = io.BytesIO()
    run = sh("sleep 60 & echo $!; wait", MeterOptions(timeout=0.3), keep=keep)
    assert run.timed_out
    assert run.exit_code > 128
    assert not Path(f"/proc/{keep.getvalue().decode().strip()}").exists()


def test_a_daemon_belongs_to_the_run() -> None:
    run = sh("setsid sh -c 'sleep 0.2; echo late' & echo early; exit 5")
    assert run.output_sha256 == sha(b"early\nlate\n")
    assert run.exit_code == 5


@pytest.mark.parametrize("command", [["no-such-program"], ["/no/such/program"], ["/"], ["/etc/passwd"]])
def test_a_command_that_cannot_be_started_is_one_line(command: list[str]) -> None:
    with pytest.raises(HeapwrightError) as caught:
        run_metered(command, PLAIN)
    assert command[0] in caught.value.message
    assert "\n" not in caught.value.message
    assert not caught.value.message.startswith("heapwright-meter:")


# metrics


def test_metrics_are_there_and_consistent() -> None:
    code = "x = bytearray(48 << 20); [i * i for i in range(200_000)]"
    run = run_metered([sys.executable, "-c", code], MeterOptions(series=50))
    found = run.metrics
    assert set(found) == set(NUMERIC)
    assert (found["peak_rss_bytes"] or 0) > 48 << 20
    assert (found["peak_vm_bytes"] or 0) >= (found["peak_rss_bytes"] or 0)
    assert (found["mean_rss_bytes"] or 0) <= (found["peak_rss_bytes"] or 0)
    assert found["cpu_s"] == (found["user_s"] or 0) + (found["sys_s"] or 0)
    assert found["massif_peak_bytes"] is None
    assert run.max_threads == 1
    assert (run.max_maps or 0) > 10
    assert run.series is not None
    assert {len(v) for v in run.series.values()} == {len(run.series["t"])}
    assert 0 < len(run.series["t"]) <= 50
    assert run.series["t"] == sorted(run.series["t"])


def test_without_series_there_are_none() -> None:
    assert not sh("true").series


def test_proportional_memory_is_read_if_asked_for() -> None:
    words = [sys.executable, "-c", "import time; x = bytearray(48 << 20); time.sleep(0.2)"]
    found = run_metered(words, MeterOptions(pss=True)).metrics
    assert 48 << 20 < (found["peak_pss_bytes"] or 0) <= (found["peak_rss_bytes"] or 0)
    assert 0 < (found["mean_pss_bytes"] or 0) <= (found["peak_pss_bytes"] or 0)
    found = run_metered(words, PLAIN).metrics
    assert (found["peak_pss_bytes"], found["mean_pss_bytes"], found["cgroup_peak_bytes"]) == (None, None, None)


@pytest.mark.parametrize(("script", "processes"), [("exec sleep 0.1", 1), ("sleep 0.1; sleep 0.1; :", 2)])
def test_processes_alive_at_once_are_counted(script: str, processes: int) -> None:
    assert sh(script).max_processes == processes


def test_the_release_rate_is_what_was_given_back_over_time() -> None:
    run = run_metered([sys.executable, "-c", "x = bytearray(32 << 20); del x"], PLAIN)
    returned, wall = run.metrics["returned_bytes"], run.metrics["wall_s"]
    assert returned is not None
    assert wall is not None
    assert returned > 32 << 20
    assert run.metrics["release_rate"] == pytest.approx(returned / wall)


def test_threads_are_counted() -> None:
    code = "import threading, time; [threading.Thread(target=time.sleep, args=(1.5,)).start() for _ in range(3)]"
    assert run_metered([sys.executable, "-c", code], PLAIN).max_threads == 4


def test_the_json_of_a_run_has_every_metric() -> None:
    found = sh("exit 3").as_json()
    assert set(NUMERIC) | {"exit_code", "output_sha256", "timed_out"} == set(found)
    assert found["exit_code"] == 3


# the native program


def test_the_native_command_line(tmp_path: Path, meter: Path) -> None:
    options = MeterOptions("ptrace", massif=True, series=9, timeout=1.5, pss=True)
    words = meter_command(options, tmp_path / "r", ["--", "x"], own=True)
    assert words == [
        str(meter), "--output", str(tmp_path / "r"), "--backend", "ptrace", "--massif-compat", "--pss",
        "--series", "9", "--timeout", "1.5", f"--die-with-parent={os.getpid()}", "--", "--", "x",
    ]  # fmt: skip
    assert [*words[:-3], "--attended", *words[-3:]] == meter_command(options, tmp_path / "r", ["--", "x"], own=False)


def test_a_missing_meter_is_an_error_with_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEAPWRIGHT_METER", str(tmp_path / "none"))
    with pytest.raises(HeapwrightError, match=r"the meter is not at .*/none") as caught:
        meter_path()
    assert "make build" in caught.value.hint


def test_a_meter_that_fails_without_a_message_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meter").write_text("#!/bin/sh\nexit 9\n")
    (tmp_path / "meter").chmod(0o755)
    monkeypatch.setenv("HEAPWRIGHT_METER", str(tmp_path / "meter"))
    with pytest.raises(HeapwrightError, match="the meter ended: exit status 9"):
        sh("true")
    with pytest.raises(HeapwrightError, match="the meter cannot probe this machine"):
        probe()


def test_the_probe_names_back_ends() -> None:
    found = probe()
    assert found
    assert any("poll" in str(item) for item in found.items())


def test_temporary_files_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sh("true")
    with pytest.raises(HeapwrightError):
        run_metered(["no-such-program"], PLAIN)
    assert list(tmp_path.iterdir()) == []


def test_no_file_descriptor_is_left_open() -> None:
    sh("true")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        sh("echo out; echo err >&2")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert subprocess._active == []  # type: ignore[attr-defined]


def test_metrics_of_the_kernel_need_only_polling() -> None:
    assert least_intrusive_backend("auto", ["peak_rss_bytes", "cpu_s"], massif=False) == "poll"
    assert least_intrusive_backend("notify", ["peak_rss_bytes", "cpu_s"], massif=False) == "notify"
    proportional = ["peak_pss_bytes", "mean_pss_bytes", "cgroup_peak_bytes", "cpu_s"]
    assert least_intrusive_backend("auto", proportional, massif=False) == "poll"
    assert least_intrusive_backend("auto", ["peak_heap_bytes", "cpu_s"], massif=False) == "auto"
    assert least_intrusive_backend("auto", ["cpu_s"], massif=True) == "auto"


def test_which_metrics_need_proportional_memory() -> None:
    assert needs_pss(["cpu_s", "mean_pss_bytes"])
    assert needs_pss(["peak_pss_bytes"])
    assert not needs_pss(["peak_rss_bytes", "cgroup_peak_bytes"])


# runs that end after a time

GROWS = "import time; kept = [b'x' * (30 << 20)]; time.sleep(0.3); del kept; time.sleep(60)"


def test_a_bounded_run_is_whole_and_its_metrics_are_those_of_its_time() -> None:
    run = run_metered([sys.executable, "-c", GROWS], MeterOptions(end_after=1.5, series=20))
    found = run.metrics
    assert run.cut
    assert not run.timed_out
    assert run.exit_code == 128 + 15
    assert 1.5 <= (found["wall_s"] or 0) < 20
    peak, p95, final = (found[key] or 0 for key in ("peak_rss_bytes", "p95_rss_bytes", "final_rss_bytes"))
    assert final < peak - (20 << 20) < p95 <= peak, "big for a fifth of the time, small at its end"
    assert run.series is not None
    assert 10 <= len(run.series["t"]) <= 20


def test_a_run_that_ends_by_itself_before_its_time_is_not_cut() -> None:
    run = sh("echo done", MeterOptions(end_after=60))
    assert (run.cut, run.exit_code, run.output_sha256) == (False, 0, sha(b"done\n"))


def test_the_report_so_far_stays_when_the_meter_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_S", 0.1)
    report = tmp_path / "run.json"
    words = meter_command(MeterOptions(end_after=60, report=report, series=20), report, ["sleep", "50"], own=False)
    with subprocess.Popen(words, start_new_session=True) as process:
        for _ in range(200):
            if report.exists():
                break
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    found = json.loads(report.read_text())
    assert found["unfinished"] is True
    assert (found["exit_code"], found["signal"]) == (None, None)
    assert found["peak_rss_bytes"] > 0
    assert found["user_s"] is None, "known at the end only"
    assert found["series"]["rss"]
