"""Tests hostile traces, models, TOML, ELF files, archives, plans and libraries.

Each is refused in one line, with little time and memory.
"""

from __future__ import annotations

import json
import os
import random
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from heapwright.trace.pack import native_program
from tests import needs

from .fuzz.targets import template
from .hostile import refused, run

ELF = Path("/bin/true")


def patched(content: bytes, *changes: tuple[int, str, int]) -> bytes:
    """Overwrites numbers in a byte string.

    Args:
        content: the original bytes.
        changes: of each number its offset in bytes, its `struct` format and its value.
    """
    changed = bytearray(content)
    for at, kind, value in changes:
        struct.pack_into(f"<{kind}", changed, at, value)
    return bytes(changed)


def elf_files() -> dict[str, bytes]:
    """Programs with false headers (in a 64-bit ELF header, shoff is at 40, phoff at 32, the counts start at 54)."""
    whole = ELF.read_bytes()
    return {
        "cut after its magic": whole[:4],
        "cut in its header": whole[:40],
        "cut in the middle": whole[: len(whole) // 2],
        "sections far away": patched(whole, (40, "Q", 1 << 62)),
        "segments far away": patched(whole, (32, "Q", 1 << 62)),
        "65535 sections": patched(whole, (60, "H", 0xFFFF)),
        "sections counted in a section": patched(whole, (60, "H", 0), (40, "Q", 64)),
        "a name table that is none": patched(whole, (62, "H", 0xFFFE)),
        "sections of no size": patched(whole, (58, "H", 0)),
        "segments of no size": patched(whole, (54, "H", 0)),
        "sections over the header": patched(whole, (40, "Q", 0)),
        "another machine": patched(whole, (18, "H", 0xF00D)),
        "big-endian, it says": patched(whole, (5, "B", 2)),
        "all ones": b"\x7fELF\x02\x01\x01" + b"\xff" * 4096,
        "all zeroes": b"\x7fELF\x02\x01\x01" + b"\0" * 4096,
    }


def archives() -> dict[str, bytes]:
    """Archives with false headers."""

    def member(name: str, size: str, body: bytes = b"") -> bytes:
        return f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{size:<10}`\n".encode() + body

    start = b"!<arch>\n"
    return {
        "a member of negative size, over itself": start + member("a.o/", "-60"),
        "a member of negative size": start + member("a.o/", "-5", b"xxxxx"),
        "a size with words": start + member("a.o/", "1_0", b"xxxxxxxxxx"),
        "a size beyond the end": start + member("a.o/", "9999999999"),
        "a name of no number": start + member("/\u00b2".encode().decode("latin-1"), "4", b"\x7fELF"),
        "an index of too many": start + member("/", "8", b"\xff" * 8),
        "an index that leads out": start + member("/", "12", b"\0\0\0\1\xff\xff\xff\xff" + b"f\0\0\0"),
        "a thin one that leads away": b"!<thin>\n" + member("//", "20", b"../../../etc/passwd\n") + member("/0", "100"),
    }


FILES = {**{f"program, {k}": v for k, v in elf_files().items()}, **{f"archive, {k}": v for k, v in archives().items()}}


@pytest.mark.parametrize("case", FILES)
def test_inspect_survives_a_damaged_program(case: str, tmp_path: Path) -> None:
    """`inspect` gives a verdict or refuses in one line, with little time and memory."""
    (tmp_path / "x").write_bytes(FILES[case])
    done = run("inspect", "x", "--no-plugins", cwd=tmp_path)
    if done.status:
        refused(done)
    assert "root:" not in done.out + done.err, "it has followed the path and read the file"


def test_link_goes_on_without_us(tmp_path: Path) -> None:
    """For a bad input, `link` passes on the linker's own message and status."""
    gcc = needs.command("gcc")
    (tmp_path / "m.c").write_text("int main(void) { return 0; }")
    for name in ("archive, a member of negative size, over itself", "archive, an index of too many"):
        (tmp_path / "x.a").write_bytes(FILES[name])
        plain = subprocess.run(
            [gcc, "m.c", "x.a", "-o", "p"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        ours = run("link", "--", gcc, "m.c", "x.a", "-o", "p2", cwd=tmp_path)
        assert (ours.status == 0) == (plain.returncode == 0), ours.err
        assert "Traceback" not in ours.err


def test_response_files_without_end(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("@r @r @r @r\n" * 20)
    done = run("inspect", "--", "gcc", "@r", cwd=tmp_path)
    assert "too many response files" in refused(done) or "gcc" in done.err, done.err
    assert "memory" not in done.err


def packed(folder: Path) -> bytes:
    """A packed trace of 300 events."""
    (folder / "e.txt").write_text("".join(f"{i} 0 malloc {i} {i}\n" for i in range(300)))
    subprocess.run([native_program("heapwright-trace"), "parse", folder / "e.txt", folder / "e.hwt"], check=True)
    return (folder / "e.hwt").read_bytes()


def trace_files(folder: Path) -> dict[str, bytes]:
    """Traces whose headers claim data that they do not have."""
    import zlib

    whole = packed(folder)

    def section(letters: bytes, body: bytes) -> bytes:
        head = letters + struct.pack("<II", len(body), 0)
        return letters + struct.pack("<II", len(body), zlib.crc32(head + body)) + body

    head_length = struct.unpack_from("<I", whole, 12)[0]
    head = whole[: 8 + 12 + head_length]

    def block(*numbers: int) -> bytes:
        body = b""
        for number in numbers:
            while number >= 0x80:
                body += bytes([number & 0x7F | 0x80])
                number >>= 7
            body += bytes([number])
        return body

    def column(data: bytes) -> bytes:
        return b"\0" + block(len(data), len(data)) + data

    def events(made: int, thread: int) -> bytes:
        """A block with one malloc of one byte."""
        columns = [b"\1", block(1, thread), b"\0", b"\1", b"", b"", b"", b"", b"", b""]
        return section(b"EVTS", block(1, made, 0) + b"".join(map(column, columns)))

    return {
        "nothing": b"",
        "a beginning": whole[:8],
        "noise": bytes(random.Random(1).randrange(256) for _ in range(5000)),
        "a section of 4 GiB": whole[:8] + b"HEAD\xff\xff\xff\xff\0\0\0\0",
        "objects from 2^46 on": head + events(1 << 46, 0),
        "objects from 2^36 on": head + events(1 << 36, 0),
        "a thread of number 2^24 - 1": head + events(0, (1 << 24) - 1),
        "a block of 2^60 events": head + section(b"EVTS", block(1 << 60, 0, 0)),
        "columns of 2^40 bytes": head + section(b"EVTS", block(5, 0, 0) + b"\1" + block(1 << 40, 3) + b"xyz"),
        "an index that leads into itself": whole[:-16] + struct.pack("<Q", len(whole) - 20) + whole[-8:],
        "a raw file of blocks without end": b"heawraw\n" + struct.pack("<II", 2, 65536) + b"\xff" * 130_000,
    }


@pytest.mark.parametrize("verb", ["info", "fit", "export", "replay"])
@pytest.mark.few(2)
def test_damaged_traces_are_refused_in_one_line(verb: str, tmp_path: Path) -> None:
    more = {"fit": ["-o", "m.json"], "export": ["-o", "x.wl"], "replay": [], "info": []}[verb]
    for name, content in trace_files(tmp_path).items():
        (tmp_path / "x.hwt").write_bytes(content)
        done = run(verb, "x.hwt", *more, cwd=tmp_path)
        assert "Traceback" not in done.err, (name, done.err)
        assert "out of memory" not in done.err, (name, "a few bytes asked for all the memory there is")
        if done.status or verb in ("fit", "replay"):
            assert "index that leads" in name or refused(done)
        elif "index that leads" not in name:  # events before the damage are used, with a warning
            assert re.search(r"warning|  lost  ", done.err + done.out), (name, done.out, done.err)
        assert not (tmp_path / "m.json").exists() or verb == "fit"


def test_a_sample_that_stands_for_2_to_the_30_times_itself(tmp_path: Path) -> None:
    """A sample states how many objects each of its objects stands for; a damaged one may state any number."""
    import zlib

    whole = packed(tmp_path)
    length = struct.unpack_from("<I", whole, 12)[0]

    def trace(rate: int) -> Path:
        head = whole[20 : 20 + length] + b"\x06sample" + bytes([len(str(rate))]) + str(rate).encode()
        start = b"HEAD" + struct.pack("<II", len(head), 0)
        section = start[:8] + struct.pack("<I", zlib.crc32(start[:8] + bytes(4) + head)) + head
        events = whole[20 + length : -16]  # without the index, whose offsets are no longer true
        path = tmp_path / "x.hwt"
        path.write_bytes(whole[:6] + struct.pack("<H", 3) + section + events)
        return path

    for verb, more in (("info", []), ("fit", ["-o", "m.json", "--force"])):
        done = run(verb, trace(1 << 30).name, *more, cwd=tmp_path)
        assert "Traceback" not in done.err
        assert "out of memory" not in done.err
        done = run(verb, trace(1 << 50).name, *more, cwd=tmp_path)
        assert refused(done), (verb, done)


def test_a_wl_file_that_stands_for_a_million_times_itself(tmp_path: Path) -> None:
    """20 000 threads share one start offset, each with 60 KB of operations."""
    start = bytes([11]) + bytes([0x81, 0x80, 0x80, 0x00])  # START_THREAD at 2^21: seven bits a byte, the highest first
    head = bytes([8, 5]) + start * 20_000 + bytes([1])
    body = bytes([2, 1, 16]) * 20_000 + bytes([1])
    (tmp_path / "x.wl").write_bytes(head + bytes((1 << 21) - len(head)) + body)
    done = run("import", "x.wl", "-o", "x.hwt", cwd=tmp_path)
    assert done.status == 0, done.err
    assert "two threads begin at the same offset" in done.err
    assert (tmp_path / "x.hwt").stat().st_size < 1 << 20


TOML = {
    "nested without end": "x = " + "[" * 50_000,
    "a number of 5000 digits": "timeout = " + "9" * 5000,
    "NUL in a path": 'command = ["true"]\ncwd = "a\\u0000b"\n',
    "NUL in a word": 'command = ["true", "\\u0000"]\n',
    "an infinite time": 'command = ["true"]\ntimeout = inf\n',
    "no number for a time": 'command = ["true"]\ntimeout = nan\n',
    "a variable with =": 'command = ["true"]\n[env]\n"A=B" = "c"\n',
    "a key of a digit that is none": 'command = ["true"]\n"\u00b2" = 1\n',
    "not UTF-8": b'command = ["\xff"]\n',
    "a FIFO": None,
    "a folder": None,
    "a gigabyte of nothing": None,
}
SPACES = {
    "a pair that computes": 'pair = "{value:>9999999999}"',
    "a pair that looks inside": 'pair = "{key.__class__}"',
    "a variable that is none": 'env = "A B; touch pwned"',
    "levels without end": "low = 1\nhigh = 9223372036854775807\nscale = 'linear'",
    "steps of nothing": "low = 1\nhigh = 100\nstep = 1e-300",
    "no step": "low = 1\nhigh = 100\nstep = nan",
    "a step beyond all": "low = 1\nhigh = 100\nstep = -inf",
}


@pytest.mark.parametrize("case", TOML)
def test_hostile_workload_files_are_refused(case: str, tmp_path: Path) -> None:
    content = TOML[case]
    path = tmp_path / "w.toml"
    if case == "a FIFO":
        os.mkfifo(path)
        path = Path("w.toml")
        writer = subprocess.Popen(["sh", "-c", "echo x = >w.toml"], cwd=tmp_path)
    elif case == "a folder":
        path.mkdir()
    elif case == "a gigabyte of nothing":
        with path.open("wb") as file:
            file.truncate(1 << 30)
    else:
        path.write_bytes(content if isinstance(content, bytes) else str(content).encode())
    line = refused(run("tune", "--workload", path, cwd=tmp_path), (2,))
    assert "w.toml" in line
    if case == "a FIFO":
        writer.wait()


READ = """
import sys; from pathlib import Path
from heapwright.allocators.space_file import load_space_file; from heapwright.workload.model import load_workload
print(load_workload(Path("w.toml")).file.command, load_space_file(Path("s.toml")).allocator.name)
"""


def test_files_that_can_be_read_only_once_are_read(tmp_path: Path) -> None:
    """Reads valid files through FIFOs, as in `--workload <(generate)`."""
    given = {
        "w.toml": 'command = ["true"]\n',
        "s.toml": '[allocator]\nname = "x"\nenv = "X"\n[[param]]\nkey = "k"\nexplain = "e"\nlow = 1\nhigh = 4\n',
    }
    for name in given:
        os.mkfifo(tmp_path / name)
    words = ["sh", "-c", 'printf %s "$1" >w.toml; printf %s "$2" >s.toml', "sh", *given.values()]
    writer = subprocess.Popen(words, cwd=tmp_path)
    try:
        done = subprocess.run([sys.executable, "-c", READ], cwd=tmp_path, capture_output=True, text=True, timeout=30)
        assert done.stdout == "['true'] x\n", done.stderr
    finally:
        writer.kill()
        writer.wait()


@pytest.mark.parametrize("case", SPACES)
def test_hostile_space_files_are_refused(case: str, tmp_path: Path) -> None:
    first = SPACES[case]
    allocator = first if first.startswith(("pair", "env")) else ""
    param = "low = 1\nhigh = 4" if allocator else first
    name = "" if allocator.startswith("env") else 'env = "X"\n'
    text = f'[allocator]\nname = "x"\n{name}{allocator}\n[[param]]\nkey = "k"\nexplain = "e"\n{param}\n'
    (tmp_path / "s.toml").write_text(text)
    refused(run("tune", "--space", "s.toml", "--", "/bin/true", cwd=tmp_path), (2,))
    assert not (tmp_path / "pwned").exists()


MODELS: dict[str, str | bytes] = {
    "nested without end": "[" * 100_000,
    "nothing": "",
    "numbers of 5000 digits": '{"schema": "heapwright-model", "version": ' + "9" * 5000 + "}",
    "another version": '{"schema": "heapwright-model", "version": "\\u001b[2J"}',
    "bytes": b"\xff\xfe",
}


@pytest.mark.parametrize("case", MODELS)
def test_hostile_models_are_refused(case: str, tmp_path: Path) -> None:
    content = MODELS[case]
    (tmp_path / "m.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(run("synth", "m.json", cwd=tmp_path), (2,))


def test_pages_that_are_no_reports_are_refused(tmp_path: Path) -> None:
    start, end = '<script type="application/json" id="heapwright-data">', "</script>"
    for data in (
        "",
        "[" * 100_000,
        "[]",
        "{}",
        '{"studies": [{}]}',
        '{"studies": [{"objectives": [], "evaluations": 1}]}',
    ):
        (tmp_path / "r.html").write_text(start + data + end)
        refused(run("report", "--extract", "r.html", cwd=tmp_path), (1,))


PLANS: dict[str, dict[str, object] | None] = {
    "a block outside": {"blocks": ["../../victim"]},
    "a block at the root": {"blocks": ["/tmp/victim"]},
    "a block of no name": {"blocks": [""]},
    "a number for a block": {"blocks": [7]},
    "no folder": {"directory": "/no/such/folder"},
    "nothing of it": None,
}


@pytest.mark.parametrize("case", PLANS)
@pytest.mark.parametrize("verb", ["run-one", "collect"])
def test_a_plan_writes_only_in_its_folder(verb: str, case: str, tmp_path: Path) -> None:
    """Names in a plan become files in the plan's folder and nowhere else."""
    victim = tmp_path / "victim.json"
    victim.write_text("untouched")
    folder = tmp_path / "here" / "plan"
    folder.mkdir(parents=True)
    needs = {"version": "1", "libraries": {}, "paths": []}
    recipe: dict[str, object] = {
        "file": {"command": ["true"]},
        "cwd": "/",
        "inputs": [],
        "meter": {},
        "references": "/",
        "traces": None,
        "environ": None,
        "needs": needs,
    }
    plan: dict[str, object] = {
        "words": ["tune", "--", "true"],
        "directory": str(tmp_path),
        "blocks_at_once": 1,
        "recipe": recipe,
        "blocks": ["0123456789abcdef"],
        **(PLANS[case] or {"words": 1}),
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    words = [verb, "plan", *(["0"] if verb == "run-one" else [])]
    if verb == "run-one" and case == "no folder":
        return  # only `collect` reads it
    refused(run(*words, cwd=tmp_path / "here"))
    assert victim.read_text() == "untouched"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["here", "victim.json"]


@pytest.mark.long
def test_files_that_are_no_allocators_get_a_message(tmp_path: Path) -> None:
    """A file that is not an allocator gets a message; the comparison neither hangs nor crashes."""
    gcc = needs.command("gcc")
    (tmp_path / "text.so").write_text("not ELF\n")
    (tmp_path / "empty.so").write_bytes(b"")
    (tmp_path / "folder.so").mkdir()
    (tmp_path / "other.so").write_bytes(patched(ELF.read_bytes(), (18, "H", 183)))
    (tmp_path / "cut.so").write_bytes(ELF.read_bytes()[:3000])
    os.mkfifo(tmp_path / "fifo.so")
    (tmp_path / "study.so").write_bytes(template())
    names = [p.name for p in tmp_path.iterdir()]
    if gcc is not None:
        bodies = {"exits": "_exit(0);", "crashes": "*(volatile int *)0 = 0;", "talks": 'write(1, "\\033[2J", 4);'}
        for name, body in bodies.items():
            source = f"#include <unistd.h>\n__attribute__((constructor)) static void f(void) {{ {body} }}\n"
            (tmp_path / f"{name}.c").write_text(source)
            subprocess.run([gcc, "-shared", "-fPIC", "-o", f"{name}.so", f"{name}.c"], cwd=tmp_path, check=True)
            names.append(f"{name}.so")
    for name in names:
        done = run("compare", "--allocators", f"glibc,./{name}", "-n", "1", "--", "/bin/echo", "x", cwd=tmp_path)
        assert "Traceback" not in done.err, (name, done.err)
        assert done.status in (1, 2), (name, done.out, done.err)
        said = done.out + done.err
        assert f"{name}" in said
        assert "\x1b" not in said
