"""`measure --for`: a run that ends after a time, of a program and of a server under a repeated load."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from .conftest import Heapwright, environment

SERVER = """
import socket, sys
kept = []
with socket.create_server(("127.0.0.1", 0)) as server:
    open("port", "w").write(str(server.getsockname()[1]))
    while True:
        client, _ = server.accept()
        kept.append(b"x" * (1 << 20))
        client.sendall(b"ok")
        client.close()
"""
LOAD = """
import socket
for _ in range(3):
    with socket.create_connection(("127.0.0.1", int(open("port").read()))) as client:
        assert client.recv(2) == b"ok"
print('{"operations": 3}')
"""


def test_a_program_that_never_ends_is_measured(heapwright: Heapwright, tmp_path: Path) -> None:
    done = heapwright(
        *("measure", "--for", "1s", "--json", "run.json", "--html", "run.html", "--"),
        *(sys.executable, "-c", "import time\nwhile True: time.sleep(0.01)"),
    )
    assert (done.status, done.err) == (0, "")
    (run,) = json.loads((tmp_path / "run.json").read_text())["runs"]
    assert run["wall_s"] >= 1
    assert run["timed_out"] is False
    assert 0 < run["final_rss_bytes"] <= run["p95_rss_bytes"] <= run["peak_rss_bytes"]
    assert "Memory over time" in (tmp_path / "run.html").read_text()
    assert not (tmp_path / "run.json.unfinished").exists()


def test_the_load_of_a_server_is_repeated(heapwright: Heapwright, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "load.py").write_text(LOAD)
    (tmp_path / "server.toml").write_text(f"""
command = ["{sys.executable}", "server.py"]
[output]
compare = "none"
[server]
ready = ["test", "-s", "port"]
load = ["{sys.executable}", "load.py"]
[server.load_metrics]
format = "json"
""")
    once = heapwright("measure", "--workload", "server.toml", "--json", "once.json", "-q")
    assert once.status == 0, once.err
    (tmp_path / "port").unlink()
    done = heapwright("measure", "--workload", "server.toml", "--for", "2s", "--json", "run.json", "-q")
    assert done.status == 0, done.err
    first, run = (json.loads((tmp_path / name).read_text())["runs"][0] for name in ("once.json", "run.json"))
    assert first["load_operations"] == 3
    assert run["load_operations"] >= 6
    assert run["load_operations"] % 3 == 0
    assert run["peak_rss_bytes"] > first["peak_rss_bytes"] + (2 << 20)
    assert run["cpu_per_op_s"] > 0


def test_ctrl_c_shows_what_was_measured(heapwright: Heapwright, tmp_path: Path) -> None:
    words: list[str | Path] = [heapwright.path, "measure", "--for", "60s", "--json", "run.json", "--", "sleep", "50"]
    with subprocess.Popen(words, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, start_new_session=True) as it:
        time.sleep(1.5)
        subprocess.run(["pkill", "-INT", "-s", str(it.pid)], check=True)
        assert it.stdout is not None
        printed = it.stdout.read().decode()
    assert it.returncode == 128 + signal.SIGINT
    assert "p95 resident memory" in printed
    assert json.loads((tmp_path / "run.json").read_text())["runs"][0]["peak_rss_bytes"] > 0


def test_for_ends_the_run_itself(heapwright: Heapwright) -> None:
    done = heapwright("measure", "--for", "1s", "--timeout", "5", "--", "true")
    assert done.status == 2
    assert "leave out --timeout and --prefix" in done.err
    assert heapwright("measure", "--for", "soon", "--", "true").status == 2
