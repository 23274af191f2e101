"""Tests that a trace reaches the end of its process, whatever ends it, and says so if it does not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from heapwright.trace.info import ResidentCurve, read_info
from heapwright.trace.pack import pack
from heapwright.trace.process_ends import has_exited
from heapwright.trace.program_memory import program_memory
from heapwright.trace.record import recording_environment
from tests import needs
from tests.trace.recording import dump, heapwright_record
from tests.trace.test_pack import parse

PAUSE_S = 0.5
PAUSE = f"select(undef,undef,undef,{PAUSE_S});"


def processes_of(folder: Path, *command: str | Path, options: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Records a command of any exit status; returns the JSON of its processes, the busiest first."""
    told = folder / "told.json"
    done = heapwright_record("-o", "t.hwt", "--json", told, *options, "--", *command, folder=folder)
    assert told.exists(), done.stderr.decode()
    processes: list[dict[str, Any]] = json.loads(told.read_text())["processes"]
    return processes


def end_s(trace: Path) -> float:
    """The time of the event that says when the process ended, in seconds."""
    last = dump(trace)[-1]
    assert (last.kind, last.thread) == ("end", 0)
    return last.time / 1e9


@pytest.mark.parametrize("options", [(), ("--sample", "2", "--max-cost", "0"), ("--for", "60s")])
def test_the_time_up_to_a_signal_counts(options: tuple[str, ...], tmp_path: Path) -> None:
    script = f"@x = map {{'x' x 2000}} 1..3000; undef @x; {PAUSE} kill TERM => $$; sleep 60"
    (process,) = processes_of(tmp_path, "perl", "-e", script, options=options)
    assert process["cut_short"]
    assert end_s(tmp_path / "t.hwt") >= PAUSE_S
    info, raw = read_info(tmp_path / "t.hwt")
    assert info.end_known
    assert (info.duration_s or 0) >= PAUSE_S
    assert info.mean_live_bytes < info.peak_live_bytes / 2, "the memory of the pause counts for its time"
    if "--for" in options:
        assert any("window" in phase for phase in raw["phases"])


def test_the_time_up_to_exec_counts(tmp_path: Path) -> None:
    traces = processes_of(tmp_path, "perl", "-e", f"{PAUSE} exec 'sleep', '0'")
    first = next(p for p in traces if p["name"] == "perl")
    assert not first["cut_short"]
    assert end_s(tmp_path / first["trace"]) >= PAUSE_S


def test_the_time_up_to_a_signal_counts_in_workloads(tmp_path: Path) -> None:
    command = json.dumps(["perl", "-e", f"{PAUSE} kill TERM => $$; sleep 60"])
    (tmp_path / "w.toml").write_text(f"command = {command}\n")
    done = heapwright_record("-o", "t.hwt", "--workload", "w.toml", folder=tmp_path)
    assert "the run failed" in done.stderr.decode()
    assert end_s(tmp_path / "t.hwt") >= PAUSE_S


def test_another_process_with_the_same_id_has_not_replaced_a_killed_one(tmp_path: Path) -> None:
    """Ids are used again, and each container has its own. Only exec keeps the time at which the process started."""
    env = recording_environment(tmp_path, None, True, os.environ)
    folder, preload = env.pop("HEAPWRIGHT_RECORD"), env.pop("LD_PRELOAD")
    killed = ["perl", "-e", "kill KILL => $$"]
    subprocess.run(killed, env={**env, "HEAPWRIGHT_RECORD": folder, "LD_PRELOAD": preload}, check=False)
    (raw,) = tmp_path.glob("*.raw")
    assert not has_exited(raw)
    before = raw.read_bytes()
    time.sleep(0.02)  # the kernel counts the times at which processes start in hundredths of a second
    script = 'cp "$1" "$2/$$-0.raw"; export HEAPWRIGHT_RECORD="$2" LD_PRELOAD="$3"; exec perl -e 1'
    subprocess.run(["sh", "-c", script, "sh", raw, folder, preload], env=env, check=True)
    (second,) = tmp_path.glob("*-1.raw")
    assert has_exited(second)
    assert second.with_name(second.name.replace("-1.", "-0.")).read_bytes() == before


def test_without_record_the_end_is_unknown(tmp_path: Path) -> None:
    env = recording_environment(tmp_path, None, True, os.environ)
    done = subprocess.run(["perl", "-e", "kill KILL => $$; sleep 60"], env=env, check=False)
    assert done.returncode == -signal.SIGKILL
    (raw,) = tmp_path.glob("*.raw")
    pack(raw, tmp_path / "t.hwt")
    info = read_info(tmp_path / "t.hwt")[0]
    assert not info.end_known
    assert info.loss.why == "the process was killed or still ran; when it ended is unknown"


def test_the_trace_of_a_running_process_reaches_the_packing(tmp_path: Path) -> None:
    """Both times that it is packed: the first time is not the end of the process."""
    folder = tmp_path / "raw"
    folder.mkdir()
    env = recording_environment(folder, None, True, os.environ)
    script = f"$| = 1; print qq(ready\\n); {PAUSE} print qq(idle\\n); sleep 600"
    with subprocess.Popen(["perl", "-e", script], env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "idle\n"]
            ends = []
            for _ in range(2):
                done = heapwright_record("--recover", folder, "-o", "t.hwt", "--force", folder=tmp_path)
                assert done.returncode == 0, done.stderr
                ends.append(end_s(tmp_path / "t.hwt"))
        finally:
            process.kill()
    assert PAUSE_S <= ends[0] < ends[1]


CHILD = """
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
  void* volatile block = malloc(40001);
  if (fork() == 0) {
    char path[64], target[512];
    for (int file = 3; file < 65536; file++) {
      int used = snprintf(path, sizeof path, "/proc/self/fd/%d", file);
      ssize_t size = readlink(path, target, sizeof target - 1);
      if (used > 0 && size > 4 && memcmp(target + size - 4, ".raw", 4) == 0) { _exit(1); }
    }
    _exit(0);
  }
  int status;
  wait(&status);
  return block == 0 || WEXITSTATUS(status);
}
"""


def test_a_forked_child_does_not_keep_the_file_of_its_parent(tmp_path: Path) -> None:
    """It could make no call of malloc and live longer; the file's last close is the end of the parent."""
    (tmp_path / "c.c").write_text(CHILD)
    subprocess.run([needs.command("gcc"), "-o", tmp_path / "c", tmp_path / "c.c"], check=True)
    assert heapwright_record("-o", "t.hwt", "--", "./c", folder=tmp_path).returncode == 0


def test_a_reading_before_the_last_frees_is_not_the_end(tmp_path: Path) -> None:
    """The program frees nearly all memory after its last reading, and is killed while it is idle."""
    lines = ["0 0 thread_start", *(f"{100 + i} 0 malloc {i} 1000" for i in range(100))]
    lines += ["1000000 0 files 4096", "1000000 0 resident 1000000", "3000000000 0 end"]
    frees = [f"2000000 0 free {i}" for i in range(95)]
    kept = read_info(parse(tmp_path, "\n".join(lines)))[0]
    freed = read_info(parse(tmp_path, "\n".join([*lines[:-1], *frees, lines[-1]])))[0]
    assert kept.resident_at_end is not None
    assert freed.resident_at_end is None
    curve = ResidentCurve([i / 100 for i in range(30)], [1000] * 15 + [3000] * 15, [0] * 30, [None] * 30)
    for info, mean in ((kept, 2903), (freed, 0)):
        loss = msgspec.structs.replace(info.loss, cut_short=True)
        memory = program_memory(msgspec.structs.replace(info, resident_curve=curve, loss=loss))
        assert memory is not None
        assert memory.mean_bytes == pytest.approx(mean, abs=1), "the last reading holds to the end, or is unknown"
