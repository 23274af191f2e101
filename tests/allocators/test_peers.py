"""Finding allocators, and seeing whether they took over."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heapwright.allocators import peers
from heapwright.allocators.registry import find_allocators, get_allocator
from heapwright.allocators.takeover import bindings, other_providers, takeover_failure, watch_environment
from heapwright.errors import UsageError


@pytest.fixture
def library(program: Callable[..., Path]) -> Path:
    """A malloc of our own that can be preloaded."""
    return program("bump_malloc", "-shared", "-fPIC")


def bound(command: list[str], folder: Path, **env: str) -> list[set[tuple[str, str]]]:
    folder.mkdir()
    subprocess.run(command, env={**os.environ, **watch_environment(folder), **env}, check=False, capture_output=True)
    return bindings(folder)


def test_every_peer_has_a_name_of_its_own() -> None:
    names = [spec.name for spec in peers.known_peers()]
    names += [f"{spec.name}-{v.suffix}" for spec in peers.known_peers() for v in spec.variant]
    assert len(names) == len(set(names))
    assert "glibc" not in names


def test_named_libraries_are_found_first(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEAPWRIGHT_ALLOCATORS", f"jemalloc={library}:bump={library}")
    found = peers.find_peers()
    assert found["jemalloc"].path == found["bump"].path == str(library)
    for wrong, message in (("bump", "is not NAME=PATH"), (f"bump={tmp_path}/no.so", "bump: no such file")):
        monkeypatch.setenv("HEAPWRIGHT_ALLOCATORS", wrong)
        with pytest.raises(UsageError, match=message):
            peers.find_peers()


def test_libraries_of_make_peers_are_found(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "own_folder", lambda: tmp_path)
    shutil.copy(library, tmp_path / "libmimalloc.so.3")
    (tmp_path / "libmimalloc.so.3.version").write_text("3.4.3\n")
    found = peers.find_peers()
    assert found["mimalloc3"].version == "3.4.3"
    assert found["mimalloc3-nothp"].env == {"MIMALLOC_ALLOW_THP": "0"}


def test_a_process_asks_for_the_packages_once(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tune` looks for allocators three times."""
    monkeypatch.setenv("HEAPWRIGHT_ALLOCATORS", f"bump={library}")
    asked, run = list[list[str]](), subprocess.run

    def counted(words: list[str], **more: Any) -> Any:
        asked.append(words)
        return run(words, **more)

    monkeypatch.setattr(subprocess, "run", counted)
    found = [peers.find_peers() for _ in range(3)]
    assert found[0] == found[1] == found[2]
    assert sum(words[:2] == ["dpkg-query", "-S"] for words in asked) == 1


def test_mimalloc_is_the_newest(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEAPWRIGHT_ALLOCATORS", f"mimalloc2={library}")
    assert find_allocators()["mimalloc"].name in ("mimalloc2", "mimalloc3")


def test_a_path_is_an_allocator_too(library: Path) -> None:
    allocator = get_allocator(str(library))
    assert allocator.preload == str(library)
    assert allocator.environment({"LD_PRELOAD": "/other.so"})["LD_PRELOAD"] == f"{library}:/other.so"
    with pytest.raises(UsageError, match="no such allocator library"):
        get_allocator("./no.so")


def test_a_missing_allocator_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_installed", dict)
    monkeypatch.setattr(peers, "own_folder", lambda: Path("/no"))
    with pytest.raises(UsageError, match="'jemalloc' is not on this machine") as raised:
        get_allocator("jemalloc")
    assert "apt-get install -y libjemalloc2" in raised.value.hint


def test_a_build_id_is_what_readelf_says(library: Path) -> None:
    said = subprocess.run(["readelf", "-n", library], capture_output=True, text=True, check=True).stdout
    found = peers.build_id(str(library))
    assert found is None or found in said
    assert (found is None) == ("Build ID" not in said)
    assert peers.build_id(__file__) is None


def test_an_allocator_that_took_over(library: Path, tmp_path: Path) -> None:
    found = bound([sys.executable, "-c", "pass"], tmp_path / "a", LD_PRELOAD=str(library))
    assert takeover_failure(str(library), sys.executable, found) == ""


def test_a_program_at_a_fixed_address(library: Path, program: Callable[..., Path], tmp_path: Path) -> None:
    """It lends malloc an address of its own to the libraries it is linked with, as Debian's python3 does."""
    fixed = str(program("takes_malloc", "-no-pie", "-fno-pie"))
    found = bound([fixed], tmp_path / "a", LD_PRELOAD=str(library))
    assert takeover_failure(str(library), fixed, found) == ""
    (tmp_path / "libbroken.so").write_text("not a library")
    found = bound([fixed], tmp_path / "b", LD_PRELOAD=str(tmp_path / "libbroken.so"))
    assert takeover_failure(str(tmp_path / "libbroken.so"), fixed, found).startswith("not loaded: malloc is bound to /")


def test_an_allocator_that_was_dropped(tmp_path: Path) -> None:
    broken = tmp_path / "libbroken.so"
    broken.write_text("not a library")
    found = bound(["perl", "-e", "1"], tmp_path / "a", LD_PRELOAD=str(broken))
    assert takeover_failure(str(broken), "perl", found).startswith("not loaded: malloc is bound to /")


def test_helpers_of_a_script_decide_nothing_about_the_program_that_it_becomes(library: Path) -> None:
    ours = os.path.realpath(library)
    helper, other = {("/bin/env", ours)}, {("/bin/prog", "/opt/libother.so")}
    assert other_providers(str(library), [helper]) == []
    assert other_providers(str(library), [other | {("/bin/sh", ours)}, helper]) == ["/opt/libother.so"]
    assert other_providers(str(library), [other, helper]) == [], (
        "no script: the process that uses the library may matter"
    )


def test_a_program_that_ignores_preloading(library: Path, program: Callable[..., Path], tmp_path: Path) -> None:
    static = str(program("moody", "-static"))
    found = bound([static], tmp_path / "a", LD_PRELOAD=str(library))
    assert found == []
    assert takeover_failure(str(library), static, found) == "not loaded: the program is statically linked"


def test_a_program_with_a_malloc_of_its_own(library: Path, program: Callable[..., Path], tmp_path: Path) -> None:
    own = str(program("bump_malloc", "-DWITH_MAIN", "-rdynamic"))
    found = bound([own], tmp_path / "a", LD_PRELOAD=str(library))
    assert takeover_failure(str(library), own, found) == "not loaded: the program defines its own malloc"
