"""Presets: the set-ups of published searches, to be run as they are (`tune --preset NAME`).

`spaces/presets/NAME.toml` names the parameter spaces (files beside it) and the study's options; options of the user
come before both. The facts of the allocator itself (how it is written, preloaded and asked) are its
own file's, in `spaces/`.
"""

from __future__ import annotations

import dataclasses
from importlib.resources import as_file, files
from typing import Any

import msgspec

from heapwright.allocators.registry import Allocator, get_allocator
from heapwright.allocators.space_file import load_space_file
from heapwright.errors import UsageError, unknown
from heapwright.tomlfile import load_toml

_FOLDER = files("heapwright.allocators") / "spaces" / "presets"


class Preset(msgspec.Struct, forbid_unknown_fields=True):
    """A preset file.

    Attributes:
        explain: a description in a few words.
        spaces: parameter-space files, one for each allocator; the first is searched if the user names none.
        options: of the study (`study.options.Options`).
        unset: whether a search may leave a setting unset. The publications' own searches always set all of them.
    """

    explain: str
    spaces: list[str]
    options: dict[str, Any]
    unset: bool = True


def preset_names() -> list[str]:
    """The presets there are: files that are no parameter space."""
    names = sorted(f.name.removesuffix(".toml") for f in _FOLDER.iterdir() if f.name.endswith(".toml"))
    return [name for name in names if not any(name.startswith(f"{other}-") for other in names)]


def load_preset(name: str) -> Preset:
    """The preset of this name.

    Raises:
        UsageError: there is none.
    """
    if name not in preset_names():
        raise unknown("preset", name, preset_names())
    with as_file(_FOLDER / f"{name}.toml") as path:
        return load_toml(path, Preset)


def preset_allocators(preset: Preset, named: list[str]) -> list[Allocator]:
    """The preset's allocators with its spaces in place of their own; those named, or its first.

    Raises:
        UsageError: one it has no space for, or that is not on this machine.
    """
    found: dict[str, Allocator] = {}
    for space in preset.spaces:
        with as_file(_FOLDER / f"{space}.toml") as path:
            file = load_space_file(path)
        name = file.allocator.name
        if (named and name not in named) or (not named and found):
            continue
        allocator = get_allocator(name)
        params = file.param if preset.unset else [msgspec.structs.replace(p, always=True) for p in file.param]
        file = msgspec.structs.replace(file, allocator=allocator.file.allocator, param=params)
        found[name] = dataclasses.replace(allocator, file=file)
    for name in named:
        if name not in found:
            raise UsageError(f"this preset has no space for {name}", f"it has {', '.join(preset.spaces)}")
    return [found[name] for name in named] or list(found.values())
