"""Runs the searches of an experiment, each as a `heapwright tune` of its own; `cluster.searches` distributes them.

Each search is a study in the experiment's folder. A finished study is not run again, and an unfinished one continues,
so an experiment that was killed goes on by the same command.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from heapwright.errors import INTERRUPTED, HeapwrightError
from heapwright.experiment.definition import Definition, PlannedSearch
from heapwright.interleaving.phases import Phase
from heapwright.measure.host import describe_host, differences
from heapwright.study.store import read_study
from heapwright.workload.verb_process import start_verb, wait_for_verb


def tune_command(planned: PlannedSearch, definition: Definition, base: Path, study: Path) -> list[str]:
    """Return the words of the `tune` command of a search.

    Args:
        planned: the search.
        definition: the experiment.
        base: the folder of the definition.
        study: the study's file.
    """
    words = ["tune", "--study", str(study), "--method", planned.method, "--seed", str(planned.seed)]
    words += ["--budget", str(planned.budget), "--no-report", "--quiet"]
    words += ["--no-search-only" if definition.confirm else "--search-only"]
    for option, value in (
        ("--minimize", ",".join(definition.minimize)),
        ("--allocators", ",".join(definition.allocators)),
        ("--preset", definition.preset),
    ):
        words += [option, value] if value else []
    words += [*definition.options, *planned.program.options]
    if planned.program.traces:
        return [*words, "--trace", *(str((base / trace).resolve()) for trace in planned.program.traces)]
    if planned.program.workload:
        return [*words, "--workload", str((base / planned.program.workload).resolve())]
    return [*words, "--", *planned.program.command]


def is_done(study: Path) -> bool:
    """Whether a study is finished."""
    if not study.is_file() or not study.stat().st_size:
        return False
    try:
        with read_study(study) as store:
            return store.meta.phase == Phase.DONE
    except HeapwrightError:
        return False  # `tune` reports the error


def kind_of(planned_searches: Sequence[PlannedSearch], folder: Path) -> dict[str, Any] | None:
    """Return the description of the machines that made the searches so far; None if there are no runs.

    Args:
        planned_searches: the searches.
        folder: where the studies are.
    """
    for path in (folder / planned.file for planned in planned_searches):
        if not path.is_file() or not path.stat().st_size:
            continue
        try:
            with read_study(path) as store:
                if kind := store.meta.cluster.get("kind") or (store.meta.host if store.runs() else None):
                    return dict(kind)
        except HeapwrightError:  # `tune` reports the error
            continue
    return None


def start_search(
    planned: PlannedSearch,
    definition: Definition,
    base: Path,
    folder: Path,
    more: Sequence[str] = (),
    errors: IO[str] | None = None,
) -> subprocess.Popen[str]:
    """Start the `tune` of a search (`start_verb`).

    Args:
        planned: the search.
        definition: the experiment.
        base: the folder of the definition, in which commands run.
        folder: where the studies are.
        more: further options of `tune`.
        errors: receives its messages; None: they go to a pipe.

    Returns:
        Its process.
    """
    verb, *words = tune_command(planned, definition, base, (folder / planned.file).resolve())
    return start_verb([verb, *more, *words], cwd=base, stderr=errors or subprocess.PIPE)


def check_end(planned: PlannedSearch, status: int, said: str) -> None:
    """Check how the `tune` of a search ended.

    Args:
        planned: the search.
        status: its exit status.
        said: its messages.

    Raises:
        HeapwrightError: it failed; the message is its own.
        KeyboardInterrupt: it was interrupted.
    """
    if status in (INTERRUPTED, -signal.SIGINT):
        raise KeyboardInterrupt
    if status:
        lines = [line.removeprefix("heapwright: ") for line in said.splitlines() if line.strip()]
        why = lines[-1] if lines else f"exit status {status}"
        raise HeapwrightError(f"{planned.file}: {why}", status=status if status in (1, 2) else 1)


class Failures:
    """The searches that failed. The others go on, but not those of the same program and method, which would fail alike.

    Args:
        note: receives a line about each failure; None: the error at the end says the first.
    """

    def __init__(self, note: Callable[[str], None] | None) -> None:
        self._note = note
        self._found = list[HeapwrightError]()
        self._alike = set[tuple[str, str]]()
        self._left_out = 0

    def add(self, planned: PlannedSearch, error: HeapwrightError) -> None:
        """Take note of a failed search."""
        if self._note is not None:
            self._note(error.message)
        self._found.append(error)
        self._alike.add((planned.program.name, planned.method))

    def leaves_out(self, planned: PlannedSearch) -> bool:
        """Whether a search is left out because one of the same program and method failed. It is counted."""
        found = (planned.program.name, planned.method) in self._alike
        self._left_out += found
        return found

    def check(self) -> None:
        """Check that no search failed.

        Raises:
            HeapwrightError: some did; the message is that of the first, or their number if all were noted.
        """
        if not self._found:
            return
        first = self._found[0]
        count = len(self._found)
        message = f"{count} search{'es' * (count > 1)} failed"
        if self._note is None:
            message = f"{first.message}; {count - 1} more failed" if count > 1 else first.message
        left = f"; {self._left_out} of the same program and method were left out" if self._left_out else ""
        raise HeapwrightError(
            f"{message}{left}",
            first.hint or "the same command tries the failed searches again",
            status=first.status,
        )


def title_of(planned: PlannedSearch, number: int, count: int) -> str:
    """Return the line about the beginning of a search.

    Args:
        planned: the search.
        number: its number.
        count: the number of searches.
    """
    return (
        f"{number} of {count}: {planned.program.name}, {planned.method}, seed {planned.seed}, budget {planned.budget}"
    )


def run_searches(
    planned_searches: Sequence[PlannedSearch],
    definition: Definition,
    base: Path,
    folder: Path,
    note: Callable[[str], None] | None,
) -> None:
    """Run all searches that are not finished, one after another on this machine.

    Args:
        planned_searches: the searches.
        definition: the experiment.
        base: the folder of the definition, in which commands run.
        folder: where the studies are.
        note: receives a line before each search, and after one that failed; None: nothing is shown.

    Raises:
        HeapwrightError: searches failed (`Failures`), or others were made on another kind of machine.
        KeyboardInterrupt: all completed runs are stored.
    """
    todo = [
        (number, planned) for number, planned in enumerate(planned_searches, 1) if not is_done(folder / planned.file)
    ]
    kind = kind_of(planned_searches, folder) if todo else None
    if kind and (other := differences(kind, describe_host())):
        raise HeapwrightError(
            f"the searches so far were measured on machines of another kind ({other[0]})",
            "give the same --cluster, or another folder with -o",
        )
    failures = Failures(note)
    for number, planned in todo:
        if failures.leaves_out(planned):
            continue
        if note is not None:
            note(title_of(planned, number, len(planned_searches)))
        with start_search(planned, definition, base, folder) as process:
            said = wait_for_verb(process)
        try:
            check_end(planned, process.returncode, said)
        except HeapwrightError as error:
            failures.add(planned, error)
    failures.check()
