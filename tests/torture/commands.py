"""Lists every verb that writes files, with its command line, and checks that its files are complete."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import uuid
import xml.etree.ElementTree
from collections.abc import Mapping
from pathlib import Path

from tests.processes import alive
from tests.system.conftest import Done, Heapwright

SECONDS = 120  # a hang, on any machine
STUDY = ["-q", "--allocators", "glibc", "--budget", "1", "--pairs", "6:6", "--method", "sobol", "--proxy", "none"]
STUDY += ["--minimize", "peak_heap"]
SWEEP = ["-q", "--param", "mmap_threshold", "--range", "mmap_threshold=1M:4M", "--step", "1", "--metric", "peak_heap"]
COMPARE = ["compare", "-q", "-n", "1", "--allocators", "glibc,exgen"]
FILES = ["--csv", "{out}/l.csv", "--plot", "{out}/l.svg", "--json", "{out}/l.json"]

# {prog}: a command. {out}: the folder to write to. Inputs lie in the working directory.
VERBS = {
    "tune": ["tune", *STUDY, "--study", "{out}/n.study", "--json", "{out}/n.json", "--", "{prog}"],
    "landscape": ["landscape", *SWEEP, "--study", "{out}/l.study", *FILES, "--", "{prog}"],
    "compare": [*COMPARE, "--markdown", "{out}/l.md", *FILES, "--", "{prog}"],
    "measure": ["measure", "-q", "--json", "{out}/m.json", "--", "{prog}"],
    "record": ["record", "-q", "--force", "-o", "{out}/r.hwt", "--", "{prog}"],
    "report": ["report", "s.study", "-o", "{out}/s.html"],
    "info": ["info", "t.hwt", "-q", "--json", "{out}/i.json"],
    "replay": ["replay", "t.hwt", "-q", "--json", "{out}/p.json"],
    "fit": ["fit", "t.hwt", "-q", "-o", "{out}/f.json"],
    "synth": ["synth", "t.json", "-q", "-o", "{out}/y.hwt"],
    "export": ["export", "t.hwt", "-q", "-o", "{out}/e.wl"],
    "import": ["import", "t.wl", "-q", "-o", "{out}/w.hwt"],
}


class Marked(Heapwright):
    """Starts commands whose processes, with all their children, can be found by a variable in their environment."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, forked=True)
        self.mark = f"mark-{uuid.uuid4().hex}"

    def start(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Starts the command in a process group of its own."""
        return super().start(*words, env={"MARK": self.mark, **(env or {})})

    def __call__(self, *words: str, env: Mapping[str, str] | None = None) -> Done:
        """Runs the command to its end, within the time limit."""
        return super().__call__(*words, env={"MARK": self.mark, **(env or {})})

    def left(self) -> list[int]:
        """The ids of all started processes that still run."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self.mark.encode() in (folder / "environ").read_bytes() and alive(int(folder.name)):
                    found.append(int(folder.name))
        return found

    def end_all(self) -> None:
        """Kills all processes that still run."""
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def words_of(verb: str, out: str | Path, prog: str | Path) -> list[str]:
    """The command line of a verb that writes into a folder."""
    return [word.format(out=out, prog=prog) for word in VERBS[verb]]


def outputs_of(verb: str) -> list[str]:
    """The files that a verb writes."""
    named = [word.removeprefix("{out}/") for word in VERBS[verb] if word.startswith("{out}/")]
    return [*named, *(["n.html"] if verb == "tune" else [])]


def check_whole(path: Path, heapwright: Heapwright) -> None:
    """Fails unless the file can be read to its end."""
    match path.suffix:
        case ".json":
            json.loads(path.read_text())
        case ".csv" | ".md":
            assert path.read_text().endswith("\n"), path
        case ".svg":
            xml.etree.ElementTree.parse(path)
        case ".hwt":
            told = heapwright("info", str(path), "--json", "-")
            assert told.status == 0, told.err
            assert not json.loads(told.out)["loss"]["cut_short"], path
        case ".html":
            found = heapwright("report", "--extract", str(path))
            assert found.status == 0, found.err
        case ".wl":
            back = heapwright("import", str(path), "-q", "-o", str(path.with_suffix(".back.hwt")))
            assert (back.status, back.err) == (0, "")
        case ".study":
            with contextlib.closing(sqlite3.connect(path)) as db:
                assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        case _:
            raise AssertionError(f"unknown kind of file: {path}")
