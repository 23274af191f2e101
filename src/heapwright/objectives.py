"""Reads the metrics that a person names on the command line: to show, to minimise, to maximise."""

from __future__ import annotations

from collections.abc import Sequence

from heapwright.errors import UsageError
from heapwright.metrics import METRICS, Metric, find_metric


def parse_metrics(text: str) -> list[Metric]:
    """`peak_rss,cpu` as metrics to show, in order, each once.

    Raises:
        UsageError: an unknown name, no name, or a metric that is not a number.
    """
    found: list[Metric] = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        metric = find_metric(name)
        if metric.kind == "output":
            raise UsageError(f"'{metric.key}' is not a number", "choose a number, such as peak_rss or cpu")
        if metric not in found:
            found.append(metric)
    if not found:
        raise UsageError("no metric is named", "for example: peak_rss,cpu")
    return found


def parse_objectives(minimise: str | None, maximise: str | None = None, option: str = "--minimize") -> list[Metric]:
    """Returns the metrics to minimise; those to maximise come last, each as the one that is minimised in its place.

    Args:
        minimise: keys or short forms of metrics, separated by commas; None if the option is not given.
        maximise: likewise.
        option: the option that gives `minimise`, for messages.

    Raises:
        UsageError: an unknown name, no name, or a metric that cannot be minimised or maximised.
    """
    found: list[Metric] = []
    for metric in [] if minimise is None else _parse(minimise, option):
        if not metric.objective:
            why = "it can be 0, which has no ratio to another run" if metric.unit else "it is not a quantity"
            raise UsageError(f"'{metric.key}' cannot be minimised: {why}", "choose another, such as peak_rss or cpu")
        if metric.larger_is_better:
            other = METRICS[metric.minimised_as].short if metric.minimised_as else ""
            hint = f"--maximize {metric.short}" if option == "--minimize" else f"{option} {other}"
            raise UsageError(f"'{metric.key}' cannot be minimised: more is better", hint)
        found.append(metric)
    for metric in [] if maximise is None else _parse(maximise, "--maximize"):
        if not metric.minimised_as:
            known = ", ".join(m.short for m in METRICS.values() if m.minimised_as)
            hint = f"only {known} can be maximised; use --minimize for the others"
            raise UsageError(f"'{metric.key}' cannot be maximised", hint)
        found.append(METRICS[metric.minimised_as])
    return list(dict.fromkeys(found))


def _parse(text: str, option: str) -> list[Metric]:
    if not text.replace(",", "").strip():
        raise UsageError(f"{option} names no metric", "for example: --minimize peak_rss,cpu")
    return [find_metric(name) for part in text.split(",") if (name := part.strip())]


def objective_of_pick(name: str, objectives: Sequence[str]) -> str | None:
    """Return the objective that a pick is the best in; None if the study has none of its kind.

    It is the first of its kind. Counts of work (faults, mapping calls) stand for time only beside no measured time.

    Args:
        name: of the pick: 'memory', 'time' or 'balanced', which has none.
        objectives: keys of metrics.
    """
    own = [metric for metric in objectives if METRICS[metric].kind == name]
    return min(own, key=lambda metric: METRICS[metric].unit == "count", default=None)
