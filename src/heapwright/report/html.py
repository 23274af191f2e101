"""The report: one self-contained HTML page. No network, readable without JavaScript, light and dark, prints well.

`templates/` holds structure (`report.html.j2`), style (`page.css`) and behaviour (`page.js`); here is what they are
filled with. The page's policy allows that style and that script by their hashes, and nothing else: no other script, no
style attribute, no request.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import shlex
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from heapwright import __version__
from heapwright.cli.common import SCHEMA_VERSION, write_whole
from heapwright.errors import HeapwrightError
from heapwright.metrics import METRICS, NUMERIC, show_bytes, show_seconds
from heapwright.report.apply import render
from heapwright.report.landscape import shape_text
from heapwright.report.landscape_svg import landscape_svg
from heapwright.report.plots import describe, forest_svg, memory_svg, search_svg, thinned, unseen
from heapwright.report.progress import title as phase_title
from heapwright.report.terminal import how_searched, interval, ordered_picks, percent, quality_text
from heapwright.study.choose import chosen_pick
from heapwright.study.claim import headline
from heapwright.study.load import measure_command
from heapwright.study.view import Config, Evaluation, Pick, StudyView

_TABLE_BYTES = 145_000  # of the page, for the table of evaluations and their data
_LONG_COMMAND = 300  # characters; a longer one is not repeated in every row
_DATA = re.compile(r'<script type="application/json" id="heapwright-data">(.*?)</script>', re.DOTALL)


def _hashed(text: str) -> str:
    """A source expression of a Content-Security-Policy: this very text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def write_report(views: Sequence[StudyView], out: Path) -> None:
    """Writes the page; on any failure there is no half-written file.

    Raises:
        HeapwrightError: it cannot be written.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("heapwright.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    css, js = (files("heapwright.report").joinpath("templates", n).read_text() for n in ("page.css", "page.js"))
    data = json.dumps({"schema_version": SCHEMA_VERSION, "studies": [_data(v) for v in views]}, allow_nan=False)
    page = environment.get_template("report.html.j2").render(
        studies=[_study(view, f"s{i}") for i, view in enumerate(views, 1)],
        version=__version__,
        policy=f"default-src 'none'; script-src {_hashed(js)}; style-src {_hashed(css)}; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        css=Markup(css),
        js=Markup(js),
        data=Markup(data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")),
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
    """What is embedded: the view; evaluations thinned as in the table, memory over time as in the picture."""
    value = dataclasses.asdict(view)
    value.pop("terrain")  # its places are among the evaluations
    first = {p.config.id: p.name for _, p in reversed(view.distinct_picks())}  # one name for each setting
    value["series"] = {
        name: {"t": [round(t, 4) for t in s.t], "rss": [*map(round, s.rss)], "heap": [*map(round, s.heap)]}
        for name, s in view.series.items()
        if name == "default" or name in first.values()
    }
    value["searched"] = len(view.evaluations)
    value["evaluations"] = [
        {
            "number": e.number,
            "allocator": e.config.allocator,
            "settings": e.config.settings,
            "ratios": {k: round(v, 5) for k, v in e.ratios.items() if k in view.objectives},
            "runs": e.runs,
            "reason": e.reason,
            "on_front": e.on_front,
        }
        for e in _listed(view)
    ]
    for pick in value["picks"].values():
        pick["searched"] = pick["searched"]["number"]
    return value


def _listed(view: StudyView) -> list[Evaluation]:
    """The evaluations to list, as far as the page has room: what the picks come from, the front, then the others."""
    if not view.evaluations:
        return []
    command = min(len(shlex.join(view.command)), _LONG_COMMAND)
    words = sum(3 * len(describe(e.config, view.default)) + 30 * len(e.config.settings) for e in view.evaluations)
    most = round(_TABLE_BYTES / (450 + command + words / len(view.evaluations)))
    if len(view.evaluations) <= most:
        return view.evaluations
    origins = {p.searched.number for p in view.picks.values()}
    keep = [e for e in view.evaluations if e.number in origins]
    front = [e for e in view.evaluations if e.on_front and e.number not in origins]
    keep += thinned(front, most - len(keep))
    rest = [e for e in view.evaluations if not (e.on_front or e.number in origins)]
    if len(keep) < most:
        keep += thinned(rest, most - len(keep))
    return sorted(keep, key=lambda e: e.number)


def _study(view: StudyView, anchor: str) -> dict[str, Any]:
    """One study's section."""
    from markupsafe import Markup

    pick = chosen_pick(view, None) if view.phase == "done" else None
    trade = pick is not None and any(c.verdict == "worse" for k, c in pick.confirmed.items() if k in view.objectives)
    state = "proven" if pick else "none" if view.phase == "done" else "open"
    state = "swept" if view.terrain and view.phase == "done" else state
    listed = _listed(view)
    command = shlex.join(view.command)
    elided = len(command) > _LONG_COMMAND
    # The pictures are our own SVG with everything from outside escaped (plots._svg).
    draw = {"forest": forest_svg, "search": search_svg, "memory": memory_svg, "landscape": landscape_svg}
    plots = {name: Markup(svg(view, anchor)) for name, svg in draw.items()}
    baseline = [_baseline(view, key) for key in NUMERIC if key in view.baseline]
    contents = [
        ("paste", "Paste this", pick),
        ("confirmed", "What was confirmed", view.picks),
        ("landscape", "The landscape", plots["landscape"]),
        ("search", "The search", plots["search"]),
        ("memory", "Memory over time", plots["memory"]),
        ("default", "The default", True),
        ("all", "Every setting tried", listed),
        ("how", "How it was measured", True),
    ]
    return {
        "anchor": anchor,
        "title": (command[:_LONG_COMMAND] + " …" if elided else command) or "study",
        "contents": [(id_, name) for id_, name, there in contents if there],
        "state": state,
        "state_text": _STATES["trade" if trade else state],
        "claim": _whole(view.claim),
        "trade": trade,
        "paste": render(pick.config, "env", view.command, "").split("\n", 1)[1] if pick else "",
        "paste_pick": next((n for n, p in ordered_picks(view) if pick and p.config.id == pick.config.id), ""),
        "apply": shlex.join(["heapwright", "apply", view.path, "--format", "systemd"]),
        "run": shlex.join(["heapwright", "run", view.path, "--"]) + " COMMAND",
        "picks": [_pick(view, name, pick) for name, pick in ordered_picks(view)],
        "confirmed": any(p.confirmed for p in view.picks.values()),
        "plots": plots,
        "unseen": unseen(view),
        "shape": shape_text(view.terrain) if view.terrain else "",
        "hazards": view.hazards,
        "warnings": view.warnings,
        "baseline": baseline,
        "missing": ", ".join(METRICS[k].label for k in NUMERIC if k not in view.baseline),
        "baseline_runs": max((s.n for s in view.baseline.values()), default=0),
        "objectives": [METRICS[k].label for k in view.objectives],
        "evaluations": [_evaluation(view, e, elided) for e in listed],
        "elided": elided,
        "searched": len(view.evaluations),
        "left_out": len(view.evaluations) - len(listed),
        "failed": sum(not e.feasible for e in view.evaluations),
        "host": [_fact(_HOST, k, v) for k, v in view.host.items()],
        "facts": _facts(view),
        "reproduce": shlex.join(view.reproduce),
        "default_command": measure_command(view.default, view.command, workload=view.workload),
        "cwd": view.workload.get("cwd", ""),
        "phase_text": phase_title(view.phase),
        "margin": _margin(view),
    }


_STATES = {
    "proven": "Proven on fresh runs",
    "trade": "Proven on fresh runs: a gain that costs something",
    "none": "Searched, and nothing proven",
    "open": "Unfinished: nothing is proven yet",
    "swept": "Swept, not searched: to be looked at",
}


def _margin(view: StudyView) -> float:
    return 100 * float(view.options.get("margin", 0.005))


def _whole(text: str) -> Any:
    """Escaped, with '[−18.4, −15.9]' and 'p = 0.008' never broken over lines."""
    from markupsafe import Markup, escape

    whole = re.compile(r"\[[^\[\]<>&]{1,40}\]|p (?:=|&lt;) [\d.]+\d|\d[\d.]*% (?:lower|higher)")
    return Markup(whole.sub(lambda m: f'<span class="nb">{m[0]}</span>', str(escape(text))))


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
                "ratio": f"{c.ratio:.3f}",
                "change": percent(c.ratio),
                "interval": interval(c),
                "verdict": c.verdict if key in view.objectives else "",
                "p": "" if c.p is None else "< 0.001" if c.p < 0.001 else f"{c.p:.3f}",
                "pairs": c.pairs,
            }
        )
    names = label.split(" and ")
    same = {2: "Both names stand", 3: "All three names stand"}.get(len(names), "")
    return {
        "name": label,
        "anchor": pick.name,
        "same": same and f"{same} for the same setting: it is the best found for {_list(names)}.",
        "headline": view.phase == "done" and best is not None and best.config.id == pick.config.id,
        "claim": _whole(pick.claim),
        "rows": rows,
        "objectives": sum(r["objective"] for r in rows),
        "settings": _settings(view, pick.config),
        "dropped": [{"key": d.key, "value": d.value} for d in pick.dropped],
        "number": pick.searched.number,
        "command": measure_command(pick.config, view.command, workload=view.workload),
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
            "size": _size(value) if units.get(key) == "B" else "",
            "effective": config.effective.get(key, ""),
            "explain": view.explain(config, key),
        }
        for key, value in config.settings.items()
    ]


def _units(allocator: str) -> dict[str, str]:
    """Parameter key → unit, of an allocator that heapwright comes with; for others values are shown bare."""
    from heapwright.allocators.registry import bundled_file

    file = bundled_file(allocator)
    return {p.key: p.unit for p in file.param} if file else {}


def _size(value: str) -> str:
    """'2147483648' → '2 GiB'; nothing for small numbers and for those that mean 'never'."""
    size = int(value) if value.isdigit() else 0
    return show_bytes(size).replace(".00 ", " ").replace(".0 ", " ") if 1024 <= size < 2**50 else ""


def _baseline(view: StudyView, key: str) -> dict[str, str]:
    metric, summary = METRICS[key], view.baseline[key]
    return {
        "label": metric.label,
        "meaning": metric.meaning,
        "median": metric.show(summary.median),
        "range": f"{metric.show(summary.min)} … {metric.show(summary.max)}",
        "noise": f"{100 * view.noise.get(key, 0.0):.1f}%",
    }


def _evaluation(view: StudyView, e: Evaluation, elided: bool) -> dict[str, Any]:
    command = measure_command(e.config, [] if elided else view.command, workload=None if elided else view.workload)
    return {
        "number": e.number,
        "settings": describe(e.config, view.default),
        "ratios": [percent(e.ratios[k]) if k in e.ratios and e.feasible else "n/a" for k in view.objectives],
        "runs": e.runs,
        "state": e.reason if not e.feasible else "Pareto front" if e.on_front else "",
        "command": f"{command} …" if elided else command,
    }


# What is said about the study and the machine: key → name and how the value is written; others as they are.

_Fact = tuple[str, Callable[[Any], str]]


def _plain(value: Any) -> str:
    if value is None or value == "":
        return "n/a"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{k}: {_plain(v)}" for k, v in value.items()) or "none"
    return str(value)


_OPTIONS: dict[str, _Fact] = {
    "allocator": ("allocator", _plain),
    "objectives": ("minimised", lambda v: ", ".join(METRICS[k].label for k in v)),
    "method": ("search method asked for", _plain),
    "warm_start": ("warm start from", _plain),
    "evaluations": ("settings to search", lambda v: _plain(v) if v else "as many as the time allows"),
    "budget_s": ("time budget", lambda v: show_seconds(v) if v else "none"),
    "seed": ("seed", _plain),
    "margin": ("equivalence margin", lambda v: f"±{100 * v:g}%"),
    "pairs_min": ("least pairs per input", _plain),
    "pairs_max": ("most pairs per input", _plain),
    "params": ("settings considered", lambda v: _plain(v) if v else "all that are safe and apply here"),
    "expert": ("expert settings too", _plain),
    "meter": ("meter asked for", _plain),
    "callgrind": ("instructions by callgrind", _plain),
    "massif": ("Massif's figure too", _plain),
    "timeout": ("timeout of a run", lambda v: show_seconds(v) if v else "10 × the default's time, at least 10 s"),
}
_HOST: dict[str, _Fact] = {
    "cpu": ("CPU", _plain),
    "memory_bytes": ("memory", lambda v: _plain(v and show_bytes(v))),
    "machine": ("architecture", _plain),
    "libc": ("C library", _plain),
    "page_bytes": ("page size", lambda v: _size(str(v)) or _plain(v)),
    "thp": ("transparent huge pages", _plain),
    "aslr": ("address randomisation", lambda v: {"0": "off", "1": "partial", "2": "full"}.get(str(v), _plain(v))),
    "governor": ("CPU frequency governor", _plain),
    "max_map_count": ("vm.max_map_count", _plain),
    "os": ("system", _plain),
    "python": ("Python", _plain),
}
_WORKLOAD: dict[str, _Fact] = {
    "cwd": ("directory", _plain),
    "input": ("inputs", lambda v: "; ".join(_input(i) for i in v)),
    "env": ("environment", lambda v: " ".join(f"{k}={shlex.quote(str(x))}" for k, x in v.items())),
    "stdin": ("stdin", _plain),
    "setup": ("before every run", lambda v: shlex.join(v)),
    "cleanup": ("after every run", lambda v: shlex.join(v)),
    "success": ("exit statuses of success", _plain),
    "output": ("output compared", lambda v: ", ".join(_plain(x) for x in v.values() if x)),
    "server": ("server", lambda v: _plain({k: shlex.join(x) if isinstance(x, list) else x for k, x in v.items() if x})),
}


def _input(value: dict[str, Any]) -> str:
    split = f" ({value['split']})" if value.get("split") else ""
    args = f": {shlex.join(value['args'])}" if value.get("args") else ""
    return f"{value.get('name', '?')}{split}{args}"


def _fact(known: dict[str, _Fact], key: str, value: Any) -> tuple[str, str]:
    name, write = known.get(key, (key, _plain))
    return name, write(value)


def _facts(view: StudyView) -> list[tuple[str, str]]:
    """How it was measured: the study, the workload as far as something is set, the options."""
    begun = re.sub(r"^(\S+)T(\d\d:\d\d):\d\d(?:\+00:00|Z)$", r"\1 \2 UTC", view.created)
    return [
        ("study", view.path),
        ("begun", f"{begun}, by heapwright {view.version}"),
        ("time spent in runs", show_seconds(view.wall_s)),
        ("meter", _METERS.get(view.meter, view.meter) or "n/a"),
        *(_fact(_WORKLOAD, k, view.workload[k]) for k in _WORKLOAD if view.workload.get(k)),
        ("searched", how_searched(view)),
        *([("front of the search", quality_text(view))] if view.quality else []),
        *(_fact(_OPTIONS, k, v) for k, v in view.options.items()),
    ]


_METERS = {
    "notify": "notify (seccomp user notification: exact at every mapping call)",
    "ptrace": "ptrace (exact at every mapping call, slower)",
    "poll": "poll (every 10 ms: peaks between are missed)",
}
