"""Computes the statistics and tables of tools/fidelity.py, which imports it."""

from __future__ import annotations

import statistics
from collections.abc import Set
from typing import Any

MEMORY = {"peak_rss_bytes": "peak RSS", "mean_rss_bytes": "mean RSS"}


def typical(runs: list[dict[str, float | None]]) -> dict[str, float]:
    """The medians of memory and the minima of times; empty if a run failed."""
    if not runs or not all(runs):
        return {}
    values = {k: [v for r in runs if (v := r[k]) is not None] for k in runs[0]}
    return {k: statistics.median(v) if k in MEMORY else min(v) for k, v in values.items()}


def summarised(result: dict[str, Any]) -> dict[str, Any]:
    """A program's result with the typical values of each configuration in place of its runs."""
    both = {side: {name: typical(runs) for name, runs in result[side].items()} for side in ("program", "replay")}
    return {**result, **both}


def errors_of(result: dict[str, Any], metric: str, default: str) -> dict[str, float]:
    """Computes the relative error of the prediction for each configuration but the default, which gives the base.

    Args:
        result: A program's summarised result.
        metric: The key of the metric.
        default: The name of the default configuration.
    """
    program, replay = result["program"], result["replay"]
    base = program[default][metric] - replay[default][metric]
    return {
        name: (replay[name][metric] + base) / values[metric] - 1
        for name, values in program.items()
        if name != default and values and replay[name]
    }


def ranks(result: dict[str, Any], metric: str) -> float | None:
    """Spearman's rank correlation of program and replay over the configurations."""
    from scipy.stats import spearmanr

    names = [n for n, v in result["program"].items() if v and result["replay"][n]]
    found = spearmanr(
        [result["program"][n][metric] for n in names], [result["replay"][n][metric] for n in names]
    ).statistic
    return float(found) if found == found else None


def noise(runs: list[dict[str, float | None]], metric: str) -> float:
    """Measures the noise of a metric: the range of the typical values of three groups of the default's runs.

    The default has three times as many runs as any other configuration, so each group is as large as their runs.
    """
    told = [typical(runs[group::3])[metric] for group in range(3)]
    return max(told) - min(told)


def changes(results: dict[str, Any], metric: str, default: str, factor: float) -> tuple[float, int]:
    """Spearman's rank correlation of changes, (x - default) / the program's default, over all programs.

    Args:
        results: Each program's result with every run, by name.
        metric: The key of the metric.
        default: The name of the default configuration.
        factor: Leave out changes of the program below this multiple of its noise.

    Returns:
        The correlation, and the number of changes.
    """
    from scipy.stats import spearmanr

    pairs = []
    for result in results.values():
        told = summarised(result)
        program, replay = told["program"], told["replay"]
        scale = program[default][metric]
        least = factor * noise(result["program"][default], metric)
        for name, values in program.items():
            if name != default and values and replay[name] and abs(values[metric] - scale) >= least:
                real = (values[metric] - scale) / scale
                pairs.append((real, (replay[name][metric] - replay[default][metric]) / scale))
    return float(spearmanr([p[0] for p in pairs], [p[1] for p in pairs]).statistic), len(pairs)


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def groups(measured: dict[str, Any], latest: Set[str], default: str) -> list[str]:
    """The table of errors by kind of program.

    Args:
        measured: Each program's result with every run, by name.
        latest: Names of the programs added after the replayer was made.
        default: The name of the default configuration.
    """
    several = {name for name, result in measured.items() if result["threads"] > 1}
    kinds = {
        "one thread": measured.keys() - several,
        "several threads": several,
        "added after the replayer was made": measured.keys() & latest,
    }
    lines = ["| programs | number | peak RSS: median error, 95% | mean RSS: median error, 95% |", "|---|---|---|---|"]
    for kind, names in kinds.items():
        cells = [kind, str(len(names))]
        for metric in MEMORY:
            sizes = [abs(e) for n in names for e in errors_of(summarised(measured[n]), metric, default).values()]
            cells.append(f"{statistics.median(sizes):.2%}, {percentile(sizes, 0.95):.2%}" if sizes else "n/a")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def markdown(measured: dict[str, Any], latest: Set[str], default: str) -> str:
    """Formats all tables as Markdown; see `groups` for the arguments."""
    results = {name: summarised(result) for name, result in measured.items()}
    lines = [
        "| program | threads | calls | trace, B/event | "
        + " | ".join(f"{label}: median, 95%, worst error, rank" for label in MEMORY.values())
        + " | CPU rank | replay's CPU |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    everything: dict[str, list[float]] = {m: [] for m in MEMORY}
    worst: list[tuple[float, str]] = []
    for name, result in results.items():
        cells = [name, str(result["threads"]), f"{result['calls']:,}", f"{result['bytes'] / result['events']:.2f}"]
        for metric, label in MEMORY.items():
            errors = errors_of(result, metric, default)
            sizes = [abs(e) for e in errors.values()]
            everything[metric] += sizes
            worst += [(abs(e), f"{name}, {config}: {label} {e:+.1%}") for config, e in errors.items()]
            rank = ranks(result, metric)
            cells.append(
                f"{statistics.median(sizes):.1%}, {percentile(sizes, 0.95):.1%}, {max(sizes):.1%}, "
                + (f"{rank:.2f}" if rank is not None else "n/a")
            )
        rank = ranks(result, "cpu_s")
        share = result["replay"][default]["cpu_s"] / result["program"][default]["cpu_s"]
        lines.append("| " + " | ".join([*cells, f"{rank:.2f}" if rank is not None else "n/a", f"{share:.0%}"]) + " |")
    lines.append("")
    lines.append(
        "| over all | pairs | median error | 95% | rank of all changes | of those above noise | median of ranks |"
    )
    lines.append("|---|---|---|---|---|---|---|")
    for metric, label in (*MEMORY.items(), ("cpu_s", "CPU time")):
        each = [r for result in results.values() if (r := ranks(result, metric)) is not None]
        sizes = everything.get(metric, [])
        cells = [f"{statistics.median(sizes):.2%}", f"{percentile(sizes, 0.95):.2%}"] if sizes else ["", ""]
        every, pairs = changes(measured, metric, default, 0.0)
        rank, of = changes(measured, metric, default, 2.0)
        cells += [f"{every:.3f}", f"{rank:.3f} ({of})", f"{statistics.median(each):.3f}"]
        lines.append("| " + " | ".join([label, str(pairs), *cells]) + " |")
    both = [e for sizes in everything.values() for e in sizes]
    lines.append(f"| both | {len(both)} | {statistics.median(both):.2%} | {percentile(both, 0.95):.2%} | | | |")
    lines += ["", *groups(measured, latest, default)]
    lines += ["", "The worst:", "", *(f"- {text}" for _, text in sorted(worst, reverse=True)[:25])]
    return "\n".join(lines) + "\n"
