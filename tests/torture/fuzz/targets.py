"""Fuzz targets for the Python parsers: each refuses a byte string in one line, or parses it to a valid result.

A target raises only its own AssertionError. atheris drives it by coverage (`drive.py`, the long form). Every test run
feeds it its corpus and some thousands of cheap mutations of the corpus (test_fuzz.py).
"""

from __future__ import annotations

import io
import json
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

from heapwright.allocators.space import build_space
from heapwright.allocators.space_file import load_space_file
from heapwright.allocators.space_spec import Context
from heapwright.allocators.user_settings import conf_problems, tunables_problems
from heapwright.cluster.job_files import read_plan
from heapwright.cluster.settings import read_settings
from heapwright.elf.image import read_image
from heapwright.elf.note import read_note
from heapwright.errors import HeapwrightError
from heapwright.link.archive import Archive, is_archive
from heapwright.link.judge import demangled_name
from heapwright.link.linker_command import read_line
from heapwright.report.apply import FORMATS, render_config
from heapwright.report.html import extract
from heapwright.report.terminal import print_summary
from heapwright.study.load import load_view
from heapwright.study.options import parse_budget
from heapwright.study.schema import SCHEMA, TABLES
from heapwright.terminal_text import visible
from heapwright.trace.model import load_model, to_text
from heapwright.workload.model import load_workload


@cache
def _folder() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="heapwright-fuzz-")
    _kept.append(folder)
    return Path(folder.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []


def _file(data: bytes, name: str) -> Path:
    path = _folder() / name
    path.write_bytes(data)
    return path


def _told(error: HeapwrightError) -> None:
    """Checks that an error message is one line without control characters."""
    shown = visible(f"{error.message} ({error.hint})")
    assert shown.isprintable() or not any(ord(c) < 32 for c in shown)
    assert error.message
    assert error.status in (1, 2)


def toml(data: bytes) -> None:
    """Parses workload files, parameter spaces and cluster settings."""
    path = _file(data, "x.toml")
    for read in (load_workload, lambda p: read_settings(str(p))):
        try:
            read(path)
        except HeapwrightError as error:
            _told(error)
    try:
        file = load_space_file(path)
    except HeapwrightError as error:
        _told(error)
        return
    with suppress(HeapwrightError):
        space = build_space(file, Context())
        settings = {p.key: str(p.levels[len(p.levels) // 2]) for p in space.params if len(p.levels)}
        env = space.environment(settings, {"GLIBC_TUNABLES": "a=b"})
        assert all(isinstance(v, str) and len(v) < 100_000 for v in env.values())


def _rows(data: bytes) -> list[list[str]]:
    """Parses a study from lines: a kind (m, c or r) and fields between tabs; '-' is an empty field, nothing is NULL."""
    lines = data.decode("utf-8", "replace").replace("\0", " ").split("\n")
    return [line.split("\t") for line in lines if line[:2] in ("m\t", "c\t", "r\t")]


def _fill(db: sqlite3.Connection, data: bytes) -> None:
    for kind, *fields in _rows(data):
        table, count = {"m": ("meta", 2), "c": ("config", 5), "r": ("run", 12)}[kind]
        values = ["" if v == "-" else v or None for v in [*fields, *[""] * count][:count]]
        with suppress(sqlite3.Error, OverflowError):
            db.execute(f"INSERT INTO {table} VALUES ({','.join('?' * count)})", values)
    db.commit()


def study(data: bytes) -> None:
    """Reads a study with our tables and arbitrary rows, by all code that reads studies."""
    path = _folder() / "x.study"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.executescript(f"PRAGMA application_id = {0x48575354}; PRAGMA user_version = {SCHEMA}; {TABLES}")
        _fill(db, data)
    _look_at(path)


def database(data: bytes) -> None:
    """Reads a study file with changed bytes: the data are pairs of an offset (3 bytes) and a byte."""
    whole = bytearray(template())
    for at in range(0, len(data) - 3, 4):
        whole[int.from_bytes(data[at : at + 3], "little") % len(whole)] = data[at + 3]
    _look_at(_file(bytes(whole), "y.study"))


def _look_at(path: Path) -> None:
    from rich.console import Console

    try:
        view = load_view(path)
    except HeapwrightError as error:
        _told(error)
        return
    for pick in [view.default, *(p.config for p in view.picks.values())]:
        for fmt in FORMATS:
            with suppress(HeapwrightError):  # a Dockerfile cannot hold everything
                text = render_config(pick, fmt, view.command, view.claim)
                comment = {"lmod": "--", "json": ""}.get(fmt, "#")
                assert all(line.startswith(comment) for line in text.splitlines()[:1])
    print_summary(view, Console(file=io.StringIO(), width=80, highlight=False, markup=False))


@cache
def template() -> bytes:
    """The bytes of a valid study."""
    path = _folder() / "template.study"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.executescript(
            f"PRAGMA page_size = 1024; PRAGMA application_id = {0x48575354}; PRAGMA user_version = {SCHEMA}; {TABLES}"
        )
        _fill(db, SMALL_STUDY.encode())
    return path.read_bytes()


def _small_study() -> str:
    meta = {
        "created": "2026-01-01T00:00:00+00:00", "version": "1.0.0", "phase": "done", "spent_s": 1.0,
        "identity": {"command": ["./prog", "a b"], "cwd": "/tmp"}, "host": {"cpu": "A CPU", "max_map_count": 65530},
        "options": {"allocator": "glibc", "objectives": ["peak_rss_bytes", "cpu_s"], "evaluations": 4},
        "spaces": {"glibc": {"allocator": {"name": "glibc", "env": "TUNED", "pair": "{key}={value}"},
                             "param": [{"key": "mxfast", "explain": "e", "low": 1, "high": 128}]}},
        "reproduce": ["heapwright", "tune"], "searched": {"memory": 2}, "picks": {"memory": 2},
        "method": {"name": "gp", "why": "few"}, "warm": [], "environment": {},
    }  # fmt: skip
    lines = [f"m\t{key}\t{json.dumps(value)}" for key, value in meta.items()]
    lines.append("c\t1\tglibc\t{}\t{}\t{}")
    env = json.dumps({"TUNED": "mxfast=8"})
    lines.append(f'c\t2\tglibc\t{{"mxfast": "8"}}\t{env}\t{{"mxfast": "8"}}')
    number = 0
    for phase, blocks in (("calibrate", 4), ("search", 3), ("shortlist", 3), ("confirm", 12)):
        for block in range(blocks):
            for config in (1,) if phase == "calibrate" else (1, 2):
                number += 1
                metrics = json.dumps({"peak_rss_bytes": 1e6 * (1 if config == 1 else 0.8), "cpu_s": 0.1, "wall_s": 0.1})
                extra = json.dumps({"meter": "notify", "maps": 30, "threads": 1, "warnings": []})
                series = json.dumps({k: [0.0, 1.0] for k in ("t", "rss", "heap", "vm")})
                lines.append(
                    f"r\t{number}\t{phase}\t{block}\tdefault\t{config}\t2026-01-01\t0.1\t-\tabc\t{metrics}\t{extra}\t{series}"
                )
    return "\n".join(lines)


SMALL_STUDY = _small_study()


def report(data: bytes) -> None:
    """Runs `report --extract` on arbitrary bytes, and on a report with arbitrary bytes as its data."""
    start, end = b'<script type="application/json" id="heapwright-data">', b"</script>"
    for content in (data, start + data + end):
        try:
            json.dumps(extract(_file(content, "x.html")))
        except HeapwrightError as error:
            _told(error)


def elf(data: bytes) -> None:
    """Parses objects, programs, libraries and archives."""
    try:
        if is_archive(data):
            archive = Archive(_folder() / "x.a", data)
            images = [*archive.members, *(archive.member(h) for h in list(archive.index.values())[:50])]
        else:
            images = [read_image(data, "x")]
        for image in images:
            if image is not None:
                assert len(image.defined) <= len(data)
                read_note(image)
                for symbol in image.imports[:100]:
                    demangled_name(symbol.name)
    except HeapwrightError as error:
        _told(error)


def model(data: bytes) -> None:
    """Parses the JSON of a model."""
    try:
        found = load_model(_file(data, "x.json"))
    except HeapwrightError as error:
        _told(error)
        return
    assert to_text(found)


def settings(data: bytes) -> None:
    """Parses allocators' variables, budgets, linker command lines and mangled names."""
    text = data.decode("utf-8", "surrogateescape").replace("\0", " ")
    for line in (*tunables_problems(text, "2.36"), *conf_problems(text)):
        assert line
    with suppress(HeapwrightError):
        count, seconds = parse_budget(text)
        assert count > 0 or seconds > 0
    with suppress(HeapwrightError):
        read_line([word for word in text.split("\n")[:200] if not word.startswith(("@", "-T"))])
    demangled_name(text)
    shown = visible(text)
    assert len(shown) == len(text)
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0x202A <= ord(c) <= 0x202E for c in shown)


def jobs(data: bytes) -> None:
    """Reads the folder of a job array."""
    (_folder() / "plan.json").write_bytes(data)
    try:
        found = read_plan(_folder())
    except HeapwrightError as error:
        _told(error)
        return
    for name in found.blocks:
        assert (_folder() / f"{name}.json").parent == _folder()


TARGETS: dict[str, Callable[[bytes], None]] = {
    f.__name__: f for f in (toml, study, database, report, elf, model, settings, jobs)
}
