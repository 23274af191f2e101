"""A finished or running study as the report, the terminal and `apply` read it: plain data, nothing to run.

`study.load.load_view(path)` builds it from the SQLite file. Ratios are always to the default measured in
the same block; below 1 is better. Every number is in the units of `heapwright.metrics`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from heapwright.experiment.configuration import Config
from heapwright.experiment.stats import Summary, Verdict
from heapwright.search.quality import FrontQuality

if TYPE_CHECKING:
    from heapwright.measure.prefix import Prefix
    from heapwright.study.landscape_result import LandscapeResult

PickName = Literal["memory", "time", "balanced"]
PICK_NAMES: tuple[PickName, ...] = ("memory", "time", "balanced")


@dataclass(frozen=True)
class Evaluation:
    """One candidate of the search.

    Attributes:
        number: 1, 2, … in the order of first evaluation.
        config: what was run.
        runs: how many runs stand behind the ratios (all inputs, search and shortlist).
        ratios: metric key → geometric-mean ratio to the default of the same blocks.
        medians: metric key → median of the values.
        feasible: False when it crashed, timed out or changed the output; then `reason` says which.
        on_front: member of the Pareto front over the objectives.
        replayed: only replays stand behind it: ratios are predicted, medians the replay's own.
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
        ratio: geometric mean of pick ÷ default; low and high: its 95 % interval.
        p: signed-rank p value, Holm-adjusted over picks × objectives; None for a metric not tested
            (not an objective: shown for information, never a claim).
        pairs: how many pairs.
        note: what is unusual about the runs behind the ratio (groups, outliers, spells, a mean unlike the medians), in
            words; empty for regular runs.
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


@dataclass(frozen=True)
class Dropped:
    """A setting the minify phase put back to unset, because its removal cost nothing that shows."""

    key: str
    value: str


@dataclass(frozen=True)
class Removal:
    """What taking one setting out of a searched configuration did, as the minify phase measured it.

    Attributes:
        changes: objective → ratio without the setting ÷ with all, low, high (95 %); above 1 it was worth having.
        kept: whether the pick still has it.
        failure: why it cannot be done without, or empty.
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


@dataclass(frozen=True)
class Pick:
    """What the study recommends under one name.

    Attributes:
        name: memory, time or balanced.
        config: after minify; this is what was confirmed and what `apply` prints.
        searched: the evaluation it came from.
        dropped: settings of the searched configuration that minify removed.
        confirmed: metric key → confirmation (objectives first); empty until the confirm phase ran.
        claim: one sentence for this pick, with its interval.
        removals: what each of the searched settings is worth alone; empty before the minify phase.
        pairs: the confirmation, pair by pair.
        minified: whether there was time to try each setting for being of use.
        objection: why it is no good advice although a gain is proven (`study.policy`); empty if it is.
        score: what its trade-off costs on balance, by what fresh runs show; below 0 it gains.
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


@dataclass(frozen=True)
class Reference:
    """A row of usual advice (MALLOC_ARENA_MAX=1, jemalloc, …), confirmed beside the picks.

    Attributes:
        name: for people.
        config: what it sets.
        confirmed: metric key → confirmation, objectives first; empty where it failed or there was no time.
        claim: one sentence, with its interval.
    """

    name: str
    config: Config
    confirmed: dict[str, Confirmation]
    claim: str


@dataclass(frozen=True)
class Stage:
    """What a stage of the study had: its runs of program and replays, and seconds of the study's time."""

    name: str
    runs: int
    wall_s: float


@dataclass(frozen=True)
class Series:
    """Memory over time of one run: parallel lists, seconds and bytes."""

    t: list[float]
    rss: list[float]
    heap: list[float]
    vm: list[float]


@dataclass(frozen=True)
class Agreement:
    """How replays and the program rank the settings measured on both, for one objective.

    Attributes:
        pairs: log ratios to the default: the program's, and as predicted by the replay.
        rank: Spearman's correlation; None where it cannot tell.
        verdict: 'holds'; 'fails'; 'unclear': neither is certain; 'flat': neither shows differences beyond noise;
            'few': too few were measured on both.
    """

    metric: str
    pairs: list[tuple[float, float]]
    rank: float | None
    verdict: Literal["holds", "fails", "unclear", "flat", "few"]


@dataclass(frozen=True)
class Proxy:
    """The replay that stood in for the program in the search, or why none did.

    Attributes:
        used: whether anything was replayed.
        why: why the program itself was searched, first or last; empty: the replay held.
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


@dataclass(frozen=True)
class Matters:
    """How much a malloc can win of the program's peak memory and CPU time (`study.matters`). None: not known.

    Attributes:
        sentence: for people.
        memory_bound, cpu_bound: at most this share of the default's peak memory, of its CPU time; of CPU time 1 says
            that nothing bounds it.
        held_share: malloc holds at most this share of the peak.
        shares: of the peak, by what holds it (`measure.meter.Parts`); empty where it could not be read.
        live_bytes: of recorded blocks, at their peak; recorded_share: they explain this share of anonymous memory.
        calls: of malloc and its kin; calls_per_cpu_s: in a second of CPU time.
        busiest: the program with the most memory, where that is not the command itself; busiest_share: its share.
    """

    sentence: str
    memory_bound: float | None
    cpu_bound: float | None
    held_share: float | None
    shares: dict[str, float]
    live_bytes: float | None
    recorded_share: float | None
    calls: float | None
    calls_per_cpu_s: float | None
    threads: int
    processes: int
    busiest: str
    busiest_share: float | None


@dataclass(frozen=True)
class Worker:
    """What a worker of a cluster did in one session.

    Attributes:
        worker: its address.
        machine: its host's name.
        lost: it went away before the session's end.
        refused: why it was not used (any more), or empty.
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
    """Everything a report shows.

    Attributes:
        path: the study file as given.
        command: the target's words; empty when a workload file rules, then `workload` says.
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
        hazards: sentences about what could go wrong with what is recommended (VMA count, …).
        warnings: sentences about the measurement (noisy machine, output not comparable, …).
        explanations: what each setting does (from the parameter space), by key, or NAME.KEY where several
            allocators were searched; `explain` looks one up.
        phase: the phase reached: 'calibrate', 'allocators', 'record', 'replay', 'race', 'search', 'shortlist',
            'minify', 'confirm', 'done'.
        wall_s: total time spent in runs.
        method: the search method's name; `method_why`: why, where 'auto' chose it.
        quality: of the front; None before anything was searched.
        warm: how many settings of other studies were to be tried first.
        landscape: of a landscape, its places and their shape; None for a study of `tune`.
        proxy: the replay the search was on; None before that was decided.
        workers: of the cluster, where there was one.
        references: rows of usual advice, by name.
        stages: what each stage had, in order.
        objectives_why: why these are the objectives, where the user named none and they are not the usual ones.
        prefix: where runs were ended; None where they are whole.
        program: its `path`, `build_id` and `sha256`; None where they are not known; empty in older studies.
        workload_file: the absolute path of the workload file; empty for a bare command.
        managed: who manages the program's memory where that is not plain malloc: `runtime`, `reach` and `sentence` of
            `allocators.managed.Managed`; empty for others.
        matters: how much can be won at most; None where nothing is known of that.
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
    matters: Matters | None = None
    prefix: Prefix | None = None

    def explain(self, config: Config, key: str) -> str:
        """What a setting of this configuration does."""
        return self.explanations.get(f"{config.allocator}.{key}", self.explanations.get(key, ""))

    def distinct_picks(self) -> list[tuple[str, Pick]]:
        """The picks by configuration; two names for one setting become 'time and balanced'."""
        names: dict[int, list[PickName]] = {}
        for name in PICK_NAMES:
            if name in self.picks:
                names.setdefault(self.picks[name].config.id, []).append(name)
        return [(" and ".join(same), self.picks[same[0]]) for same in names.values()]
