"""What a report says of the study and of the machine: names for people, values as they are read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

from heapwright.metrics import METRICS, show_bytes, show_seconds
from heapwright.report.terminal import how_searched, quality_text, stages_text
from heapwright.study.matters import where_text
from heapwright.study.view import StudyView


def whole(text: str) -> int | None:
    """A number as settings have them; None for anything else, however much it looks like one."""
    return int(text) if text.isdecimal() and len(text) < 20 else None


def size(value: str) -> str:
    """'2147483648' → '2 GiB'; nothing for small numbers and for those that mean 'never'."""
    number = whole(value) or 0
    return show_bytes(number).replace(".00 ", " ").replace(".0 ", " ") if 1024 <= number < 2**50 else ""


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
    "page_bytes": ("page size", lambda v: size(str(v)) or _plain(v)),
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


def host_facts(view: StudyView) -> list[tuple[str, str]]:
    """The machine."""
    return [_fact(_HOST, k, v) for k, v in view.host.items()]


def facts(view: StudyView) -> list[tuple[str, str]]:
    """How it was measured: the study, the workload as far as something is set, the options."""
    begun = re.sub(r"^(\S+)T(\d\d:\d\d):\d\d(?:\+00:00|Z)$", r"\1 \2 UTC", view.created)
    return [
        ("study", view.path),
        ("begun", f"{begun}, by heapwright {view.version}"),
        ("time spent in runs", show_seconds(view.wall_s)),
        *([("what each stage had", stages_text(view))] if view.stages else []),
        ("meter", _METERS.get(view.meter, view.meter) or "n/a"),
        *([("where the peak's memory was", where_text(view.matters))] if view.matters and view.matters.shares else []),
        *([("why these objectives", view.objectives_why)] if view.objectives_why else []),
        *([("who manages its memory", view.managed["sentence"])] if view.managed else []),
        *([("program", _program(view))] if view.program.get("path") else []),
        *(_fact(_WORKLOAD, k, view.workload[k]) for k in _WORKLOAD if view.workload.get(k)),
        ("searched", how_searched(view)),
        *([("front of the search", quality_text(view))] if view.quality else []),
        *(_fact(_OPTIONS, k, v) for k, v in view.options.items()),
    ]


def _program(view: StudyView) -> str:
    """Its path, and what tells this build of it from another."""
    known = view.program
    mark = f"build id {known['build_id']}" if known.get("build_id") else f"SHA-256 {known.get('sha256') or 'n/a'}"
    return f"{known['path']} ({mark})"


_METERS = {
    "notify": "notify (seccomp user notification: exact at every mapping call)",
    "ptrace": "ptrace (exact at every mapping call, slower)",
    "poll": "poll (the kernel's own counts, and a look every 10 ms; no call is stopped)",
}
