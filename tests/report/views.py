"""Builds study views of every state that a report must handle."""

from __future__ import annotations

import dataclasses
import itertools
import random
from typing import Any

from heapwright.interleaving.configuration import Config
from heapwright.interleaving.stats import Ratio, Summary, Verdict
from heapwright.metrics import NUMERIC
from heapwright.study.claim import pick_claim, study_claim
from heapwright.study.landscape_axes import SweptAxis
from heapwright.study.landscape_result import FreshComparison, LandscapePoint, LandscapeResult, Smoothness
from heapwright.study.view import (
    Agreement,
    Confirmation,
    Dropped,
    Evaluation,
    Pair,
    Pick,
    PickName,
    Proxy,
    Removal,
    RequirementResult,
    Series,
    StudyView,
)

OBJECTIVES = ["peak_rss_bytes", "cpu_s"]
DEFAULT = Config(1, "glibc", {}, {})


def config(number: int, **settings: str) -> Config:
    """Return a configuration of glibc."""
    env = {"GLIBC_TUNABLES": ":".join(f"glibc.malloc.{k}={v}" for k, v in settings.items())}
    return Config(number, "glibc", settings, env, dict(settings))


def evaluation(number: int, at: Config, memory: float, cpu: float, reason: str = "", front: bool = False) -> Evaluation:
    """Return an evaluation; it is infeasible if a reason is given."""
    ratios = {} if reason else {"peak_rss_bytes": memory, "cpu_s": cpu}
    return Evaluation(number, at, 1, ratios, {}, not reason, reason, front)


def confirmation(metric: str, ratio: float, verdict: Verdict, p: float | None = 0.008) -> Confirmation:
    """A ratio with an interval of two per cent around it."""
    return Confirmation(metric, ratio, ratio - 0.01, ratio + 0.01, p, 10, verdict, 1e8, 1e8 * ratio)


def pick(name: PickName, at: Evaluation, memory: Confirmation, cpu: Confirmation) -> Pick:
    """A confirmed pick."""
    confirmed = {c.metric: c for c in (memory, cpu)}
    confirmed["wall_s"] = confirmation("wall_s", 0.9, "unproven", None)
    claim = pick_claim(confirmed, OBJECTIVES, 1, 0.005)
    removals = [
        Removal("mxfast", "0", {"peak_rss_bytes": (1.0, 0.99, 1.01), "cpu_s": (0.999, 0.98, 1.01)}, False),
        *(Removal(k, v, {"cpu_s": (1.4, 1.35, 1.45)}, True) for k, v in at.config.settings.items()),
    ]
    pairs = [
        Pair("default", {k: c.default_median for k, c in both.items()}, {k: c.pick_median * f for k, c in both.items()})
        for both in [{c.metric: c for c in (memory, cpu)}]
        for f in (0.99, 1.0, 1.02)
    ]
    return Pick(name, at.config, at, [Dropped("mxfast", "0")], confirmed, claim, removals, pairs)


def view(searched: int = 60, **changes: Any) -> StudyView:
    """Return a finished study whose time and balanced picks are the same configuration."""
    rng = random.Random(1)
    points = [evaluation(i, config(i + 2, top_pad=str(4096 * i)), *rng_pair(rng)) for i in range(1, searched - 1)]
    fast = evaluation(searched - 1, config(9001, mmap_threshold="134217728"), 1.05, 0.7, front=True)
    small = evaluation(searched, config(9002, mmap_max="128"), 0.97, 1.3, front=True)
    failed = evaluation(searched + 1, config(9003, arena_max="1"), 0, 0, "killed by SIGSEGV")
    time_pick = pick("time", fast, confirmation("peak_rss_bytes", 1.05, "worse"), confirmation("cpu_s", 0.7, "better"))
    picks: dict[PickName, Pick] = {
        "memory": pick(
            "memory", small, confirmation("peak_rss_bytes", 0.97, "better"), confirmation("cpu_s", 1.3, "worse")
        ),
        "time": time_pick,
        "balanced": dataclasses.replace(time_pick, name="balanced"),
    }
    series = Series([0.0, 0.5, 1.0], [1e6, 9e6, 4e6], [2e6, 2e7, 2e7], [3e6, 4e7, 4e7], [0.0, 2e6, 2e6])
    found = StudyView(
        path="out/spectrum.study",
        created="2026-01-01T00:00:00+00:00",
        version="0.1.0",
        command=["./prog", "--fast", "a b"],
        workload={},
        reproduce=["heapwright", "tune", "--", "./prog", "--fast", "a b"],
        method="nsga2",
        options={"method": "nsga2", "margin": 0.005, "objectives": OBJECTIVES},
        host={"cpu": "A CPU", "cores": 2, "governor": None},
        meter="notify",
        objectives=OBJECTIVES,
        baseline={m: Summary(5, 100.0, 90.0, 110.0, 4.0) for m in NUMERIC if m != "energy_j"},
        noise={"cpu_s": 0.02},
        default=DEFAULT,
        evaluations=[*points, fast, small, failed],
        front=[fast.number, small.number],
        picks=picks,
        claim=study_claim(picks, OBJECTIVES, True),
        series={"default": series, "memory": series, "time": series},
        hazards=["A small threshold makes every such block a mapping."],
        warnings=["CPU time varied by 7% between runs of the default."],
        explanations={
            "mmap_threshold": "Requests of at least this size get a mapping of their own. Default: 131072 B."
        },
        phase="done",
        wall_s=73.0,
    )
    found = dataclasses.replace(found, **changes)
    shown = {name: s for name, s in found.series.items() if name == "default" or name in found.picks}
    return dataclasses.replace(found, series=shown)


def rng_pair(rng: random.Random) -> tuple[float, float]:
    """Memory and CPU ratios near one."""
    return rng.uniform(0.98, 1.1), rng.uniform(0.8, 1.3)


def unfinished() -> StudyView:
    """Interrupted in the search."""
    claim = study_claim({}, OBJECTIVES, False)
    return view(phase="search", picks={}, claim=claim, series={}, hazards=[], warnings=[])


def without_gain() -> StudyView:
    """Searched and confirmed without a gain."""
    return view(picks={}, claim=study_claim({}, OBJECTIVES, True), hazards=[])


def undrawn(**changes: Any) -> StudyView:
    """A finished study without anything to draw: its page takes a twentieth of the time."""
    nothing: dict[str, Any] = {"picks": {}, "evaluations": [], "front": [], "series": {}}
    return view(**nothing, claim=study_claim({}, OBJECTIVES, True), **changes)


def with_requirements() -> StudyView:
    """A pick with a requirement in each state."""
    memory = view().picks["memory"]
    results = [
        RequirementResult("throughput >= 0.98x", "kept", "−1.0% to +0.5%", "throughput_per_s", ">= 0.98x"),
        RequirementResult("p99 <= 1.05x", "broken", "+9.0% to +12.0%", "p99_ms", "<= 1.05x"),
        RequirementResult("load_errors <= 0", "not shown", "not measured", "load_errors", "<= 0"),
    ]
    return view(picks={"memory": dataclasses.replace(memory, requirements=results)})


def single_objective() -> StudyView:
    """Only memory was minimised."""
    full = view()
    memory = full.picks["memory"]
    confirmed = {"peak_rss_bytes": memory.confirmed["peak_rss_bytes"]}
    picks: dict[PickName, Pick] = {"memory": dataclasses.replace(memory, confirmed=confirmed)}
    return view(objectives=["peak_rss_bytes"], picks=picks, claim=study_claim(picks, ["peak_rss_bytes"], True))


def nothing_yet() -> StudyView:
    """Killed before its first run."""
    return view(
        2, phase="calibrate", picks={}, evaluations=[], front=[], baseline={}, noise={}, series={}, claim="Nothing yet."
    )


def replayed() -> StudyView:
    """Searched on replays, which hold for one objective; the other is undecided."""
    found = view()
    searched = [dataclasses.replace(e, replayed=e.number < 40) for e in found.evaluations]
    told: dict[str, Any] = {"events": 1234567, "threads": 2, "bytes": 4096, "elapsed_s": 0.5, "processes": 3}
    proxy = Proxy(
        used=True,
        why="",
        recorded={"default": {**told, "share": 0.97, "executable": "/usr/bin/perl", "warning": ""}},
        program_s=1.2,
        replay_s=0.1,
        slots=2,
        agreement=[
            Agreement("peak_rss_bytes", [(i / 100, i / 90) for i in range(-5, 6)], 0.93, "holds"),
            Agreement("cpu_s", [(0.0, 0.001), (0.0, 0.0)], None, "flat"),
        ],
        checked="Recorded under exgen, the program makes the same calls (within 0.02%).",
    )
    return dataclasses.replace(found, evaluations=searched, proxy=proxy)


def swept() -> StudyView:
    """A plane of 24 points, one of which failed."""
    axes = (
        SweptAxis("top_pad", "B", tuple(str(4096 << k) for k in range(6)), "log2", 131072.0),
        SweptAxis("mmap_max", "", ("64", "128", "192", "256"), "linear", None),
    )
    points = [
        LandscapePoint(
            (a, b), 2 + i, None if i == 7 else 0.9 + 0.01 * i, None, 1, "killed by SIGSEGV" if i == 7 else ""
        )
        for i, (a, b) in enumerate(itertools.product(axes[0].values, axes[1].values))
    ]
    landscape = LandscapeResult(
        "cpu_s", "glibc", axes, points, 1.0, 0.01, 0.02, Smoothness(0.9, 0.01, 0.005, "smooth"), 8,
        FreshComparison(Ratio(0.9, 0.89, 0.91), 0.9, 0.008, 8, "better"),
        FreshComparison(Ratio(1.2, 1.19, 1.21), 1.2, 0.008, 8, "worse"), True,
    )  # fmt: skip
    return view(landscape=landscape, picks={}, claim="A landscape of CPU time.", front=[])


STATES = {
    "proven": view,
    "swept": swept,
    "replayed": replayed,
    "unfinished": unfinished,
    "without gain": without_gain,
    "single objective": single_objective,
    "nothing yet": nothing_yet,
}
