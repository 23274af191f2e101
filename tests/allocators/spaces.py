"""Small parameter spaces for tests."""

from __future__ import annotations

from heapwright.allocators.space import Space
from heapwright.allocators.space import build_space as build
from heapwright.allocators.space_spec import AllocatorSpec, Context, GateSpec, ParamSpec, Requires, SpaceFile

TUNABLES = AllocatorSpec("toy", env="TOY", pair="toy.{key}={value}", join=":")


def small_space(*params: ParamSpec, gates: tuple[str, ...] = (), context: Context | None = None) -> Space:
    """A space of these parameters in one variable TOY."""
    file = SpaceFile(TUNABLES, [GateSpec(g, "a gate") for g in gates], list(params))
    return build(file, context or Context())


def number(key: str, low: int = 1, high: int = 8, **more: object) -> ParamSpec:
    """An int parameter."""
    return ParamSpec(key, "explained", low=low, high=high, **more)  # type: ignore[arg-type]


def toy_space() -> Space:
    """Two gated settings with specials, one free setting, one switch: as mixed as glibc's."""
    return small_space(
        number("threshold", 32, 1024, gate="static", step=0.5),
        number("pad", 16, 64, gate="static", specials=[0]),
        number("count", 1, 64, specials=[0, "max"]),
        ParamSpec("switch", "explained", type="bool"),
        gates=("static",),
    )


def threads_only() -> Requires:
    """For programs with threads."""
    return Requires(threads=True)
