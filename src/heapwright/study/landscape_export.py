"""A landscape as JSON and as CSV, from its study."""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING, Any

from heapwright.study.landscape_result import FreshComparison, LandscapePoint, LandscapeResult

if TYPE_CHECKING:
    from heapwright.study.store import Store


def landscape_json(store: Store, landscape: LandscapeResult) -> dict[str, Any]:
    """A landscape as `landscape --json` writes it."""
    s, best = landscape.smoothness, landscape.best

    def point(p: LandscapePoint) -> dict[str, Any]:
        settings = {a.key: v for a, v in zip(landscape.axes, p.values, strict=True)}
        return {
            "settings": settings, "ratio": p.ratio, "median": p.median, "runs": p.runs, "failure": p.failure or None,
        }  # fmt: skip

    def fresh(f: FreshComparison | None) -> dict[str, Any] | None:
        if f is None:
            return None
        high = f.ratio.high if math.isfinite(f.ratio.high) else None
        return {
            "ratio": f.ratio.value, "low": f.ratio.low, "high": high, "p": f.p, "pairs": f.pairs, "verdict": f.verdict,
        }  # fmt: skip

    return {
        "study": str(store.path),
        "command": store.meta.identity.get("command", []),
        "host": store.meta.host,
        "allocator": landscape.allocator,
        "metric": landscape.metric,
        "axes": [
            {"parameter": a.key, "unit": a.unit, "scale": a.scale, "values": list(a.values), "default": a.default}
            for a in landscape.axes
        ],
        "default": {"median": landscape.default_median},
        "places": [point(p) for p in landscape.points],
        "best": None if best is None else {
            **point(best), "env": store.config_by_id(best.config).env, "confirmed": fresh(landscape.gain),
        },
        "gains": landscape.gains,
        "differs": landscape.differs,
        "highest_to_lowest": fresh(landscape.contrast),
        "places_repeated": landscape.repeated,
        "standard_error": landscape.error,
        "gain_by_luck": landscape.chance_gain,
        "smoothness": {
            "autocorrelation": s.autocorrelation, "step": s.step, "noise_step": s.noise_step, "verdict": s.verdict,
        },
    }  # fmt: skip


def landscape_csv(store: Store, landscape: LandscapeResult) -> str:
    """Every run of the sweep, one line each: parameters, block, input, failure, then every metric."""
    from heapwright.metrics import NUMERIC

    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    keys = [a.key for a in landscape.axes]
    table.writerow([*keys, "block", "input", "failure", *NUMERIC])
    for run in store.runs("landscape"):
        settings = store.config_by_id(run.config).settings
        at = [settings.get(key, "") for key in keys]  # empty: the default
        metrics = ["" if (v := run.metrics.get(m)) is None else v for m in NUMERIC]
        table.writerow([*at, run.block, run.input, run.failure, *metrics])
    return out.getvalue()
