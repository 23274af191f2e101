"""Tests options, budgets, and the studies that a command may resume: every refusal is one line with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.allocators.registry import get_allocator
from heapwright.errors import HeapwrightError, UsageError
from heapwright.measure.host import describe_host
from heapwright.study.open import changed_since, default_path, open_or_begin, put_aside
from heapwright.study.options import EXTENSIBLE, Options, conflicts, parse_budget
from heapwright.study.store import open_writable_study, read_study
from heapwright.workload.model import Input, Workload, WorkloadFile

from ..allocators.spaces import number
from .fakes import toy_allocator

# budgets


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("96", (96, 0.0)),
        (" 7 ", (7, 0.0)),
        ("90s", (0, 90.0)),
        ("15m", (0, 900.0)),
        ("15min", (0, 900.0)),
        ("2h", (0, 7200.0)),
        ("1.5h", (0, 5400.0)),
        ("1d", (0, 86400.0)),
    ],
)
def test_budgets_are_counts_or_times(text: str, expected: tuple[int, float]) -> None:
    assert parse_budget(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "-5", "1h30m", "10 m", "5.5", "1e3", "10x", "m", "inf", "10m\n5", "0x10"])
def test_a_budget_that_is_neither_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_budget(text)
    assert f"'{text}' is neither a count nor a time" in caught.value.message
    assert caught.value.hint == "for example 200, 90s, 15m or 2h"
    assert caught.value.status == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [("0", "must be at least 1 evaluation"), ("0s", "'0s' is not longer than 0 s"), ("0.0h", "not longer than 0 s")],
)
def test_a_budget_of_zero_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        parse_budget(text)
    assert caught.value.hint


@given(st.text(max_size=12))
def test_any_text_is_a_budget_or_a_usage_error(text: str) -> None:
    try:
        evaluations, seconds = parse_budget(text)
    except UsageError:
        return
    assert (evaluations > 0) != (seconds > 0)


# options


def test_options_survive_the_store() -> None:
    options = Options(objectives=("wall_s",), params=("a", "b"), seed=7, budget_s=60.0, evaluations=0)
    assert msgspec.convert(msgspec.json.decode(msgspec.json.encode(options)), Options, strict=False) == options


def test_only_how_long_it_goes_on_and_what_it_advises_may_change() -> None:
    assert set(EXTENSIBLE) == {"evaluations", "budget_s", "pairs_max", "replicates", "limits", "prices", "requires"}
    stored = Options()
    assert conflicts(stored, {"evaluations": 500, "budget_s": 9.0, "pairs_max": 99}) == []
    assert conflicts(stored, {"seed": 2, "objectives": ("wall_s", "cpu_s")}) == [
        "seed 1, not 2",
        "objectives peak_rss_bytes,cpu_s, not wall_s,cpu_s",
    ]
    assert conflicts(stored, msgspec.structs.asdict(stored)) == []


# resuming a study


@pytest.fixture
def workload(tmp_path: Path) -> Workload:
    return Workload(WorkloadFile(command=["solver", "--fast"]), tmp_path, (Input("default"),))


@pytest.fixture
def begin(tmp_path: Path, workload: Workload, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Options]:
    """Opens the one study of the test, with these options, and closes it."""
    monkeypatch.delenv("TOY", raising=False)

    def go(other: Workload | None = None, allocator: Any = None, **given: Any) -> Options:
        allocator = allocator or toy_allocator()
        store, options = open_or_begin(tmp_path / "s.study", other or workload, [allocator], given, ["heapwright"])
        store.close()
        return options

    return go


def test_a_study_keeps_the_settings_of_the_version_it_searches(begin: Callable[..., Options], tmp_path: Path) -> None:
    """glibc.toml has tcache_count twice: 7 unless set before 2.43, 16 since."""
    for version, default in (("2.36-9+deb12u14", "7"), ("2.43-1", "16")):
        begin(allocator=replace(get_allocator("glibc"), version=version))
        with read_study(tmp_path / "s.study") as store:
            counts = [p for p in store.meta.spaces["glibc"]["param"] if p["key"] == "tcache_count"]
        assert [p["default"] for p in counts] == [default]
        (tmp_path / "s.study").unlink()


def test_a_study_remembers_its_workload_file_where_it_stands_now(
    begin: Callable[..., Options], workload: Workload, tmp_path: Path
) -> None:
    """The workload file may move, or the study may resume with a copy: its path is not part of the study's identity."""
    for place in ("/first/w.toml", "/second/w.toml"):
        begin(replace(workload, path=place))
        with read_study(tmp_path / "s.study") as store:
            assert store.meta.workload_file == place


def refused(message: str, go: Callable[..., Options], *words: Any, **more: Any) -> None:
    with pytest.raises(HeapwrightError) as caught:
        go(*words, **more)
    assert message in caught.value.message
    assert "\n" not in caught.value.message + caught.value.hint
    assert "another file with --study" in caught.value.hint


def test_options_left_out_are_those_it_was_begun_with(begin: Callable[..., Options]) -> None:
    first = begin(seed=5, method="sobol", evaluations=10)
    assert first == Options(seed=5, method="sobol", evaluations=10, budget_s=0.0)
    assert begin() == first
    assert begin(method="sobol") == first


def test_a_new_budget_replaces_the_old_one_of_either_kind(begin: Callable[..., Options]) -> None:
    begin(evaluations=10, budget_s=0.0)
    assert begin(evaluations=20, budget_s=0.0) == Options(evaluations=20, budget_s=0.0)
    timed = begin(evaluations=0, budget_s=60.0)
    assert (timed.evaluations, timed.budget_s) == (0, 60.0)
    assert begin(budget_s=90.0) == Options(evaluations=0, budget_s=90.0)
    assert begin(evaluations=5) == Options(evaluations=5, budget_s=0.0)
    assert begin() == Options(evaluations=5, budget_s=0.0)


def test_other_options_are_refused(begin: Callable[..., Options]) -> None:
    begin()
    refused("s.study was begun with seed 1, not 2", begin, seed=2)
    refused("begun with method auto, not grid; margin 0.005, not 0.01", begin, method="grid", margin=0.01)
    refused("begun with search-only off, not on; params none, not mxfast", begin, search_only=True, params=("mxfast",))
    assert begin() == Options()


def test_another_commands_study_is_refused(begin: Callable[..., Options], workload: Workload) -> None:
    begin()
    other = msgspec.structs.replace(workload.file, command=["solver", "--slow"])
    refused(
        "is a study of another command: command was solver --fast, is solver --slow",
        begin, Workload(other, workload.cwd, workload.inputs),
    )  # fmt: skip
    other = msgspec.structs.replace(workload.file, env={"THREADS": "2"})
    refused("of another command: env was none, is THREADS=2", begin, Workload(other, workload.cwd, ()))
    refused("of another command: cwd was", begin, Workload(workload.file, Path("/"), workload.inputs))


def test_a_long_command_does_not_make_a_long_message(begin: Callable[..., Options], workload: Workload) -> None:
    begin()
    other = msgspec.structs.replace(workload.file, command=["solver", *["word"] * 5000])
    with pytest.raises(HeapwrightError) as caught:
        begin(Workload(other, workload.cwd, workload.inputs))
    assert len(caught.value.message) < 400


def test_other_words_about_a_parameter_are_no_other_space(begin: Callable[..., Options], tmp_path: Path) -> None:
    begin()
    first = (tmp_path / "s.study").stat().st_ino
    allocator = toy_allocator()
    params = [msgspec.structs.replace(p, explain="Said better.", hazard="Less.") for p in allocator.file.param]
    gates = [msgspec.structs.replace(g, explain="Said better.") for g in allocator.file.gate]
    begin(allocator=replace(allocator, file=msgspec.structs.replace(allocator.file, param=params, gate=gates)))
    assert (tmp_path / "s.study").stat().st_ino == first, "the same study continues"


def test_another_parameter_space_is_refused(begin: Callable[..., Options]) -> None:
    begin()
    refused("searches another parameter space than toy's is now", begin, allocator=toy_allocator(number("only")))


def test_another_build_of_an_allocator_begins_a_new_study(begin: Callable[..., Options], tmp_path: Path) -> None:
    library, moved = tmp_path / "libtoy.so", tmp_path / "moved/libtoy.so"
    library.write_text("first build")
    toy = replace(toy_allocator(), path=str(library))
    begin(allocator=toy)
    moved.parent.mkdir()
    moved.write_text("first build")
    begin(allocator=replace(toy, path=str(moved)))
    assert not (tmp_path / "s.1.study").exists()
    assert not changed_since(tmp_path / "s.study")
    moved.write_text("second build")
    begin(allocator=replace(toy_allocator(number("only")), path=str(moved)))
    assert (tmp_path / "s.1.study").exists()
    moved.write_text("third build")
    sentence = f"an allocator has changed since the study was made ({moved} changed)"
    assert changed_since(tmp_path / "s.study") == sentence


def test_a_study_put_aside_takes_a_number_that_nothing_has(begin: Callable[..., Options], tmp_path: Path) -> None:
    """Regression: an older report was overwritten, and recordings of an older study ended the command."""
    begin()
    (tmp_path / "s.study.traces").mkdir()
    (tmp_path / "s.study.traces/new.hwt").touch()
    (tmp_path / "s.1.html").write_text("an older report")
    (tmp_path / "s.2.study.traces").mkdir()
    (tmp_path / "s.2.study.traces/old.hwt").touch()
    assert put_aside(tmp_path / "s.study") == tmp_path / "s.3.study"
    assert (tmp_path / "s.3.study.traces/new.hwt").exists()
    assert (tmp_path / "s.1.html").read_text() == "an older report"
    assert (tmp_path / "s.2.study.traces/old.hwt").exists()
    assert not list(tmp_path.glob("s.study*"))
    with read_study(tmp_path / "s.3.study") as store:
        assert store.meta.options


def test_a_study_is_moved_last(begin: Callable[..., Options], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin()
    (tmp_path / "s.html").touch()

    def refused(_path: Path, _to: Path) -> None:
        with pytest.raises(HeapwrightError, match="in use by another heapwright"):
            open_writable_study(tmp_path / "s.study")
        raise PermissionError

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(PermissionError):
        put_aside(tmp_path / "s.study")
    with read_study(tmp_path / "s.study") as store:
        assert store.meta.options


def test_the_load_of_the_machine_is_stored(
    begin: Callable[..., Options], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (7.254, 1.0, 1.0))
    begin()
    with read_study(tmp_path / "s.study") as store:
        assert store.meta.host["load_average"] == 7.25


def test_another_machine_is_refused(begin: Callable[..., Options], monkeypatch: pytest.MonkeyPatch) -> None:
    begin()
    here = describe_host()
    monkeypatch.setattr("heapwright.study.open.describe_host", lambda: {**here, "cpu": "Z80", "kernel": "CP/M"})
    refused(f"on another machine (cpu: {here['cpu']} then, Z80 now; kernel: ", begin)


@pytest.mark.parametrize(
    ("name", "value"),
    [("TOY", "toy.cache=3"), ("LD_PRELOAD", ""), ("MALLOC_ARENA_MAX", "2"), ("MALLOC_TOP_PAD_", "65536")],
)
def test_a_change_of_other_malloc_variables_is_refused(
    name: str, value: str, begin: Callable[..., Options], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(name, raising=False)
    begin()
    monkeypatch.setenv(name, value)
    refused(f"was measured with {name} unset in the environment, now it is {name}={value}", begin)
    monkeypatch.delenv(name)
    begin()


def test_variables_of_runtimes_that_the_program_has_not_do_not_count(
    begin: Callable[..., Options], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OCaml's users often export OCAMLRUNPARAM=b; a study of another program may go on with or without it."""
    monkeypatch.delenv("OCAMLRUNPARAM", raising=False)
    begin()
    with open_writable_study(tmp_path / "s.study") as store:
        store.update(seeks_runtimes=True, runtimes={})
    monkeypatch.setenv("OCAMLRUNPARAM", "b")
    begin()
    with open_writable_study(tmp_path / "s.study") as store:
        store.update(runtimes=None)
    refused("was measured with OCAMLRUNPARAM unset in the environment, now it is OCAMLRUNPARAM=b", begin)


def test_a_refusal_leaves_the_study_free(begin: Callable[..., Options]) -> None:
    begin()
    refused("seed", begin, seed=2)
    begin()


def test_old_reference_outputs_do_not_judge_a_new_study(begin: Callable[..., Options], tmp_path: Path) -> None:
    references = tmp_path / "s.study.reference"
    references.mkdir()
    (references / "stale").write_text("of a study that was deleted")
    begin()
    assert not references.exists()
    references.mkdir()
    begin()
    assert references.exists(), "those of a study that goes on stay"


# the path of a study


def test_the_same_command_finds_its_study_again(workload: Workload) -> None:
    path = default_path(workload, [toy_allocator()])
    assert path == default_path(workload, [toy_allocator()])
    assert path.parent == Path()
    assert path.name.startswith("heapwright-solver-")
    assert path.suffix == ".study"
    other = msgspec.structs.replace(workload.file, command=["solver", "--slow"])
    assert path != default_path(Workload(other, workload.cwd, workload.inputs), [toy_allocator()])
    assert path != default_path(Workload(workload.file, Path("/"), workload.inputs), [toy_allocator()])
    assert path != default_path(workload, [toy_allocator(number("only"))])


@pytest.mark.parametrize(
    ("command", "name"), [("/opt/my tool/bin/a b", "a-b"), ("./..", "program"), ("./-x", "x"), ("/bin/größe", "gr-e")]
)
def test_strange_programs_have_plain_file_names(command: str, name: str, workload: Workload) -> None:
    file = msgspec.structs.replace(workload.file, command=[command])
    found = default_path(Workload(file, workload.cwd, workload.inputs), [toy_allocator()])
    assert found.name.startswith(f"heapwright-{name}-")
