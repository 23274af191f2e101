"""Writes the results of an experiment: tables as Markdown, CSV and LaTeX, and a page with pictures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heapwright.experiment.analysis import (
    Analysis,
    QualityCurve,
    bands,
    default_quality,
    evaluations_to,
    median_evaluations,
)
from heapwright.files import write_whole
from heapwright.metrics import METRICS
from heapwright.report.drawing import ALLOCATORS, figure_of, picture
from heapwright.report.page import render_page, save_page
from heapwright.report.tables import csv_table, latex_table, markdown_table
from heapwright.study.export import study_csv
from heapwright.terminal_text import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Table = list[list[str]]
_TEXT = ("program", "runs", "method", "against", "effect")  # columns of text; the others have numbers
_SENTENCES = ("claim",)
_GREY = "#808080"
_NOTE = (
    "Qualities come from the single runs of the searches. Luck selects the best of them, so they are optimistic for"
    " every method alike, and prove no gain over the default."
)


def note_of(analysis: Analysis) -> str:
    """Return the sentences on the limits of the results."""
    return " ".join(filter(None, [_NOTE, _predicted(analysis)]))


def _predicted(analysis: Analysis) -> str:
    """Return the sentence on programs of which there are only recordings; empty if there are none."""
    names = analysis.predicted
    if not names:
        return ""
    which = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    return f"Results on {which} are predicted by replays of recordings, not proven on the program."


def quality_name(analysis: Analysis) -> str:
    """Return the name of the quality: 'best ratio of CPU time (smaller is better)'."""
    labels = " and ".join(METRICS[m].label for m in analysis.objectives)
    if analysis.larger_is_better:
        of_default = default_quality(analysis.objectives)
        return f"hypervolume of {labels} (larger is better; the default alone has {of_default:.6g})"
    return f"best ratio of {labels} to the default (smaller is better)"


def summary_table(analysis: Analysis) -> Table:
    """Return the quality at the end, by program, budget and method."""
    rows = [["program", "runs", "budget", "method", "searches", "median", "quartiles", "infeasible"]]
    for program, budget, method, curves in _groups(analysis):
        low, middle, high = (f"{v:.5f}" for v in bands(curves)[:, -1])
        first = [program, runs_of(analysis, program), str(budget), method, str(len(curves))]
        rows.append([*first, middle, f"{low} to {high}", f"{_infeasible(curves):.0%}"])
    return rows


def targets_table(analysis: Analysis) -> Table:
    """Return the searches that reached each target, and the evaluations to it; no rows if there are no targets."""
    targets = analysis.definition.targets
    rows = [
        ["program", "budget", "method", *(f"{t:g}: {what}" for t in targets for what in ("reached", "evaluations"))]
    ]
    for program, budget, method, curves in _groups(analysis) if targets else ():
        row = [program, str(budget), method]
        for target in targets:
            middle = median_evaluations(curves, target, analysis.larger_is_better)
            row += [
                f"{_reached(analysis, curves, target)} of {len(curves)}",
                "n/a" if middle is None else f"{middle:g}",
            ]
        rows.append(row)
    return rows


def summary_csv(analysis: Analysis) -> str:
    """Return both tables as numbers: one line for each program, budget and method."""
    targets = analysis.definition.targets
    head = ["program", "runs", "budget", "method", "searches", "median", "q1", "q3", "infeasible_share"]
    rows = [[*head, *(f"{what}_{t:g}" for t in targets for what in ("reached", "median_evaluations"))]]
    for program, budget, method, curves in _groups(analysis):
        low, middle, high = (repr(float(v)) for v in bands(curves)[:, -1])
        row = [program, runs_of(analysis, program), str(budget), method, str(len(curves)), middle, low, high]
        row.append(repr(_infeasible(curves)))
        for target in targets:
            half = median_evaluations(curves, target, analysis.larger_is_better)
            row += [str(_reached(analysis, curves, target)), "" if half is None else f"{half:g}"]
        rows.append(row)
    return csv_table(rows)


def _groups(analysis: Analysis) -> Iterator[tuple[str, int, str, list[QualityCurve]]]:
    for program, budget in analysis.groups():
        for method in analysis.definition.methods:
            if curves := analysis.select(program, budget, method):
                yield program, budget, method, curves


def _infeasible(curves: Sequence[QualityCurve]) -> float:
    """Return the share of the configurations that were infeasible."""
    return sum(c.infeasible for c in curves) / max(1, sum(c.evaluations for c in curves))


def _reached(analysis: Analysis, curves: Sequence[QualityCurve], target: float) -> int:
    return sum(evaluations_to(c, target, analysis.larger_is_better) is not None for c in curves)


def runs_of(analysis: Analysis, program: str) -> str:
    """Return the kind of a program's runs: 'program' or 'replays'."""
    return "replays" if program in analysis.predicted else "program"


def searches_csv(analysis: Analysis) -> str:
    """Return a line for each finished search; a search without a cluster names no machines."""
    rows = [
        ["study", "program", "runs", "budget", "method", "seed", "evaluations", "infeasible", "quality", "machines"]
    ]
    for c in analysis.curves:
        name, budget, seed = c.planned.program.name, str(c.planned.budget), str(c.planned.seed)
        counts = [str(c.evaluations), str(c.infeasible), repr(c.final)]
        study = c.planned.file.removesuffix(".study")
        rows.append(
            [study, name, runs_of(analysis, name), budget, c.planned.method, seed, *counts, " ".join(c.machines)]
        )
    return csv_table(rows)


def tests_table(analysis: Analysis) -> Table:
    """Return the tests of each method against the reference."""
    rows = [["program", "budget", "method", "against", "p", "p (Holm)", "A12", "effect"]]
    for c in analysis.comparisons:
        numbers = [f"{c.p:.2g}", f"{c.adjusted:.2g}", f"{c.a12:.2f}"]
        rows.append([c.program, str(c.budget), c.method, c.reference, *numbers, c.size])
    return rows


def tests_csv(analysis: Analysis) -> str:
    """Return the tests as numbers."""
    rows = [["program", "budget", "method", "against", "p", "p_holm", "a12", "effect"]]
    for c in analysis.comparisons:
        numbers = [repr(c.p), repr(c.adjusted), repr(c.a12)]
        rows.append([c.program, str(c.budget), c.method, c.reference, *numbers, c.size])
    return csv_table(rows)


def claims_table(analysis: Analysis) -> Table:
    """Return the claim of each search; no rows unless the experiment confirms its searches."""
    rows = [["program", "budget", "method", "seed", "claim"]]
    for planned in [c.planned for c in analysis.curves] if analysis.definition.confirm else ():
        claim = analysis.searches[planned.file].claim
        rows.append([planned.program.name, str(planned.budget), planned.method, str(planned.seed), claim])
    return rows


def set_up(analysis: Analysis) -> list[str]:
    """Return sentences on the versions, machines and allocators of the searches."""
    found = list(analysis.searches.values())
    begun = sorted(s.created for s in found)
    versions = ", ".join(dict.fromkeys(s.version for s in found))
    machines = dict.fromkeys(
        f"{h.get('cpu')}, {h.get('cores')} cores, {h.get('os')}, Linux {h.get('kernel')}, {h.get('libc')},"
        f" transparent huge pages {h.get('thp') or 'n/a'}"
        for h in (s.host for s in found)
    )
    allocators = dict.fromkeys(name for s in found for name in s.allocators)
    return [
        f"heapwright {versions}; searches begun from {begun[0]} to {begun[-1]}.",
        *(f"Machine: {machine}." for machine in machines),
        f"Allocators: {', '.join(allocators)}.",
        *_ended_early(analysis),
        *_not_repeated(analysis),
        *_without_ratio(analysis),
        *filter(None, [without_gain(analysis)]),
        *([f"Not finished: it lacks {counted(analysis.missing, 'search', 'searches')}."] if analysis.missing else []),
    ]


def _first(names: Sequence[str]) -> str:
    """Return the first six of some names as a text, with the number of the others."""
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _ended_early(analysis: Analysis) -> list[str]:
    short = [c for c in analysis.curves if c.is_short]
    if not short:
        return []
    each = _first([f"{c.planned.file.removesuffix('.study')} ({c.evaluations} of {c.planned.budget})" for c in short])
    return [f"Ended before their budget, with nothing more to propose; they keep their last quality: {each}."]


def _not_repeated(analysis: Analysis) -> list[str]:
    found = [
        f"{file.removesuffix('.study')} ({s.not_repeated})" for file, s in analysis.searches.items() if s.not_repeated
    ]
    if not found:
        return []
    return [
        "With configurations that the method proposed before an interruption and did not propose again; they count for"
        f" the budget: {_first(found)}."
    ]


def _without_ratio(analysis: Analysis) -> list[str]:
    found = [f"{c.planned.file.removesuffix('.study')} ({c.without_ratio})" for c in analysis.curves if c.without_ratio]
    if not found:
        return []
    return [
        "With configurations that have no ratio of an objective, because it was not measured or is 0 in only one run of"
        f" a pair; they do not count for the quality: {_first(found)}."
    ]


def without_gain(analysis: Analysis) -> str:
    """Return the sentence on programs without any gain, on which methods cannot differ; empty if there are none."""
    names = analysis.without_gain
    if not names:
        return ""
    return f"No search found a configuration better than the default, so methods cannot differ: {_first(names)}."


def ranks_table(analysis: Analysis) -> Table:
    """Return the average ranks, best first."""
    ranks = sorted(analysis.ranks.average.items(), key=lambda item: item[1])
    return [["method", "average rank"], *([method, f"{rank:.2f}"] for method, rank in ranks)]


def ranks_text(analysis: Analysis) -> str:
    """Return the ranks' result in words."""
    ranks = analysis.ranks
    if not ranks.average:
        return "No program and budget has finished searches of two or more methods."
    at = ", each at its largest budget" if len(analysis.definition.budgets) > 1 else ""
    text = f"Ranks over {counted(ranks.programs, 'program')}{at}; 1 is the best."
    if ranks.friedman_p is not None:
        text += f" Friedman's test: p = {ranks.friedman_p:.2g}."
    if ranks.difference is None:
        return text + " One program has no critical difference."
    return text + f" Methods whose ranks differ by less than {ranks.difference:.2f} (Nemenyi, 5%) are not told apart."


def convergence_csv(analysis: Analysis) -> str:
    """Return the quality of each search after each evaluation."""
    rows = [["program", "budget", "method", "seed", "evaluation", "quality"]]
    for c in analysis.curves:
        start = [c.planned.program.name, str(c.planned.budget), c.planned.method, str(c.planned.seed)]
        rows += [[*start, str(n), repr(v)] for n, v in enumerate(c.values, 1)]
    return csv_table(rows)


def write_results(analysis: Analysis, folder: Path, reproduce: str, file: Path) -> list[Path]:
    """Write all tables and the page into a folder; return the files.

    Args:
        analysis: the results.
        folder: where to write.
        reproduce: the command that makes them.
        file: the definition, which is copied into the results.
    """
    tables = {
        "summary": summary_table(analysis), "targets": targets_table(analysis), "tests": tests_table(analysis),
        "ranks": ranks_table(analysis), "claims": claims_table(analysis),
    }  # fmt: skip
    tables = {name: rows for name, rows in tables.items() if len(rows) > 1}
    captions = {
        "summary": " ".join(filter(None, [f"Quality at the end: {quality_name(analysis)}.", _predicted(analysis)])),
        "targets": "Searches that reached each target, and the median of the evaluations to it over all searches;"
        " n/a: half of them or more did not reach it.",
        "tests": f"Mann-Whitney tests against {analysis.definition.against}, two-sided, exact up to eight searches"
        " each, else the normal approximation; Holm-adjusted over all rows. A12 above 0.5: better than the reference.",
        "ranks": ranks_text(analysis),
        "claims": "The claim of each search after its confirmation.",
    }
    definition = file.read_text(encoding="utf-8", errors="replace")
    about = set_up(analysis)
    text = [f"    {reproduce}", "", f"Quality: {quality_name(analysis)}. {note_of(analysis)}", ""]
    text += [*(f"- {line}" for line in about), ""]
    for name, rows in tables.items():
        text += [f"**{captions[name]}**", "", *markdown_table(rows), ""]
    text += ["**The definition.**", "", "````toml", *definition.splitlines(), "````", ""]
    label = re.sub(r"[^A-Za-z0-9-]+", "-", file.stem)
    latex = [f"% {line}" for line in (reproduce, *about)]
    latex += [
        latex_table(rows, captions[name], f"tab:{label}-{name}", _TEXT, _SENTENCES) for name, rows in tables.items()
    ]
    runs = {name.removesuffix(".study"): search.runs for name, search in analysis.searches.items()}
    written = {
        "results.md": "\n".join(text),
        "results.tex": "\n".join(latex),
        "summary.csv": summary_csv(analysis),
        "tests.csv": tests_csv(analysis),
        "ranks.csv": csv_table(ranks_table(analysis)),
        "convergence.csv": convergence_csv(analysis),
        "searches.csv": searches_csv(analysis),
        "runs.csv": study_csv(runs, named=True),
    }
    for name, content in written.items():
        write_whole(folder / name, content)
    save_page(render(analysis, tables, captions, reproduce, definition), folder / "report.html", "report")
    return [folder / name for name in [*written, "report.html"]]


def render(
    analysis: Analysis, tables: dict[str, Table], captions: dict[str, str], reproduce: str, definition: str
) -> str:
    """Return the page as text.

    Args:
        analysis: the results.
        tables: by name.
        captions: of the tables.
        reproduce: the command that makes them.
        definition: the text of the experiment's file.
    """
    from markupsafe import Markup

    curves = [
        {
            "title": f"{program}, {counted(budget, 'evaluation')}",
            # drawing.picture made the picture and escaped all text, so it is marked as safe.
            "svg": Markup(
                picture(
                    lambda narrow, p=program, b=budget: _draw_curves(analysis, p, b, narrow),  # type: ignore[misc]
                    "experiment", f"curve{number}", f"{program}, {counted(budget, 'evaluation')}",
                    f"{quality_name(analysis)} over evaluations: median and quartiles of the searches of each method.",
                )
            ),
        }
        for number, (program, budget) in enumerate(analysis.groups())
    ]  # fmt: skip
    ranks = ""
    if analysis.ranks.average:
        ranks = picture(
            lambda narrow: _draw_ranks(analysis, narrow), "experiment", "ranks", "Average ranks", ranks_text(analysis)
        )
    return render_page(
        "experiment.html.j2",
        reproduce=reproduce,
        note=note_of(analysis),
        quality=quality_name(analysis),
        about=set_up(analysis),
        definition=definition,
        curves=curves,
        ranks=Markup(ranks),
        tables=[{"name": name, "caption": captions[name], "rows": rows} for name, rows in tables.items()],
    )


def _draw_curves(analysis: Analysis, program: str, budget: int, narrow: bool) -> tuple[Figure, dict[str, str]]:
    figure, (axes,) = figure_of(narrow, 3.4)
    for number, method in enumerate(analysis.definition.methods):
        found = analysis.select(program, budget, method)
        if not found:
            continue
        low, middle, high = ([*band, band[-1]] for band in bands(found))  # else the last one is not seen
        x, colour = range(1, budget + 2), ALLOCATORS[number % len(ALLOCATORS)]
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0, step="post")
        style = ("-", "--", ":")[number // len(ALLOCATORS) % 3]
        axes.step(x, middle, color=colour, linewidth=1.6, where="post", label=method, linestyle=style)
    axes.set_xlabel("evaluations")
    axes.set_title(quality_name(analysis).partition(" (")[0] if not narrow else "quality", loc="left")
    axes.set_xlim(1, budget + 1)
    figure.legend(loc="outside upper left", ncols=2 if narrow else 6)
    return figure, {}


def _draw_ranks(analysis: Analysis, narrow: bool) -> tuple[Figure, dict[str, str]]:
    """Draw a critical-difference diagram (Demsar 2006): bars join methods that are not told apart."""
    ranks = sorted(analysis.ranks.average.items(), key=lambda item: item[1])
    groups = joined([rank for _, rank in ranks], analysis.ranks.difference)
    difference = analysis.ranks.difference
    figure, (axes,) = figure_of(narrow, 1.5 + 0.28 * (len(ranks) + len(groups)))
    for row, (method, rank) in enumerate(ranks):
        axes.plot([rank], [row], "o", color=ALLOCATORS[analysis.definition.methods.index(method) % len(ALLOCATORS)])
        axes.annotate(f" {method} ({rank:.2f})", (rank, row), textcoords="offset points", xytext=(5, -3))
    for row, (first, last) in enumerate(groups, len(ranks)):
        axes.plot([ranks[first][1] - 0.03, ranks[last][1] + 0.03], [row, row], color=_GREY, linewidth=3)
    if difference is not None:  # its length, as a ruler
        end = 1 + difference
        axes.plot([1, end], [-1, -1], "|-", color=_GREY, linewidth=1.6)
        text = f" critical difference {difference:.2f}"
        axes.annotate(text, (end, -1), textcoords="offset points", xytext=(5, -3))
    axes.set_yticks([])
    axes.set_ylim(len(ranks) + len(groups) - 0.5, -1.8)
    axes.set_xlim(0.8, max(len(ranks), 1 + (difference or 0)) + 1.2)
    axes.set_xlabel("average rank (1 is the best)")
    return figure, {}


def joined(ranks: Sequence[float], difference: float | None) -> list[tuple[int, int]]:
    """Return the longest runs of sorted ranks that differ by less than the critical difference, as (first, last)."""
    if difference is None:
        return []
    found: list[tuple[int, int]] = []
    for first in range(len(ranks)):
        last = max(i for i in range(first, len(ranks)) if ranks[i] - ranks[first] < difference)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found
