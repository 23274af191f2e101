"""Reads TOML files into typed structures; every error names the file, the line and the key."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import msgspec

from heapwright.errors import UsageError, unknown

T = TypeVar("T")
_MAX_BYTES = 4 << 20
# A field whose error messages name its unit.
Seconds = Annotated[float, msgspec.Meta(description="a number of seconds")]


def load_toml(path: Path, kind: type[T]) -> T:
    """Reads a TOML file into a msgspec struct; see `load_toml_and_text`."""
    return load_toml_and_text(path, kind)[0]


def load_toml_and_text(path: Path, kind: type[T]) -> tuple[T, str]:
    """Read a TOML file into a msgspec struct; return it with the file's text, for `key_line`.

    The file is read only once, because a FIFO gives its content once and a file may change.

    Raises:
        UsageError: the file is unreadable or not TOML, or the struct does not know a key or a value. The message
            names the file, the line and the key.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        text = content.decode("utf-8")
    except (OSError, ValueError) as error:  # a path with a NUL character in it is a ValueError
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"cannot read {path}: {reason}") from None
    if len(content) > _MAX_BYTES:
        raise UsageError(f"{path}: longer than {_MAX_BYTES >> 20} MiB, too large for a settings file")
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"{path}: not TOML: nested too deeply") from None
    except ValueError as error:  # tomllib's own, and Python's about numbers of thousands of digits
        line = re.search(r"at line (\d+)", str(error))
        place = f"{path}:{line[1]}" if line else str(path)
        what = str(error).partition(" (at ")[0]
        raise UsageError(f"{place}: not TOML: {what}") from None
    for keys, what in _unsound(data, []):
        line_number = key_line(text, keys)
        where = ".".join(k for k in keys if not k.isdecimal())
        raise UsageError(f"{path}{f':{line_number}' if line_number else ''}: {where}: {what}")
    try:
        return msgspec.convert(data, kind), text
    except msgspec.ValidationError as error:
        raise _explain(path, text, kind, str(error)) from None


def _unsound(value: object, keys: list[str]) -> Iterator[tuple[list[str], str]]:
    """Yield each value that TOML allows but heapwright cannot use: its key path, and what is wrong with it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if "\0" in key:
                yield [*keys, key], "a name cannot contain a NUL character"
            yield from _unsound(inner, [*keys, key])
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _unsound(inner, [*keys, str(number)])
    elif isinstance(value, str) and "\0" in value:  # no path, word or variable can
        yield keys, "a text cannot contain a NUL character"
    elif isinstance(value, int) and abs(value) >= 1 << 63:
        yield keys, "the number is too large"
    elif isinstance(value, float) and math.isnan(value):
        yield keys, "nan is not a valid number"


def key_line(text: str, keys: list[str]) -> int | None:
    """Find the line (from 1) of a key path such as ['input', '1', 'split'], as well as a text search can."""
    table: list[str] = []
    seen: dict[str, int] = {}
    want_index = [int(k) for k in keys if k.isdecimal()]
    names = [k for k in keys if not k.isdecimal()]
    best: int | None = None
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[(\[)?\s*([^\]]+?)\s*\]", line)
        if header:
            table = [part.strip().strip("\"'") for part in header[2].split(".")]
            if header[1]:
                seen[header[2]] = seen.get(header[2], -1) + 1
            right_element = not header[1] or not want_index or seen[header[2]] == want_index[0]
            if table == names[: len(table)] and right_element:
                best = number
            elif not right_element:
                table = ["\0"]
            continue
        assignment = re.match(r"\s*([\w.\-\"']+)\s*=", line)
        if assignment:
            path = table + [part.strip("\"'") for part in assignment[1].split(".")]
            if path == names[: len(path)]:
                best = number
    return best


def _explain(path: Path, text: str, kind: type[T], message: str) -> UsageError:
    """Turn an error message of msgspec into 'file:line: key: what is wrong'."""
    what, _, where = message.partition(" - at `$")
    keys = re.findall(r"[^.\[\]`]+", where)
    field = re.search(r"(?:unknown|required) field `([^`]+)`", what)
    if field and "unknown" in what:
        keys.append(field[1])
    line = key_line(text, keys)
    place = f"{path}:{line}" if line else str(path)
    if field and "unknown" in what:
        struct = _struct_at(kind, keys[:-1])
        near = unknown("key", ".".join(k for k in keys if not k.isdecimal()), struct)
        leaf = unknown("key", keys[-1], struct)
        return UsageError(f"{place}: {near.message}", leaf.hint)
    key = ".".join(k for k in keys if not k.isdecimal())
    value = re.fullmatch(r"Invalid enum value '(.*)'", what)
    if value:
        allowed = get_args(_struct_at(kind, keys[:-1]).get(keys[-1]))
        error = unknown("value", value[1], map(str, allowed))
        return UsageError(f"{place}: {key}: {error.message}", error.hint)
    hint = _struct_at(kind, keys[:-1]).get(keys[-1]) if keys else None
    if what == "Expected `array`, got `str`" and list[str] in (hint, *get_args(hint)):
        words = ", ".join(json.dumps(word, ensure_ascii=False) for word in _value_at(text, keys).split())
        return UsageError(f"{place}: {key}: expected a list of words, got one text", f"write {keys[-1]} = [{words}]")
    for meta in getattr(hint, "__metadata__", ()):
        what = re.sub("^Expected `[^`]*`", f"Expected {meta.description}", what)
    return UsageError(f"{place}: {key + ': ' if key else ''}{what[:1].lower()}{what[1:]}")


def _value_at(text: str, keys: list[str]) -> str:
    """Return the text at a key path of a TOML text."""
    value: Any = tomllib.loads(text)
    for key in keys:
        value = value[int(key)] if isinstance(value, list) else value[key]
    return str(value)


def _struct_at(kind: type[T], keys: list[str]) -> dict[str, object]:
    """Return the fields of the struct at a key path, with their types; for 'did you mean'."""
    current: object = kind
    for key in keys:
        if key.isdecimal():
            continue
        hints = {f.encode_name: f.type for f in msgspec.structs.fields(current)}  # type: ignore[arg-type]
        inner = hints.get(key)
        while inner is not None and not (isinstance(inner, type) and issubclass(inner, msgspec.Struct)):
            args = [a for a in getattr(inner, "__args__", ()) if a is not type(None)]
            inner = args[-1] if args else None
        if inner is None:
            return {}
        current = inner
    return {f.encode_name: f.type for f in msgspec.structs.fields(current)}  # type: ignore[arg-type]
