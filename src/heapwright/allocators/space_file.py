"""Reads parameter-space files (`spaces/*.toml`, and a user's own) and checks what can be checked on any machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from heapwright.allocators.levels import RangeError, levels_of
from heapwright.allocators.space_spec import (
    VARIABLE,
    AllocatorSpec,
    Context,
    RuntimeSpec,
    SpaceFile,
    format_setting,
    shares_variable,
    variable_of,
)
from heapwright.errors import UsageError, unknown
from heapwright.tomlfile import key_line, load_toml_and_text

_THP_STATES = frozenset(("always", "madvise", "never"))


def load_space_file(path: Path) -> SpaceFile:
    """Reads a parameter-space file and checks what can be checked on any machine.

    Raises:
        UsageError: the file cannot be read, or contradicts itself; file, line and key are named.
    """
    file, text = load_toml_and_text(path, SpaceFile)

    def fail(keys: list[str], what: str) -> UsageError:
        line = key_line(text, keys)
        where = ".".join(k for k in keys if not k.isdecimal())
        return UsageError(f"{path}{f':{line}' if line else ''}: {where}: {what}")

    file = _whole(file, fail)
    if not all(map(VARIABLE.fullmatch, file.allocator.needs)):
        raise fail(["allocator", "needs"], "contains an invalid variable name")
    kind = "allocator" if file.runtime is None else "runtime"
    gates = {g.key for g in file.gate}
    shared = {spec.key for spec in file.param if shares_variable(file.allocator, spec)}
    earlier: set[str] = set()
    for number, spec in enumerate(file.param):
        place = ["param", str(number)]
        if spec.gate and spec.gate not in gates:
            error = unknown("gate", spec.gate, gates)
            raise fail([*place, "gate"], f"{error.message} ({error.hint})" if gates else error.message)
        for key in spec.unless:
            if key not in earlier:
                raise fail([*place, "unless"], f"'{spec.key}' depends on '{key}', whose table must come before it")
        if not set(spec.values_since) <= set(map(str, spec.values)):
            raise fail([*place, "values_since"], f"'{spec.key}' has a value that is not among its values")
        if not set(spec.values_thp) <= set(map(str, spec.values)):
            raise fail([*place, "values_thp"], f"'{spec.key}' has a value that is not among its values")
        states = {state for listed in spec.values_thp.values() for state in listed}
        if not states <= _THP_STATES:
            raise fail([*place, "values_thp"], f"'{spec.key}': a state is always, madvise or never")
        if not (set(spec.try_first) <= _THP_STATES and set(spec.try_first.values()) <= set(map(str, spec.values))):
            raise fail([*place, "try_first"], f"'{spec.key}' needs states, each with one of its values")
        earlier.add(spec.key)
        if not (spec.env or file.allocator.env):
            raise fail([*place, "env"], f"neither '{spec.key}' nor the {kind} has an env variable")
        if not VARIABLE.fullmatch(variable_of(file.allocator, spec)):
            raise fail([*place, "env"], f"{variable_of(file.allocator, spec)!r} is not a valid variable name")
        if any(
            spec.env and other.key != spec.key and variable_of(file.allocator, other) == spec.env
            for other in file.param
        ):
            raise fail(
                [*place, "env"], f"another setting also uses {spec.env}; set it as the env of the {kind} instead"
            )
        where = [*place, "pair"] if spec.pair else [kind, "pair"]
        sharing = 0 if spec.key not in shared else 1 if spec.pair else len(shared)
        trouble = _pair_trouble(spec.pair or file.allocator.pair, sharing)
        if trouble:
            raise fail(where, trouble)
        for expert in (False, True):
            try:
                levels_of(spec, Context(expert=expert))
            except RangeError as wrong:
                raise fail([*place, wrong.field], f"'{spec.key}': {wrong.what}") from None
    if shared and not file.allocator.join:
        raise fail([kind, "join"], "is empty; give the separator of settings")
    return file


def _whole(file: SpaceFile, fail: Callable[[list[str], str], UsageError]) -> SpaceFile:
    """The file with both tables: one that describes a runtime gets an allocator's table that says the same."""
    runtime = file.runtime
    if runtime is None:
        if not file.allocator.name:
            raise fail(["allocator"], "the file needs a table [allocator] or [runtime] with a name")
        return file
    if file.allocator.name:
        raise fail(["runtime"], "a file describes an allocator or a runtime, not both")
    trouble = _recognition_trouble(runtime)
    if trouble:
        raise fail(["runtime", trouble[0]], trouble[1])
    params = [msgspec.structs.replace(spec, replayable=False) for spec in file.param]
    spec = AllocatorSpec(runtime.name, runtime.env, runtime.pair, runtime.join)
    return msgspec.structs.replace(file, allocator=spec, param=params)


def _recognition_trouble(runtime: RuntimeSpec) -> tuple[str, str] | None:
    """The key of the [runtime] table that makes no sense, and why."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", runtime.name):
        return "name", "use lower-case letters, digits, '-' and '_'"
    if not (runtime.libraries or runtime.symbols or runtime.texts):
        return "libraries", "a file name is not evidence: give libraries, symbols or texts"
    if bool(runtime.heap) != bool(runtime.limit):
        return "heap" if runtime.heap else "limit", "give both: the heap's name, and the settings that make it smaller"
    for key in ("names", "libraries", "version", "version_names"):
        for pattern in getattr(runtime, key):
            try:
                groups = re.compile(pattern.encode()).groups
            except re.error as error:
                return key, f"{pattern!r} is not a regular expression: {error}"
            if key == "version" and groups != 1:
                return key, f"{pattern!r} must have one group, the version"
    return None


def _pair_trouble(pair: str, sharing: int) -> str:
    """Return the fault of a setting's notation, or an empty text.

    Args:
        pair: the notation.
        sharing: the number of settings in its variable; 0 if it has one of its own.
    """
    if set(format_setting(pair, "", "")) & {"{", "}"}:
        return f"'{pair}' may contain {{key}}, {{value}} and {{hex}} but no other brace"
    start = format_setting(pair, "KEY", "")
    if not sharing and "{hex}" in pair:
        return ""
    if "{value}" not in pair:
        return f"'{pair}' must contain {{value}}"
    if sharing and (not pair.endswith("{value}") or pair.count("{value}") > 1):
        return f"'{pair}' must end with {{value}}"
    if sharing > 1 and "KEY" not in start:
        return f"'{pair}' must contain {{key}}, because several settings share one variable"
    return ""
