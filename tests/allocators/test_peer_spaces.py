"""The spaces of the allocators there are, against the very libraries found here."""

from __future__ import annotations

import math
import re
import subprocess
import sys

import pytest

from heapwright.allocators.library_report import ask_library, effective_settings, known_keys
from heapwright.allocators.presets import load_preset, preset_allocators, preset_names
from heapwright.allocators.registry import (
    bundled_names,
    bundled_space,
    find_allocators,
    get_allocator,
    ordinary_allocators,
    upstream_version,
)
from heapwright.allocators.space import build_space
from heapwright.allocators.space_spec import Context
from heapwright.errors import UsageError
from heapwright.study.options import Options
from tests import needs
from tests.conftest import ROOT

HERE = find_allocators()
VERSIONS = {
    "glibc": ("2.31", "2.36", "2.43"),
    "jemalloc": ("5.2.1", "5.3.0", "5.3.1"),
    "mimalloc": ("2.0.9", "2.1.7", "2.3.2", "2.5.2", "3.3.2", "3.6.0"),
    "tcmalloc": ("2.8", "2.10", "2.16"),
    "tbbmalloc": ("2021.8.0",),
}


@pytest.mark.parametrize("name", ["exgen", "reaper"])
def test_the_defaults_of_our_allocators_are_those_of_their_source(name: str) -> None:
    source = (ROOT / "native/allocator/core/options.h").read_text()
    source += (ROOT / f"native/allocator/{name}/{name}.cpp").read_text()
    words = {"keep": "keep", "purge_delay": "purge_delay", "front": "kCacheBytesPerClass"}
    for spec in bundled_space(name).param:
        if spec.key in words:
            product = re.search(rf"\b{words[spec.key]} = ([\d *]+);", source)
            assert product
            assert spec.default == str(math.prod(map(int, product[1].split("*"))))


@pytest.mark.parametrize("name", bundled_names())
def test_every_setting_is_explained_and_every_hazard_has_words(name: str) -> None:
    for spec in bundled_space(name).param:
        assert len(spec.explain) > 20, spec.key
        assert spec.explain.endswith("."), spec.key
        assert spec.safe == "yes" or spec.hazard, spec.key


@pytest.mark.parametrize(
    ("name", "key", "harmless", "risky"),
    [
        ("glibc", "mmap_threshold", ["131072", "33554432", "", "--1", "1" * 5000], ["131071", "32"]),
        ("glibc", "trim_threshold", ["0", "67108864"], ["67108865", "18446744073709551615"]),
        ("jemalloc", "dirty_decay_ms", ["0", "10000"], ["-1"]),
        ("exgen", "keep", ["0", "2097152"], ["1073741824"]),
        ("reaper", "keep", ["0", "2097152"], ["1073741824"]),
        ("exgen", "huge_pages", [], ["never", "always"]),
        ("mimalloc", "allow_large_os_pages", ["0"], ["1"]),
        ("exgen", "front", ["512", "262144"], []),
    ],
)
def test_a_hazard_names_the_values_that_have_it(name: str, key: str, harmless: list[str], risky: list[str]) -> None:
    [spec] = [s for s in bundled_space(name).param if s.key == key]
    assert not any(spec.risks(value) for value in harmless)
    assert all(spec.risks(value) == spec.hazard != "" for value in risky)


@pytest.mark.parametrize(("name", "version"), [(n, v) for n, versions in VERSIONS.items() for v in versions])
@pytest.mark.parametrize("expert", [False, True])
def test_every_version_has_a_valid_space(name: str, version: str, expert: bool) -> None:
    keys = [p.key for p in build_space(bundled_space(name), Context(version, 2, True, expert)).params]
    assert keys
    assert len(set(keys)) == len(keys)


def test_settings_depend_on_the_version_of_the_allocator() -> None:
    def keys(name: str, version: str) -> set[str]:
        return {p.key for p in build_space(bundled_space(name), Context(version, 2)).params}

    assert "lg_tcache_max" in keys("jemalloc", "5.2.1") - keys("jemalloc", "5.3.0")
    assert "tcache_max" in keys("jemalloc", "5.3.0") - keys("jemalloc", "5.2.1")
    assert "decommit_delay" in keys("mimalloc", "2.0.9") - keys("mimalloc", "2.3.2")
    assert "page_full_retain" in keys("mimalloc", "3.3.2") - keys("mimalloc", "2.3.2")


def test_dangerous_settings_are_never_searched() -> None:
    for name, versions in VERSIONS.items():
        space = build_space(bundled_space(name), Context(versions[-1], 2, True, True))
        keys = {p.key for p in space.params}
        assert not keys & {
            "heap_limit_mb",
            "disallow_os_alloc",
            "destroy_on_exit",
            "junk",
            "memfs_malloc_path",
            "check",
        }


def test_tcmalloc_is_never_left_without_memory() -> None:
    """skip_sbrk and skip_mmap together make every allocation fail."""
    space = build_space(bundled_space("tcmalloc"), Context("2.10", 2, True, True))
    keys = [p.key for p in space.params]
    point = [0] * len(keys)
    point[keys.index("skip_sbrk")] = point[keys.index("skip_mmap")] = 1
    assert space.settings(point) == {"skip_sbrk": "1"}


@pytest.mark.parametrize("name", ["jemalloc", "mimalloc2", needs.long("mimalloc3"), "exgen", "reaper"])
def test_the_ends_of_every_range_take_effect(name: str) -> None:
    needs.peer(name)
    allocator = get_allocator(name)
    space = allocator.space(threads=True, expert=True)
    assert space.params
    for param in space.params:
        for level in dict.fromkeys(
            (param.levels[0], param.levels[param.specials % len(param.levels)], param.levels[-1])
        ):
            settings = {param.key: level}
            found = effective_settings(allocator.file.allocator, "true", settings, space.environment(settings, {}))
            assert found == (settings if space.allocator.probe != "complaint" else {}), name


def test_a_setting_without_effect_is_noticed() -> None:
    needs.peer("jemalloc")
    spec = get_allocator("jemalloc").file.allocator
    assert effective_settings(spec, "true", {"narenas": "0"}, {"MALLOC_CONF": "narenas:0"})["narenas"] != "0"
    assert ask_library(spec, {"MALLOC_CONF": "nonsense:1"}).complaints == ("Invalid conf pair: nonsense:1",)
    spec = get_allocator("exgen").file.allocator
    assert effective_settings(spec, "true", {"keep": "x"}, {"EXGEN_OPTIONS": "keep=x"}) == {"keep": "not understood"}


@pytest.mark.parametrize("name", ["tcmalloc", "jemalloc", "mimalloc2"])
def test_a_setting_of_another_build_is_left_out(name: str) -> None:
    needs.peer(name)
    allocator = get_allocator(name)
    known = known_keys(allocator.file.allocator)
    assert known
    assert {p.key for p in allocator.space(threads=True, expert=True).params} <= known
    assert "no_such_setting" not in known


def test_versions_without_the_distribution() -> None:
    for text, expected in (("5.3.0-1", "5.3.0"), ("1:2.10-1+b2", "2.10"), ("2.3.2 (sys 0.1)", "2.3.2"), ("", "")):
        assert upstream_version(text) == expected


def test_hardened_and_duplicate_allocators_are_searched_only_if_named() -> None:
    names = [a.name for a in ordinary_allocators()]
    assert not [n for n in names if "secure" in n or "nothp" in n or n == "scudo"]
    libraries = [a.path for a in ordinary_allocators()]
    assert len(set(libraries)) == len(libraries)
    assert {"exgen", "reaper"} <= set(names)


def test_the_table_in_the_docs_is_the_files() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "tools/settings_table.py"], capture_output=True, text=True, check=True
    )
    assert (ROOT / "docs/settings.md").read_text() == made.stdout


# presets


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_is_options_and_spaces(name: str) -> None:
    preset = load_preset(name)
    Options(**preset.options)
    for space in preset.spaces:
        allocator = space.partition("-")[2]
        if allocator in HERE:
            (found,) = preset_allocators(preset, [allocator])
            assert found.space(threads=True).params
            assert found.file.allocator == get_allocator(allocator).file.allocator


def test_greenmalloc_as_published() -> None:
    preset = load_preset("greenmalloc")
    assert preset.options["evaluations"] == 24 * 500
    (found,) = preset_allocators(preset, [])
    space = found.space(threads=True)
    ranges = {p.key: (p.levels[0], p.levels[-1]) for p in space.params}
    assert ranges == {
        "mmap_max": ("0", "16777216"),
        "mmap_threshold": ("0", "1048576"),
        "perturb": ("0", "255"),
        "top_pad": ("0", "1048576"),
        "trim_threshold": ("0", "1048576"),
        "arena_test": ("0", "1048576"),
        "arena_max": ("0", "128"),
    }


def test_the_landscape_as_published() -> None:
    (found,) = preset_allocators(load_preset("landscape"), [])
    space = found.space(threads=False)
    assert {p.key for p in space.params} == {"mmap_max", "trim_threshold", "mmap_threshold"}
    for param in space.params:
        assert param.levels[-1] == str(1 << 25)
        assert {str(1 << n) for n in range(26)} <= set(param.levels)
        assert "46341" in param.levels, "half powers too"


def test_the_landscape_of_2025_as_published() -> None:
    """Table 1 of the paper: ranges, unmutated values and Magpie's means."""
    preset = load_preset("landscape2025")
    assert (preset.options["evaluations"], preset.options["massif"]) == (1000, True)
    assert preset.options["massif_by"] == "emulation"
    (found,) = preset_allocators(preset, [])
    space = found.space(threads=False)
    table = {p.key: (p.levels[0], p.levels[-1], len(p.levels), p.spec.start, p.spec.mean) for p in space.params}
    assert table == {
        "mmap_max": ("0", "33554432", 2**25 + 1, 65536, 65536),
        "trim_threshold": ("0", "33554432", 2**25 + 1, 131072, 131072),
        "mmap_threshold": ("0", "33554432", 2**25 + 1, 131072, 131072),
    }
    assert space.settings(space.default) == {}
    one_edit = space.settings((0, 0, 301))
    assert one_edit == {"mmap_max": "65536", "trim_threshold": "131072", "mmap_threshold": "300"}


@pytest.mark.parametrize("allocator", [a for a in ("glibc", "tcmalloc") if a in HERE])
def test_greenmalloc_of_2025_sets_everything(allocator: str) -> None:
    preset = load_preset("greenmalloc2025")
    assert (preset.options["evaluations"], preset.options["method"]) == (24 * 500, "nsga2")
    (found,) = preset_allocators(preset, [allocator])
    assert all(p.spec.always for p in found.space(threads=True).params)


def test_a_preset_has_no_other_allocators() -> None:
    with pytest.raises(UsageError, match="this preset has no space for exgen"):
        preset_allocators(load_preset("landscape"), ["exgen"])
    with pytest.raises(UsageError, match="unknown preset 'greenmaloc'"):
        load_preset("greenmaloc")
