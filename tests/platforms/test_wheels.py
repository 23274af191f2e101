"""tools/wheels.py: wheels hold every platform and have the same bytes each time; bad input is one line."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from heapwright.errors import install_extra
from heapwright.platforms import PACKED
from tests import needs
from tests.conftest import ROOT
from tests.platforms.conftest import BUILT, NAMES
from tests.tools.loading import load_tool

EPOCH = "1700000000"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_tool("wheels", monkeypatch)


def need_platforms() -> None:
    for name in NAMES:
        if not (BUILT / name / "heapwright-meter").is_file():
            needs.not_built(f"{name} (make platforms)")


def run(*words: str, umask: int = 0o022) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    command = [sys.executable, str(ROOT / "tools/wheels.py"), *words]
    return subprocess.run(command, env=env, umask=umask, cwd=ROOT, capture_output=True, text=True, timeout=280)


@pytest.mark.parametrize("own", ["x86_64-glibc", "aarch64-glibc"])
def test_the_archive_of_platforms_is_whole_and_small(tool: ModuleType, own: str) -> None:
    need_platforms()
    others = [name for name in NAMES if name != own]
    data = tool.pack(others, BUILT / own, int(EPOCH))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = {entry.name: entry for entry in archive}
    assert {name.partition("/")[0] for name in members} == set(others)
    for platform in others:
        assert {f"{platform}/heapwright-meter", f"{platform}/lib/libexgen.so", f"{platform}/lib/libreaper.a"} <= set(
            members
        )
    twin = f"{own.partition('-')[0]}-musl/heapwright-meter"
    assert [name for name, entry in members.items() if entry.islnk() and name == twin], "it is in the wheel already"
    assert not any(entry.islnk() for name, entry in members.items() if not name.startswith(twin.partition("/")[0]))
    assert {entry.mtime for entry in members.values()} == {int(EPOCH)}
    assert len(data) < 5_000_000


@pytest.mark.long  # it builds wheels
@pytest.mark.timeout(1500)
def test_wheels_have_every_part_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    need_platforms()
    for folder, umask in ((tmp_path / "a", 0o022), (tmp_path / "b", 0o077)):
        done = run("--output", str(folder), umask=umask)
        assert done.returncode == 0, done.stderr
    wheels = sorted((tmp_path / "a").glob("*.whl"))
    assert [path.name.rpartition("manylinux_2_17_")[2] for path in wheels] == ["aarch64.whl", "x86_64.whl"]
    assert list((tmp_path / "a").glob("heapwright-kit-*.tar.gz"))
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name
    for path in wheels:
        with zipfile.ZipFile(path) as wheel:
            modes = {entry.filename: entry.external_attr >> 16 for entry in wheel.infolist()}
        native = "heapwright/_native"
        programs = ("heapwright-meter", "heapwright-replay", "heapwright-trace", "heapwright-diagnose", "ld/ld")
        assert all(modes[f"{native}/{name}"] & 0o777 == 0o755 for name in programs)
        assert {f"{native}/{PACKED}", f"{native}/lib/libexgen.so", f"{native}/lib/libheapwright-nomain.so"} <= set(
            modes
        )
        assert "heapwright/kit/hw" in modes
        assert not [name for name in modes if "__pycache__" in name or "/benchmarks/" in name]


def test_the_trial_expects_the_message_that_tune_gives_without_its_extra() -> None:
    expected = re.search(r'^grep -qF "(.*)" /srv/said$', (ROOT / "tools/wheel_trial").read_text(), re.MULTILINE)
    assert expected
    assert expected[1] in install_extra("tune")


def test_an_unknown_architecture_is_refused() -> None:
    done = run("sparc")
    assert done.returncode == 2
    assert "unknown architecture 'sparc'" in done.stderr.splitlines()[-1]


def test_a_platform_that_is_not_built_is_one_line(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("BUILT", "WORK", "TOOLS"):
        monkeypatch.setattr(tool, name, tmp_path / name)
    monkeypatch.setattr(sys, "argv", ["wheels.py", "--output", str(tmp_path / "out")])
    assert tool.main() == 1
    assert capsys.readouterr().err == ("heapwright: the platform x86_64-glibc is not built: run 'make platforms'\n")
    assert not (tmp_path / "out").exists()


def test_a_wheel_that_breaks_its_promise_is_refused(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"x")
    promise = 'consistent\nwith the following platform tag: "manylinux_2_{}_x86_64"'
    monkeypatch.setattr(tool, "tool", lambda name: Path(name))
    monkeypatch.setattr(tool, "call", lambda *_words, **_options: promise.format(35))
    with pytest.raises(tool.ToolError, match="is not clean"):
        tool.check(wheel, "x86_64")
    monkeypatch.setattr(tool, "call", lambda *_words, **_options: promise.format(17))
    tool.check(wheel, "x86_64")
    monkeypatch.setattr(tool, "LIMIT", 1)
    with pytest.raises(tool.ToolError, match="has 1 bytes; at most 1"):
        tool.check(wheel, "x86_64")
