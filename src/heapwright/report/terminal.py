"""Prints the results of `measure` and `tune` as tables of at most 80 columns, without colour off a terminal."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from heapwright.allocators.huge_pages import with_library
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.stats import Summary
from heapwright.metrics import METRICS, NUMERIC, show_seconds
from heapwright.report.recordings import recordings_lines
from heapwright.study.choose import chosen_pick
from heapwright.study.claim import configuration_name, recommended_pick
from heapwright.study.view import MET, Confirmation, Evaluation, Pick, RequirementResult, StudyView
from heapwright.terminal_text import counted, visible
from heapwright.units import percent, percent_interval

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_MAX_WIDTH = 100  # columns of a paragraph on wider terminals
_STYLES = {"better": "green", "worse": "red", "same": "", "unproven": "yellow"}


def interval(c: Confirmation) -> str:
    """Return the confidence interval in per cent: '[−18.4, −15.9]'."""
    return percent_interval(c.low, c.high)


def ordered_picks(view: StudyView) -> list[tuple[str, Pick]]:
    """Return the distinct picks with their labels, the pick of the claim first."""
    best = recommended_pick(view.picks, view.objectives)
    return sorted(
        view.distinct_picks(),
        key=lambda labelled: best is None or labelled[1].config.id != best.config.id,
    )


def paragraph(text: str, width: int, indent: str = "", whole: str = r"\[[^\[\]]{1,40}\]|\S+ [=<] \S+") -> str:
    """Wrap a text at spaces.

    Args:
        text: the paragraph; its white space is normalised.
        width: columns of the terminal.
        indent: put before every line but the first.
        whole: pattern of parts that stay on one line: intervals in brackets, and 'p = 0.008'.
    """
    glue = "\ue000"  # a private-use character in place of each space that must not break
    glued = re.sub(whole, lambda m: m[0].replace(" ", glue), " ".join(text.split()))
    lines = textwrap.wrap(
        glued,
        min(width, _MAX_WIDTH),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(glue, " ")


def _table(*headings: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def measure_table(runs: Sequence[Mapping[str, Any]], summary: Mapping[str, Summary], console: Console) -> None:
    """Print the result of `measure`: one row for each metric.

    Args:
        runs: the metrics of each run; with more than one the table shows median, range and MAD.
        summary: metric key → statistics over the runs; a metric without one is shown as n/a, or left out if only a
            server's load could have measured it.
        console: where to print.
    """
    several = len(runs) > 1
    table = _table("metric", "median" if several else "value", *(["min … max", "MAD"] if several else []))
    for column in table.columns[1:]:
        column.justify = "right"
    for key in NUMERIC:
        metric, found = METRICS[key], summary.get(key)
        if found is None:
            if not metric.of_load:
                table.add_row(metric.label, "n/a")
        elif several:
            spread = f"{metric.show(found.min)} … {metric.show(found.max)}"
            table.add_row(metric.label, metric.show(found.median), spread, metric.show(found.mad))
        else:
            table.add_row(metric.label, metric.show(found.median))
    console.print(table)


def print_summary(view: StudyView, console: Console) -> None:
    """Print the end of `tune`: claim, confirmed picks, lines to paste, hazards and warnings.

    Args:
        view: the study.
        console: where to print.
    """

    summary = _SummaryPrinter(view, console)
    summary.print_claim()
    summary.print_picks()
    summary.print_usual_advice()
    console.print()
    summary.print_paste()
    summary.print_remarks()
    summary.print_search()
    console.print(visible(f"study:  {view.path}"), markup=False, soft_wrap=True)


class _SummaryPrinter:
    """Prints the parts of the end of `tune`.

    Args:
        view: the study.
        console: where to print.
    """

    def __init__(self, view: StudyView, console: Console) -> None:
        self._view = view
        self._console = console

    def _say(self, text: str, style: str | None = None, indent: str = "") -> None:
        wrapped = visible(paragraph(text, self._console.width, indent), "\n")
        self._console.print(wrapped, style=style, markup=False, soft_wrap=True)

    def print_claim(self) -> None:
        """Print the program's runtime and memory manager, and the claim."""
        view = self._view
        self._console.print()
        for extra in view.runtimes.values():
            self._say(extra["sentence"])
        if view.managed and view.managed["sentence"] != view.claim:
            self._say(view.managed["sentence"])
        self._say(view.claim, "bold")

    def print_picks(self) -> None:
        """Print the confirmation of the picks and their requirements; without a confirmation, their claims."""
        if not self._view.picks:
            return
        self._console.print()
        picks = ordered_picks(self._view)
        if self._view.options.get("search_only") and not any(pick.confirmed for _, pick in picks):
            for label, pick in picks:
                self._say(f"{label} pick, {configuration_name(pick.config)}: {pick.claim}", indent="  ")
        else:
            rows = [(label, pick.confirmed) for label, pick in picks]
            self._console.print(_confirmation(self._view, rows, "pick"))
        for label, pick in picks:
            if pick.requirements:
                self._console.print()
                if len(picks) > 1:
                    self._say(f"{label} pick:")
                self._console.print(requirements_table(pick.requirements))

    def print_usual_advice(self) -> None:
        """Print the confirmation of the usual advice, if it was measured."""
        usual = [(name, row.confirmed) for name, row in self._view.references.items() if row.confirmed]
        if usual:
            self._console.print()
            self._say("The usual advice, measured in the same blocks:")
            self._console.print(_confirmation(self._view, usual, "advice"))

    def print_paste(self) -> None:
        """Print the lines that set the pick of the claim in a shell, and what its settings do."""
        view = self._view
        pick = chosen_pick(view, None) if view.phase == Phase.DONE else None
        if pick is None:
            return
        self._console.print("paste:", style="bold")
        for key, value in with_library(pick.config.env, "image_platform" in view.host).items():
            self._console.print(visible(f"  export {key}={shlex.quote(value)}"), markup=False, soft_wrap=True)
        for key in pick.config.settings:
            self._say(f"{key}: {view.explain(pick.config, key)}", indent="  ")

    def print_remarks(self) -> None:
        """Print the bound of the saving, the recording, the reason for the objectives, the hazards and the warnings."""
        view = self._view
        if view.matters and view.matters.sentence:
            self._say(view.matters.sentence, indent="  ")
        for text in recordings_lines(view):
            self._say(text, indent="  ")
        if view.objectives_why:
            self._say(view.objectives_why, indent="  ")
        for text in view.hazards:
            self._say(f"hazard: {text}", "yellow", "  ")
        for text in view.warnings:
            self._say(f"warning: {text}", "yellow", "  ")

    def print_search(self) -> None:
        """Print the number of configurations, the failures, the Pareto front and the time of each stage."""
        view = self._view
        count = counted(len(view.evaluations), "configuration")
        self._say(f"{count} searched {how_searched(view)}; meter: {view.meter}")
        for text in search_failures(view):
            self._say(text, indent="  ")
        if view.quality:
            self._say(f"{front_name(view)}: {front_text(view)}", indent="  ")
        if view.stages:
            self._say(f"time: {stages_text(view)}", indent="  ")


def requirements_table(results: Sequence[RequirementResult]) -> Table:
    """Return a table of requirements: metric, bound, measured interval, and whether each is met."""
    table = _table("requirement", "bound", "measured, 95% interval", "")
    for r in results:
        table.add_row(METRICS[r.metric].short, r.bound, r.shown, MET[r.state])
    return table


def search_failures(view: StudyView) -> list[str]:
    """Return one line for each reason of failure in the search: how many configurations of which allocators."""
    groups: dict[str, list[Evaluation]] = {}
    for evaluation in view.evaluations:
        if not evaluation.feasible:
            groups.setdefault(evaluation.reason.partition(": ")[0], []).append(evaluation)
    lines = []
    for reason, failed in sorted(groups.items(), key=lambda item: -len(item[1])):
        count = counted(len(failed), "configuration")
        allocators = ", ".join(dict.fromkeys(e.config.allocator for e in failed))
        example = next((e.reason for e in failed if ": " in e.reason), "").partition(": ")[2]
        lines.append(f"failed: {count} of {allocators}: {reason}{f' ({example})' if example else ''}")
    return lines


def stages_text(view: StudyView) -> str:
    """Return the runs and time of each stage: 'calibrate 6 runs, 12.0 s; search 40 runs, 1.5 min'."""
    return "; ".join(
        f"{stage.name} {counted(stage.runs, 'run')}, {show_seconds(stage.wall_s)}" for stage in view.stages
    )


def how_searched(view: StudyView) -> str:
    """Return the search method: 'by gp (a budget of 96 evaluations is small …), warm-started with 6 configurations'."""
    warm = f", warm-started with {counted(view.warm, 'configuration')}" if view.warm else ""
    return f"by {view.method}{f' ({view.method_why})' if view.method_why else ''}{warm}"


def front_name(view: StudyView) -> str:
    """Return the name of the front that `front_text` describes; the front of the search is that of single runs."""
    again = view.quality is not None and view.quality.repeated
    return f"Pareto front of the {'candidates measured again' if again else 'search'}"


def front_text(view: StudyView) -> str:
    """Return the size and the spans of the Pareto front; empty before the search."""
    q = view.quality
    if q is None:
        return ""
    spans = ", ".join(f"{100 * span:.1f}% of {METRICS[key].label}" for key, span in q.spans.items())
    members = f"{q.size} {'member' if q.size == 1 else 'members'}"
    return f"{members}, spanning {spans}" if q.size > 1 else members


def quality_text(view: StudyView) -> str:
    """Return size, spans, trade-off and hypervolume of the Pareto front; empty before the search."""
    q = view.quality
    if q is None:
        return ""
    basis = "from repeated runs" if q.repeated else "from single runs of the search, so optimistic"
    slope = ""
    if q.slope is not None:
        first, second = (METRICS[k].label for k in view.objectives)
        slope = f"; each 1% less {first} costs {-q.slope:.2g}% more {second}"
    return (
        f"{front_text(view)}{slope}; hypervolume {q.hypervolume:.4f}, reference point {q.reference:g} times the default"
        f" (the default alone has {q.default_hypervolume:.4g}); {basis}"
    )


def _confirmation(view: StudyView, rows: Sequence[tuple[str, Mapping[str, Confirmation]]], what: str) -> Table:
    """Return a table of confirmed results: for each row and objective the medians, change, interval and verdict.

    Args:
        view: the study; its objectives are the lines of each row.
        rows: label and confirmations by metric.
        what: the heading of the labels, 'pick' or 'advice'. Labels of advice are long, so that table has no column
            for the default's median.
    """
    from rich.text import Text

    medians = [f"with {what}"] if what == "advice" else ["default", f"with {what}"]
    table = _table(what, "metric", *medians, "change", "95% interval", "verdict")
    for column in table.columns[2:-1]:  # if the table is too wide, labels and verdicts wrap, the longest first
        column.no_wrap = True
        column.justify = "right"
    table.columns[0].no_wrap = what == "advice"  # a variable, which cannot wrap at a space
    for name, confirmed in rows:
        found = [(key, confirmed[key]) for key in view.objectives if key in confirmed]
        # Of several names each has a line of its own, where a wrapped label would add lines.
        names = name.split(" and ") if what == "pick" else [name]
        if len(names) > len(found) > 0:
            names[len(found) - 1 :] = [" and ".join(names[len(found) - 1 :])]
        labels = iter([*(f"{one} and" for one in names[:-1]), *names[-1:]])
        for key, c in found:
            metric, style = METRICS[key], _STYLES[c.verdict]
            verdict = Text(c.verdict_text, style)
            values = [metric.show(c.default_median), metric.show(c.pick_median)][-len(medians) :]
            table.add_row(next(labels, ""), metric.short, *values, percent(c.ratio), interval(c), verdict)
    return table
