"""Tests what `heapwright canary` reads of live instances."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heapwright.canary.blocks import restarts
from heapwright.canary.instances import can_read_pss, check_identity, read_instance
from heapwright.canary.readings import Header, Reading, ReadingFile
from heapwright.canary.run import take_readings
from heapwright.errors import HeapwrightError
from tests import needs

MIB = 1 << 20


def test_an_instance_is_read_with_its_children() -> None:
    script = "import subprocess, sys; x = 'import time; kept = b\"x\" * (30 << 20); time.sleep(60)'"
    script += "; subprocess.run([sys.executable, '-c', x])"
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        time.sleep(1)
        name = str(process.pid)
        found = read_instance(name, can_read_pss([name]))
        subprocess.run(["pkill", "-P", name], check=True)
    assert found is not None
    assert found.processes == 2
    assert found.memory_bytes > 30 * MIB
    assert found.cpu_s > 0
    assert read_instance(name, False) is None, "it has ended"


def test_a_zombie_has_cpu_time_and_no_memory() -> None:
    """Its parent gets its CPU time when it waits for it: the sum must not fall before and rise then."""
    script = """import os, sys, time
if not (child := os.fork()):
    end = time.process_time() + 0.33  # the kernel rounds user and system time down to 10 ms
    while time.process_time() < end: pass
    os._exit(0)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
print('zombie', flush=True); sys.stdin.readline()
os.wait(); print('reaped', flush=True); sys.stdin.readline()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdin
        assert process.stdout
        name = str(process.pid)
        readings = []
        for word in ("zombie", "reaped"):
            assert process.stdout.readline() == f"{word}\n"
            assert can_read_pss([name])
            readings.append(read_instance(name, True))
            process.stdin.write("\n")
            process.stdin.flush()
    zombie, reaped = readings
    assert zombie
    assert reaped
    assert zombie.processes == reaped.processes == 1
    assert zombie.memory_bytes == pytest.approx(reaped.memory_bytes, rel=0.1)
    assert reaped.cpu_s - 0.1 <= zombie.cpu_s <= reaped.cpu_s + 1e-9, "sums of seconds are rounded"
    assert zombie.cpu_s >= 0.3


def test_an_instance_that_has_ended_is_down_before_its_parent_waits_for_it() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert read_instance(str(process.pid), True) is None


def test_resident_memory_never_stands_for_proportional_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    name = str(os.getpid())
    assert read_instance(name, True) is not None

    def refuse(_pid: int) -> int:
        raise PermissionError

    monkeypatch.setattr("heapwright.canary.instances._pss", refuse)
    assert read_instance(name, True) is None
    assert not can_read_pss([name])


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "60"])


def test_a_process_that_takes_over_an_id_is_another_instance(tmp_path: Path) -> None:
    with sleeper() as process:
        name = str(process.pid)
        first = read_instance(name, False)
        process.kill()
    assert first is not None
    time.sleep(0.05)  # start times have a resolution of 10 ms
    last = Path("/proc/sys/kernel/ns_last_pid")
    if not os.access(last, os.W_OK):
        needs.machine_cannot("start a process with a chosen id")
    for _ in range(50):  # another process of the machine may get the id first
        last.write_text(str(int(name) - 1))
        with sleeper() as other:
            try:
                if str(other.pid) != name:
                    continue
                found = read_instance(name, False)
                assert found is not None
                assert found.started != first.started
                assert read_instance(name, False, first.started) is None
                assert read_instance(name, False, found.started) is not None
                with pytest.raises(HeapwrightError, match="its id is now another process's"):
                    check_identity([name], {name: first.started}, "--control")
                header = Header([name], ["1"], 0.05, False)
                before = Reading(time.time(), [first], [first])
                with ReadingFile(tmp_path / "canary.jsonl", header) as file:
                    file.before = [before]
                    readings = take_readings(file, header, {}, lambda found: len(found) > 2)
                assert [reading.control[0] is None for reading in readings] == [False, True, True], "it is down"
                assert restarts(readings)[0] == 0
                return
            finally:
                other.kill()
    needs.machine_cannot("keep an id free for a moment")
