"""A finished or running study as plain data, for the report, the terminal and `apply`.

`study.load.load_view(path)` builds it from the SQLite file. Ratios are always to the default measured in
the same block; below 1 is better. Every number is in the units of `heapwright.metrics`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from heapwright.interleaving.configuration import Config
from heapwright.interleaving.stats import Summary, Verdict
from heapwright.search.quality import FrontQuality

if TYPE_CHECKING:
    from heapwright.measure.prefix import Prefix
    from heapwright.study.landscape_result import LandscapeResult
    from heapwright.trace.recordings import Recordings

PickName = Literal["memory", "time", "balanced"]
PICK_NAMES: tuple[PickName, ...] = ("memory", "time", "balanced")


@dataclass(frozen=True)
class Evaluation:
    """One candidate of the search.

    Attributes:
        number: 1, 2, … in the order of first evaluation.
        config: the configuration that ran.
        runs: number of runs behind the ratios (all inputs; screenings, search and shortlist).
        ratios: metric key → geometric-mean ratio of these runs to the default of the same blocks.
        medians: metric key → median of the values.
        feasible: False when it crashed, timed out or changed the output; then `reason` says which.
        on_front: member of the Pareto front over the objectives.
        replayed: there are only replays of it: ratios are predictions, medians are the replays' own.
    """

    number: int
    config: Config
    runs: int
    ratios: dict[str, float]
    medians: dict[str, float]
    feasible: bool
    reason: str
    on_front: bool
    replayed: bool = False


@dataclass(frozen=True)
class Confirmation:
    """One metric of one pick, confirmed in fresh interleaved pairs.

    Attributes:
        ratio: geometric mean of pick ÷ default; low and high: its 95% interval.
        p: signed-rank p value, Holm-adjusted over picks × objectives; None for a metric not tested
            (not an objective: shown for information, never a claim).
        pairs: how many pairs.
        note: irregularities of the runs behind the ratio, in words (groups, outliers, spells, a mean unlike the
            medians); empty for regular runs.
    """

    metric: str
    ratio: float
    low: float
    high: float
    p: float | None
    pairs: int
    verdict: Verdict
    default_median: float
    pick_median: float
    note: str = ""

    @property
    def program_verdict(self) -> Verdict:
        """The verdict on the program: 'unproven' if replays show a change and the wider interval of the program not."""
        unsure = (self.verdict == "better" and self.high >= 1) or (self.verdict == "worse" and self.low <= 1)
        return "unproven" if unsure else self.verdict

    @property
    def verdict_text(self) -> str:
        """The verdict for people; that of replays, if the wider interval of the program does not show it."""
        return self.verdict if self.program_verdict == self.verdict else f"{self.verdict} in replays"


@dataclass(frozen=True)
class Dropped:
    """A setting that the minify phase dropped, because its removal showed no cost."""

    key: str
    value: str


@dataclass(frozen=True)
class Removal:
    """The effect of removing one setting from a searched configuration, measured in the minify phase.

    Attributes:
        changes: objective → (ratio without the setting ÷ with all, low, high) (95%); above 1 the setting helps.
        kept: whether the pick still has it.
        failure: why the program fails without it, or empty.
    """

    key: str
    value: str
    changes: dict[str, tuple[float, float, float]]
    kept: bool
    failure: str = ""


@dataclass(frozen=True)
class Pair:
    """One pair of the confirmation: objective → value, of the default and of the pick, side by side in time."""

    input: str
    default: dict[str, float]
    pick: dict[str, float]


State: TypeAlias = Literal["kept", "broken", "not shown"]
MET: dict[State, str] = {"kept": "met", "broken": "not met", "not shown": "not known"}  # in words


@dataclass(frozen=True)
class RequirementResult:
    """Whether a pick meets a requirement (`study.requirement`).

    Attributes:
        text: the requirement.
        state: 'kept', 'broken', or 'not shown' if the interval lies on both sides of the bound. People read `MET`.
        shown: the interval, or 'not measured'.
        metric: key.
        bound: '<= 1.05x'.
    """

    text: str
    state: State
    shown: str
    metric: str = ""
    bound: str = ""


@dataclass(frozen=True)
class Pick:
    """The study's recommendation under one name.

    Attributes:
        name: memory, time or balanced.
        config: the configuration after minify, which was confirmed and which `apply` prints.
        searched: the evaluation it came from.
        dropped: settings of the searched configuration that minify removed.
        confirmed: metric key → confirmation (objectives first); empty until the confirm phase ran.
        claim: one sentence for this pick, with its interval.
        removals: the effect of each searched setting; empty before the minify phase.
        pairs: the confirmation, pair by pair.
        minified: whether there was time to test whether each setting has an effect.
        objection: why it is not good advice although a gain is proven (`study.policy`), or empty.
        score: balance of its trade-off in fresh runs; below 0 it is a gain.
        requirements: whether it keeps the user's requirements.
    """

    name: PickName
    config: Config
    searched: Evaluation
    dropped: list[Dropped]
    confirmed: dict[str, Confirmation]
    claim: str
    removals: list[Removal] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    minified: bool = True
    objection: str = ""
    score: float = 0.0
    requirements: list[RequirementResult] = field(default_factory=list)


@dataclass(frozen=True)
class Reference:
    """A row of usual advice (MALLOC_ARENA_MAX=1, jemalloc, …), confirmed beside the picks.

    Attributes:
        name: label for the user.
        config: its settings.
        confirmed: metric key → confirmation, objectives first; empty if it failed or there was no time.
        claim: one sentence, with its interval.
        requirements: whether it keeps the user's requirements.
    """

    name: str
    config: Config
    confirmed: dict[str, Confirmation]
    claim: str
    requirements: list[RequirementResult] = field(default_factory=list)


@dataclass(frozen=True)
class Stage:
    """The runs of a stage, of the program and of replays, and the seconds of the study's time that it took."""

    name: str
    runs: int
    wall_s: float


@dataclass(frozen=True)
class Series:
    """Memory over time of one run: parallel lists, seconds and bytes; `huge` is empty if it was not counted."""

    t: list[float]
    rss: list[float]
    heap: list[float]
    vm: list[float]
    huge: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Agreement:
    """Whether replays rank settings as the program does, for one objective.

    Attributes:
        pairs: (log ratio on the program, log ratio predicted by replays), one for each setting measured on both.
        rank: Spearman's correlation; None if it is meaningless.
        verdict: 'holds'; 'fails'; 'unclear': neither is shown, so replays are not refuted; 'flat': neither shows
            differences beyond noise; 'few': too few settings were measured on both.
    """

    metric: str
    pairs: list[tuple[float, float]]
    rank: float | None
    verdict: Literal["holds", "fails", "unclear", "flat", "few"]


@dataclass(frozen=True)
class Proxy:
    """The replays that replaced the program in the search, or why there were none.

    Attributes:
        used: whether anything was replayed.
        why: why the search used the program itself, from the beginning or later; empty if replays were used throughout.
        checked: results of the comparison of recordings and replays with the program, before the search.
        recorded: input name → events, threads, bytes of the trace, share of the program's calls that are in it,
            processes, executable, elapsed_s, warning.
        program_s, replay_s: median seconds of a run; slots: replays at once.
    """

    used: bool
    why: str
    recorded: dict[str, dict[str, Any]]
    program_s: float | None
    replay_s: float | None
    slots: int
    agreement: list[Agreement]
    checked: str = ""


@dataclass(frozen=True)
class SavingBound:
    """Upper bounds of the peak memory and CPU time that a malloc can save (`study.saving_bound`). None: unknown.

    Attributes:
        sentence: the bounds in words.
        memory_bound, cpu_bound: upper bounds, as shares of the default's peak memory and CPU time; 1 for CPU time
            means that there is no bound.
        held_share: upper bound of malloc's share of the peak. unsure_share: the part of it that may be another's,
            such as memory that a runtime maps for its own heap.
        shares: holder of memory → its share of the peak (`measure.memory_parts.MemoryParts`); empty if unreadable.
        live_bytes: peak of the recorded live blocks. recorded_share: the share of anonymous memory that they explain.
        calls: calls of malloc, free and the like. calls_per_cpu_s: calls per second of CPU time.
        threads, processes: largest numbers at once; `threads` of those that call malloc.
        contending_threads: the number of them that call it so often that they may wait for each other. None: unknown.
        busiest: the program of the largest process, if it is not the command itself. busiest_share: that process's
            share of the memory.
        aligned_per_cpu_s: aligned allocations per second of CPU time. None: unknown.
        used_blocks: whether `memory_bound` assumes that the program uses its live blocks in full.
        scope: the inputs or settings that alone the bounds hold for, in words; empty: the whole study.
        recordable: whether a recording can see the program's allocations; not those of a static program.
    """

    sentence: str
    memory_bound: float | None
    cpu_bound: float | None
    held_share: float | None
    unsure_share: float | None
    shares: dict[str, float]
    live_bytes: float | None
    recorded_share: float | None
    calls: float | None
    calls_per_cpu_s: float | None
    threads: int
    processes: int
    busiest: str
    busiest_share: float | None
    used_blocks: bool = False
    scope: str = ""
    recordable: bool = True
    contending_threads: int | None = None
    aligned_per_cpu_s: float | None = None


@dataclass(frozen=True)
class Worker:
    """The work of one worker of a cluster in one session.

    Attributes:
        worker: its address.
        machine: its host's name.
        lost: whether it disappeared before the end of the session.
        refused: why it was not used, or no longer used; or empty.
    """

    worker: str
    machine: str
    blocks: int
    runs: int
    busy_s: float
    present_s: float
    lost: bool
    refused: str


@dataclass(frozen=True)
class StudyView:
    """All data that a report shows.

    Attributes:
        path: the study file as given.
        command: the program's command line as words; empty for a workload file, see `workload`.
        workload: the effective workload as a JSON-like dict (inputs, compare, timeout …).
        reproduce: the `heapwright tune …` command that made the study, as words.
        options: method, budget, seed, margin, max pairs … as a JSON-like dict.
        host: the fingerprint dict (cpu, kernel, libc, thp, cores, …).
        objectives: metric keys, as minimised.
        baseline: metric key → summary of the default's calibration runs.
        noise: metric key → relative spread (robust standard deviation of log values) of the default.
        evaluations: in order; `front` are the numbers of the Pareto front.
        picks: by name; a pick may be missing (no objective of its kind, or nothing beat the default).
        claim: the study's claim, generated from the confirmation; may be
            'no proven improvement, keep the default'.
        series: 'default' and pick names → memory over time.
        hazards: sentences about risks of the recommended settings (number of mappings, …).
        warnings: sentences about the quality of the measurements (noisy machine, output not comparable, …).
        explanations: effect of each setting, from the parameter space, by KEY, or by ALLOCATOR.KEY if several
            allocators were searched; `explain` looks one up.
        phase: the phase reached: 'calibrate', 'allocators', 'record', 'replay', 'race', 'search', 'shortlist',
            'minify', 'confirm', 'done'.
        wall_s: total time spent in runs.
        method: name of the search method. method_why: why 'auto' chose it.
        quality: of the Pareto front; None before the search.
        warm: number of settings of other studies to try first.
        landscape: points and shape of a landscape; None for a study of `tune`.
        proxy: the replays of the search; None before that was decided.
        workers: of the cluster, if there was one.
        references: rows of usual advice, by name.
        stages: runs and seconds of each stage, in order.
        objectives_why: why these are the objectives, if the user named none and they are not the usual ones.
        prefix: the prefix of a run that was measured; None for whole runs.
        program: its `path`, `build_id` and `sha256`; None if unknown; empty in older studies.
        workload_file: the absolute path of the workload file; empty for a bare command.
        runtimes: runtime, or space that the user added → `space`, `title`, `version`, `program` and `sentence`.
        managed: the manager of the program's memory, if it is not plain malloc: `runtime`, `reach` and `sentence` of
            `allocators.memory_manager.MemoryManager`; else empty.
        matters: upper bounds of the possible gain; None if unknown.
        recordings: the recordings, in a study of recordings: all its runs are replays, and its confirmations are
            predictions. None for a program.
        hidden: allocator → settings that were not searched, because a replay does not show their effect.
        verified: the verdict of `verify` on the program, in a study of recordings (`tuning.verify`); None before.
        undecided: the last verdict of `verify` that decided nothing, if none has decided since.
    """

    path: str
    created: str
    version: str
    command: list[str]
    workload: dict[str, Any]
    reproduce: list[str]
    options: dict[str, Any]
    host: dict[str, Any]
    meter: str
    objectives: list[str]
    baseline: dict[str, Summary]
    noise: dict[str, float]
    default: Config
    evaluations: list[Evaluation]
    front: list[int]
    picks: dict[PickName, Pick]
    claim: str
    series: dict[str, Series]
    hazards: list[str]
    warnings: list[str]
    explanations: dict[str, str]
    phase: str
    wall_s: float
    method: str = ""
    method_why: str = ""
    quality: FrontQuality | None = None
    warm: int = 0
    landscape: LandscapeResult | None = None
    proxy: Proxy | None = None
    workers: list[Worker] = field(default_factory=list)
    references: dict[str, Reference] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    objectives_why: str = ""
    program: dict[str, str | None] = field(default_factory=dict)
    workload_file: str = ""
    managed: dict[str, str] = field(default_factory=dict)
    runtimes: dict[str, dict[str, Any]] = field(default_factory=dict)
    matters: SavingBound | None = None
    prefix: Prefix | None = None
    recordings: Recordings | None = None
    hidden: dict[str, list[str]] = field(default_factory=dict)
    verified: dict[str, Any] | None = None
    undecided: dict[str, Any] | None = None

    def explain(self, config: Config, key: str) -> str:
        """The effect of a setting of this configuration, in words."""
        return self.explanations.get(f"{config.allocator}.{key}", self.explanations.get(key, ""))

    def distinct_picks(self) -> list[tuple[str, Pick]]:
        """The picks by configuration; two names for one setting become 'time and balanced'."""
        return distinct_picks(self.picks)


def distinct_picks(picks: Mapping[PickName, Pick]) -> list[tuple[str, Pick]]:
    """Picks by configuration; two names for one setting become 'time and balanced'."""
    names: dict[int, list[PickName]] = {}
    for name in PICK_NAMES:
        if name in picks:
            names.setdefault(picks[name].config.id, []).append(name)
    return [(" and ".join(same), picks[same[0]]) for same in names.values()]
