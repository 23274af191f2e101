"""Reads and checks the definition of an experiment.

```toml
methods = ["random", "local", "cmaes"]    # the first is the reference of the tests, unless `reference` names another
seeds = 10                                # 1 … 10, or a list
budgets = [50, 200]                       # distinct configurations; each has its own studies
minimize = ["minor_faults"]               # with several objectives hypervolume takes the place of the best ratio
targets = [0.99, 0.95]                    # ratios (or hypervolumes) for 'evaluations to target'
allocators = ["glibc"]                    # empty: all that are installed
options = ["--no-runtime"]                # further options of `tune`
[[program]]
name = "sort"
command = ["sort", "words.txt"]           # or workload = "redis.toml"
options = ["--proxy", "none"]             # further options of `tune`, for this program
[[program]]
name = "perl"
trace = "perl.hwt"                        # a recording or a fitted model, or a list of them; runs are its replays
```
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from heapwright.allocators.presets import load_preset
from heapwright.errors import UsageError
from heapwright.metrics import REPLAYABLE, REPLAYABLE_SHORT
from heapwright.objectives import parse_objectives
from heapwright.search.methods import check_method
from heapwright.tomlfile import key_line, load_toml_and_text
from heapwright.trace.recordings import recorded_workload
from heapwright.workload.command import check_command
from heapwright.workload.model import load_workload

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OWN = (
    "--study", "--method", "--seed", "--budget", "--minimize", "--allocators", "--preset", "--json", "--",
    "--trace", "--test", "--workload", "--cluster", "--worker",
)  # fmt: skip


class Program(msgspec.Struct, forbid_unknown_fields=True):
    """A `[[program]]`: a command, a workload file or recordings; files are relative to the definition.

    Attributes:
        trace: one recording or several: traces, samples or fitted models. Their replays take the place of a program.
        options: further options of `tune` for this program.
    """

    name: str
    command: list[str] = []
    workload: str = ""
    trace: str | list[str] = ""
    options: list[str] = []

    @property
    def traces(self) -> list[str]:
        """The recordings; empty for a program that runs."""
        if isinstance(self.trace, str):
            return [self.trace] if self.trace else []
        return self.trace


class Definition(msgspec.Struct, forbid_unknown_fields=True):
    """A whole definition; the head of this module explains the keys.

    Attributes:
        preset: of `tune`; its objectives count if `minimize` is empty.
        reference: the method that the others are tested against; the first if empty.
        confirm: whether each study also confirms its picks. The comparison uses the search alone.
    """

    methods: list[str]
    program: list[Program]
    budgets: list[int]
    seeds: int | list[int] = 10
    minimize: list[str] = []
    targets: list[float] = []
    allocators: list[str] = []
    preset: str = ""
    options: list[str] = []
    reference: str = ""
    confirm: bool = False

    @property
    def seed_list(self) -> list[int]:
        """The seeds."""
        return list(range(1, self.seeds + 1)) if isinstance(self.seeds, int) else self.seeds

    @property
    def against(self) -> str:
        """The reference of the tests."""
        return self.reference or self.methods[0]


@dataclass(frozen=True)
class PlannedSearch:
    """One search of an experiment: a program, a method, a seed and a budget."""

    program: Program
    method: str
    seed: int
    budget: int

    @property
    def file(self) -> str:
        """The name of its study."""
        return f"{self.program.name}-{self.method}-{self.budget}-{self.seed}.study"


def expand_searches(definition: Definition) -> list[PlannedSearch]:
    """Return all searches. The seed varies most slowly, so that an unfinished experiment compares whole rows."""
    return [
        PlannedSearch(program, method, seed, budget)
        for seed in definition.seed_list
        for program in definition.program
        for budget in definition.budgets
        for method in definition.methods
    ]


def load_definition(path: Path) -> Definition:
    """Read and check a definition.

    Raises:
        UsageError: the file is invalid; the message names the file, the line and the key.
    """
    definition, text = load_toml_and_text(path, Definition)

    def fail(key: str, what: str) -> UsageError:
        line = key_line(text, [key])
        return UsageError(f"{path}:{line if line else 1}: {key}: {what}")

    for key in ("methods", "budgets", "program"):
        values = getattr(definition, key)
        names = [v.name if isinstance(v, Program) else v for v in values]
        if not names:
            raise fail(key, "is empty")
        if len(set(names)) < len(names):
            raise fail(key, "has a name or a number twice")
    seeds = definition.seed_list
    if not seeds or min(seeds) < 1 or len(set(seeds)) < len(seeds):
        raise fail("seeds", "must be at least 1, and a list must have each seed once")
    if min(definition.budgets) < 1:
        raise fail("budgets", "must be at least 1")
    try:
        for method in definition.methods:
            check_method(method)
        if definition.minimize:
            parse_objectives(",".join(definition.minimize))
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.hint) from None
    if definition.reference and definition.reference not in definition.methods:
        raise fail("reference", f"'{definition.reference}' is not one of the methods")
    if any(not 0 < target < 10 for target in definition.targets):
        raise fail("targets", "must be ratios to the default, such as 0.95")
    if any(p.traces for p in definition.program):
        for metric in parse_objectives(",".join(definition.minimize)) if definition.minimize else ():
            if metric.key not in REPLAYABLE:
                raise fail("minimize", f"a replay does not measure {metric.label}; a trace has {REPLAYABLE_SHORT}")
    if definition.preset:
        load_preset(definition.preset)
    for options in (definition.options, *(p.options for p in definition.program)):
        if own := [word for word in options if word.partition("=")[0] in _OWN]:
            raise fail("options", f"{own[0]} is given by the experiment")
    for program in definition.program:
        if not _NAME.fullmatch(program.name):
            raise fail("program", f"name '{program.name}' may have letters, digits, '.', '_' and '-' only")
        if sum(map(bool, (program.command, program.workload, program.traces))) != 1:
            raise fail("program", f"{program.name} needs either a command, a workload or a trace")
        try:
            _check_program(program, path.parent)
        except UsageError as error:
            raise UsageError(f"{path}: {program.name}: {error.message}", error.hint) from None
    return definition


def _check_program(program: Program, base: Path) -> None:
    """Check that a program or its files exist.

    Raises:
        UsageError: one does not, or the workload file is invalid.
    """
    if program.workload:
        load_workload(base / program.workload)
    elif program.command:
        check_command(program.command[0], base)
    else:
        recorded_workload([base / trace for trace in program.traces])
