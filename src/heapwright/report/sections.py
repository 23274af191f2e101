"""Turns each study into plain dictionaries of text and pictures for the report's template."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from heapwright.interleaving.configuration import Config
from heapwright.interleaving.phases import Phase
from heapwright.metrics import METRICS, NUMERIC, show_seconds
from heapwright.report.apply import render_config
from heapwright.report.embedded_data import LONG_COMMAND, listed
from heapwright.report.facts import bytes_text, facts, host_facts, parse_count
from heapwright.report.forest import forest_svg, margin_percent, pairs_svg, removals_svg, studies_svg
from heapwright.report.landscape import shape_text
from heapwright.report.landscape_svg import heat_svg, landscape_svg
from heapwright.report.memory_plot import memory_svg
from heapwright.report.plots import (
    allocators_of,
    count_outside_picture,
    course_svg,
    search_svg,
    settings_text,
)
from heapwright.report.progress import title as phase_title
from heapwright.report.proxy import proxy_section, proxy_svg
from heapwright.report.recordings import recordings_lines
from heapwright.report.terminal import interval, ordered_picks, search_failures
from heapwright.study.choose import chosen_pick
from heapwright.study.claim import proven_by, recommended_pick
from heapwright.study.commands import measure_command
from heapwright.study.view import MET, Confirmation, Evaluation, Pick, Reference, StudyView, Worker
from heapwright.terminal_text import visible
from heapwright.units import percent

# Name in the template → function that draws the picture
_PLOTS = {
    "forest": forest_svg,
    "pairs": pairs_svg,
    "worth": removals_svg,
    "search": search_svg,
    "course": course_svg,
    "memory": memory_svg,
    "heat": heat_svg,
    "landscape": landscape_svg,
    "proxy": proxy_svg,
}


def study_section(view: StudyView, anchor: str) -> dict[str, Any]:
    """Return the template's values for one study.

    Args:
        view: the study.
        anchor: prefix of the section's ids, unique in the page.
    """
    from markupsafe import Markup

    pick = chosen_pick(view, None) if view.phase == Phase.DONE else None
    trade = pick is not None and any(c.verdict == "worse" for k, c in pick.confirmed.items() if k in view.objectives)
    objected = any(p.objection for p in view.picks.values())
    state, text = _state(view, pick, trade, objected)
    rows = listed(view)
    command = shlex.join(view.command)
    # drawing._svg made these pictures and escaped all text from outside, so they may be marked as
    # safe.
    plots = {name: Markup(svg(view, anchor)) for name, svg in _PLOTS.items()}
    result = "Predicted results" if view.recordings else "Confirmed results"
    result = "Picks of the search" if state == "searched" else result
    contents = [
        ("paste", "Paste this", pick),
        ("confirmed", result, view.picks),
        ("advice", "The usual advice", any(row.confirmed for row in view.references.values())),
        ("worth", "Which settings matter", plots["worth"]),
        ("landscape", "The landscape", plots["landscape"]),
        ("search", "The search", plots["search"]),
        ("proxy", "Replays", view.proxy),
        ("memory", "Memory over time", plots["memory"]),
        ("default", "The default", True),
        ("all", "All configurations", rows),
        ("how", "How it was measured", True),
    ]
    return {
        "anchor": anchor,
        "title": (command[:LONG_COMMAND] + " …" if len(command) > LONG_COMMAND else command) or "study",
        "contents": [(id_, name) for id_, name, there in contents if there],
        "state": state,
        "state_text": text,
        "result": result,
        "recordings": recordings_lines(view),
        "claim": _unbroken(_without_state(view.claim, text)),
        "trade": trade,
        "objected": objected,
        **_ways_to_apply(view, pick),
        "picks": [_pick(view, name, pick) for name, pick in ordered_picks(view)],
        "references": [_reference(view, row) for row in view.references.values() if row.confirmed],
        "confirmed": any(p.confirmed for p in view.picks.values()),
        "plots": plots,
        "proxy": proxy_section(view.proxy) if view.proxy else None,
        "shape": shape_text(view.landscape) if view.landscape else "",
        "objectives_why": view.objectives_why,
        "matters": view.matters.sentence if view.matters else "",
        "hazards": view.hazards,
        "warnings": view.warnings,
        "objectives": [METRICS[k].label for k in view.objectives],
        **_default_measured(view),
        **_configurations_tried(view, rows),
        "host": host_facts(view),
        "workers": [_worker(w) for w in view.workers],
        "facts": facts(view),
        "reproduce": shlex.join(view.reproduce),
        "report": shlex.join(["heapwright", "report", view.path]),
        "default_command": measure_command(view.default, view),
        "cwd": "" if view.workload_file else view.workload.get("cwd", ""),
        "phase_text": phase_title(view.phase),
        "margin": margin_percent(view),
    }


def _ways_to_apply(view: StudyView, pick: Pick | None) -> dict[str, Any]:
    """Return the lines to paste for the pick of the claim, and the commands that apply a study or run under it."""
    platform = view.host.get("image_platform")  # of the image that the program ran in
    lines = render_config(pick.config, "env", view.command, "", platform=platform) if pick else ""
    return {
        "paste": lines.partition("\n")[2],  # without the comment
        "in_image": bool(platform),
        "paste_pick": next((n for n, p in ordered_picks(view) if pick and p.config.id == pick.config.id), ""),
        "apply": shlex.join(["heapwright", "apply", view.path, "--format", "docker" if platform else "systemd"]),
        "apply_pick": shlex.join(["heapwright", "apply", view.path, "--pick"]) + " NAME",
        "run": shlex.join(["heapwright", "run", view.path, "--"]) + " COMMAND",
    }


def _default_measured(view: StudyView) -> dict[str, Any]:
    """Return the metrics of the default, and the names of those that could not be measured."""
    return {
        "baseline": [_baseline(view, key) for key in NUMERIC if key in view.baseline],
        "missing": ", ".join(METRICS[k].label for k in NUMERIC if k not in view.baseline and not METRICS[k].of_load),
        "baseline_runs": max((s.n for s in view.baseline.values()), default=0),
    }


def _configurations_tried(view: StudyView, rows: Sequence[Evaluation]) -> dict[str, Any]:
    """Return the table of the configurations that the search tried, and counts of those that it does not show.

    Args:
        view: the study.
        rows: the evaluations in the table.
    """
    elided = len(shlex.join(view.command)) > LONG_COMMAND and not view.workload_file
    return {
        "evaluations": [_evaluation(view, e, elided) for e in rows],
        "elided": elided,
        "searched": len(view.evaluations),
        "left_out": len(view.evaluations) - len(rows),
        "replayed": sum(e.replayed for e in view.evaluations),
        "unseen": count_outside_picture(view),
        "allocators": allocators_of(view),
        "failures": search_failures(view),
    }


def _state(view: StudyView, pick: Pick | None, trade: bool, objected: bool) -> tuple[str, str]:
    """Return the state of a study, which colours its headline, and the text of the headline.

    Args:
        view: the study.
        pick: the pick that its claim names, or None.
        trade: whether the pick costs something that the user asked for.
        objected: whether heapwright advises against a pick.
    """
    state = "proven" if pick else "none" if view.phase == Phase.DONE else "open"
    state = "searched" if state == "none" and view.options.get("search_only") else state
    state = "swept" if view.landscape and view.phase == Phase.DONE else state
    text = _STATES["trade" if trade else "objection" if objected and not pick else state]
    if view.recordings is not None:
        proven = pick is not None and proven_by(pick, view.verified)
        state = "predicted" if state == "proven" and not proven else state
        key = "verified" if proven else "objected" if objected and not pick else state
        text = _RECORDED.get(key, text)
    return state, text


def comparison_section(views: Sequence[StudyView]) -> dict[str, Any]:
    """Return the table that compares several studies: the pick of each claim, by metric."""
    from markupsafe import Markup

    names = [visible(Path(view.path).name) for view in views]
    titles = [shlex.join(view.command) or name for view, name in zip(views, names, strict=True)]
    metrics = list(dict.fromkeys(key for view in views for key in view.objectives))
    rows = []
    for number, (view, title) in enumerate(zip(views, titles, strict=True), 1):
        best = recommended_pick(view.picks, view.objectives) if view.phase == Phase.DONE else None
        cells = []
        for key in metrics:
            c = best.confirmed.get(key) if best else None
            tested = c is not None and key in view.objectives
            cells.append(
                {"change": percent(c.ratio), "interval": interval(c), "verdict": c.verdict_text if tested else ""}
                if c is not None
                else {"change": "", "interval": "", "verdict": ""}
            )
        rows.append(
            {
                "anchor": f"s{number}",
                "title": title if len(title) <= LONG_COMMAND else f"{title[:LONG_COMMAND]} …",
                "path": view.path,
                "cpu": str(view.host.get("cpu") or "n/a"),
                "setting": settings_text(best.config, view.default) if best else "",
                "state": "" if best else _STATES["none" if view.phase == Phase.DONE else "open"],
                "cells": cells,
            }
        )
    machines = {str(view.host.get("cpu")) for view in views}
    return {
        "metrics": [METRICS[key].label for key in metrics],
        "rows": rows,
        "several_machines": len(machines) > 1,
        "picture": Markup(studies_svg(views, names)),
    }


_AS_FACTOR = 10  # from this ratio on, a change is written as a factor instead of a percentage
_STATES = {
    "proven": "Proven on fresh runs",
    "trade": "Proven on fresh runs: a gain, and a loss in another metric",
    "objection": "Proven on fresh runs, but not recommended",
    "none": "Finished: nothing is proven",
    "searched": "Finished after the search: nothing is proven",
    "open": "Unfinished: nothing is proven yet",
    "swept": "A landscape: for inspection, nothing to apply",
}
_RECORDED = {  # of a study of recordings
    "predicted": "Predicted by replays, not proven",
    "verified": "Predicted by replays, then proven on the program",
    "objected": "Predicted by replays, not proven, and not recommended",
    "none": "Finished: replays predict no gain",
}


def _without_state(claim: str, state_text: str) -> str:
    """Return a claim without the words that stand above it: 'Predicted by replays, not proven: '."""
    rest = claim.removeprefix(f"{state_text}: ")
    return rest if rest == claim else rest[:1].upper() + rest[1:]


def _unbroken(text: str) -> Any:
    """Return escaped text in which no line break falls within '[−18.4, −15.9]' or 'p = 0.008'."""
    from markupsafe import Markup, escape

    unbreakable = re.compile(r"\[[^\[\]<>&]{1,40}\]|p (?:=|&lt;) [\d.]+\d|\d[\d.]*% (?:lower|higher)")
    return Markup(unbreakable.sub(lambda m: f'<span class="nb">{m[0]}</span>', str(escape(text))))


def _rows(view: StudyView, confirmed: Mapping[str, Confirmation]) -> list[dict[str, Any]]:
    """Return the rows of a table of confirmed results, without metrics that carry no information."""
    rows = []
    all_pairs = max((c.pairs for c in confirmed.values()), default=0)
    for key, c in confirmed.items():
        metric = METRICS[key]
        if c.pairs < all_pairs:
            continue  # zero in some pairs, which have no ratio; the ratio of the others is not representative
        if key not in view.objectives and not (c.default_median or c.pick_median):
            continue  # zero in both
        rows.append(
            {
                "label": metric.label,
                "objective": key in view.objectives,
                "default": metric.show(c.default_median),
                "pick": metric.show(c.pick_median),
                "ratio": f"{c.ratio:.3f}",
                "change": percent(c.ratio) if c.high < _AS_FACTOR else f"×{c.ratio:.3g}",
                "interval": interval(c) if c.high < _AS_FACTOR else f"[×{c.low:.3g}, ×{c.high:.3g}]",
                "verdict": c.verdict_text if key in view.objectives else "",
                "p": "" if c.p is None else "< 0.001" if c.p < 0.001 else f"{c.p:.3f}",
                "pairs": c.pairs,
            }
        )
    return rows


def _reference(view: StudyView, row: Reference) -> dict[str, Any]:
    return {
        "name": row.name,
        "env": " ".join(f"{k}={shlex.quote(v)}" for k, v in row.config.env.items()),
        "rows": [r for r in _rows(view, row.confirmed) if r["objective"]],
    }


def _pick(view: StudyView, label: str, pick: Pick) -> dict[str, Any]:
    best = recommended_pick(view.picks, view.objectives)
    rows = _rows(view, pick.confirmed)
    names = label.split(" and ")
    same = {2: "Both names stand", 3: "All three names stand"}.get(len(names), "")
    return {
        "name": label,
        "anchor": pick.name,
        "same": same and f"{same} for the same configuration: it is the best found for {_list(names)}.",
        "headline": view.phase == Phase.DONE and best is not None and best.config.id == pick.config.id,
        "claim": _unbroken(pick.claim),
        "objection": pick.objection and f"Not recommended: {pick.objection}.",
        "rows": rows,
        "requirements": [
            {"label": METRICS[r.metric].label, "bound": r.bound, "shown": r.shown, "state": MET[r.state]}
            for r in pick.requirements
        ],
        "objectives": sum(r["objective"] for r in rows),
        "allocator": pick.config.allocator,
        "settings": _settings(view, pick.config),
        "minified": pick.minified,
        "dropped": [{"key": d.key, "value": d.value} for d in pick.dropped],
        "number": pick.searched.number,
        "command": measure_command(pick.config, view),
    }


_AIMS = {"memory": "memory", "time": "time", "balanced": "both taken together"}


def _list(names: Sequence[str]) -> str:
    return ", for ".join(_AIMS.get(n, n) for n in names[:-1]) + " and for " + _AIMS.get(names[-1], names[-1])


def _settings(view: StudyView, config: Config) -> list[dict[str, str]]:
    units = _units(config.allocator)
    return [
        {
            "key": key,
            "value": value,
            "size": bytes_text(str(number * _BYTES[units[key]]))
            if number is not None and units.get(key) in _BYTES
            else "",
            "effective": config.effective.get(key, ""),
            "explain": view.explain(config, key),
        }
        for key, value in config.settings.items()
        for number in [parse_count(value)]
    ]


_BYTES = {"B": 1, "KiB": 1024, "MiB": 1 << 20}


def _units(allocator: str) -> dict[str, str]:
    """Return parameter key → unit of a bundled allocator; empty for others, whose values are shown without unit."""
    from heapwright.allocators.registry import bundled_file

    file = bundled_file(allocator)
    return {p.key: p.unit for p in file.param} if file else {}


def _baseline(view: StudyView, key: str) -> dict[str, str]:
    metric, summary = METRICS[key], view.baseline[key]
    return {
        "label": metric.label,
        "meaning": metric.meaning,
        "median": metric.show(summary.median),
        "range": f"{metric.show(summary.min)} … {metric.show(summary.max)}",
        "noise": f"{100 * view.noise.get(key, 0.0):.1f}%",
    }


def _worker(w: Worker) -> dict[str, str]:
    return {
        "machine": w.machine,
        "address": w.worker,
        "runs": str(w.runs),
        "blocks": str(w.blocks),
        "busy": show_seconds(w.busy_s),
        "used": f"{w.busy_s / w.present_s:.0%}" if w.present_s > 0 else "n/a",
        "state": f"refused: {w.refused}" if w.refused else "lost" if w.lost else "",
    }


def _evaluation(view: StudyView, e: Evaluation, elided: bool) -> dict[str, Any]:
    command = measure_command(e.config, replace(view, command=[]) if elided else view)
    return {
        "number": e.number,
        "settings": settings_text(e.config, view.default),
        "ratios": [percent(e.ratios[k]) if k in e.ratios and e.feasible else "n/a" for k in view.objectives],
        "runs": e.runs,
        "state": e.reason if not e.feasible else "Pareto front" if e.on_front else "predicted" if e.replayed else "",
        "command": f"{command} …" if command and elided else command,
    }
