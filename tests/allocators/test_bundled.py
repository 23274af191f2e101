"""The allocators that heapwright brings: found in the installed package, with a parameter space they understand."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from heapwright import __version__
from heapwright.allocators import peers, registry
from heapwright.allocators.huge_pages import thp_state
from heapwright.allocators.registry import bundled_space, find_allocators, get_allocator
from heapwright.allocators.space import build_space
from heapwright.allocators.space_spec import Context, preload_variables
from heapwright.errors import UsageError
from tests.conftest import ROOT

SPACES = ("exgen", "reaper")  # those of ours that have something to search
CORE = ROOT / "native/allocator/core"


def said(name: str, env: dict[str, str]) -> str:
    """The allocator's messages on stderr about these settings."""
    words = {**get_allocator(name).environment({}), **env}
    done = subprocess.run(["/bin/true"], env=words, capture_output=True, text=True, check=True)
    return done.stderr


@pytest.mark.parametrize("name", ["exgen", "exgen-secure", "reaper", "reaper-secure"])
def test_our_allocators_come_with_heapwright(name: str) -> None:
    found = find_allocators()[name]
    assert found.bundled
    assert found.version == __version__
    assert found.path == found.preload
    assert Path(found.preload).parent == registry.library_folder()
    assert said(name, {}) == ""


def test_no_other_allocator_comes_with_heapwright() -> None:
    assert {name for name, one in find_allocators().items() if one.bundled} <= set(registry.OURS)


def test_a_package_without_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry, "library_folder", lambda: tmp_path)
    assert not [one for one in find_allocators().values() if one.bundled]
    with pytest.raises(UsageError, match="allocator 'exgen' comes with heapwright, but is not in this installation"):
        get_allocator("exgen")


def test_a_build_of_ones_own_has_the_space_too(monkeypatch: pytest.MonkeyPatch) -> None:
    library = get_allocator("exgen").preload
    monkeypatch.setenv(peers.VARIABLE, f"exgen={library}")
    found = get_allocator("exgen")
    assert not found.bundled
    huge = {"huge_pages"} if thp_state() in ("always", "madvise") else set()
    assert {p.key for p in found.space(threads=False).params} == {"keep", "purge_delay", "front"} | huge


@pytest.mark.parametrize("name", SPACES)
def test_the_space_is_explained(name: str) -> None:
    for expert in (False, True):
        assert build_space(bundled_space(name), Context("", 2, False, expert)).params
    for spec in bundled_space(name).param:
        assert len(spec.explain) > 20, spec.key
        assert spec.explain.endswith("."), spec.key
        assert spec.safe == "yes" or spec.hazard, spec.key


# Options that no search may change: they end the program, print, or control checks of hardened
# builds.
PEOPLES = {"limit", "on_error", "stats", "quarantine", "wipe", "on_mismatch"}


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.few(1)
def test_every_level_is_understood(name: str) -> None:
    space = get_allocator(name).space(threads=False, expert=True)
    for param in space.params:
        for level in param.levels:
            assert said(name, space.environment({param.key: level}, {})) == "", (param.key, level)
    variable = space.allocator.env
    assert said(name, {variable: "nonsense=1"}).startswith(f"{variable}: not understood and ignored: 'nonsense=1'")


@pytest.mark.parametrize("name", SPACES)
def test_every_option_is_searched_or_for_people(name: str) -> None:
    """The space has all options that the library reads, except those that no search may change."""
    known = re.findall(r'key\.is\("(\w+)"\)', (CORE / "options.cpp").read_text())
    assert set(known) - {"cache"} == {p.key for p in bundled_space(name).param} | PEOPLES  # stored studies have `front`


def test_settings_share_a_variable_and_the_library_is_preloaded() -> None:
    exgen = get_allocator("exgen")
    space = exgen.space(threads=False)
    keys = [p.key for p in space.params]
    point = [0] * len(space.sizes)
    point[keys.index("keep")] = 1
    point[keys.index("front")] = 1
    base = {"EXGEN_OPTIONS": "stats=0,keep=5", "LD_PRELOAD": "/other.so"}
    assert space.render(point, base).env == {
        "EXGEN_OPTIONS": "stats=0,keep=0,front=512",
        "LD_PRELOAD": f"{exgen.preload}:/other.so",
    }
    assert space.render(space.default, {}).env == {"LD_PRELOAD": exgen.preload}


def test_a_library_is_not_preloaded_twice() -> None:
    assert preload_variables("/a.so", {}) == {"LD_PRELOAD": "/a.so"}
    assert preload_variables("/a.so", {"LD_PRELOAD": "/b.so:/a.so"}) == {"LD_PRELOAD": "/a.so:/b.so"}
    assert preload_variables("", {"LD_PRELOAD": "/b.so"}) == {}
