"""Chooses for `heapwright tune` the allocators and the spaces beside them that a study searches."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright.cli.common import chosen_allocators
from heapwright.cli.containers import allocators_inside
from heapwright.errors import HeapwrightError, UsageError, unknown
from heapwright.terminal_text import say

if TYPE_CHECKING:
    from heapwright.allocators.registry import Allocator
    from heapwright.allocators.space_spec import SpaceFile
    from heapwright.measure.container import Container


def names(text: str | None) -> list[str]:
    """Return the words of a list that is separated by commas."""
    return [n.strip() for n in (text or "").split(",") if n.strip()]


def named_allocators(
    args: argparse.Namespace, embedded: Allocator | None = None, container: Container | None = None
) -> list[Allocator]:
    """Return the allocators that the user named; empty if all are meant.

    Args:
        args: the command line.
        embedded: the allocator that is linked into the program, which its name then refers to.
        container: where the program runs; None for this machine.
    """
    from heapwright.allocators.registry import allocator_from_file

    if args.space is not None:
        if args.allocators or args.preset:
            raise UsageError("--space cannot be given with --allocators or --preset", "leave out one of them")
        return [allocator_from_file(args.space)]
    if args.preset is not None:
        from heapwright.allocators.presets import load_preset, preset_allocators

        return preset_allocators(load_preset(args.preset), names(args.allocators))
    named = names(args.allocators)
    return chosen_allocators(args.allocators, embedded=embedded, container=container) if named else []


def serving_allocators(named: list[Allocator], embedded: Allocator | None, program: str) -> list[Allocator]:
    """Return those of several named allocators that can serve the program.

    Args:
        named: the allocators that the user named.
        embedded: the allocator that is linked into the program.
        program: a path, or a name on PATH.

    Raises:
        HeapwrightError: none of them can.
    """
    from heapwright.allocators.embedded import embedded_obstacle

    if embedded is None or len(named) < 2:
        return named
    why = {a.name: embedded_obstacle(embedded, a, program) for a in named}
    serving = [a for a in named if not why[a.name]]
    lines = [line for line in why.values() if line]
    if not serving:
        raise HeapwrightError(lines[0], f"use the allocator that it has: --allocators {embedded.name}")
    for line in lines:
        say(f"{line}; it is not searched")
    return serving


def all_allocators(
    path: Path, keys: list[str], embedded: Allocator | None, container: Container | None = None
) -> list[Allocator]:
    """Return the allocators to search if the user names none.

    For an existing study these are its own; otherwise all ordinary ones, or those that have one of the parameters.

    Args:
        path: the study.
        keys: the parameters of --params.
        embedded: the allocator that is linked into the program; then only it can be searched.
        container: where the program runs; None for this machine.

    Raises:
        HeapwrightError: an image has no allocator that can be searched.
    """
    from heapwright.allocators.joint import restricted
    from heapwright.allocators.registry import get_allocator, ordinary_allocators
    from heapwright.study.open import stored_allocators

    names = stored_allocators(path) if path.is_file() and path.stat().st_size else []
    own = {embedded.name: embedded} if embedded is not None else {}
    if container is not None:
        own = allocators_inside(container)
    if names:
        return [own.get(name) or get_allocator(name) for name in names]
    every = [a for a in own.values() if a.ordinary or a is embedded] or (ordinary_allocators() if not container else [])
    if not every and container is not None:
        platform = container.image.platform
        raise HeapwrightError(
            f"the image has no allocator to search, and {platform} is not built", "run 'make platforms'"
        )
    having = [a for a in every if keys and restricted(a.space(threads=True, expert=True), keys).params]
    return having or every


def added_spaces(args: argparse.Namespace, given: dict[str, Any]) -> tuple[list[SpaceFile], list[Allocator]]:
    """Return the spaces of --add-space: those beside the allocators, and the allocators among them.

    Args:
        args: the command line.
        given: the options that the user gave.

    Raises:
        UsageError: a file cannot be used, or two have one name.
    """
    from heapwright.allocators.registry import allocator_from_file
    from heapwright.allocators.space_file import load_space_file

    if not args.add_space:
        return [], []
    if args.space or args.preset or args.trace or not given.get("runtime", True):
        other = "--space" if args.space else "--preset" if args.preset else "--trace" if args.trace else "--no-runtime"
        raise UsageError(f"--add-space cannot be given with {other}", "leave out one of them")
    files = {path: load_space_file(path) for path in args.add_space}
    names = [file.allocator.name for file in files.values()]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"--add-space: two files have the name '{twice}'", "give one of them another name")
    allocators = [allocator_from_file(path) for path, file in files.items() if file.allocator.preload]
    return [file for file in files.values() if not file.allocator.preload], allocators


def check_options(
    given: dict[str, Any], allocators: list[Allocator], added: list[SpaceFile], looks_at_libraries: bool
) -> None:
    """Report invalid options now, not after the calibration.

    Args:
        given: the options that the user gave.
        allocators: those to search.
        added: spaces that the user adds to theirs.
        looks_at_libraries: whether the first run may show libraries whose mallocs have settings.
    """
    from heapwright.allocators.joint import restricted
    from heapwright.allocators.library_mallocs import SEARCHED
    from heapwright.allocators.registry import bundled_names
    from heapwright.allocators.runtimes import shipped_runtimes

    names = {a.name for a in allocators}
    clash = next((file.allocator.name for file in added if file.allocator.name in names), None)
    if clash is not None:
        raise UsageError(
            f"--add-space: an allocator of this study has the name '{clash}'", "give your space another name"
        )
    extra_spaces = [*added, *shipped_runtimes()] if given.get("runtime", True) else []
    known = {f"{file.allocator.name}.{param.key}" for file in extra_spaces for param in file.param}
    keys = [key for key in given.get("params", ()) if key not in known]
    if looks_at_libraries and given.get("runtime", True):
        others = {*bundled_names(), *names, *(file.allocator.name for file in extra_spaces)}
        keys = [k for k in keys if k.partition(".")[0] in others or k.partition(".")[2] not in SEARCHED]
    spaces = [a.space(threads=True, expert=True) for a in allocators]
    for key in keys:
        if not any(restricted(space, [key]).params for space in spaces):
            if len(spaces) == 1:
                spaces[0].restrict([key])
            raise unknown("parameter", key, {p.key for s in spaces for p in s.params} | known)
    if given.get("method") == "grid" and len(allocators) > 1:
        raise UsageError(
            "--method grid can search only one allocator", f"name it, for example --allocators {allocators[0].name}"
        )
