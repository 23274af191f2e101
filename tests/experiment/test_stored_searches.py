"""Tests that a folder's searches are used only for the definition that they were made for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from heapwright.errors import HeapwrightError
from heapwright.experiment.definition import PlannedSearch, expand_searches, load_definition
from heapwright.experiment.stored_searches import digests_of, exclusive_folder, finished, put_outdated_aside
from heapwright.workload.model import Input

from ..study.conftest import Tuning
from ..study.fakes import World

TEXT = """
methods = ["random"]
seeds = 2
budgets = [3]
minimize = ["cpu"]
options = ["--no-runtime"]
[[program]]
name = "p"
trace = "a.hwt"
"""


@pytest.fixture
def base(tmp_path: Path, tuning: Callable[..., Tuning]) -> Path:
    """A folder with a definition, and its first search finished."""
    (tmp_path / "a.hwt").write_text("{}")
    (tmp_path / "e.toml").write_text(TEXT)
    made = tuning(World(), options={"allocator": "toy", "method": "random", "evaluations": 3, "search_only": True})
    made.path = tmp_path / "p-random-3-1.study"
    made.go()
    return tmp_path


def digests(base: Path, text: str = TEXT) -> dict[str, str]:
    (base / "e.toml").write_text(text)
    definition = load_definition(base / "e.toml")
    planned_searches: list[PlannedSearch] = expand_searches(definition)
    return digests_of(planned_searches, definition, base)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"cpu"', '"peak_rss"'),
        ('"--no-runtime"', '"--no-runtime", "--no-minify"'),
        ("minimize", 'allocators = ["glibc"]\nminimize'),
        ('trace = "a.hwt"', 'command = ["true"]'),
        ("methods", "confirm = true\nmethods"),
        ('minimize = ["cpu"]', 'preset = "landscape2025"'),
    ],
)
def test_another_definition_begins_new_searches(base: Path, old: str, new: str) -> None:
    said = list[str]()
    put_outdated_aside(digests(base), base, said.append)
    assert (list(finished(digests(base), base)), said) == (["p-random-3-1.study"], [])
    changed = digests(base, TEXT.replace(old, new, 1))
    assert finished(changed, base) == {}, "its results do not use the old search"
    put_outdated_aside(changed, base, said.append)
    assert len(said) == 1
    assert (base / "p-random-3-1.1.study").exists()
    assert not (base / "p-random-3-1.study").exists()
    assert said[0].startswith("p-random-3-1.study is of another definition: a new search begins")


def test_a_new_recording_begins_new_searches(base: Path) -> None:
    put_outdated_aside(digests(base), base, lambda _: None)
    (base / "a.hwt").write_text('{"other": 1}')
    assert finished(digests(base), base) == {}


def test_another_build_begins_new_searches(tmp_path: Path, tuning: Callable[..., Tuning]) -> None:
    (tmp_path / "a.hwt").write_text("{}")
    (tmp_path / "input.txt").write_text("one\n")
    options = {"allocator": "toy", "method": "random", "evaluations": 3, "search_only": True}
    made = tuning(World(), options=options, inputs=(Input("default", args=["input.txt"]),))
    made.path = tmp_path / "p-random-3-1.study"
    made.go()
    said = list[str]()
    put_outdated_aside(digests(tmp_path), tmp_path, said.append)
    assert said == []
    (tmp_path / "input.txt").write_text("two\n")
    put_outdated_aside(digests(tmp_path), tmp_path, said.append)
    (line,) = said
    assert "p-random-3-1.study: the program has changed since the study was made" in line
    assert "input.txt changed" in line
    assert finished(digests(tmp_path), tmp_path) == {}


def test_one_experiment_works_in_a_folder(tmp_path: Path) -> None:
    busy = pytest.raises(HeapwrightError, match="another heapwright experiment works in")
    with exclusive_folder(tmp_path), busy, exclusive_folder(tmp_path):
        pass
    with exclusive_folder(tmp_path):
        pass


def test_more_seeds_and_programs_keep_the_searches(base: Path) -> None:
    put_outdated_aside(digests(base), base, lambda _: None)
    more = TEXT.replace("seeds = 2", "seeds = 3") + '[[program]]\nname = "q"\ncommand = ["true"]\n'
    put_outdated_aside(digests(base, more), base, lambda text: pytest.fail(text))
    assert list(finished(digests(base, more), base)) == ["p-random-3-1.study"]


def test_a_folder_of_an_older_version_is_taken_as_it_is(base: Path) -> None:
    assert list(finished(digests(base), base)) == ["p-random-3-1.study"]


def test_a_damaged_file_is_one_line(base: Path) -> None:
    (base / "experiment.json").write_text("{")
    with pytest.raises(HeapwrightError, match=r"experiment\.json cannot be read"):
        finished(digests(base), base)
