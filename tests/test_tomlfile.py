"""Tests TOML files of users: every error message names file, line and key, in every style of TOML."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.errors import UsageError, unknown
from heapwright.tomlfile import key_line, load_toml


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    width: int = 0
    colour: Literal["red", "green"] = "red"


class Item(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    inner: Inner = msgspec.field(default_factory=Inner)


class Whole(msgspec.Struct, forbid_unknown_fields=True):
    title: str = ""
    inner: Inner | None = None
    item: list[Item] = []
    table: dict[str, int] = {}


def complaint(folder: Path, text: str) -> str:
    path = folder / "f.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_toml(path, Whole)
    assert "\n" not in caught.value.message
    return caught.value.message.replace(f"{folder}/", "") + (f" ({caught.value.hint})" if caught.value.hint else "")


def test_a_valid_file_fills_the_classes(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text('title = "ü"\n[inner]\nwidth = 3\n[[item]]\nname = "a"\ninner.colour = "green"\n')
    found = load_toml(tmp_path / "f.toml", Whole)
    assert found == Whole("ü", Inner(3), [Item("a", Inner(colour="green"))])


CASES = {
    "a table": ("[inner]\n\nwdith = 3\n", "f.toml:3: unknown key 'inner.wdith' (did you mean 'width'?)"),
    "a dotted key": ("inner.wdith = 3\n", "f.toml:1: unknown key 'inner.wdith' (did you mean 'width'?)"),
    "an inline table": ("\ninner = { wdith = 3 }\n", "f.toml:2: unknown key 'inner.wdith' (did you mean 'width'?)"),
    "a quoted key": ('"titel" = 3\n', "f.toml:1: unknown key 'titel' (did you mean 'title'?)"),
    "the second of many": (
        '[[item]]\nname = "a"\n[[item]]\nname = "b"\nnaem = "c"\n',
        "f.toml:5: unknown key 'item.naem' (did you mean 'name'?)",
    ),
    "a table within the second of many": (
        '[[item]]\nname = "a"\n[item.inner]\nwidth = 1\n[[item]]\nname = "b"\n[item.inner]\nwidth = "x"\n',
        "f.toml:8: item.inner.width: expected `int`, got `str`",
    ),
    "a comment before": ("# inner.width = 3\n[inner]\nwidth = 3.5\n", "f.toml:3: inner.width: expected `int`, got "),
    "an enum": ('[inner]\ncolour = "reed"\n', "f.toml:2: inner.colour: unknown value 'reed' (did you mean 'red'?)"),
    "far from all": ("zzzzzz = 1\n", "f.toml:1: unknown key 'zzzzzz' (known: inner, item, table, title)"),
    "a missing key": ('[[item]]\nname = "a"\n[[item]]\n', "f.toml:3: item: object missing required field `name`"),
    "a table of tables in place of one": ("[[inner]]\nwidth = 3\n", "f.toml:1: inner: expected `object | null`, got"),
    "syntax": ("title = \n", "f.toml:1: not TOML: "),
    "syntax at the end": ('title = "', "f.toml: not TOML: "),
    "twice": ("title = 'a'\ntitle = 'b'\n", "f.toml:2: not TOML: "),
}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_named_by_file_line_and_key(case: str, tmp_path: Path) -> None:
    text, expected = CASES[case]
    said = complaint(tmp_path, text)
    assert said.startswith(expected), said


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*none\.toml: No such file or directory$"):
        load_toml(tmp_path / "none.toml", Whole)
    (tmp_path / "f.toml").write_bytes(b"title = '\xff'")
    with pytest.raises(UsageError, match=r"cannot read .*f\.toml: 'utf-8' codec"):
        load_toml(tmp_path / "f.toml", Whole)


@given(st.text(alphabet="[]{}=\"' \nabitem.inner_title#", max_size=60))
def test_no_text_ends_in_a_traceback(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f.toml"
        path.write_text(text)
        with contextlib.suppress(UsageError):
            load_toml(path, Whole)


@given(st.text(max_size=80), st.lists(st.sampled_from(["item", "0", "1", "inner", "name"]), max_size=4))
def test_the_line_of_a_key_is_within_the_text(text: str, keys: list[str]) -> None:
    line = key_line(text, keys)
    assert line is None or 1 <= line <= len(text.splitlines())


def test_an_unknown_name_gets_the_nearest_or_all_names() -> None:
    assert unknown("thing", "appel", ["pear", "apple"]).hint == "did you mean 'apple'?"
    assert unknown("thing", "zzz", ["pear", "apple", "apple"]).hint == "known: apple, pear"
    assert unknown("thing", "a", []).message == "unknown thing 'a'"
