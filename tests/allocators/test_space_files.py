"""Parameter-space files that people write: every mistake is named with file, line and key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from heapwright.allocators.registry import allocator_from_file
from heapwright.allocators.space import build_space
from heapwright.allocators.space_file import load_space_file
from heapwright.allocators.space_spec import Context
from heapwright.errors import UsageError

GOOD = """\
[allocator]
name = "mine"
env = "MINE"
pair = "{key}:{value}"
join = ","

[[gate]]
key = "advanced"
explain = "more"

[[param]]
key = "cache"
explain = "how much is kept"
low = 16
high = 64

[[param]]
key = "decay"
explain = "how long"
gate = "advanced"
low = 1
high = 4
"""


def load(folder: Path, text: str) -> str:
    """The complaint about a file, with its hint, or nothing."""
    path = folder / "mine.toml"
    path.write_text(text)
    try:
        build_space(load_space_file(path), Context(), str(path))
    except UsageError as error:
        return f"{error.message.replace(str(folder) + '/', '')} {error.hint}"
    return ""


def test_a_valid_space_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    space = allocator_from_file(path).space(threads=False)
    assert space.render((1, 2, 3), {"MINE": "other:1"}).env == {"MINE": "other:1,cache:32,decay:4"}


MISTAKES = {
    "unknown key": ("low = 16", "lowest = 16", r"mine\.toml:14: unknown key 'param\.lowest' did you mean 'low'\?"),
    "unknown key in allocator": ("join", "joint", r"mine\.toml:5: unknown key 'allocator\.joint' did you mean 'join'"),
    "unknown table": ("[[gate]]", "[[gates]]", r"mine\.toml:7: unknown key 'gates' did you mean 'gate'\?"),
    "text for a number": ("high = 64", 'high = "64k"', r"mine\.toml:15: param\.high: expected `int"),
    "number for text": ('env = "MINE"', "env = 3", r"mine\.toml:3: allocator\.env: expected `str`, got `int`"),
    "no such type": (
        "high = 64",
        'high = 64\ntype = "size"',
        r"mine\.toml:16: param\.type: unknown value 'size' known: bool, enum, int",
    ),
    "no key": ('key = "decay"\n', "", r"mine\.toml:17: param: .*missing required field `key`"),
    "no allocator": ("[allocator]", "[[gate]]", r"mine\.toml:.*unknown key"),
    "not TOML": ("low = 16", "low = ", r"mine\.toml:14: not TOML: "),
    "unknown gate": (
        'gate = "advanced"',
        'gate = "advance"',
        r"mine\.toml:20: param\.gate: unknown gate 'advance' \(did you mean 'advanced'\?\)",
    ),
    "low above high": ("low = 16", "low = 128", r"mine\.toml:14: param\.low: 'cache': 128 is above high, 64"),
    "no low": ("low = 16\n", "", r"mine\.toml:11: param\.low: 'cache': an int needs a range"),
    "no high": ("high = 64\n", "", r"mine\.toml:11: param\.high: 'cache': an int needs a range"),
    "log scale from 0": (
        "low = 16",
        "low = 0",
        r"mine\.toml:14: param\.low: 'cache': on a log2 scale low must be at least 1",
    ),
    "step 0": ("high = 64", "high = 64\nstep = 0", r"mine\.toml:16: param\.step: 'cache': must be a positive number"),
    "a step far too small": (
        "low = 16\nhigh = 64",
        'low = 16\nhigh = 1073741824\nscale = "linear"',
        r"param\.step: 'cache': gives 1073741809 values; take a larger step",
    ),
    "expert range": ("high = 64", "high = 64\nexpert_low = 99", r"param\.low: 'cache': 99 is above high"),
    "enum without values": ("low = 16", 'type = "enum"', r"mine\.toml:11: param\.values: 'cache': an enum needs"),
    "no variable": ('env = "MINE"\n', "", r"mine\.toml:10: param\.env: neither 'cache' nor the allocator has"),
    "pair with another brace": ("{key}:{value}", "{name}:{value}", r"mine\.toml:4: allocator\.pair: '\{name\}"),
    "pair, unbalanced": ("{key}:{value}", "{key:{value}", r"mine\.toml:4: allocator\.pair: "),
    "pair without value": (
        "{key}:{value}",
        "{key}",
        r"mine\.toml:4: allocator\.pair: '\{key\}' must contain \{value\}",
    ),
    "pair without key": (
        "{key}:{value}",
        "{value}",
        r"mine\.toml:4: allocator\.pair: .*must contain \{key\}, because several",
    ),
    "value not last": ("{key}:{value}", "{value}@{key}", r"mine\.toml:4: allocator\.pair: .*must end with \{value\}"),
    "empty join": ('join = ","', 'join = ""', r"mine\.toml:5: allocator\.join: is empty"),
    "two write one variable": (
        "low = 16",
        'low = 16\nenv = "MINE"\npair = "{value}"',
        r"mine\.toml:15: param\.env: another setting also uses MINE",
    ),
    "twice": ('key = "decay"', 'key = "cache"', r"mine\.toml: cache: defined twice for the same version"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_mistake_is_named(mistake: str, tmp_path: Path) -> None:
    old, new, complaint = MISTAKES[mistake]
    assert old in GOOD
    said = load(tmp_path, GOOD.replace(old, new, 1))
    assert re.search(complaint, said), said
    assert "\n" not in said


def test_one_setting_in_a_variable_needs_no_key(tmp_path: Path) -> None:
    assert not load(
        tmp_path, '[allocator]\nname = "m"\nenv = "M"\n[[param]]\nkey = "k"\nexplain = "e"\ntype = "bool"\n'
    )


def test_a_setting_with_its_own_variable_may_write_its_value_anywhere(tmp_path: Path) -> None:
    own = GOOD.replace("low = 16", 'low = 16\nenv = "CACHE"\npair = "{value}KiB"')
    assert load(tmp_path, own) == ""


def test_a_file_without_settings(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text('[allocator]\nname = "m"\n')
    with pytest.raises(UsageError, match=r"m\.toml: param: the file has no \[\[param\]\] table"):
        allocator_from_file(tmp_path / "m.toml")


def test_a_missing_space_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*m\.toml: No such file"):
        allocator_from_file(tmp_path / "m.toml")
