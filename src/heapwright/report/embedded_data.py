"""Packs the data of a study into a report, and chooses the rows of its table.

`heapwright report --extract` prints the embedded data. They hold all evaluations, as rows over tables of names, because
a study with thousands of evaluations repeats few keys and words:

    evaluations: {keys: [setting…], allocators: [name…], reasons: ["", reason…],
                  rows: [[number, allocator, runs, kind, reason, [ratio of each objective or null…],
                          [key, value, key, value…]], …]}      allocator, reason and key are indices

`unpack_study` turns the rows into plain objects again. page.js does the same when the table is to show all evaluations.
For readers without JavaScript the page holds as many rows as its size permits (`listed`).
"""

from __future__ import annotations

import dataclasses
import math
import shlex
from typing import Any

import msgspec

from heapwright.report.plots import settings_text, thinned
from heapwright.study.view import Evaluation, StudyView

LONG_COMMAND = 300  # characters; a longer command is not repeated in every row
_TABLE_BYTES = 110_000  # approximate size of the table of evaluations in the page


def report_data(view: StudyView) -> dict[str, Any]:
    """Return the data to embed: the view with packed evaluations and the time series of the picture."""
    value = dataclasses.asdict(dataclasses.replace(view, evaluations=[]))
    value.pop("landscape")  # its points are among the evaluations
    value["prefix"] = msgspec.to_builtins(view.prefix)
    first = {p.config.id: p.name for _, p in reversed(view.distinct_picks())}  # one name for each configuration
    value["series"] = {
        name: {
            "t": [round(t, 4) for t in s.t],
            "rss": [*map(round, s.rss)],
            "heap": [*map(round, s.heap)],
            "huge": [*map(round, s.huge)],
        }
        for name, s in view.series.items()
        if name == "default" or name in first.values()
    }
    tried = {name for e in view.evaluations for k in e.config.settings for name in (k, f"{e.config.allocator}.{k}")}
    value["explanations"] = {name: text for name, text in view.explanations.items() if name in tried}
    value["searched"] = len(view.evaluations)
    value["evaluations"] = _packed(view)
    for pick in value["picks"].values():
        pick["searched"] = pick["searched"]["number"]
    return value


def _packed(view: StudyView) -> dict[str, Any]:
    keys: dict[str, int] = {}
    allocators: dict[str, int] = {}
    reasons: dict[str, int] = {"": 0}
    rows = []
    for e in view.evaluations:
        settings: list[int | str] = []
        for key, value in e.config.settings.items():
            settings += [keys.setdefault(key, len(keys)), value]
        rows.append(
            [
                e.number,
                allocators.setdefault(e.config.allocator, len(allocators)),
                e.runs,
                1 if e.on_front else 2 if e.replayed else 0,
                reasons.setdefault(e.reason, len(reasons)),
                [round(v, 5) if (v := e.ratios.get(k)) is not None and math.isfinite(v) else None
                 for k in view.objectives],
                settings,
            ]
        )  # fmt: skip
    return {"keys": [*keys], "allocators": [*allocators], "reasons": [*reasons], "rows": rows}


def unpack_study(study: dict[str, Any]) -> dict[str, Any]:
    """Return an embedded study with its evaluations as plain objects."""
    packed, objectives = study["evaluations"], study["objectives"]
    return {
        **study,
        "evaluations": [
            {
                "number": number,
                "allocator": packed["allocators"][allocator],
                "settings": {
                    packed["keys"][k]: v for k, v in zip(settings[::2], settings[1::2], strict=True)
                },
                "ratios": {k: v for k, v in zip(objectives, ratios, strict=True) if v is not None},
                "runs": runs,
                "reason": packed["reasons"][reason],
                "on_front": kind == 1,
                "replayed": kind == 2,
            }
            for number, allocator, runs, kind, reason, ratios, settings in packed["rows"]
        ],
    }  # fmt: skip


def listed(view: StudyView) -> list[Evaluation]:
    """Return the evaluations to list in the page, in their order.

    If there is no room for all, those that the picks come from have priority, then the Pareto front, then evenly spaced
    others.
    """
    if not view.evaluations:
        return []
    command = min(len(shlex.join(view.command)), LONG_COMMAND)
    words = sum(3 * len(settings_text(e.config, view.default)) + 30 * len(e.config.settings) for e in view.evaluations)
    limit = round(_TABLE_BYTES / (330 + command + words / len(view.evaluations)))
    if len(view.evaluations) <= limit:
        return view.evaluations
    origins = {p.searched.number for p in view.picks.values()}
    keep = [e for e in view.evaluations if e.number in origins]
    front = [e for e in view.evaluations if e.on_front and e.number not in origins]
    keep += thinned(front, limit - len(keep))
    others = [e for e in view.evaluations if not (e.on_front or e.number in origins)]
    if len(keep) < limit:
        keep += thinned(others, limit - len(keep))
    return sorted(keep, key=lambda e: e.number)
