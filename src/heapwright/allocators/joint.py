"""The spaces of several allocators as one: which allocator runs is a coordinate, and the others' settings mean nothing.

    dimensions    gates of all  |  allocator  |  settings of the 1st  |  settings of the 2nd  |  …
                                   0: the 1st, k: the (k+1)-th

A point chooses one allocator; `normalise` puts everything of the others to 0, so points that run the same are one
point. Strategies see a `Space` like any other. Settings carry the allocator's name under the key `ALLOCATOR`; keys of
dimensions are NAME.KEY, because two allocators may call different things alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from heapwright.allocators.space import Param, Point, Space
from heapwright.allocators.space_spec import AllocatorSpec, ParamSpec
from heapwright.errors import HeapwrightError

ALLOCATOR = "allocator"


@dataclass(frozen=True)
class JointSpace(Space):
    """Several allocators' spaces side by side; made by `join`."""

    parts: tuple[Space, ...] = ()

    def _own(self, point: Sequence[int]) -> tuple[int, Point]:
        """Which allocator a point means, and its coordinates in that allocator's own space."""
        first = len(self.gates)
        chosen = point[first] if 0 <= point[first] < len(self.parts) else 0
        gates, params = self._places(chosen)
        return chosen, (*point[gates], *point[params])

    def _places(self, part: int) -> tuple[slice, slice]:
        """Where the gates and the parameters of a part stand."""
        gates = sum(len(p.gates) for p in self.parts[:part])
        params = len(self.gates) + 1 + sum(len(p.params) for p in self.parts[:part])
        return (
            slice(gates, gates + len(self.parts[part].gates)),
            slice(params, params + len(self.parts[part].params)),
        )

    def normalise(self, point: Sequence[int]) -> Point:
        """Return the point with 0 for settings of other allocators and for settings that have no effect."""
        chosen, own = self._own(point)
        return self._joined(chosen, self.parts[chosen].normalise(own))

    def _joined(self, chosen: int, own: Point) -> Point:
        values = [0] * len(self.sizes)
        gates, params = self._places(chosen)
        count = len(self.parts[chosen].gates)
        values[gates], values[params] = own[:count], own[count:]
        values[len(self.gates)] = chosen
        return tuple(values)

    def settings(self, point: Sequence[int]) -> dict[str, str]:
        """The allocator's name under `ALLOCATOR`, then its settings."""
        chosen, own = self._own(point)
        part = self.parts[chosen]
        return {ALLOCATOR: part.allocator.name, **part.settings(own)}

    def point(self, settings: Mapping[str, str]) -> Point | None:
        """The point with these settings (as `settings` gives them), or None where this space has no such level."""
        names = [part.allocator.name for part in self.parts]
        name = settings.get(ALLOCATOR, "")
        if name not in names:
            return None
        part = self.parts[names.index(name)]
        wanted = {k: v for k, v in settings.items() if k != ALLOCATOR}
        levels = [_level(p.levels, wanted.get(p.key)) for p in part.params]
        own = part.normalise([*(1 for _ in part.gates), *levels])
        return self._joined(names.index(name), own) if part.settings(own) == wanted else None

    def environment(self, settings: Mapping[str, str], base: Mapping[str, str]) -> dict[str, str]:
        """The variables that make these settings so, their allocator's preloading among them."""
        own = {key: value for key, value in settings.items() if key != ALLOCATOR}
        return self.part(settings[ALLOCATOR]).environment(own, base)

    def part(self, name: str) -> Space:
        """The space of the allocator of this name."""
        return next(part for part in self.parts if part.allocator.name == name)

    def restrict(self, keys: Sequence[str]) -> Space:
        """Not here: each allocator's own space is restricted before they are joined."""
        raise NotImplementedError


def _level(levels: Sequence[str], value: str | None) -> int:
    return levels.index(value) + 1 if value is not None and value in levels else 0


def join(parts: Sequence[Space]) -> Space:
    """Join several spaces into one; a single space is returned as it is. A point of zeros means the first.

    Raises:
        HeapwrightError: there is none.
    """
    if not parts:
        raise HeapwrightError("there is no allocator to search")
    if len(parts) == 1:
        return parts[0]
    names = [part.allocator.name for part in parts]
    choice = ParamSpec(ALLOCATOR, "Which allocator runs.", type="enum", values=list(names[1:]), default=names[0])
    params = [Param(choice, tuple(names[1:]), 0)]
    gates = []
    skipped: list[tuple[str, str]] = []
    for name, part in zip(names, parts, strict=True):
        gates += [msgspec.structs.replace(gate, key=f"{name}.{gate.key}") for gate in part.gates]
        params += [_named(name, param) for param in part.params]
        skipped += [(f"{name}.{key}", why) for key, why in part.skipped]
    spec = AllocatorSpec(",".join(names))
    return JointSpace(spec, tuple(gates), tuple(params), tuple(skipped), tuple(parts))


def _named(name: str, param: Param) -> Param:
    """A parameter as a dimension of the whole; its conditions are its own space's business."""
    gate = f"{name}.{param.spec.gate}" if param.spec.gate else ""
    spec = msgspec.structs.replace(param.spec, key=f"{name}.{param.spec.key}", gate=gate, unless={})
    return dataclasses.replace(param, spec=spec)


def restricted(space: Space, keys: Sequence[str]) -> Space:
    """One allocator's space with the keys that are its own: KEY, or NAME.KEY. Without any, nothing of it is set."""
    start = f"{space.allocator.name}."
    own = {key.removeprefix(start) for key in keys} & {p.key for p in space.params}
    return dataclasses.replace(
        space,
        gates=tuple(g for g in space.gates if any(p.key in own and p.spec.gate == g.key for p in space.params)),
        params=tuple(p for p in space.params if p.key in own),
    )


def replayable(space: Space) -> Space:
    """The space without parameters whose effect a replay does not show."""
    if isinstance(space, JointSpace):
        return join([replayable(part) for part in space.parts])
    return dataclasses.replace(space, params=tuple(p for p in space.params if p.spec.replayable))


def not_replayable(space: Space) -> list[tuple[str, str, str]]:
    """Allocator, parameter and level of each level whose effect a replay does not show."""
    parts = space.parts if isinstance(space, JointSpace) else (space,)
    return [
        (part.allocator.name, param.key, level)
        for part in parts
        for param in part.params
        if not param.spec.replayable
        for level in param.levels
    ]
