"""Lists the facts of a study and its machine with readable names and values, for the report."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

from heapwright.metrics import METRICS, show_bytes, show_seconds
from heapwright.report.terminal import front_name, how_searched, quality_text, stages_text
from heapwright.study.saving_bound import where_text
from heapwright.study.view import StudyView


def parse_count(text: str) -> int | None:
    """Return a non-negative decimal integer of fewer than 20 digits; None for any other text."""
    return int(text) if text.isdecimal() and len(text) < 20 else None


def bytes_text(value: str) -> str:
    """Return bytes with a unit: '2147483648' → '2 GiB'.

    Empty below 1 KiB, where a unit does not help, and from 1 PiB on, where the value means 'never'.
    """
    number = parse_count(value) or 0
    return show_bytes(number).replace(".00 ", " ").replace(".0 ", " ") if 1024 <= number < 2**50 else ""


# Key → name, and a function that writes the value. Keys that are not listed appear with their own
# names.

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
    "evaluations": ("configurations to search", lambda v: _plain(v) if v else "as many as the time allows"),
    "budget_s": ("time budget", lambda v: show_seconds(v) if v else "none"),
    "seed": ("seed", _plain),
    "margin": ("equivalence margin", lambda v: f"±{100 * v:g}%"),
    "pairs_min": ("minimum of pairs per input", _plain),
    "pairs_max": ("maximum of pairs per input", _plain),
    "params": ("settings considered", lambda v: _plain(v) if v else "all that are safe and apply here"),
    "expert": ("includes expert settings", _plain),
    "meter": ("meter asked for", _plain),
    "callgrind": ("instructions counted by callgrind", _plain),
    "massif": ("Massif peak", _plain),
    "massif_by": ("Massif peak measured by", _plain),
    "preset": ("preset", _plain),
    "proxy": ("replays in place of runs", _plain),
    "runtime": ("includes settings of the runtime", _plain),
    "limits": ("highest ratios to the default", _plain),
    "prices": ("prices of one per cent", _plain),
    "requires": ("requirements", _plain),
    "minify": ("removes settings without effect", _plain),
    "search_only": ("ends after the search", _plain),
    "axes": ("axes of the landscape", _plain),
    "replicates": ("runs of each point", _plain),
    "timeout": ("timeout of a run", lambda v: show_seconds(v) if v else "10 × the default's time, at least 10 s"),
}
_OF_LANDSCAPES = ("axes", "replicates")
_HOST: dict[str, _Fact] = {
    "cpu": ("CPU", _plain),
    "memory_bytes": ("memory", lambda v: _plain(v and show_bytes(v))),
    "machine": ("architecture", _plain),
    "libc": ("C library", _plain),
    "page_bytes": ("page size", lambda v: bytes_text(str(v)) or _plain(v)),
    "thp": ("transparent huge pages", _plain),
    "load_average": ("load average as the study began (1 minute)", _plain),
    "huge_pages_cold": ("huge pages cold", _plain),
    "huge_page_touch": ("touch of a huge page", _plain),
    "aslr": ("address randomisation", lambda v: {"0": "off", "1": "partial", "2": "full"}.get(str(v), _plain(v))),
    "governor": ("CPU frequency governor", _plain),
    "max_map_count": ("vm.max_map_count", _plain),
    "os": ("system", _plain),
    "python": ("Python", _plain),
    "image": ("image", _plain),
    "image_digest": ("digest of the image", _plain),
    "image_platform": ("platform of the image", _plain),
    "image_libc": ("C library of the image", _plain),
    "container_runtime": ("container runtime", _plain),
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
    "server": ("server", lambda v: _server(v)),
}


def _server(value: dict[str, Any]) -> str:
    """Return the server's keys; of its phases the commands and pauses in order."""
    shown = {k: shlex.join(x) if isinstance(x, list) and k != "phase" else x for k, x in value.items() if x}
    phases = [
        shlex.join(p["load"]) if p.get("load") else f"pause {p.get('pause'):g} s" for p in value.get("phase") or []
    ]
    if phases:
        shown["phase"] = ", then ".join(phases)
    if value.get("load_metrics"):
        shown["load_metrics"] = ", ".join(f"{k} = {x}" for k, x in value["load_metrics"].items() if x)
    return _plain(shown)


def _input(value: dict[str, Any]) -> str:
    split = f" ({value['split']})" if value.get("split") else ""
    args = f": {shlex.join(value['args'])}" if value.get("args") else ""
    return f"{value.get('name', '?')}{split}{args}"


def _fact(known: dict[str, _Fact], key: str, value: Any) -> tuple[str, str]:
    name, write = known.get(key, (key, _plain))
    return name, write(value)


def host_facts(view: StudyView) -> list[tuple[str, str]]:
    """Return name and value of each fact about the machine."""
    return [_fact(_HOST, k, v) for k, v in view.host.items()]


def facts(view: StudyView) -> list[tuple[str, str]]:
    """Return name and value of each fact about the study, its workload and its options."""
    begun = re.sub(r"^(\S+)T(\d\d:\d\d):\d\d(?:\+00:00|Z)$", r"\1 \2 UTC", view.created)
    return [
        ("study", view.path),
        ("begun", f"{begun}, by heapwright {view.version}"),
        ("time spent in runs", show_seconds(view.wall_s)),
        *([("stages", stages_text(view))] if view.stages else []),
        ("meter", _METERS.get(view.meter, view.meter) or "n/a"),
        *([("memory at the peak", where_text(view.matters))] if view.matters and view.matters.shares else []),
        *([("reason for these objectives", view.objectives_why)] if view.objectives_why else []),
        *(("settings beside malloc's", extra["sentence"]) for extra in view.runtimes.values()),
        *([("the program's memory manager", view.managed["sentence"])] if view.managed else []),
        *([("program", _program(view))] if view.program.get("path") else []),
        *(_fact(_WORKLOAD, k, view.workload[k]) for k in _WORKLOAD if view.workload.get(k)),
        ("searched", how_searched(view)),
        *([(front_name(view), quality_text(view))] if view.quality else []),
        *(
            _fact(_OPTIONS, k, v)
            for k, v in view.options.items()
            if k not in _OF_LANDSCAPES or view.options.get("axes")
        ),
    ]


def _program(view: StudyView) -> str:
    """Return the program's path and the identity of its build."""
    known = view.program
    mark = f"build id {known['build_id']}" if known.get("build_id") else f"SHA-256 {known.get('sha256') or 'n/a'}"
    return f"{known['path']} ({mark})"


_METERS = {
    "notify": "notify (seccomp user notification: exact at every mapping call)",
    "ptrace": "ptrace (exact at every mapping call, slower)",
    "poll": "poll (the kernel's own counters, read every 10 ms; stops no call)",
}
