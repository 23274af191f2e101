"""Says how well replays predict the program: the configurations that were both replayed and measured, and a verdict."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from heapwright.metrics import METRICS, show_bytes, show_count, show_seconds
from heapwright.report.drawing import DOMINATED, FRONT, MUTED, figure_of, picture
from heapwright.study.view import Agreement, Proxy, StudyView
from heapwright.terminal_text import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_VERDICTS = {
    "holds": "replays rank as the program does",
    "fails": "replays do not rank as the program does",
    "unclear": "not refuted, but not shown either, that replays rank as the program does",
    "flat": "nothing to rank, because neither the program nor the replays show differences beyond noise",
    "few": "too few to compare their order",
}


def _change(log_ratio: float) -> float:
    return 100 * math.expm1(log_ratio)


def rank_text(found: Agreement) -> str:
    """'rank correlation +0.93 over 24 configurations that were replayed and measured: replays rank as …'."""
    count = counted(len(found.pairs), "configuration")
    were = "was" if len(found.pairs) == 1 else "were"
    rank = f"rank correlation {found.rank:+.2f} over ".replace("-", "−") if found.rank is not None else ""
    return f"{rank}{count} that {were} replayed and measured: {_VERDICTS[found.verdict]}"


def proxy_section(proxy: Proxy) -> dict[str, Any]:
    """Return the fields of the page's section on replays."""
    speed = ""
    if proxy.program_s and proxy.replay_s:
        parallel = f", {proxy.slots} in parallel" if proxy.slots > 1 else ""
        speed = (
            f"A run of the program took {show_seconds(proxy.program_s)},"
            f" a replay {show_seconds(proxy.replay_s)}{parallel}:"
            f" {proxy.slots * proxy.program_s / proxy.replay_s:.3g} replays in the time of one run."
        )
    return {
        "used": proxy.used,
        "why": proxy.why,
        "checked": proxy.checked,
        "speed": speed,
        "agreement": [(METRICS[a.metric].label, rank_text(a)) for a in proxy.agreement],
        "traces": [_trace(name, recording) for name, recording in proxy.recorded.items()],
    }


def _trace(name: str, recording: dict[str, Any]) -> str:
    """Describe the trace of one input; `recording` is a value of `Proxy.recorded`."""
    threads, seconds = recording.get("threads", 1), recording.get("elapsed_s", 0.0)
    parts = [
        f"{show_count(recording.get('events', 0))} calls of {counted(threads, 'thread')}",
        f"{show_bytes(recording.get('bytes', 0))}, recorded in {show_seconds(seconds)}",
    ]
    if recording.get("processes", 1) > 1:
        share = f"{100 * recording.get('share', 1.0):.0f}% of the calls"
        program = recording.get("program") or recording.get("executable", "")  # older studies have no name
        parts.append(f"the busiest of {recording['processes']} processes, with {share} ({program})")
    if recording.get("warning"):
        parts.append(str(recording["warning"]))
    return ("" if name == "default" else f"{name}: ") + "; ".join(parts)


def proxy_svg(view: StudyView, anchor: str) -> str:
    """Draw, for each objective, the measured change of the program over the predicted change."""
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
            axes.set_title(f"{METRICS[a.metric].label}: measured change of the program, %", loc="left")
            axes.set_xlabel("predicted change, %")
        return figure, {}

    return picture(draw, anchor, "proxy", "Replays and the program", text)
