#!/usr/bin/env python3
"""Prints the tables of docs/results/search-methods.md from the searches of an experiment.

    .venv/bin/python tools/methods_table.py examples/search-methods.toml out/search-methods

For each budget a row for each method: its average rank, and for each program the median quality with A12 against the
reference, and a star if the Mann-Whitney test says so (p < 0.05, Holm-adjusted over the table). Then the method that
`auto` takes is compared with each other one in the same way: A12 above 0.5 is in favour of the choice of `auto`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from heapwright.experiment.analysis import Analysis, a12, analyse, rank_sum_p, read_search
from heapwright.experiment.definition import expand_searches, load_definition
from heapwright.experiment.run import is_done
from heapwright.interleaving.stats import ALPHA, holm
from heapwright.report.experiment import quality_name, ranks_text
from heapwright.report.tables import markdown_table
from heapwright.search.auto import CMAES_FROM, GP_UP_TO


def choice(budget: int, objectives: int) -> str:
    """Return the method that `auto` takes in a space of more than two settings."""
    if budget <= GP_UP_TO:
        return "gp"
    return "cmaes" if objectives == 1 and budget >= CMAES_FROM else "nsga2"


def finals(found: Analysis, program: str, budget: int, method: str) -> list[float]:
    """Return the final qualities of the searches of a method, larger is better.

    Args:
        found: the analysis.
        program: name of the program.
        budget: of the searches.
        method: name of the method.
    """
    sign = 1 if found.larger_is_better else -1
    return [sign * curve.final for curve in found.select(program, budget, method)]


def tests(
    found: Analysis, budget: int, pairs: Sequence[tuple[str, str]], programs: Sequence[str]
) -> dict[tuple[str, str, str], str]:
    """Return (program, ours, theirs) → A12 with a star if the difference is significant, Holm-adjusted over all.

    Args:
        found: the analysis.
        budget: of the searches.
        pairs: methods to compare: ours and theirs.
        programs: their names.
    """
    effects, values = {}, []
    for ours, theirs in pairs:
        for program in programs:
            mine, other = finals(found, program, budget, ours), finals(found, program, budget, theirs)
            effects[program, ours, theirs] = a12(mine, other)
            values.append(rank_sum_p(mine, other))
    adjusted = holm(values)
    return {key: f"{e:.2f}{'*' if p < ALPHA else ''}" for (key, e), p in zip(effects.items(), adjusted, strict=True)}


def show(found: Analysis, budget: int) -> str:
    """Return the tables of a budget as Markdown."""
    methods = found.definition.methods
    against, chosen = found.definition.against, choice(budget, len(found.objectives))
    programs = [p.name for p in found.definition.program]
    baseline = tests(found, budget, [(m, against) for m in methods if m != against], programs)
    rows = [["method", "average rank", *programs]]
    sign = 1 if found.larger_is_better else -1
    for method in sorted(methods, key=lambda m: found.ranks.average.get(m, 0)):
        row = [f"`{method}`", f"{found.ranks.average.get(method, 0):.2f}"]
        for program in programs:
            values = sorted(finals(found, program, budget, method))
            median = sign * (values[len(values) // 2] + values[(len(values) - 1) // 2]) / 2
            row.append(f"{median:.4f}" + ("" if method == against else f" ({baseline[program, method, against]})"))
        rows.append(row)
    others = [m for m in methods if m != chosen]
    direct = tests(found, budget, [(chosen, m) for m in others], programs)
    second = [
        [f"`{chosen}` against", *programs],
        *([f"`{m}`", *(direct[p, chosen, m] for p in programs)] for m in others),
    ]
    searches = min(len(found.select(p, budget, m)) for p in programs for m in methods)
    head = f"**{budget} evaluations, {searches} searches each: {quality_name(found)}.** {ranks_text(found)}"
    return "\n".join([head, "", *markdown_table(rows), "", *markdown_table(second), ""])


def main() -> None:
    """Print the tables of each budget."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("file", type=Path, help="the definition of the experiment")
    parser.add_argument("folder", type=Path, help="the folder of its studies")
    args = parser.parse_args()
    definition = load_definition(args.file)
    for budget in definition.budgets:
        part = msgspec.structs.replace(definition, budgets=[budget])
        planned_searches = expand_searches(part)
        files = [planned.file for planned in planned_searches]
        done = {name: read_search(args.folder / name) for name in files if is_done(args.folder / name)}
        sys.stdout.write(show(analyse(part, planned_searches, done), budget) + "\n")


if __name__ == "__main__":
    main()
