"""Renders a study's configuration for the present environment and machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from heapwright.allocators.space import Param, Space
from heapwright.allocators.space_spec import SpaceFile, preload_variables, variable_of
from heapwright.errors import HeapwrightError
from heapwright.interleaving.configuration import DEFAULT
from heapwright.study.meta import StudyMeta


def set_variables(files: Iterable[SpaceFile]) -> dict[str, str]:
    """The values that the user has set in the variables that hold settings of these spaces, or of any malloc."""
    return _of_spaces(files, os.environ)


def _of_spaces(files: Iterable[SpaceFile], env: Mapping[str, str]) -> dict[str, str]:
    names = {variable_of(file.allocator, p) for file in files for p in file.param}
    names |= {"LD_PRELOAD", *(n for n in env if n.startswith("MALLOC_"))}
    return {n: env[n] for n in sorted(names - {""}) if n in env}


def changed_variables(then: Mapping[str, str], files: Sequence[SpaceFile]) -> tuple[str, str]:
    """The variables of these spaces that have other values now, as NAME=VALUE or 'NAME unset': then, and now.

    A study also stores variables of runtimes that its program has not; these do not count.

    Args:
        then: the stored values.
        files: the spaces that the study searches.
    """
    before, now = _of_spaces(files, then), set_variables(files)

    def words(values: Mapping[str, str]) -> str:
        return ", ".join(f"{n}={values[n]}" if n in values else f"{n} unset" for n in differing)

    differing = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    return words(before), words(now)


def local_environment(
    config_env: Mapping[str, str],
    settings: Mapping[str, str],
    allocator: str,
    spaces: Mapping[str, Any],
    base: Mapping[str, str],
) -> tuple[dict[str, str], str]:
    """The variables that apply a configuration on this machine. Other values that the user set in them are kept.

    Args:
        config_env, settings, allocator: of the configuration, as stored in its study.
        spaces: the study's parameter spaces, by allocator and by runtime (`all_spaces`).
        base: the environment of the program.

    Returns:
        The variables, and the local library that replaces a missing one, or empty.

    Raises:
        HeapwrightError: the allocator is not on this machine.
    """
    library = config_env.get("LD_PRELOAD", "").partition(":")[0]
    instead = ""
    if library and not Path(library).is_file():
        library = instead = _found_here(allocator, library)
    if allocator not in spaces and allocator != DEFAULT:
        return {**config_env, **preload_variables(library, base)}, instead
    own = dict(settings)
    env: dict[str, str] = {}
    starts = {name: f"{name}." for name in spaces if any(key.startswith(f"{name}.") for key in own)}
    wanted = {
        name: {key.removeprefix(start): own.pop(key) for key in list(own) if key.startswith(start)}
        for name, start in starts.items()
    }
    for name, values in [(allocator, own), *wanted.items()]:
        file = msgspec.convert(spaces.get(name, {"allocator": {"name": name}}), SpaceFile)
        preload = library if name == allocator else file.allocator.preload
        spec = msgspec.structs.replace(file.allocator, preload=preload)
        params = tuple(Param(p, (), 0) for p in file.param)
        env |= Space(spec, (), params).environment(values, {**base, **env})
    return env, instead


def all_spaces(meta: StudyMeta) -> dict[str, Any]:
    """The parameter spaces of a study: of its allocators, of its program's runtime, and those that the user added."""
    return {**{name: extra["space"] for name, extra in (meta.runtimes or {}).items()}, **meta.spaces}


def _found_here(allocator: str, library: str) -> str:
    """The library of an allocator on this machine."""
    from heapwright.allocators.registry import find_allocators

    found = find_allocators().get(allocator)
    path = (found.preload or found.path) if found else None
    if path is None or not os.access(path, os.R_OK):
        raise HeapwrightError(
            f"{allocator} is not on this machine: there is no {library}", "install it, or copy it there"
        )
    return path
