"""Defines the structure of a parameter-space file, and how its settings are written into variables.

`spaces/glibc.toml` is an example of the format; docs/spaces.md describes it. `space_file` reads and checks such a file,
`levels` computes the values of a parameter, and `space` builds the searchable space from both.

Numbers are written as plain decimals: glibc reads '128k' as 128 and silently drops what it cannot parse.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

Safety = Literal["yes", "expert", "no"]

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # a name of an environment variable that every shell takes


class Requires(msgspec.Struct, forbid_unknown_fields=True):
    """When a parameter has any effect.

    Attributes:
        since, before: the versions in [since, before).
        threads: only in a program with more than one thread.
        allocators: of a runtime's parameter: only under these allocators; empty for all.
        without_pool: only where the system has no pool of huge pages. The kernel does not count memory of the pool as
            resident, so a saving would only be apparent.
    """

    since: str = ""
    before: str = ""
    threads: bool = False
    allocators: list[str] = []
    without_pool: bool = False


class ParamSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A `[[param]]` table.

    Attributes:
        key: the allocator's own name for it.
        type: int, bool or enum.
        explain: its effect, in one or two sentences for the report.
        unit: 'B', 'ms' … or empty.
        low, high: the search range of an int, in `unit`; `high_per_core` multiplies by the core count.
        expert_low, expert_high: the wider range under `--expert`.
        scale: log2 (steps in the exponent), linear, or uniform: every whole number, all alike, however many (as the
            published searches drew them).
        step: half powers of two are 0.5 on a log2 scale; a plain increment on a linear one.
        specials: values outside the range worth a try (0, or 'never' words the allocator knows).
        values: the values of an enum.
        values_since: value of an enum → the first version that has it.
        values_thp: value of an enum → the states of transparent huge pages in which it has an effect; all others have
            it in each.
        try_first: state of transparent huge pages → the value that a search tries first if the heap is large.
        valid: further values of an enum that are valid and not searched, such as those for finding errors.
        default: what 'unset' means to the allocator, for people.
        omits_default: no search sets the value in `default`, because that is the same as to leave the parameter unset.
        gate: setting this parameter means something only when this gate is on.
        unless: what makes it mean nothing: key of an earlier parameter → the values it then has.
        accepts: [minimum, maximum] that the allocator accepts; it silently ignores or clips other values.
        alias: an older variable of its own for the same setting.
        safe: 'expert' needs --expert; 'no' is listed and never searched.
        hazard: what can go wrong, for the report; `hazard_below`, `hazard_above`: only when set below or above this.
        env, pair: where it is written, if not in the allocator's own variable.
        replayable: whether a replay shows its effect; not if it runs by a clock that a replay cannot set, and never
            if the file describes a runtime.
        always: no search leaves it unset, as in published searches. A point that sets anything sets it. Without a value
            of its own it has `start`.
        start: the value of a parameter that is always set, until a search changes it; the first level if not given.
        mean: of the distribution from which the method `magpie` draws values; 131072 if not given.
        changes_calls: whether the program calls malloc otherwise when this is set. Then a replay of a recording made
            without it says nothing about the allocator's settings either.
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
    values_since: dict[str, str] = {}
    values_thp: dict[str, list[str]] = {}
    try_first: dict[str, str] = {}
    valid: list[int | str] = []
    default: str = "unset"
    omits_default: bool = False
    gate: str = ""
    unless: dict[str, list[int | str]] = {}
    accepts: tuple[int | float, int | float] | None = None
    alias: str = ""
    safe: Safety = "yes"
    hazard: str = ""
    hazard_below: int | None = None
    hazard_above: int | None = None
    requires: Requires = msgspec.field(default_factory=Requires)
    env: str = ""
    pair: str = ""
    replayable: bool = True
    changes_calls: bool = False
    always: bool = False
    start: int | None = None
    mean: float | None = None

    def risks(self, value: str) -> str:
        """The hazard of this value; '' if it has none."""
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
        probe: how to see what took effect (`allocators.library_report`), or empty where there is no way.
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


class RuntimeSpec(msgspec.Struct, forbid_unknown_fields=True):
    """The `[runtime]` table: how a language's runtime is recognised, and where its settings are written.

    A program is run by it if its file name matches `names` and its file shows evidence: it needs one of `libraries`,
    or it has all `symbols` and all `texts`.

    Attributes:
        name: short name; its settings are called NAME.KEY.
        title: its name for people.
        env, pair, join: as in an `AllocatorSpec`.
        names: patterns of the executable's file name; empty for any.
        libraries: patterns of the names of libraries that it needs (DT_NEEDED).
        symbols: names that its dynamic symbol table defines.
        texts: strings in its file.
        version: patterns with one group, its version. They are looked for in the names of the needed libraries, then
            in the file's own name, then in the file.
        version_file: a file beside the executable, such as '../release', in which `version` is looked for next. With
            {stem} it stands beside the executable, or beside a file that the command names, without its suffix.
        version_args: the arguments with which the executable (never the user's command) prints its version, if nothing
            else tells it.
        version_names: patterns of the file names of executables that may be asked so; empty for any. Under all other
            names the executable is the user's own program.
        heap: the name for people of the heap that it takes from the kernel without malloc; empty if it has none.
        limit: the settings that make this heap smaller, for advice.
        source: where its settings are documented.
        library: it is a library that programs of any language may need; a language's runtime comes before it.
    """

    name: str
    title: str
    env: str = ""
    pair: str = "{value}"
    join: str = " "
    names: list[str] = []
    libraries: list[str] = []
    symbols: list[str] = []
    texts: list[str] = []
    version: list[str] = []
    version_file: str = ""
    version_args: list[str] = []
    version_names: list[str] = []
    heap: str = ""
    limit: str = ""
    source: str = ""
    library: bool = False


class SpaceFile(msgspec.Struct, forbid_unknown_fields=True):
    """A whole parameter-space file: of an allocator, or of a runtime.

    Where it describes a runtime, `allocator` has the runtime's name and says how its settings are written
    (`space_file.load_space_file`).
    """

    allocator: AllocatorSpec = msgspec.field(default_factory=lambda: AllocatorSpec(""))
    gate: list[GateSpec] = []
    param: list[ParamSpec] = []
    runtime: RuntimeSpec | None = None


@dataclass(frozen=True)
class Context:
    """The facts that decide which parameters apply.

    Attributes:
        version: of the library; empty if unknown: then version conditions are ignored, and of a setting that is
            defined for several versions the newest definition counts.
        cores: of the machine.
        threads: whether the program has more than one.
        expert: whether settings that can slow down or break a program are searched.
        known: the keys this very library says it knows; None where it cannot be asked.
        thp: the system's state of transparent huge pages; empty if unknown: then conditions on it are ignored.
        pool: whether the system has a pool of huge pages.
    """

    version: str = ""
    cores: int = 1
    threads: bool = True
    expert: bool = False
    known: frozenset[str] | None = None
    thp: str = ""
    pool: bool = False


def format_setting(pair: str, key: str, value: str) -> str:
    """Format a setting for its variable. It replaces its own words only; str.format would evaluate expressions.

    Args:
        pair: the format, with {key}, and {value} or {hex} (a number in hexadecimal).
        key: the setting's key.
        value: its value.
    """
    words = {"key": key, "value": value, "hex": f"{int(value):x}" if value.isdecimal() else value}
    return re.sub(r"\{(key|value|hex)\}", lambda m: words[m[1]], pair)


def variable_of(allocator: AllocatorSpec, spec: ParamSpec) -> str:
    """The environment variable a setting is written into."""
    return spec.env or allocator.env.replace("{KEY}", spec.key.upper())


def shares_variable(allocator: AllocatorSpec, spec: ParamSpec) -> bool:
    """Whether a setting stands in one variable with others."""
    return not spec.env and "{KEY}" not in allocator.env


def needed_variables(needs: Mapping[str, str], base: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that an allocator needs; the user's own GLIBC_TUNABLES stay in front of its own."""
    env = dict(needs)
    before, ours = base.get("GLIBC_TUNABLES", ""), env.get("GLIBC_TUNABLES", "")
    if before and ours and ours not in before.split(":"):
        env["GLIBC_TUNABLES"] = f"{before}:{ours}"
    elif ours:
        env["GLIBC_TUNABLES"] = before or ours
    return env


def preloadable(path: str | Path) -> bool:
    """Return whether LD_PRELOAD can name a library: white space or a colon would end its path there."""
    return not any(c in ":" or c.isspace() for c in str(path))


def preload_variables(library: str, base: Mapping[str, str]) -> dict[str, str]:
    """Return the LD_PRELOAD that loads this library first, followed by the libraries that the user preloads."""
    before = [path for path in base.get("LD_PRELOAD", "").split(":") if path and path != library]
    return {"LD_PRELOAD": ":".join([library, *before])} if library else {}


def version_trouble(spec: ParamSpec, version: str) -> str:
    """Why a library of this version lacks a setting, or empty. Conditions on an unknown version are ignored."""
    if version and spec.requires.since and version_key(version) < version_key(spec.requires.since):
        return f"needs version {spec.requires.since}, here is {version}"
    if version and spec.requires.before and version_key(version) >= version_key(spec.requires.before):
        return f"gone since version {spec.requires.before}, here is {version}"
    return ""


def version_key(text: str) -> tuple[int, ...]:
    """'2.36' → (2, 36), for comparing."""
    return tuple(int(n) for n in re.findall(r"\d{1,9}", text)[:3])
