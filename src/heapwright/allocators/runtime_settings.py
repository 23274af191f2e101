"""Checks whether settings of a runtime in the environment (PYTHONMALLOC, NODE_OPTIONS …) take effect as they stand.

A runtime may ignore a bad value, or end at once. Each problem is one line: the setting, its effect, and what to write.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from heapwright.allocators.runtimes import Runtime, find_runtimes, shipped_runtimes
from heapwright.allocators.space import own_parts
from heapwright.allocators.space_spec import ParamSpec, SpaceFile, shares_variable, variable_of, version_key

_DECIMAL = re.compile(r"\d{1,18}(\.\d{1,18})?")
_ALIKE = 0.9  # of two names: one is probably the other with a typing error


def runtime_problems(env: Mapping[str, str], program: str | None = None) -> list[str]:
    """Return a line for each setting of a runtime in this environment that will not take effect.

    Args:
        env: the whole environment the target gets.
        program: the target, whose runtime and version count; default: any runtime, of any version.
    """
    variables = {variable_of(file.allocator, spec) for file in shipped_runtimes() for spec in file.param}
    doubtful = [name for name in env if _most_alike(name, variables)]
    if not doubtful:
        return []
    runtimes: Sequence[Runtime | SpaceFile] = find_runtimes([program], env=env) if program else shipped_runtimes()
    lines: dict[str, None] = {}
    for runtime in runtimes:
        file, version = (runtime.file, runtime.version) if isinstance(runtime, Runtime) else (runtime, "")
        title = runtime.title if isinstance(runtime, Runtime) else runtime.runtime.title if runtime.runtime else ""
        own = {variable_of(file.allocator, spec) for spec in file.param}
        for name in doubtful:
            close = _most_alike(name, own)
            if name in own:
                specs = [spec for spec in file.param if variable_of(file.allocator, spec) == name]
                lines |= dict.fromkeys(_value_problems(name, env[name], specs, file, version, title))
            elif close and name not in variables:
                lines[f"no {title} reads {name}; did you mean {close}?"] = None
    return list(lines)


def _most_alike(name: str, variables: Collection[str]) -> str:
    """The variable that a name probably means: the same but for its case, or with a typing error; empty if none."""
    if name in variables:
        return name
    folded = {variable.casefold(): variable for variable in variables}
    close = difflib.get_close_matches(name.casefold(), folded, 1, _ALIKE)
    return folded[close[0]] if close else ""


def _value_problems(
    name: str, text: str, specs: Sequence[ParamSpec], file: SpaceFile, version: str, title: str
) -> Iterable[str]:
    """Yield the faults in the value of one variable.

    Args:
        name: the variable.
        text: its value.
        specs: the settings that are written into it.
        file: the runtime's parameter-space file.
        version: the runtime's version, or empty.
        title: the runtime's name and version.
    """
    for key in dict.fromkeys(spec.key for spec in specs):
        variants = [spec for spec in specs if spec.key == key]
        yield from (f"{name}={text}: {title} does not know {why}" for why in _mistyped(text, variants[0], file))
        here = [spec for spec in variants if not _misses(spec, version)]
        for value in _values_in(text, variants[0], file):
            if not here:
                yield f"{name}={text}: {title} has no setting '{key}': {_misses(variants[0], version)}"
                continue
            found = [_trouble(value, spec, version, title) for spec in here]
            if all(found):
                yield f"{name}={text}: {found[0]}"


def _misses(spec: ParamSpec, version: str) -> str:
    since, before = spec.requires.since, spec.requires.before
    if version and since and version_key(version) < version_key(since):
        return f"it needs {since}"
    return f"it is gone since {before}" if version and before and version_key(version) >= version_key(before) else ""


def _values_in(text: str, spec: ParamSpec, file: SpaceFile) -> list[str]:
    """The values of a setting in its variable."""
    if not shares_variable(file.allocator, spec):
        return [text] if text else []
    start, _ = own_parts(spec, spec.pair or file.allocator.pair)
    return [part.removeprefix(start) for part in text.split(file.allocator.join) if start and part.startswith(start)]


def _mistyped(text: str, spec: ParamSpec, file: SpaceFile) -> Iterable[str]:
    """Yield the parts that are probably a value of an enum with a typing error, such as -XX:+UseSerialGc.

    Args:
        text: a variable that several settings share.
        spec: one of them, recognised by its whole values.
        file: the runtime's parameter-space file.
    """
    if not shares_variable(file.allocator, spec):
        return
    _, whole = own_parts(spec, spec.pair or file.allocator.pair)
    for part in text.split(file.allocator.join):
        meant = _most_alike(part, whole)
        if meant and meant != part:
            yield f"{part}; did you mean {meant}?"


def _trouble(value: str, spec: ParamSpec, version: str, title: str) -> str:
    """Why a runtime does not take a value, or empty."""
    since = spec.values_since.get(value, "")
    if since and version and version_key(version) < version_key(since):
        return f"{title} does not know '{value}': it needs {since}"
    known = [str(v) for v in (*spec.values, *spec.valid)]
    if spec.type == "enum" and spec.accepts:  # the levels of a decimal number
        if not _DECIMAL.fullmatch(value):
            return f"{title} takes a number here"
        low, high = spec.accepts
        return "" if low <= float(value) <= high else f"{title} takes {low} to {high}"
    if spec.type == "enum" and value not in known:
        close = difflib.get_close_matches(value, known, 1)
        hint = f"did you mean {close[0]}?" if close else f"it knows {', '.join(known)}"
        return f"{title} does not know '{value}'; {hint}"
    if spec.type == "int" and spec.accepts and value not in map(str, (*spec.specials, *spec.valid)):
        base = 16 if "{hex}" in spec.pair else 10
        if not re.fullmatch(r"-?\d{1,18}" if base == 10 else r"(0[xX])?[0-9a-fA-F]{1,16}", value):
            return f"{title} takes a {'hexadecimal' if base == 16 else 'plain'} number here"
        if not spec.accepts[0] <= int(value, base) <= spec.accepts[1]:
            low_text, high_text = (f"{int(n):x}" if base == 16 else str(n) for n in spec.accepts)
            return f"{title} takes {low_text} to {high_text}{' (hexadecimal)' if base == 16 else ''}"
    return ""
