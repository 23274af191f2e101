"""Tests the bundled glibc space with this machine's glibc, and the settings that its loader reports in force."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from heapwright.allocators import registry
from heapwright.allocators.glibc_tunables import effective_glibc, find_loader, list_tunables
from heapwright.allocators.in_image import image_allocator
from heapwright.allocators.registry import bundled_space, find_allocators, get_allocator, glibc_version
from heapwright.allocators.space import build_space
from heapwright.allocators.space_spec import Context, version_key
from heapwright.errors import HeapwrightError, UsageError
from heapwright.trace.record import recorder
from tests import needs

needs_glibc = needs.only_where(glibc_version() is not None, "run glibc")


@pytest.fixture(scope="module")
def tunables() -> dict[str, int]:
    """What this machine's loader lists; tests that need it are skipped where it cannot."""
    loader = find_loader(sys.executable)
    found = list_tunables(loader, {}) if loader else {}
    if not found:
        needs.machine_cannot("list tunables by its loader")
    return found


@pytest.mark.parametrize("version", ["2.31", "2.35", "2.36", "2.41", "2.42", "2.43"])
@pytest.mark.parametrize("expert", [False, True])
def test_the_glibc_space_is_valid_for_every_version(version: str, expert: bool) -> None:
    space = build_space(bundled_space("glibc"), Context(version, 2, True, expert))
    assert {"mmap_threshold", "trim_threshold", "top_pad", "mmap_max", "arena_max", "tcache_count"} <= {
        p.key for p in space.params
    }
    assert {p.spec.gate for p in space.params} == {"static_thresholds", ""}
    assert "hugetlb" not in {p.key for p in space.params} or version_key(version) >= (2, 35)


def test_thresholds_share_a_gate() -> None:
    gated = {p.key for p in bundled_space("glibc").param if p.gate == "static_thresholds"}
    assert gated == {"mmap_threshold", "trim_threshold", "top_pad", "mmap_max"}


def test_every_setting_is_explained_and_every_hazard_has_words() -> None:
    for spec in bundled_space("glibc").param:
        assert len(spec.explain) > 20, spec.key
        assert spec.explain.endswith("."), spec.key
        assert spec.safe == "yes" or spec.hazard, spec.key


@needs_glibc
def test_settings_are_those_the_loader_knows(tunables: dict[str, int]) -> None:
    version = version_key(glibc_version() or "")
    listed = {name.removeprefix("glibc.malloc.") for name in tunables if name.startswith("glibc.malloc.")}
    specs = [
        spec
        for spec in bundled_space("glibc").param
        if (not spec.requires.since or version >= version_key(spec.requires.since))
        and (not spec.requires.before or version < version_key(spec.requires.before))
    ]
    assert {s.key for s in specs} <= listed, "the space has a setting this glibc does not"
    assert listed <= {s.key for s in specs}, "this glibc has a setting the space says nothing of"


@needs_glibc
def test_every_level_is_taken_by_the_loader(tunables: dict[str, int]) -> None:
    """glibc silently ignores values out of range, so all of our values must be in range."""
    assert tunables
    space = get_allocator("glibc").space(threads=True, expert=True)
    for param in space.params:
        for level in {param.levels[0], param.levels[len(param.levels) // 2], param.levels[-1]}:
            env = space.environment({param.key: level}, {})
            assert effective_glibc(sys.executable, {param.key: level}, env) == {param.key: level}


def test_only_what_is_known_can_be_named() -> None:
    if not find_allocators():
        needs.not_built("the bundled allocators")
    assert get_allocator("glibc").version == glibc_version()
    with pytest.raises(UsageError, match="unknown allocator 'glibk'") as caught:
        get_allocator("glibk")
    assert caught.value.hint == "did you mean 'glibc'?"


@pytest.mark.parametrize("folder", ["my libs", "a:b"])
def test_a_library_that_ld_preload_cannot_name_is_refused(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loader would skip it with a line on stderr."""
    own = tmp_path / folder
    own.mkdir()
    for name in ("libx.so", "libexgen.so"):
        (own / name).touch()
    for find in (get_allocator, image_allocator):
        with pytest.raises(UsageError, match=f"LD_PRELOAD cannot name {own}/libx.so") as caught:
            find(str(own / "libx.so"), {})
        assert caught.value.hint == "move it to a path without spaces and colons"
    assert get_allocator(str(own / "libx.so"), preloads=False).path == str(own / "libx.so")
    monkeypatch.setattr(registry, "library_folder", lambda: own)
    assert not any(one.bundled for one in find_allocators().values())
    with pytest.raises(HeapwrightError, match=f"LD_PRELOAD cannot name {own}/libexgen.so") as failed:
        get_allocator("exgen")
    assert failed.value.hint == "install heapwright under a path without spaces and colons"
    with pytest.raises(HeapwrightError, match=r"LD_PRELOAD cannot name .*/libheapwright-record\.so"):
        recorder()


# the probe


@needs_glibc
def test_a_refused_value_shows_in_the_probe(tunables: dict[str, int]) -> None:
    assert tunables
    env = {"GLIBC_TUNABLES": "glibc.malloc.perturb=300:glibc.malloc.top_pad=65536"}
    found = effective_glibc(sys.executable, {"perturb": "300", "top_pad": "65536"}, env)
    assert found["top_pad"] == "65536"
    assert found["perturb"] == "0"


@needs_glibc
def test_the_largest_number_reads_back_as_written(tunables: dict[str, int]) -> None:
    assert tunables
    never = str((1 << 64) - 1)
    env = {"GLIBC_TUNABLES": f"glibc.malloc.trim_threshold={never}"}
    assert effective_glibc(sys.executable, {"trim_threshold": never}, env) == {"trim_threshold": never}


def test_the_loader_of_a_script_is_its_interpreters(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\ntrue\n")
    script.chmod(0o755)
    assert find_loader(str(script)) == find_loader("/bin/sh") is not None
    script.write_text("#!/usr/bin/env sh\ntrue\n")
    assert find_loader(str(script)) == find_loader("sh")


def test_a_program_without_a_loader_has_none(tmp_path: Path, program: Callable[..., Path]) -> None:
    text = tmp_path / "text"
    text.write_text("words")
    text.chmod(0o755)
    loop = tmp_path / "loop"
    loop.write_text(f"#!{loop}\n")
    loop.chmod(0o755)
    for path in (str(text), str(loop), "no-such-program", str(program("moody", "-static"))):
        assert find_loader(path) is None
        assert effective_glibc(path, {"top_pad": "1"}, {}) == {}


def test_without_settings_the_loader_is_not_asked() -> None:
    assert effective_glibc(sys.executable, {}, {}) == {}


def test_a_loader_that_cannot_list(tmp_path: Path) -> None:
    assert list_tunables(shutil.which("false") or "/bin/false", {}) == {}
    assert list_tunables(str(tmp_path / "none"), {}) == {}
