"""Prints the result of a canary, in words and in a table."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from heapwright.canary.blocks import READINGS_PER_BLOCK
from heapwright.canary.judge import FIRST_LOOK, INSTANCE_SD, CanaryResult
from heapwright.canary.run import CLAIMS, LABELS, CanaryState
from heapwright.metrics import show_bytes, show_seconds
from heapwright.report.terminal import paragraph
from heapwright.terminal_text import counted, visible
from heapwright.units import percent_change, percent_interval, show_exactly, three_digits


def show_value(name: str, value: float | None) -> str:
    """A value of a number as people read it: memory in MiB, CPU as a share of one, faults per second."""
    if value is None:
        return "n/a"
    if name == "memory_bytes":
        return show_bytes(value)
    if name == "cpu_share":
        return f"{three_digits(100 * value)}%"
    if name == "faults_per_s":
        return f"{three_digits(value)}/s"
    return f"{value:.4g}" if abs(value) < 9999.5 else f"{value:.0f}"  # never an exponent


def show_change(result: CanaryResult) -> str:
    """'−5.1% [−6.0, −4.2]'; n/a before the first look."""
    if result.ratio is None or result.low is None or result.high is None:
        return "n/a"
    change = f"{percent_change(result.ratio):+.1f}%".replace("-", "−")
    return f"{change} {percent_interval(result.low, result.high)}"


def canary_sentence(found: CanaryState) -> str:
    """The first sentence: the claims, or why there is none yet."""
    claims, drifts = [], []
    for name, result in found.results.items():
        label = visible(LABELS.get(name, name))
        if result.verdict in ("lower", "higher"):
            claims.append(f"{label} {result.verdict} in the treatment: {show_change(result)}")
        elif result.verdict == "same":
            claims.append(f"{label} the same: {show_change(result)}")
        elif result.verdict == "drifting" and result.drift is not None:
            drifts.append(f"{label} ({100 * result.drift:+.1f}% from start to end)".replace("-", "−"))
    parts = ["; ".join(claims)] if claims else []
    if drifts:
        parts.append(f"the difference still drifts, so there is no claim of its level: {', '.join(drifts)}")
    if not parts:
        first = f"{FIRST_LOOK} blocks of {show_exactly(_block_s(found))} = {show_exactly(FIRST_LOOK * _block_s(found))}"
        need = "no difference is shown" if _looks(found) else f"the first look comes after {first}, without warm-ups"
        parts.append(f"no claim yet: {need}")
    text = ". ".join(part[:1].upper() + part[1:] for part in parts)
    return f"{text}."


def _looks(found: CanaryState) -> int:
    return max((result.looks for result in found.results.values()), default=0)


def _block_s(found: CanaryState) -> float:
    return found.header.every_s * READINGS_PER_BLOCK


def extent(found: CanaryState) -> str:
    """The last sentence: how many readings and blocks there are."""
    readings = counted(found.readings, "reading")
    span = f"{readings} in {show_seconds(found.covered_s)}" if found.covered_s else readings
    blocks = counted(max((r.blocks for r in found.results.values()), default=0), "block")
    if not _looks(found):
        return f"{span}; {blocks} so far."
    return f"{span}; intervals from {blocks} of {show_exactly(_block_s(found))}, valid at every look together (95%)."


def notes(found: CanaryState) -> list[str]:
    """The limits of the claims, a line each."""
    lines = []
    if found.has_single_instance:
        lines.append(
            "A group has a single instance: a difference between the instances that does not come from the treatment"
            " (their share of the load, their age) is part of the result."
        )
    elif found.header.numbers:
        names = ", ".join(visible(name) for name in found.header.numbers)
        lines.append(
            f"Each group has one value of {names}. So differences between instances of a group are not in the interval;"
            f" those above {100 * INSTANCE_SD:g}% are part of the result."
        )
    if abs(found.control_older_s) > found.covered_s:
        older, younger = ("control", "treatment") if found.control_older_s > 0 else ("treatment", "control")
        lines.append(
            f"The instances of {older} have run {show_seconds(abs(found.control_older_s))} longer than those of"
            f" {younger}. Where memory grows with age, this is part of the result: restart both groups together."
        )
    for name, blocks in found.blocks.items():
        sums = blocks.sum_without_ratio
        if any(sums):
            means = [show_value(name, total / blocks.without_ratio) for total in sums]
            count = blocks.without_ratio + len(blocks.times)
            lines.append(
                f"{visible(LABELS.get(name, name))}: {blocks.without_ratio} of {counted(count, 'block')}"
                f" {'has' if blocks.without_ratio == 1 else 'have'} no ratio, because a group's mean is 0"
                " or below. No claim covers them. Their means: control"
                f" {means[0]}, treatment {means[1]}."
            )
    control, treatment = found.restarts
    if control or treatment:
        lines.append(f"Restarts: {control} of control, {treatment} of treatment; the time after each does not count.")
    if found.down:
        lines.append(f"Down at the last reading: {', '.join(map(visible, found.down))}.")
    gap = found.last - found.began - found.covered_s
    if gap > 3 * found.header.every_s:
        lines.append(f"{show_seconds(gap)} without readings do not count.")
    if not found.header.proportional:
        lines.append("Memory is resident memory (RSS), because proportional memory may not be read here.")
    return lines


def as_json(found: CanaryState) -> dict[str, Any]:
    """The canary as `canary --json` writes it."""
    return {
        "control": found.header.control,
        "treatment": found.header.treatment,
        "samples": found.readings,
        "sampled_s": found.covered_s,
        "restarts": {"control": found.restarts[0], "treatment": found.restarts[1]},
        "one_instance": found.has_single_instance,
        "memory": "pss" if found.header.proportional else "rss",
        "claim": canary_sentence(found),
        "decided": any(result.verdict in CLAIMS for result in found.results.values()),
        "numbers": {
            name: {
                "verdict": r.verdict,
                "control": r.control,
                "treatment": r.treatment,
                "ratio": r.ratio,
                "low": r.low,
                "high": r.high,
                "blocks": r.blocks,
                "looks": r.looks,
                "drift": r.drift,
            }
            for name, r in found.results.items()
        },
    }


def show_canary(found: CanaryState, console: Console) -> None:
    """Print sentence, table and notes."""
    console.print(paragraph(canary_sentence(found), console.width, ""), markup=False, soft_wrap=True)
    table = Table(box=None, header_style="", pad_edge=False)
    for column in ("number", "control", "treatment", "change, interval", "verdict"):
        table.add_column(column, justify="left" if column in ("number", "verdict") else "right")
    for name, result in found.results.items():
        table.add_row(
            visible(LABELS.get(name, name)),
            show_value(name, result.control),
            show_value(name, result.treatment),
            show_change(result),
            result.verdict,
        )
    console.print(table)
    console.print(extent(found), markup=False)
    for line in notes(found):
        console.print(paragraph(line, console.width, ""), markup=False, soft_wrap=True)
