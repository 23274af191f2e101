"""How well the replay stood in for the program: settings measured on both, and what that says, in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from heapwright.metrics import METRICS, show_bytes, show_count, show_seconds
from heapwright.report.drawing import DOMINATED, FRONT, MUTED, figure_of, picture
from heapwright.study.view import Agreement, Proxy, StudyView

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_VERDICTS = {
    "holds": "the replay holds",
    "fails": "the replay does not hold: it ranks settings otherwise than the program",
    "unclear": "whether the replay holds is not certain",
    "flat": "nothing to rank: neither the program nor the replay shows differences beyond noise",
    "few": "too few settings were measured on both to tell",
}


def _change(log_ratio: float) -> float:
    return 100 * math.expm1(log_ratio)


def rank_text(found: Agreement) -> str:
    """'rank correlation +0.93 in 24 settings measured on both: the replay holds'."""
    settings = f"{len(found.pairs)} setting{'' if len(found.pairs) == 1 else 's'} measured on both"
    rank = f"rank correlation {found.rank:+.2f} in ".replace("-", "−") if found.rank is not None else ""
    return f"{rank}{settings}: {_VERDICTS[found.verdict]}"


def proxy_section(proxy: Proxy) -> dict[str, Any]:
    """The replay in words: what the page's template shows."""
    speed = ""
    if proxy.program_s and proxy.replay_s:
        at_once = f", {proxy.slots} at once" if proxy.slots > 1 else ""
        speed = (
            f"A run of the program took {show_seconds(proxy.program_s)},"
            f" a replay {show_seconds(proxy.replay_s)}{at_once}:"
            f" {proxy.slots * proxy.program_s / proxy.replay_s:.3g} replays in the time of one run."
        )
    return {
        "used": proxy.used,
        "why": proxy.why,
        "speed": speed,
        "agreement": [(METRICS[a.metric].label, rank_text(a)) for a in proxy.agreement],
        "traces": [_trace(name, told) for name, told in proxy.recorded.items()],
    }


def _trace(name: str, told: dict[str, Any]) -> str:
    threads = told.get("threads", 1)
    parts = [
        f"{show_count(told.get('events', 0))} calls of {threads} thread{'' if threads == 1 else 's'}",
        f"{show_bytes(told.get('bytes', 0))} of trace, recorded in {show_seconds(told.get('elapsed_s', 0.0))}",
    ]
    if told.get("processes", 1) > 1:
        share = f"{100 * told.get('share', 1.0):.0f}% of the calls"
        parts.append(f"the busiest of {told['processes']} processes, with {share} ({told.get('executable', '')})")
    if told.get("warning"):
        parts.append(str(told["warning"]))
    return ("" if name == "default" else f"{name}: ") + "; ".join(parts)


def proxy_svg(view: StudyView, anchor: str) -> str:
    """For each objective: what the replay predicted against what the program then showed."""
    found = [a for a in view.proxy.agreement if len(a.pairs) > 1] if view.proxy else []
    if not found:
        return ""
    text = " ".join(f"{METRICS[a.metric].label}: {rank_text(a)}." for a in found)

    def draw(narrow: bool) -> tuple[Figure, dict[str, str]]:
        count = len(found)
        figure, panels = figure_of(
            narrow, 3.3 * (count if narrow else 1), columns=1 if narrow else count, rows=count if narrow else 1
        )
        for axes, a in zip(panels, found, strict=True):
            xs, ys = [_change(f) for _, f in a.pairs], [_change(p) for p, _ in a.pairs]
            low, high = min([0.0, *xs, *ys]), max([0.0, *xs, *ys])
            axes.plot([low, high], [low, high], color=MUTED, linewidth=0.8)
            colour = FRONT if a.verdict == "holds" else DOMINATED
            axes.plot(xs, ys, "o", color=colour, markersize=4, ls="none", clip_on=False)
            axes.set_title(f"{METRICS[a.metric].label}, % change of the program", loc="left")
            axes.set_xlabel("% change predicted by the replay")
        return figure, {}

    return picture(draw, anchor, "proxy", "The replay against the program", text)
