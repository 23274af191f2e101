"""Chooses the rows of usual advice that the confirmation measures beside the picks.

Most people who tune malloc set MALLOC_ARENA_MAX, or preload jemalloc. A study shows the effect of that advice: these
configurations run in the same fresh blocks as the picks.

    the program has a malloc of its own     glibc in its place
    it has threads                          MALLOC_ARENA_MAX=1, MALLOC_ARENA_MAX=2, jemalloc at its defaults
    it has one thread                       jemalloc at its defaults
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from heapwright.allocators.registry import Allocator
from heapwright.interleaving.configuration import Config
from heapwright.study.options import REFERENCES

_OWN_VARIABLES = ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_CONF")


def references(
    found: Mapping[str, Allocator],
    base: Mapping[str, str],
    threads: bool,
    works: Callable[[Allocator], Allocator | None],
    config: Callable[[Allocator, dict[str, str]], Config],
) -> dict[str, Config]:
    """The rows of usual advice that apply to a program.

    Args:
        found: the allocators that the program can have, by name: those of this machine, or of its image.
        base: the program's environment. If it already sets malloc, no advice applies.
        threads: whether the program has more than one.
        works: returns the allocator as it must be preloaded for this program, or None if it does not take over. If
            the system's malloc must be preloaded, the program has a malloc of its own.
        config: makes a configuration of an allocator and its settings.

    Returns:
        Label → configuration; at most `REFERENCES`.
    """
    if any(base.get(name) for name in _OWN_VARIABLES):
        return {}
    rows: dict[str, Config] = {}
    glibc = works(found["glibc"]) if "glibc" in found else None
    if glibc is not None and glibc.preload:
        return {"glibc": config(glibc, {})}
    if glibc is not None and threads:
        for count in ("1", "2"):
            rows[f"MALLOC_ARENA_MAX={count}"] = config(glibc, {"arena_max": count})
    jemalloc = works(found["jemalloc"]) if "jemalloc" in found else None
    if jemalloc is not None:
        rows["jemalloc"] = config(jemalloc, {})
    return dict(list(rows.items())[:REFERENCES])
