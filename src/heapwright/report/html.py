"""The report: one self-contained HTML page. No network, readable without JavaScript, light and dark, prints well.

The template (`templates/report.html.j2`) holds structure and style; here is what it is filled with.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heapwright import __version__
from heapwright.cli.common import SCHEMA_VERSION, write_whole
from heapwright.errors import HeapwrightError
from heapwright.metrics import METRICS, NUMERIC
from heapwright.report.apply import render
from heapwright.report.terminal import interval, percent
from heapwright.study.choose import chosen_pick
from heapwright.study.claim import headline
from heapwright.study.load import measure_command
from heapwright.study.view import Config, Pick, StudyView

MAX_ROWS = 300  # evaluations listed; the Pareto front and what failed always are
_DATA = re.compile(r'<script type="application/json" id="heapwright-data">(.*?)</script>', re.DOTALL)


def write_report(views: Sequence[StudyView], out: Path) -> None:
    """Writes the page; on any failure there is no half-written file.

    Raises:
        HeapwrightError: it cannot be written.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("heapwright.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    studies = [_study(view, f"s{i}") for i, view in enumerate(views, 1)]
    data = json.dumps({"schema_version": SCHEMA_VERSION, "studies": [_data(v) for v in views]}, allow_nan=False)
    page = environment.get_template("report.html.j2").render(
        studies=studies,
        version=__version__,
        data=data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"),
    )
    try:
        write_whole(out, page)
    except OSError as error:
        raise HeapwrightError(f"cannot write the report {out}: {error.strerror}") from None


def extract(path: Path) -> dict[str, Any]:
    """The data embedded in a report.

    Raises:
        HeapwrightError: the file cannot be read or is no report of ours.
    """
    try:
        found = _DATA.search(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise HeapwrightError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if found is None:
        raise HeapwrightError(f"{path} is not a heapwright report")
    data: dict[str, Any] = json.loads(found[1])
    return data


def _data(view: StudyView) -> dict[str, Any]:
    """What is embedded: the view, evaluations thinned as in the table, series left to the picture."""
    listed = {e.number for e in _listed(view)[0]}
    value = dataclasses.asdict(view)
    value["series"] = {name: {"t": s.t, "rss": s.rss, "heap": s.heap} for name, s in view.series.items()}
    value["evaluations"] = [
        {
            "number": e.number,
            "settings": e.config.settings,
            "ratios": {k: round(v, 5) for k, v in e.ratios.items() if k in view.objectives},
            "runs": e.runs,
            "reason": e.reason,
            "on_front": e.on_front,
        }
        for e in view.evaluations
        if e.number in listed
    ]
    for pick in value["picks"].values():
        pick["searched"] = pick["searched"]["number"]
    return value


def _listed(view: StudyView) -> tuple[list[Any], int]:
    """The evaluations to list, and how many are left out: dominated ones are thinned evenly."""
    if len(view.evaluations) <= MAX_ROWS:
        return view.evaluations, 0
    keep = [e for e in view.evaluations if e.on_front][:MAX_ROWS]
    rest = [e for e in view.evaluations if not e.on_front]
    step = -(-len(rest) // max(1, MAX_ROWS - len(keep)))
    keep += rest[::step]
    return sorted(keep, key=lambda e: e.number), len(view.evaluations) - len(keep)


def _study(view: StudyView, anchor: str) -> dict[str, Any]:
    """One study's section."""
    from markupsafe import Markup

    from heapwright.report.plots import forest_svg, memory_svg, pareto_svg

    pick = chosen_pick(view, None) if view.phase == "done" else None
    proven = pick is not None
    listed, left_out = _listed(view)
    # The pictures are our own SVG with everything from outside escaped (plots._svg).
    draw = {"forest": forest_svg, "pareto": pareto_svg, "memory": memory_svg}
    return {
        "anchor": anchor,
        "title": shlex.join(view.command) or "study",
        "state": "proven" if proven else "none" if view.phase == "done" else "open",
        "claim": view.claim,
        "trade": proven and any(c.verdict == "worse" for c in pick.confirmed.values()) if pick else False,
        "paste": render(pick.config, "env", view.command, "").split("\n", 1)[1] if pick else "",
        "paste_pick": next((n for n, p in view.distinct_picks() if pick and p.config.id == pick.config.id), ""),
        "picks": sorted((_pick(view, *pick) for pick in view.distinct_picks()), key=lambda p: not p["headline"]),
        "plots": {name: Markup(svg(view, anchor)) for name, svg in draw.items()},
        "hazards": view.hazards,
        "warnings": view.warnings,
        "baseline": [_baseline(view, key) for key in NUMERIC],
        "baseline_runs": max((s.n for s in view.baseline.values()), default=0),
        "objectives": [{"key": k, "label": METRICS[k].label} for k in view.objectives],
        "evaluations": [_evaluation(view, e) for e in listed],
        "searched": len(view.evaluations),
        "left_out": left_out,
        "failed": sum(not e.feasible for e in view.evaluations),
        "host": [(k, "n/a" if v is None else v) for k, v in view.host.items()],
        "meter": view.meter or "n/a",
        "options": [(k, _plain(v)) for k, v in view.options.items()],
        "reproduce": shlex.join(view.reproduce),
        "default_command": measure_command(view.default, view.command),
        "path": view.path,
        "created": view.created,
        "version": view.version,
        "spent": METRICS["wall_s"].show(view.wall_s),
        "phase": view.phase,
        "margin": 100 * float(view.options.get("margin", 0.005)),
    }


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _pick(view: StudyView, label: str, pick: Pick) -> dict[str, Any]:
    best = headline(view.picks, view.objectives)
    rows = []
    for key, c in pick.confirmed.items():
        metric = METRICS[key]
        if key not in view.objectives and not (c.default_median or c.pick_median):
            continue  # nothing of it in either: not worth a row
        rows.append(
            {
                "label": metric.label,
                "objective": key in view.objectives,
                "default": metric.show(c.default_median),
                "pick": metric.show(c.pick_median),
                "change": percent(c.ratio),
                "interval": interval(c),
                "verdict": c.verdict if key in view.objectives else "",
                "p": "" if c.p is None else "< 0.001" if c.p < 0.001 else f"{c.p:.3f}",
                "pairs": c.pairs,
            }
        )
    return {
        "name": label,
        "anchor": pick.name,
        "headline": best is not None and best.config.id == pick.config.id,
        "claim": pick.claim,
        "rows": rows,
        "objectives": sum(r["objective"] for r in rows),
        "settings": _settings(view, pick.config),
        "dropped": [{"key": d.key, "value": d.value} for d in pick.dropped],
        "number": pick.searched.number,
        "command": measure_command(pick.config, view.command),
        "apply": shlex.join(["heapwright", "apply", view.path, "--pick", pick.name]),
    }


def _settings(view: StudyView, config: Config) -> list[dict[str, str]]:
    return [
        {
            "key": key,
            "value": value,
            "effective": config.effective.get(key, "n/a"),
            "explain": view.explanations.get(key, ""),
        }
        for key, value in config.settings.items()
    ]


def _baseline(view: StudyView, key: str) -> dict[str, str]:
    metric, summary = METRICS[key], view.baseline.get(key)
    row = {"label": metric.label, "meaning": metric.meaning, "source": metric.source}
    if summary is None:
        return {**row, "median": "n/a", "range": "n/a", "noise": "n/a"}
    return {
        **row,
        "median": metric.show(summary.median),
        "range": f"{metric.show(summary.min)} … {metric.show(summary.max)}",
        "noise": f"{100 * view.noise.get(key, 0.0):.1f}%",
    }


def _evaluation(view: StudyView, e: Any) -> dict[str, Any]:
    from heapwright.report.plots import describe

    return {
        "number": e.number,
        "settings": describe(e.config.settings),
        "ratios": [percent(e.ratios[k]) if k in e.ratios and e.feasible else "n/a" for k in view.objectives],
        "runs": e.runs,
        "state": e.reason if not e.feasible else "Pareto front" if e.on_front else "",
        "command": measure_command(e.config, view.command),
    }
