"""Joins the spaces of several allocators into one, in which the allocator is a coordinate.

    dimensions    gates of all  |  allocator  |  settings of the 1st  |  settings of the 2nd  |  …  |  of a runtime
                                   0: the 1st, k: the (k+1)-th

The settings of a runtime, or of a space that the user adds, stand beside those of every allocator.

A point chooses one allocator; `normalise` puts everything of the others to 0, so points that run the same are one
point. Strategies see a `Space` like any other. Settings carry the allocator's name under the key `ALLOCATOR`; keys of
dimensions are NAME.KEY, because two allocators may have different settings with one name.
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
    """Several allocators' spaces side by side, and extra spaces beside all of them; made by `join`.

    Attributes:
        parts: the allocators' spaces; a point means one of them. If there is only one, it has no coordinate.
        extras: spaces whose settings stand beside those of every allocator: of a runtime, or added by the user.
    """

    parts: tuple[Space, ...] = ()
    extras: tuple[Space, ...] = ()

    @property
    def _choices(self) -> int:
        """Number of coordinates that say which allocator runs: one, or none."""
        return int(len(self.parts) > 1)

    def _part_of(self, point: Sequence[int]) -> tuple[int, Point]:
        """Return the number of the allocator that a point chooses, and the coordinates in that allocator's space."""
        first = len(self.gates)
        chosen = point[first] if self._choices and 0 <= point[first] < len(self.parts) else 0
        return chosen, self._coordinates(point, chosen)

    def _coordinates(self, point: Sequence[int], number: int) -> Point:
        """Return the coordinates of a point in one space; the parts are numbered first, then the extras."""
        gates, params = self._positions(number)
        return (*point[gates], *point[params])

    def _positions(self, number: int) -> tuple[slice, slice]:
        """Return the slices of a point with the gates and the parameters of one space; parts first, then extras."""
        spaces = (*self.parts, *self.extras)
        gates = sum(len(s.gates) for s in spaces[:number])
        params = len(self.gates) + self._choices + sum(len(s.params) for s in spaces[:number])
        return (
            slice(gates, gates + len(spaces[number].gates)),
            slice(params, params + len(spaces[number].params)),
        )

    def _extra_points(self, point: Sequence[int], allocator: str) -> list[Point]:
        """The coordinates of a point in each extra space, without those that have no effect under this allocator."""
        found = []
        for number, extra in enumerate(self.extras, len(self.parts)):
            values = list(self._coordinates(point, number))
            for at, param in enumerate(extra.params, len(extra.gates)):
                if param.spec.requires.allocators and allocator not in param.spec.requires.allocators:
                    values[at] = 0
            found.append(extra.normalise(values))
        return found

    def normalise(self, point: Sequence[int]) -> Point:
        """Return the point with 0 for settings of other allocators and for settings that have no effect."""
        chosen, own = self._part_of(point)
        part = self.parts[chosen]
        return self._joined(chosen, part.normalise(own), self._extra_points(point, part.allocator.name))

    def _joined(self, chosen: int, own: Point, extra: Sequence[Point]) -> Point:
        values = [0] * len(self.sizes)
        numbered = [(chosen, own), *enumerate(extra, len(self.parts))]
        for number, coordinates in numbered:
            gates, params = self._positions(number)
            count = gates.stop - gates.start
            values[gates], values[params] = coordinates[:count], coordinates[count:]
        if self._choices:
            values[len(self.gates)] = chosen
        return tuple(values)

    def settings(self, point: Sequence[int]) -> dict[str, str]:
        """The allocator's name under `ALLOCATOR`, its settings, and those of the extra spaces as NAME.KEY."""
        chosen, own = self._part_of(point)
        part = self.parts[chosen]
        found = {ALLOCATOR: part.allocator.name, **part.settings(own)}
        for extra, values in zip(self.extras, self._extra_points(point, part.allocator.name), strict=True):
            found |= {f"{extra.allocator.name}.{key}": value for key, value in extra.settings(values).items()}
        return found

    def split(self, settings: Mapping[str, str]) -> tuple[dict[str, str], list[dict[str, str]]]:
        """Divide settings, as `settings` gives them, into the allocator's own and those of each extra space."""
        own = {key: value for key, value in settings.items() if key != ALLOCATOR}
        of_extras = []
        for extra in self.extras:
            start = f"{extra.allocator.name}."
            of_extras.append({key.removeprefix(start): own.pop(key) for key in list(own) if key.startswith(start)})
        return own, of_extras

    def point(self, settings: Mapping[str, str]) -> Point | None:
        """The point with these settings (as `settings` gives them), or None where this space has no such level."""
        names = [part.allocator.name for part in self.parts]
        name = settings.get(ALLOCATOR, "")
        if name not in names:
            return None
        chosen = names.index(name)
        own, of_extras = self.split(settings)
        pairs = zip((self.parts[chosen], *self.extras), (own, *of_extras), strict=True)
        points = [_with_levels(space, wanted) for space, wanted in pairs]
        found = self.normalise(self._joined(chosen, points[0], points[1:]))
        return found if self.settings(found) == self.without_defaults(settings) else None

    def without_defaults(self, settings: Mapping[str, str]) -> dict[str, str]:
        """The same of the allocator's space and of each extra space."""
        own, of_extras = self.split(settings)
        found = {ALLOCATOR: settings[ALLOCATOR], **self.part(settings[ALLOCATOR]).without_defaults(own)}
        for extra, wanted in zip(self.extras, of_extras, strict=True):
            found |= {f"{extra.allocator.name}.{key}": v for key, v in extra.without_defaults(wanted).items()}
        return found

    def environment(self, settings: Mapping[str, str], base: Mapping[str, str]) -> dict[str, str]:
        """The variables that make these settings so, their allocator's preloading among them."""
        own, of_extras = self.split(settings)
        env = self.part(settings[ALLOCATOR]).environment(own, base)
        for extra, wanted in zip(self.extras, of_extras, strict=True):
            env |= extra.environment(wanted, {**base, **env})
        return env

    def part(self, name: str) -> Space:
        """The space of the allocator of this name."""
        return next(part for part in self.parts if part.allocator.name == name)

    def restrict(self, keys: Sequence[str]) -> Space:
        """Not here: each allocator's own space is restricted before they are joined."""
        raise NotImplementedError


def point_of(space: Space, settings: Mapping[str, str]) -> Point | None:
    """The point of one allocator's space with these settings, or None where it has none."""
    found = _with_levels(space, settings)
    return found if space.settings(found) == space.without_defaults(settings) else None


def _with_levels(space: Space, settings: Mapping[str, str]) -> Point:
    """The point with the levels of these settings; a value that is no level counts as unset."""
    return space.normalise(
        [*(1 for _ in space.gates), *(_level_of(p.levels, settings.get(p.key)) for p in space.params)]
    )


def _level_of(levels: Sequence[str], value: str | None) -> int:
    """The level of a value; 0 for no value and for an unknown one."""
    return levels.index(value) + 1 if value is not None and value in levels else 0


def join(parts: Sequence[Space], extras: Sequence[Space] = ()) -> Space:
    """Join several spaces into one; a single space is returned as it is. A point of zeros means the first.

    Args:
        parts: the allocators' spaces.
        extras: spaces whose settings stand beside those of every allocator. Those without settings are left out.

    Raises:
        HeapwrightError: there is none, or two have one name.
    """
    extras = [extra for extra in extras if extra.params]
    if not parts:
        raise HeapwrightError("there is no allocator to search")
    if len(parts) == 1 and not extras:
        return parts[0]
    every = [space.allocator.name for space in (*parts, *extras)]
    twice = next((name for name in every if every.count(name) > 1), None)
    if twice is not None:
        raise HeapwrightError(f"two parameter spaces have the name '{twice}'", "give one of them another name")
    names = every[: len(parts)]
    choice = ParamSpec(ALLOCATOR, "Which allocator runs.", type="enum", values=list(names[1:]), default=names[0])
    params = [Param(choice, tuple(names[1:]), 0)] if len(parts) > 1 else []
    gates = []
    skipped: list[tuple[str, str]] = []
    for name, space in zip(every, (*parts, *extras), strict=True):
        gates += [msgspec.structs.replace(gate, key=f"{name}.{gate.key}") for gate in space.gates]
        params += [_named(name, param) for param in space.params]
        skipped += [(f"{name}.{key}", why) for key, why in space.skipped]
    spec = AllocatorSpec(",".join(names))
    return JointSpace(spec, tuple(gates), tuple(params), tuple(skipped), tuple(parts), tuple(extras))


def _named(name: str, param: Param) -> Param:
    """A parameter as a dimension of the whole; its conditions are its own space's business."""
    gate = f"{name}.{param.spec.gate}" if param.spec.gate else ""
    spec = msgspec.structs.replace(param.spec, key=f"{name}.{param.spec.key}", gate=gate, unless={})
    return dataclasses.replace(param, spec=spec)


def restricted(space: Space, keys: Sequence[str]) -> Space:
    """Return an allocator's space with only these of its settings: KEY, or NAME.KEY. Other names are ignored."""
    start = f"{space.allocator.name}."
    own = {key.removeprefix(start) for key in keys} & {p.key for p in space.params}
    return dataclasses.replace(
        space,
        gates=tuple(g for g in space.gates if any(p.key in own and p.spec.gate == g.key for p in space.params)),
        params=tuple(p for p in space.params if p.key in own),
    )


def replayable(space: Space) -> Space:
    """The space without parameters whose effect a replay does not show; so without the settings of runtimes."""
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


def has_extras(space: Space) -> bool:
    """Whether the space has settings beside those of its allocators."""
    return isinstance(space, JointSpace) and bool(space.extras)


def extra_settings(space: Space, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a runtime, or of a space that the user added: NAME.KEY → value."""
    names = [extra.allocator.name for extra in space.extras] if isinstance(space, JointSpace) else []
    return {key: value for key, value in settings.items() if any(key.startswith(f"{name}.") for name in names)}
