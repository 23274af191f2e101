"""An allocator's parameter space: which settings exist, which values are worth trying, how they are written.

One TOML file per allocator holds the facts (`spaces/glibc.toml` documents the format); this module turns it
into a `Space` for one machine and one program. A point of the space is a tuple of small integers, one for
each parameter: 0 is 'unset', k the k-th level. So every strategy searches exponents and not raw byte counts,
'unset' is a value of its own, and no sampler ever sees a range 2^30 wide.

Invariants
- `render` is the only way from a point to an environment; points that render alike are one configuration.
- Numbers are written as plain decimals: glibc reads '128k' as 128 and drops what it cannot parse in silence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from heapwright.errors import UsageError, unknown
from heapwright.tomlfile import key_line, load_toml

Point = tuple[int, ...]
Safety = Literal["yes", "expert", "no"]
MOST_LEVELS = 10_000  # of one parameter: more is a slip of the pen, not a search


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
        scale: log2 (steps in the exponent) or linear.
        step: half powers of two are 0.5 on a log2 scale; a plain increment on a linear one.
        specials: values outside the range worth a try (0, or 'never' words the allocator knows).
        values: what an enum may be.
        default: what 'unset' means to the allocator, for people.
        gate: setting this parameter means something only when this gate is on.
        safe: 'expert' needs --expert; 'no' is listed and never searched.
        hazard: what can go wrong, for the report; `hazard_below`: only when set below this.
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
    scale: Literal["log2", "linear"] = "log2"
    step: float = 1.0
    specials: list[int | str] = []
    values: list[int | str] = []
    default: str = "unset"
    gate: str = ""
    safe: Safety = "yes"
    hazard: str = ""
    hazard_below: int | None = None
    requires: Requires = msgspec.field(default_factory=Requires)
    env: str = ""
    pair: str = ""


class GateSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A `[[gate]]` table: a switch of the search itself; off, none of its parameters is set."""

    key: str
    explain: str


class AllocatorSpec(msgspec.Struct, forbid_unknown_fields=True):
    """The `[allocator]` table.

    Attributes:
        name: registry name.
        env: the variable its settings go into; empty if each parameter names its own.
        pair: how one setting is written, with {key} and {value}.
        join: what stands between settings.
        probe: how to see what took effect ('ld.so' or empty).
        preload: the library to LD_PRELOAD, or empty.
    """

    name: str
    env: str = ""
    pair: str = "{value}"
    join: str = ":"
    probe: Literal["", "ld.so"] = ""
    preload: str = ""


class SpaceFile(msgspec.Struct, forbid_unknown_fields=True):
    """A whole parameter-space file."""

    allocator: AllocatorSpec
    gate: list[GateSpec] = []
    param: list[ParamSpec] = []


@dataclass(frozen=True)
class Context:
    """What decides which parameters apply: library version, cores, threads of the program, expert mode."""

    version: str = ""
    cores: int = 1
    threads: bool = True
    expert: bool = False


@dataclass(frozen=True)
class Param:
    """A searchable parameter: its spec and its levels as text; level k of a point is `levels[k - 1]`.

    The first `specials` levels are the special values, the rest ascend.
    """

    spec: ParamSpec
    levels: tuple[str, ...]
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
        """The point with what has no effect removed: settings behind a closed gate, gates with nothing behind."""
        values = list(point)
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
        env: dict[str, str] = {}
        specs = {p.key: p.spec for p in self.params}
        for key, value in settings.items():
            spec = specs[key]
            name, pair = spec.env or self.allocator.env, spec.pair or self.allocator.pair
            if spec.env:
                env[name] = pair.format(key=key, value=value)
                continue
            before = env.get(name, base.get(name, ""))
            own = pair.format(key=key, value="")
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


def preloading(library: str, base: Mapping[str, str]) -> dict[str, str]:
    """What makes the loader load this library first; what the user preloads stays behind it."""
    before = [path for path in base.get("LD_PRELOAD", "").split(":") if path and path != library]
    return {"LD_PRELOAD": ":".join([library, *before])} if library else {}


def load_space_file(path: Path) -> SpaceFile:
    """Reads a parameter-space file and checks what can be checked on any machine.

    Raises:
        UsageError: the file cannot be read, or contradicts itself; file, line and key are named.
    """
    file = load_toml(path, SpaceFile)
    text = path.read_text(encoding="utf-8")

    def fail(keys: list[str], what: str) -> UsageError:
        line = key_line(text, keys)
        where = ".".join(k for k in keys if not k.isdigit())
        return UsageError(f"{path}{f':{line}' if line else ''}: {where}: {what}")

    gates = {g.key for g in file.gate}
    shared = {spec.key for spec in file.param if not spec.env}
    for number, spec in enumerate(file.param):
        place = ["param", str(number)]
        if spec.gate and spec.gate not in gates:
            error = unknown("gate", spec.gate, gates)
            raise fail([*place, "gate"], f"{error.message} ({error.hint})" if gates else error.message)
        if not (spec.env or file.allocator.env):
            raise fail([*place, "env"], f"neither '{spec.key}' nor the allocator names a variable")
        if any(spec.env and other.key != spec.key and _variable(file, other) == spec.env for other in file.param):
            raise fail(
                [*place, "env"], f"another setting writes {spec.env} too; name it as the allocator's env instead"
            )
        where = [*place, "pair"] if spec.pair else ["allocator", "pair"]
        trouble = _pair_trouble(spec.pair or file.allocator.pair, 0 if spec.env else len(shared))
        if trouble:
            raise fail(where, trouble)
        for expert in (False, True):
            try:
                _levels(spec, Context(expert=expert))
            except _RangeError as wrong:
                raise fail([*place, wrong.field], f"'{spec.key}': {wrong.what}") from None
    if shared and not file.allocator.join:
        raise fail(["allocator", "join"], "is empty; give what stands between two settings")
    return file


def _variable(file: SpaceFile, spec: ParamSpec) -> str:
    """The environment variable a setting is written into."""
    return spec.env or file.allocator.env


def _pair_trouble(pair: str, sharing: int) -> str:
    """What is wrong with how a setting is written, in a variable that so many settings share (0: its own)."""
    try:
        start = pair.format(key="KEY", value="")
    except (LookupError, ValueError):
        return f"'{pair}' may hold {{key}} and {{value}} and no other brace"
    if "{value}" not in pair:
        return f"'{pair}' must hold {{value}}"
    if sharing and (not pair.endswith("{value}") or pair.count("{value}") > 1):
        return f"'{pair}' must end with {{value}}"
    if sharing > 1 and "KEY" not in start:
        return f"'{pair}' must hold {{key}}: several settings share one variable"
    return ""


def build_space(file: SpaceFile, context: Context, origin: str = "space") -> Space:
    """The part of a checked file that applies in this context; the rest stands in `skipped` with its reason."""
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
            levels, specials = _levels(spec, context)
        except _RangeError as wrong:
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
    if context.version:
        here = version_key(context.version)
        if spec.requires.since and here < version_key(spec.requires.since):
            return f"needs version {spec.requires.since}, here is {context.version}"
        if spec.requires.before and here >= version_key(spec.requires.before):
            return f"gone since version {spec.requires.before}, here is {context.version}"
    return ""


def version_key(text: str) -> tuple[int, ...]:
    """'2.36' → (2, 36), for comparing."""
    return tuple(int(n) for n in re.findall(r"\d+", text)[:3])


class _RangeError(Exception):
    """A parameter whose levels make no sense: which key of its table, and why."""

    def __init__(self, field: str, what: str) -> None:
        super().__init__(what)
        self.field, self.what = field, what


def _levels(spec: ParamSpec, context: Context) -> tuple[tuple[str, ...], int]:
    """The texts a parameter may take, specials first."""
    if spec.type == "bool":
        return ("1", "0") if not spec.values else tuple(str(v) for v in spec.values), 0
    if spec.type == "enum":
        if not spec.values:
            raise _RangeError("values", "an enum needs its values")
        return tuple(str(v) for v in spec.values), 0
    low = spec.expert_low if context.expert and spec.expert_low is not None else spec.low
    high = spec.expert_high if context.expert and spec.expert_high is not None else spec.high
    if spec.high_per_core is not None:
        high = spec.high_per_core * context.cores
    if low is None or high is None:
        raise _RangeError("low" if low is None else "high", "an int needs a range, low and high")
    if high < low:
        raise _RangeError("low", f"{low} is above high, {high}")
    if spec.step <= 0:
        raise _RangeError("step", "must be positive")
    if spec.scale == "linear":
        step = max(1, round(spec.step))
        count = (high - low) // step + 1
    elif low < 1:
        raise _RangeError("low", "a log2 scale starts at 1 (put 0 in specials)")
    else:
        count = math.floor((math.log2(high) - math.log2(low)) / spec.step + 1e-9) + 1
    if count > MOST_LEVELS:
        raise _RangeError("step", f"gives {count} values; take a larger step, or scale = 'log2'")
    if spec.scale == "linear":
        numbers = [low + i * step for i in range(count)]
    else:
        numbers = [round(2 ** (math.log2(low) + i * spec.step)) for i in range(count)]
    specials = tuple(dict.fromkeys(str(s) for s in spec.specials))
    texts = dict.fromkeys([*specials, *(str(n) for n in numbers)])
    return tuple(texts), len(specials)
