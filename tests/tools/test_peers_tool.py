"""tools/peers: heapwright knows every library that it builds, and one failure does not stop the rest."""

from __future__ import annotations

import ctypes
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from heapwright.allocators.peers import known_peers
from heapwright.allocators.registry import upstream_version
from tests.conftest import ROOT

GOOD = "int answer(void) { return ANSWER; }\n"
BAD = "int answer(void) { return absent; }\n"  # the compiler's first line only names the function
BUILD_RS = 'cc.files(["c_src/a.cc", "c_src/rust_bridge.cc", "c_src/b.S", "src/lib.rs"])\n'


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tools/peers as a module, with a registry that has version 1.2.0 of every crate."""
    loader = SourceFileLoader("peers_tool", str(ROOT / "tools/peers"))
    spec = spec_from_loader("peers_tool", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    monkeypatch.setattr(module, "newest", lambda _crate: ("1.2.0", "checksum"))
    return module


def crates(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, **text: str) -> None:
    """Gives the registry crates of one C file, and lets the tool build libNAME.so of each."""

    def unpack(crate: str, version: str, _checksum: str, folder: Path) -> Path:
        source = folder / f"{crate}-{version}"
        source.mkdir()
        (source / "all.c").write_text(text[crate])
        return source

    monkeypatch.setattr(tool, "unpack", unpack)
    made = {f"lib{crate}.so": (crate, tool.compiled([*tool.C, "-DANSWER=42"], "all.c"), "") for crate in text}
    monkeypatch.setattr(tool, "LIBRARIES", made)
    monkeypatch.setattr(tool, "install_debian", lambda: None)
    monkeypatch.setattr(tool, "link_scudo", lambda _target: None)


def test_heapwright_knows_every_library_that_the_tool_makes(tool: ModuleType) -> None:
    known = {soname for spec in known_peers() for soname in spec.sonames}
    assert {*tool.LIBRARIES, "libscudo.so"} <= known
    assert {spec.package for spec in known_peers() if spec.package} == set(tool.DEBIAN)
    for spec in known_peers():
        made = {*tool.LIBRARIES, "libscudo.so"} & set(spec.sonames)
        assert ("make peers" in spec.how_to_get) == bool(made and not spec.package), spec.name


def test_a_library_that_does_not_build_costs_one_line_and_not_the_others(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    crates(tool, monkeypatch, bad=BAD, good=GOOD)
    monkeypatch.setattr("sys.argv", ["peers", str(tmp_path)])
    assert tool.main() == 0
    said = capfd.readouterr().err.splitlines()
    assert [line.partition(" ")[2] for line in said[::2]] == [
        "building libbad.so from bad 1.2.0",
        "building libgood.so from good 1.2.0",
    ]
    assert "libbad.so: does not build: all.c:1:27: error: " in said[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["libgood.so", "libgood.so.version"]
    assert ctypes.CDLL(str(tmp_path / "libgood.so")).answer() == 42
    assert (tmp_path / "libgood.so.version").read_text() == "(good 1.2.0)\n"
    monkeypatch.setattr(tool, "LIBRARIES", {"libgood.so": tool.LIBRARIES["libgood.so"]})
    assert tool.main() == 0
    assert capfd.readouterr().err == ""  # the newest is installed


def test_the_files_of_a_crate_are_those_that_its_build_script_lists(tool: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "build.rs").write_text(BUILD_RS)
    assert tool.listed(tmp_path) == ["c_src/a.cc", "c_src/b.S"]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("#define MI_MALLOC_VERSION 30600   // major\n", "3.6.0"),
        ("#define MI_MALLOC_VERSION 20502\n", "2.5.2"),
        ("5.3.1-0-g81034ce1f1373e37dc865038e1bc8eeecf559ce8\n", "5.3.1"),
        ("no version\n", ""),
    ],
)
def test_a_library_tells_its_own_version(tool: ModuleType, tmp_path: Path, text: str, version: str) -> None:
    (tmp_path / "file").write_text(text)
    assert tool.own_version(tmp_path / "file") == version
    assert not version or upstream_version(f"{version} (crate 0.1.65)") == version
    assert tool.own_version(tmp_path) == ""


def test_scudo_is_a_link_to_the_newest_runtime(
    tool: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tool.link_scudo(tmp_path, tmp_path)
    assert "no libclang-rt-*-dev is installed" in capfd.readouterr().err
    for number in ("9", "14.0.6", "22"):
        path = tmp_path / tool.SCUDO.replace("llvm-*", f"llvm-{number.partition('.')[0]}").replace("*", number)
        path.parent.mkdir(parents=True)
        path.write_text(number)
        tool.link_scudo(tmp_path, tmp_path)
        assert (tmp_path / "libscudo.so").read_text() == number
    names = ["libclang-rt-dev", "libclang-rt-9-dev", "libclang-rt-14-dev", "libclang-rt-22-dev-wasm32"]
    assert tool.newest_runtime(names) == "libclang-rt-14-dev"
    assert tool.newest_runtime([]) == "libclang-rt-dev"
