"""An allocator's parameter space: which settings exist, which values are worth trying, how they are written.

One TOML file per allocator holds the facts (`spaces/glibc.toml` documents the format); this module turns it
into a `Space` for one machine and one program. A point of the space is a tuple of small integers, one for
each parameter: 0 is 'unset', k the k-th level. So every strategy searches exponents and not raw byte counts,
'unset' is a value of its own, and no sampler ever sees a range 2^30 wide.

Dependencies between settings
- A gate is a switch of the search itself: off, none of its parameters is set.
- `unless` names settings of the same file that make this one mean nothing (decay times without a cache …).
- `joint` puts the spaces of several allocators side by side; which one is a coordinate like any other.

Invariants
- `render` is the only way from a point to an environment; points that render alike are one configuration.
- Numbers are written as plain decimals: glibc reads '128k' as 128 and silently drops invalid values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heapwright.allocators.levels import RangeError, levels_of
from heapwright.allocators.space_spec import (
    AllocatorSpec,
    Context,
    GateSpec,
    ParamSpec,
    SpaceFile,
    format_setting,
    needed_variables,
    preload_variables,
    shares_variable,
    variable_of,
    version_key,
    version_trouble,
)
from heapwright.errors import UsageError, unknown

Point = tuple[int, ...]


@dataclass(frozen=True)
class Param:
    """A searchable parameter: its spec and its levels as text; level k of a point is `levels[k - 1]`.

    The first `specials` levels are the special values, the rest ascend.
    """

    spec: ParamSpec
    levels: Sequence[str]
    specials: int

    @property
    def key(self) -> str:
        """The allocator's name for it."""
        return self.spec.key

    @property
    def start(self) -> int:
        """Its starting level if it is always set; else 0."""
        if not self.spec.always:
            return 0
        return 1 if self.spec.start is None else self.levels.index(str(self.spec.start)) + 1


@dataclass(frozen=True)
class Rendered:
    """A point as settings (key → value) and as variables to set (merged with the user's own)."""

    settings: dict[str, str]
    env: dict[str, str]


@dataclass(frozen=True)
class Space:
    """The searchable space of one allocator for one program on one machine.

    The dimensions of a point are the gates (levels: on) followed by the parameters.
    """

    allocator: AllocatorSpec
    gates: tuple[GateSpec, ...]
    params: tuple[Param, ...]
    skipped: tuple[tuple[str, str], ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of levels of each dimension, unset not counted."""
        return (1,) * len(self.gates) + tuple(len(p.levels) for p in self.params)

    @property
    def default(self) -> Point:
        """Everything unset."""
        return (0,) * len(self.sizes)

    @property
    def starts(self) -> Point:
        """The starting level of each dimension that is always set; 0 for all others."""
        return (*(0 for _ in self.gates), *(p.start for p in self.params))

    def normalise(self, point: Sequence[int]) -> Point:
        """Return the point without coordinates that have no effect.

        These are settings that another setting disables, settings behind a closed gate, and gates without settings.
        If anything is set, parameters that are always set get their starting level.
        """
        values = list(point)
        first, at = len(self.gates), {p.key: i for i, p in enumerate(self.params)}
        for i, param in enumerate(self.params):  # conditions look back, so one pass is enough
            for key, spoilt in param.spec.unless.items():
                other = values[first + at[key]] if key in at else 0
                if other and self.params[at[key]].levels[other - 1] in map(str, spoilt):
                    values[first + i] = 0
        for g, gate in enumerate(self.gates):
            behind = [len(self.gates) + i for i, p in enumerate(self.params) if p.spec.gate == gate.key]
            if not values[g]:
                for i in behind:
                    values[i] = 0
            elif not any(values[i] for i in behind):
                values[g] = 0
        if any(values):
            values = [v or s for v, s in zip(values, self.starts, strict=True)]
        return tuple(values)

    def settings(self, point: Sequence[int]) -> dict[str, str]:
        """Parameter key → value as text, in the file's order."""
        values = self.normalise(point)[len(self.gates) :]
        return {p.key: p.levels[v - 1] for p, v in zip(self.params, values, strict=True) if v}

    def without_defaults(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Settings without those that are the same as unset (`omits_default`), as older studies may have them."""
        same = {(p.key, p.spec.default) for p in self.params if p.spec.omits_default}
        return {key: value for key, value in settings.items() if (key, value) not in same}

    def render(self, point: Sequence[int], base: Mapping[str, str]) -> Rendered:
        """The settings and variables of a point, on top of the user's environment `base`."""
        settings = self.settings(point)
        return Rendered(settings, self.environment(settings, base))

    def environment(self, settings: Mapping[str, str], base: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that apply these settings; other settings of the user in the same variables stay.

        The result also preloads the allocator if it needs that, even without any setting.

        Args:
            settings: key → value.
            base: the user's environment.
        """
        env = needed_variables(self.allocator.needs, base)
        specs = {p.key: p.spec for p in self.params}
        for key, value in settings.items():
            spec = specs[key]
            name, pair = variable_of(self.allocator, spec), spec.pair or self.allocator.pair
            if not shares_variable(self.allocator, spec):
                env[name] = format_setting(pair, key, value)
                continue
            before = env.get(name, base.get(name, ""))
            env[name] = _merged(before, format_setting(pair, key, value), own_parts(spec, pair), self.allocator.join)
        return {**env, **preload_variables(self.allocator.preload, base)}

    def restrict(self, keys: Sequence[str]) -> Space:
        """The space with only these parameters.

        Raises:
            UsageError: a key the space does not have; a skipped one says why it does not apply.
        """
        have = {p.key for p in self.params}
        for key in keys:
            for skipped, why in self.skipped:
                if key == skipped and key not in have:
                    raise UsageError(f"parameter '{key}' does not apply here: {why}")
            if key not in have:
                raise unknown("parameter", key, have)
        params = tuple(p for p in self.params if p.key in keys)
        gates = tuple(g for g in self.gates if any(p.spec.gate == g.key for p in params))
        return Space(self.allocator, gates, params, self.skipped)


def own_parts(spec: ParamSpec, pair: str) -> tuple[str, frozenset[str]]:
    """Return the texts by which a setting is recognised in a variable: its beginning, and whole texts.

    Args:
        spec: the setting.
        pair: how it is written. Without {key}, other settings may begin alike, as all of Java's flags begin with
            '-XX:+'. Then an enum is recognised by its values. Nothing is recognised if the value follows the key
            directly: Erlang's '+sbwtnone' begins like '+sbwtdcpu', and '+sbwt none' is two words.
    """
    if "{key}{value}" in pair:
        return "", frozenset()
    if spec.type != "int" and "{key}" not in pair:
        values = [*spec.values, *spec.valid] or [1, 0]
        return "", frozenset(format_setting(pair, spec.key, str(v)) for v in values)
    return format_setting(pair, spec.key, ""), frozenset()


def _merged(before: str, ours: str, own: tuple[str, frozenset[str]], join: str) -> str:
    """Put a setting behind the user's in a variable; it replaces the user's value of the same setting, if recognised.

    Args:
        before: the variable's value.
        ours: the setting as it is written.
        own: how the user's value of this setting is recognised (`own_parts`).
        join: what stands between settings.
    """
    start, whole = own
    parts = before.split(join)
    kept = [part for part in parts if part not in (*whole, ours) and not (start and part.startswith(start))]
    before = join.join(part for part in kept if part or not join.strip())  # several spaces may stand in quotes
    return f"{before}{join}{ours}" if before else ours


def build_space(file: SpaceFile, context: Context, origin: str = "space") -> Space:
    """Return the part of a checked file that applies in this context; `skipped` lists the rest with reasons.

    Args:
        file: the space file.
        context: the machine, the allocator's version, the program.
        origin: name of the file, for messages.
    """
    params: dict[str, Param] = {}
    skipped: list[tuple[str, str]] = []
    for spec in file.param:
        why = _inapplicable(spec, context)
        if why:
            skipped.append((spec.key, why))
            continue
        before = params.get(spec.key)
        if before is not None and (context.version or before.spec.requires.since == spec.requires.since):
            raise UsageError(f"{origin}: {spec.key}: defined twice for the same version")
        if before is not None and version_key(before.spec.requires.since) > version_key(spec.requires.since):
            continue  # the version is unknown: the newest version's definition counts
        try:
            levels, specials = levels_of(spec, context)
        except RangeError as wrong:
            raise UsageError(f"{origin}: {spec.key}: {wrong.field}: {wrong.what}") from None
        late = {v: since for v, since in spec.values_since.items() if _older(context.version, since)}
        if late:
            skipped += [(f"{spec.key}={v}", f"needs version {s}, here is {context.version}") for v, s in late.items()]
        idle = {v: s for v, s in spec.values_thp.items() if context.thp and context.thp not in s and v not in late}
        for value, states in idle.items():
            where = f"only where transparent huge pages are {' or '.join(states)}, here they are {context.thp}"
            skipped.append((spec.key if len(idle) == len(levels) else f"{spec.key}={value}", where))
        if late or idle:
            levels = tuple(level for level in levels if level not in late and level not in idle)
            if not levels:
                continue
        if spec.always and (spec.gate or spec.unless):
            raise UsageError(f"{origin}: {spec.key}: always: cannot be given with gate or unless")
        if spec.start is not None and str(spec.start) not in levels:
            raise UsageError(f"{origin}: {spec.key}: start: {spec.start} is not one of its values")
        params[spec.key] = Param(spec, levels, specials)
    used = tuple(g for g in file.gate if any(p.spec.gate == g.key for p in params.values()))
    return Space(file.allocator, used, tuple(params.values()), tuple(skipped))


def _older(version: str, since: str) -> bool:
    return bool(version) and version_key(version) < version_key(since)


def _inapplicable(spec: ParamSpec, context: Context) -> str:
    if spec.safe == "no":
        return "never searched: " + (spec.hazard or "it does not make programs faster or smaller")
    trouble = version_trouble(spec, context.version)
    if trouble:
        return trouble
    if spec.safe == "expert" and not context.expert:
        return "only with --expert" + (f": {spec.hazard}" if spec.hazard else "")
    if spec.requires.without_pool and context.pool:
        return "the system has a pool of huge pages, whose memory the kernel does not count as resident"
    if spec.requires.threads and not context.threads:
        return "the program has one thread"
    if context.known is not None and spec.key not in context.known:
        return "this build of the library does not know it"
    return ""
