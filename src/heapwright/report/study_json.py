"""Returns a study as `tune --json` writes it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from typing import Any

from heapwright.allocators.huge_pages import with_library
from heapwright.metrics import NUMERIC
from heapwright.report.recordings import recordings_json
from heapwright.study.claim import proven_by, recommended_pick
from heapwright.study.view import Confirmation, StudyView


def _confirmed(found: Mapping[str, Confirmation]) -> dict[str, Any]:
    """Return confirmations by metric, as in JSON. The verdict is that on the program, as the interval is."""
    keys = ("ratio", "low", "high", "p", "pairs")
    return {
        metric: {**{key: getattr(c, key) for key in keys}, "verdict": c.program_verdict} for metric, c in found.items()
    }


def _recordings(view: StudyView) -> dict[str, Any]:
    """Return the further keys of a study of recordings; none for a program."""
    if view.recordings is None:
        return {}
    return {**recordings_json(view.recordings, view.objectives), "hidden": view.hidden, "verified": view.verified}


def _runtimes(view: StudyView) -> list[dict[str, Any]]:
    """The runtimes that were recognised: a language's, then libraries such as OpenMP, then mallocs of libraries."""
    tried = {key for e in view.evaluations for key in e.config.settings}
    return [
        {
            "name": name,
            "title": extra["title"],
            "version": extra["version"] or None,
            "program": extra["program"] or None,
            "libraries": list(extra.get("libraries", ())),
            "sentence": extra["sentence"],
            "searched": [
                key for key in dict.fromkeys(p["key"] for p in extra["space"]["param"]) if f"{name}.{key}" in tried
            ],
        }
        for name, extra in view.runtimes.items()
        if extra["program"] or extra.get("libraries")
    ]


def _runtime(view: StudyView) -> dict[str, Any] | None:
    """The runtime that runs the program: recognised by its file, or at least known to manage the memory itself."""
    known = [{"name": view.managed["runtime"]}] if view.managed.get("runtime") else []
    return next(iter([*(one for one in _runtimes(view) if one["program"]), *known]), None)


def tune_json(view: StudyView) -> dict[str, Any]:
    """Return a study as `tune --json` writes it."""

    def config(c: Any) -> dict[str, Any]:
        env = with_library(c.env, "image_platform" in view.host)
        return {"allocator": c.allocator, "settings": c.settings, "env": env}

    proven = recommended_pick(view.picks, view.objectives)
    confirmed = "confirmed" if view.recordings is None else "predicted"
    picks = {
        name: {
            **config(pick.config),
            "claim": pick.claim,
            "requirements": {r.text: r.state for r in pick.requirements},
            "objection": pick.objection or None,
            "dropped": {d.key: d.value for d in pick.dropped},
            "search": {"number": pick.searched.number, "ratios": pick.searched.ratios},
            confirmed: _confirmed(pick.confirmed),
        }
        for name, pick in view.picks.items()
    }
    by_number = {e.number: e for e in view.evaluations}
    references = {
        name: {**config(row.config), "claim": row.claim, confirmed: _confirmed(row.confirmed)}
        for name, row in view.references.items()
    }
    return {
        "study": view.path,
        "claim": view.claim,
        "proven": proven is not None and (view.recordings is None or proven_by(proven, view.verified)),
        **_recordings(view),
        "command": shlex.join(view.command),
        "objectives": view.objectives,
        "objectives_why": view.objectives_why or None,
        "prefix": {"seconds": view.prefix.seconds, "output": view.prefix.output} if view.prefix else None,
        "host": view.host,
        "meter": view.meter,
        "baseline": {m: dataclasses.asdict(s) if (s := view.baseline.get(m)) else None for m in NUMERIC},
        "picks": picks,
        "references": references,
        "matters": dataclasses.asdict(view.matters) if view.matters else None,
        "program": view.program or None,
        "runtime": _runtime(view),
        "runtimes": _runtimes(view),
        "managed": view.managed or None,
        "stages": [dataclasses.asdict(stage) for stage in view.stages],
        "front": [{"number": n, **config(by_number[n].config), "ratios": by_number[n].ratios} for n in view.front],
        "method": view.method,
        "method_why": view.method_why or None,
        "warm_started": view.warm,
        "proxy": dataclasses.asdict(view.proxy) if view.proxy else None,
        "front_quality": dataclasses.asdict(view.quality) if view.quality else None,
        "evaluations": len(view.evaluations),
        "infeasible": sum(not e.feasible for e in view.evaluations),
        "hazards": view.hazards,
        "warnings": view.warnings,
        "wall_s": view.wall_s,
    }
