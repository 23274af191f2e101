"""Runs the searches of an experiment, one after another, each as a `heapwright tune` of its own.

Each search is a study in the experiment's folder. A finished study is not run again, and an unfinished one continues,
so an experiment that was killed goes on by the same command.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from heapwright.campaign.definition import Cell, Definition
from heapwright.errors import INTERRUPTED, HeapwrightError
from heapwright.experiment.phases import Phase
from heapwright.study.store import read_study


def words_of(cell: Cell, definition: Definition, base: Path, study: Path) -> list[str]:
    """Return the words of the `tune` command of a cell.

    Args:
        cell: the search.
        definition: the experiment.
        base: the folder of the definition.
        study: the study's file.
    """
    words = ["tune", "--study", str(study), "--method", cell.method, "--seed", str(cell.seed)]
    words += ["--budget", str(cell.budget), "--no-report", "--quiet"]
    words += ["--no-search-only" if definition.confirm else "--search-only"]
    for option, value in (
        ("--minimize", ",".join(definition.minimize)),
        ("--allocators", ",".join(definition.allocators)),
        ("--preset", definition.preset),
    ):
        words += [option, value] if value else []
    words += definition.options
    if cell.program.workload:
        return [*words, "--workload", str((base / cell.program.workload).resolve())]
    return [*words, "--", *cell.program.command]


def is_done(study: Path) -> bool:
    """Whether a study is finished."""
    if not study.is_file() or not study.stat().st_size:
        return False
    try:
        with read_study(study) as store:
            return store.meta.phase == Phase.DONE
    except HeapwrightError:
        return False  # `tune` reports the error


def run_cells(
    cells: Sequence[Cell], definition: Definition, base: Path, folder: Path, note: Callable[[str], None]
) -> None:
    """Run all searches that are not finished.

    Args:
        cells: the searches.
        definition: the experiment.
        base: the folder of the definition, in which commands run.
        folder: where the studies are.
        note: receives a line before each search.

    Raises:
        HeapwrightError: a search failed; the message is its own.
        KeyboardInterrupt: all completed runs are stored.
    """
    for number, cell in enumerate(cells, 1):
        study = (folder / cell.file).resolve()
        if is_done(study):
            continue
        note(f"{number} of {len(cells)}: {cell.program.name}, {cell.method}, seed {cell.seed}, budget {cell.budget}")
        words = [sys.executable, "-m", "heapwright.cli.main", *words_of(cell, definition, base, study)]
        done = subprocess.run(
            words, cwd=base, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            errors="replace", check=False,
        )  # fmt: skip
        if done.returncode == INTERRUPTED:
            raise KeyboardInterrupt
        if done.returncode:
            said = [line.removeprefix("heapwright: ") for line in done.stderr.splitlines() if line.strip()]
            why = said[-1] if said else f"exit status {done.returncode}"
            raise HeapwrightError(f"{cell.file}: {why}", status=done.returncode if done.returncode in (1, 2) else 1)
