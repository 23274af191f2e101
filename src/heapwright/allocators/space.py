"""An allocator's parameter space: which settings exist, which values are worth trying, how they are written.

One TOML file per allocator holds the facts (`spaces/glibc.toml` documents the format); this module turns it
into a `Space` for one machine and one program. A point of the space is a tuple of small integers, one for
each parameter: 0 is 'unset', k the k-th level. So every strategy searches exponents and not raw byte counts,
'unset' is a value of its own, and no sampler ever sees a range 2^30 wide.

What depends on what
- A gate is a switch of the search itself: off, none of its parameters is set.
- `unless` names settings of the same file that make this one mean nothing (decay times without a cache …).
- `joint` puts the spaces of several allocators side by side; which one is a coordinate like any other.

Invariants
- `render` is the only way from a point to an environment; points that render alike are one configuration.
- Numbers are written as plain decimals: glibc reads '128k' as 128 and drops what it cannot parse in silence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from heapwright.errors import UsageError, unknown

Point = tuple[int, ...]
Safety = Literal["yes", "expert", "no"]


VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # a name of an environment variable that every shell takes


class Requires(msgspec.Struct, forbid_unknown_fields=True):
    """When a parameter has any effect: library version in [since, before), more than one thread."""

    since: str = ""
    before: str = ""
    threads: bool = False


class ParamSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A `[[param]]` table.

    Attributes:
        key: the allocator's own name for it.
        type: int, bool or enum.
        explain: what it does, one or two sentences for the report.
        unit: 'B', 'ms' … or empty.
        low, high: the search range of an int, in `unit`; `high_per_core` multiplies by the core count.
        expert_low, expert_high: the wider range under `--expert`.
        scale: log2 (steps in the exponent), linear, or uniform: every whole number, all alike, however many (as the
            published searches drew them).
        step: half powers of two are 0.5 on a log2 scale; a plain increment on a linear one.
        specials: values outside the range worth a try (0, or 'never' words the allocator knows).
        values: what an enum may be.
        default: what 'unset' means to the allocator, for people.
        gate: setting this parameter means something only when this gate is on.
        unless: what makes it mean nothing: key of an earlier parameter → the values it then has.
        accepts: [least, most] the allocator takes; what is outside it drops or bends in silence.
        alias: an older variable of its own for the same setting.
        safe: 'expert' needs --expert; 'no' is listed and never searched.
        hazard: what can go wrong, for the report; `hazard_below`, `hazard_above`: only when set below or above this.
        env, pair: where it is written, if not in the allocator's own variable.
    """

    key: str
    explain: str
    type: Literal["int", "bool", "enum"] = "int"
    unit: str = ""
    low: int | None = None
    high: int | None = None
    high_per_core: int | None = None
    expert_low: int | None = None
    expert_high: int | None = None
    scale: Literal["log2", "linear", "uniform"] = "log2"
    step: float = 1.0
    specials: list[int | str] = []
    values: list[int | str] = []
    default: str = "unset"
    gate: str = ""
    unless: dict[str, list[int | str]] = {}
    accepts: tuple[int, int] | None = None
    alias: str = ""
    safe: Safety = "yes"
    hazard: str = ""
    hazard_below: int | None = None
    hazard_above: int | None = None
    requires: Requires = msgspec.field(default_factory=Requires)
    env: str = ""
    pair: str = ""

    def risks(self, value: str) -> str:
        """What can go wrong with this value; '' if nothing."""
        if self.hazard_below is None and self.hazard_above is None:
            return self.hazard
        try:
            number = int(value)
        except ValueError:  # of a study, so it can be anything
            return ""
        low = self.hazard_below is not None and number < self.hazard_below
        high = self.hazard_above is not None and number > self.hazard_above
        return self.hazard if low or high else ""


class GateSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A `[[gate]]` table: a switch of the search itself; off, none of its parameters is set."""

    key: str
    explain: str


class AllocatorSpec(msgspec.Struct, forbid_unknown_fields=True):
    """The `[allocator]` table.

    Attributes:
        name: registry name.
        env: the variable its settings go into; with {KEY} in it, each setting has one of its own, named by its key in
            capitals; empty if each parameter names its own.
        pair: how one setting is written, with {key} and {value}.
        join: what stands between settings.
        probe: how to see what took effect (`allocators.effect`), or empty where there is no way.
        preload: the library to LD_PRELOAD, or empty.
        needs: variables it needs set besides, or that make it the variant its name says.
        program: the program it is linked into, which is asked in its place; empty for all others. heapwright sets it
            (`allocators.embedded`).
    """

    name: str
    env: str = ""
    pair: str = "{value}"
    join: str = ":"
    probe: Literal["", "ld.so", "jemalloc", "mimalloc", "names", "complaint"] = ""
    preload: str = ""
    needs: dict[str, str] = {}
    program: str = ""


class SpaceFile(msgspec.Struct, forbid_unknown_fields=True):
    """A whole parameter-space file."""

    allocator: AllocatorSpec
    gate: list[GateSpec] = []
    param: list[ParamSpec] = []


@dataclass(frozen=True)
class Context:
    """What decides which parameters apply.

    Attributes:
        version: of the library; empty where it is not known, then no version is held against a parameter.
        cores: of the machine.
        threads: whether the program has more than one.
        expert: whether settings that can bite are searched.
        known: the keys this very library says it knows; None where it cannot be asked.
    """

    version: str = ""
    cores: int = 1
    threads: bool = True
    expert: bool = False
    known: frozenset[str] | None = None


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
        """How many levels each dimension has, unset not counted."""
        return (1,) * len(self.gates) + tuple(len(p.levels) for p in self.params)

    @property
    def default(self) -> Point:
        """Everything unset."""
        return (0,) * len(self.sizes)

    def normalise(self, point: Sequence[int]) -> Point:
        """The point with what has no effect removed: settings that another makes meaningless or that are behind a
        closed gate, gates with nothing behind.
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
        return tuple(values)

    def settings(self, point: Sequence[int]) -> dict[str, str]:
        """Parameter key → value as text, in the file's order."""
        values = self.normalise(point)[len(self.gates) :]
        return {p.key: p.levels[v - 1] for p, v in zip(self.params, values, strict=True) if v}

    def render(self, point: Sequence[int], base: Mapping[str, str]) -> Rendered:
        """The settings and variables of a point, on top of the user's environment `base`."""
        settings = self.settings(point)
        return Rendered(settings, self.environment(settings, base))

    def environment(self, settings: Mapping[str, str], base: Mapping[str, str]) -> dict[str, str]:
        """The variables that make these settings so; what the user has set otherwise in them stays.

        An allocator that has to be preloaded is, whatever is set.
        """
        env = needing(self.allocator.needs, base)
        specs = {p.key: p.spec for p in self.params}
        for key, value in settings.items():
            spec = specs[key]
            name, pair = variable_of(self.allocator, spec), spec.pair or self.allocator.pair
            if not shares_variable(self.allocator, spec):
                env[name] = written(pair, key, value)
                continue
            before = env.get(name, base.get(name, ""))
            own = written(pair, key, "")
            kept = [part for part in before.split(self.allocator.join) if part and not part.startswith(own)]
            env[name] = self.allocator.join.join([*kept, own + value])
        return {**env, **preloading(self.allocator.preload, base)}

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


def written(pair: str, key: str, value: str) -> str:
    """A setting as its variable has it. Only these two are put in: str.format would compute what a file tells it to."""
    return re.sub(r"\{(key|value)\}", lambda m: key if m[1] == "key" else value, pair)


def variable_of(allocator: AllocatorSpec, spec: ParamSpec) -> str:
    """The environment variable a setting is written into."""
    return spec.env or allocator.env.replace("{KEY}", spec.key.upper())


def shares_variable(allocator: AllocatorSpec, spec: ParamSpec) -> bool:
    """Whether a setting stands in one variable with others."""
    return not spec.env and "{KEY}" not in allocator.env


def needing(needs: Mapping[str, str], base: Mapping[str, str]) -> dict[str, str]:
    """What an allocator needs set; the user's own GLIBC_TUNABLES, which hold several settings, stay before it."""
    env = dict(needs)
    before, ours = base.get("GLIBC_TUNABLES", ""), env.get("GLIBC_TUNABLES", "")
    if before and ours and ours not in before.split(":"):
        env["GLIBC_TUNABLES"] = f"{before}:{ours}"
    elif ours:
        env["GLIBC_TUNABLES"] = before or ours
    return env


def preloading(library: str, base: Mapping[str, str]) -> dict[str, str]:
    """What makes the loader load this library first; what the user preloads stays behind it."""
    before = [path for path in base.get("LD_PRELOAD", "").split(":") if path and path != library]
    return {"LD_PRELOAD": ":".join([library, *before])} if library else {}


def build_space(file: SpaceFile, context: Context, origin: str = "space") -> Space:
    """The part of a checked file that applies in this context; the rest stands in `skipped` with its reason."""
    from heapwright.allocators.levels import RangeError, levels_of

    params: dict[str, Param] = {}
    skipped: list[tuple[str, str]] = []
    for spec in file.param:
        why = _inapplicable(spec, context)
        if why:
            skipped.append((spec.key, why))
            continue
        if spec.key in params:
            raise UsageError(f"{origin}: {spec.key}: stands twice for the same version")
        try:
            levels, specials = levels_of(spec, context)
        except RangeError as wrong:
            raise UsageError(f"{origin}: {spec.key}: {wrong.field}: {wrong.what}") from None
        params[spec.key] = Param(spec, levels, specials)
    used = tuple(g for g in file.gate if any(p.spec.gate == g.key for p in params.values()))
    return Space(file.allocator, used, tuple(params.values()), tuple(skipped))


def _inapplicable(spec: ParamSpec, context: Context) -> str:
    if spec.safe == "no":
        return "never searched: " + (spec.hazard or "it does not make programs faster or smaller")
    if spec.safe == "expert" and not context.expert:
        return "only with --expert" + (f": {spec.hazard}" if spec.hazard else "")
    if spec.requires.threads and not context.threads:
        return "the program has one thread"
    trouble = version_trouble(spec, context.version)
    if trouble:
        return trouble
    if context.known is not None and spec.key not in context.known:
        return "this build of the library does not know it"
    return ""


def version_trouble(spec: ParamSpec, version: str) -> str:
    """Why a library of this version does not have a setting, or empty; nothing is held against an unknown version."""
    if version and spec.requires.since and version_key(version) < version_key(spec.requires.since):
        return f"needs version {spec.requires.since}, here is {version}"
    if version and spec.requires.before and version_key(version) >= version_key(spec.requires.before):
        return f"gone since version {spec.requires.before}, here is {version}"
    return ""


def version_key(text: str) -> tuple[int, ...]:
    """'2.36' → (2, 36), for comparing."""
    return tuple(int(n) for n in re.findall(r"\d{1,9}", text)[:3])
