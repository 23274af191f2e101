"""Tells, without running the program, whether a configuration would take effect on this machine or in an image.

The program's own loader tells which libraries it would load, and which tunables of glibc it has. In an image the loader
runs in a container, and the program is not started.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from heapwright.allocators.glibc_tunables import tunables_of
from heapwright.allocators.huge_pages import FORBIDDEN, LIBRARY, PROCESS, VARIABLE, are_forbidden
from heapwright.allocators.library_report import effective_settings
from heapwright.allocators.loader_trace import trace_bindings
from heapwright.allocators.preload_obstacles import find_obstacle
from heapwright.allocators.program_file import is_privileged, read_program
from heapwright.allocators.space_spec import SpaceFile
from heapwright.allocators.takeover import takeover_failure
from heapwright.files import NATIVE, scratch_folder
from heapwright.interleaving.configuration import Config
from heapwright.measure.container import Container
from heapwright.platforms import kit_path
from heapwright.workload.model import Workload

_GLIBC_LOADERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}
_TUNABLE = re.compile(r"glibc\.malloc\.(\w+)=([^:]*)")


class Effect(NamedTuple):
    """Whether a part of a configuration takes effect: True, False, or None if that is unknown; and why."""

    works: bool | None
    text: str


def effects_of(config: Config, spaces: Mapping[str, Any], workload: Workload) -> list[Effect]:
    """Return whether each part of a configuration takes effect: the library that it preloads, and its settings.

    Args:
        config: the configuration.
        spaces: the study's parameter spaces, by allocator.
        workload: the program, here or in an image.

    Raises:
        HeapwrightError: a container cannot be made.
    """
    forbidden, config = _huge_pages(config, workload)
    return forbidden + _effects(config, spaces, workload)


def _huge_pages(config: Config, workload: Workload) -> tuple[list[Effect], Config]:
    """Return whether huge pages would be forbidden for the program, and the configuration without that setting."""
    if not are_forbidden(config.env):
        return [], config
    env = {key: value for key, value in config.env.items() if key != VARIABLE}
    settings = {key: value for key, value in config.settings.items() if not key.startswith(f"{PROCESS}.")}
    rest = dataclasses.replace(config, env=env, settings=settings)
    text = f"{PROCESS}.huge_pages={FORBIDDEN}"
    if workload.container is not None:
        return [Effect(None, f"{text}: the library of 'heapwright apply' forbids them, if the program loads it")], rest
    trouble = library_trouble(workload.program(workload.inputs[0]))
    return [Effect(not trouble, f"{text}: {trouble or 'the library of heapwright apply forbids them'}")], rest


def library_trouble(program: str) -> str:
    """Return why the library that forbids huge pages would not reach a program, and what does; empty if it would."""
    if not (NATIVE / "lib" / LIBRARY).is_file():
        return f"there is no {LIBRARY}: reinstall heapwright"
    found = read_program(program)
    if found is not None and (found.static or is_privileged(found.path)):
        kind = "is linked statically" if found.static else "runs with the rights of another user"
        return f"{program} {kind}, so no library is preloaded; 'heapwright run' forbids huge pages for it"
    return ""


def _effects(config: Config, spaces: Mapping[str, Any], workload: Workload) -> list[Effect]:
    """Return the effects of the libraries and of the allocator's settings."""
    libraries = [word for word in re.split("[: ]+", config.env.get("LD_PRELOAD", "")) if word]
    if workload.container is not None:
        return _inside(config, libraries, workload, workload.container)
    found = [_loaded(config, library, workload) for library in libraries]
    if config.allocator in spaces and config.settings:
        spec = msgspec.convert(spaces[config.allocator], SpaceFile).allocator
        spec = msgspec.structs.replace(spec, preload=libraries[0] if libraries else "")
        base = workload.base_environment()
        values = effective_settings(spec, workload.program(), config.settings, {**base, **config.env})
        found += [_setting(key, value, values.get(key)) for key, value in config.settings.items()]
    return found


def _setting(key: str, asked: str, value: str | None) -> Effect:
    if value is None:
        return Effect(None, f"{key}={asked}: the allocator does not report this setting")
    return Effect(value == asked, f"{key}={asked}" + ("" if value == asked else f": it is {value}"))


def _loaded(config: Config, library: str, workload: Workload) -> Effect:
    """Return whether the program's loader on this machine binds malloc to a library."""
    name, program = Path(library).name, workload.program(workload.inputs[0])
    if not os.access(library, os.R_OK):
        kit = kit_path(library)
        hint = f"; the kit has it as {kit[0]}" if kit else ""
        return Effect(False, f"{name}: there is no {library}{hint}")
    obstacle = find_obstacle(program, config.allocator, library)
    if obstacle is not None and obstacle.certain:
        return Effect(False, f"{name}: {obstacle.why}")
    with scratch_folder() as folder:
        bound = trace_bindings(program, {**workload.base_environment(), **config.env}, folder)
    if not bound:
        silent = f"the loader of {shutil.which(program) or program} does not say which library it binds"
        return Effect(None, f"{name}: {silent}")
    why = takeover_failure(library, program, bound)
    return Effect(not why, f"{name}: {why or f'{Path(program).name} loads it'}")


def _inside(config: Config, libraries: list[str], workload: Workload, container: Container) -> list[Effect]:
    """Return the effects in an image, by the word of its loader."""
    musl = container.image.platform.endswith("-musl")
    found = []
    if libraries:
        listed = _listed(workload, container, config.env)
        for library in libraries:
            works = library in listed.split()
            why = "the program loads it" if works else "the program's loader does not load it"
            if not works and not _listed(workload, container, {}):
                why = "the program is not in the image, or is linked statically"
            found.append(Effect(works, f"{Path(library).name}: {why}"))
    tunables = _TUNABLE.findall(config.env.get("GLIBC_TUNABLES", ""))
    if tunables and musl:
        found += [Effect(False, f"{key}={value}: musl has no tunables") for key, value in tunables]
    elif tunables:
        values = tunables_of(container.ask([_loader(container), "--list-tunables"], config.env).stdout)
        found += [_setting(key, value, _text(values.get(f"glibc.malloc.{key}"))) for key, value in tunables]
    others = {key: value for key, value in config.settings.items() if key not in dict(tunables)}
    return found + [_setting(key, value, None) for key, value in others.items()]


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _loader(container: Container) -> str:
    """Return the path of the loader in the container's image."""
    architecture, _, libc = container.image.platform.partition("-")
    return f"/lib/ld-musl-{architecture}.so.1" if libc == "musl" else _GLIBC_LOADERS[architecture]


def unlisted_note(workload: Workload, container: Container) -> str:
    """Return why it is not known which libraries the program in an image loads; empty if its loader lists them."""
    if _listed(workload, container, {}):
        return ""
    return (
        f"'{workload.name()}' in the image is a script, or linked statically: whether it loads an allocator is not"
        " known. A static program loads none, so that all rows measure its own malloc"
    )


def not_listed(workload: Workload, container: Container, env: Mapping[str, str]) -> str:
    """Return that a program does not load the libraries of LD_PRELOAD; empty if it does.

    Args:
        workload: the program.
        container: of the image that has the program.
        env: its variables.
    """
    libraries = env.get("LD_PRELOAD", "").split(":")
    listed = _listed(workload, container, env).split() if any(libraries) else []
    missing = [Path(library).name for library in libraries if library and library not in listed]
    return f"not loaded: the program's loader in the image does not load {', '.join(missing)}" if missing else ""


def _listed(workload: Workload, container: Container, env: Mapping[str, str]) -> str:
    """Return the libraries that the loader of an image lists for the program; empty if it cannot load the program."""
    word = workload.command(workload.inputs[0])[0]
    folders = container.image.env.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(":")
    for path in [word] if "/" in word else [f"{folder}/{word}" for folder in folders]:
        done = container.ask([_loader(container), "--list", path], env)
        if done.returncode == 0:
            return done.stdout
    return ""
