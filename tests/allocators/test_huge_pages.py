"""Huge pages as settings: where they are searched, and how a process goes without them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from heapwright.allocators.huge_pages import (
    FORBIDDEN,
    LIBRARY,
    VARIABLE,
    are_forbidden,
    has_huge_page_pool,
    process_space,
    thp_state,
    with_library,
)
from heapwright.allocators.registry import bundled_space
from heapwright.allocators.space import Space, build_space
from heapwright.allocators.space_spec import Context
from heapwright.files import NATIVE
from tests import needs

STATUS = "print(*(l for l in open('/proc/self/status') if l.startswith('THP_enabled')))"


def space(name: str, thp: str, pool: bool = False, version: str = "") -> Space:
    return build_space(bundled_space(name), Context(version, 2, True, False, None, thp, pool))


def levels(found: Space) -> dict[str, list[str]]:
    return {p.key: list(p.levels) for p in found.params}


HUGE = [  # allocator, version, setting, state → levels
    ("glibc", "2.36", "hugetlb", {"madvise": ["1"], "always": None, "never": None}),
    ("exgen", "", "huge_pages", {"madvise": ["never", "always"], "always": ["never", "always"], "never": None}),
    ("reaper", "", "huge_pages", {"madvise": ["never", "always"], "always": ["never", "always"], "never": None}),
    ("jemalloc", "5.3.0", "thp", {"madvise": ["always"], "always": ["never"], "never": None}),
    ("mimalloc", "2.2.0", "allow_thp", {"madvise": ["0"], "always": ["0"], "never": None}),
    ("mimalloc", "2.0.9", "large_os_pages", {"madvise": ["1"], "always": ["1"], "never": None}),
    ("mimalloc", "3.0.0", "allow_large_os_pages", {"madvise": ["0", "1"], "always": ["0", "1"], "never": None}),
    ("tbbmalloc", "2021.8", "use_huge_pages", {"madvise": None, "always": ["1"], "never": None}),
]


@pytest.mark.parametrize(("name", "version", "key", "states"), HUGE)
def test_huge_pages_are_searched_unasked_where_they_have_an_effect(
    name: str, version: str, key: str, states: dict[str, list[str] | None]
) -> None:
    for state, expected in states.items():
        found = space(name, state, version=version)
        assert levels(found).get(key) == expected, state
        if expected is None:
            assert f"here they are {state}" in dict(found.skipped)[key]
    unknown = levels(space(name, "", version=version))
    assert unknown[key], "conditions on an unknown state are ignored"


@pytest.mark.parametrize(("name", "version", "key"), [case[:3] for case in HUGE])
def test_settings_of_huge_pages_have_a_hazard(name: str, version: str, key: str) -> None:
    [spec] = [p.spec for p in space(name, "", version=version).params if p.key == key]
    assert spec.safe == "yes"
    assert spec.hazard.endswith(".")


def test_a_pool_of_huge_pages_would_hide_memory() -> None:
    for name, version, key in (("tbbmalloc", "", "use_huge_pages"), ("mimalloc", "2.0.9", "large_os_pages")):
        found = space(name, "always", pool=True, version=version)
        assert key not in levels(found)
        assert "does not count as resident" in dict(found.skipped)[key]


def test_the_process_goes_without_only_where_the_system_gives_them_unasked() -> None:
    def keys(thp: str) -> list[str]:
        return [p.key for p in build_space(process_space(), Context(thp=thp)).params]

    assert keys("always") == ["huge_pages"]
    assert keys("madvise") == keys("never") == []
    found = build_space(process_space(), Context(thp="always"))
    assert found.environment({"huge_pages": "never"}, {}) == {VARIABLE: FORBIDDEN}
    assert are_forbidden({VARIABLE: FORBIDDEN})
    assert not are_forbidden({VARIABLE: "always"})


def test_the_state_of_huge_pages_is_read_from_the_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if file.exists():
        assert f"[{thp_state()}]" in file.read_text()
    monkeypatch.setattr("heapwright.allocators.huge_pages._ENABLED", tmp_path / "enabled")
    assert thp_state() == "", "the kernel does not say"
    (tmp_path / "enabled").write_text("always [madvise] never\n")
    assert thp_state() == "madvise"


def test_a_pool_of_huge_pages_has_pages_or_may_get_some(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("heapwright.allocators.huge_pages._POOL", tmp_path)
    assert not has_huge_page_pool()
    folder = tmp_path / "hugepages-2048kB"
    folder.mkdir()
    for name, other in (("nr_hugepages", "nr_overcommit_hugepages"), ("nr_overcommit_hugepages", "nr_hugepages")):
        (folder / name).write_text("8\n")
        (folder / other).write_text("0\n")
        assert has_huge_page_pool(), name
        (folder / name).write_text("0\n")
        assert not has_huge_page_pool(), name


def test_a_process_forbids_them_for_itself_and_its_children() -> None:
    code = "from heapwright.allocators.huge_pages import forbid_huge_pages as f; import os, sys; f();"
    code += f"os.execv(sys.executable, [sys.executable, '-c', {STATUS!r}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    if not done.stdout.strip():
        needs.machine_cannot("tell whether a process may have huge pages: the kernel is older than 5.0")
    assert done.stdout.split() == ["THP_enabled:", "0"]


def test_without_heapwright_a_library_forbids_them() -> None:
    if not (NATIVE / "lib" / LIBRARY).is_file():
        needs.not_built(LIBRARY)
    env = with_library({VARIABLE: FORBIDDEN, "A": "b"})
    assert env == {"A": "b", "LD_PRELOAD": str(NATIVE / "lib" / LIBRARY)}
    done = subprocess.run(["grep", "THP_enabled", "/proc/self/status"], env=env, capture_output=True, text=True)
    if done.returncode:
        needs.machine_cannot("tell whether a process may have huge pages: the kernel is older than 5.0")
    assert done.stdout.split() == ["THP_enabled:", "0"]


def test_the_library_comes_behind_the_allocator() -> None:
    env = with_library({VARIABLE: FORBIDDEN, "LD_PRELOAD": "/opt/heapwright/lib/libexgen.so"}, inside=True)
    assert env == {"LD_PRELOAD": f"/opt/heapwright/lib/libexgen.so:/opt/heapwright/lib/{LIBRARY}"}
    assert with_library({"A": "b"}) == {"A": "b"}
