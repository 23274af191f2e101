"""A study as an object: claim, picks, evaluations and runs."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from heapwright.allocators.huge_pages import with_library
from heapwright.api.results import Pick
from heapwright.errors import HeapwrightError
from heapwright.interleaving.stats import Ratio

if TYPE_CHECKING:
    import pandas as pd

    from heapwright.study.export import EvaluationRun
    from heapwright.study.view import Evaluation, PickName, StudyView

_TEXTS = ("stage", "input", "machine", "allocator", "failure")  # columns of text


class Study:
    """A study, finished or not. Each property reads a snapshot that was made when the study was opened.

    Args:
        path: the study's file.

    Attributes:
        path: the study's file.
        view: all data that a report shows (`heapwright.study.view`). Its fields may change between versions.
    """

    def __init__(self, path: Path) -> None:
        from heapwright.study.export import evaluation_runs
        from heapwright.study.load import view_of
        from heapwright.study.store import read_study, study_errors

        self.path = path
        with read_study(path) as store, study_errors(path):
            self.view: StudyView = view_of(store)
            self._runs = evaluation_runs(store)

    def __repr__(self) -> str:
        return f"Study({str(self.path)!r}, {len(self.view.evaluations)} evaluations, phase {self.view.phase!r})"

    @property
    def claim(self) -> str:
        """The study's claim in one sentence."""
        return self.view.claim

    @property
    def proven(self) -> bool:
        """Whether a gain is proven by fresh pairs of the program."""
        from heapwright.study.choose import gain_is_proven

        return gain_is_proven(self.view)

    @property
    def objectives(self) -> list[str]:
        """The keys of the metrics that are minimised."""
        return list(self.view.objectives)

    @property
    def picks(self) -> dict[PickName, Pick]:
        """The recommended settings, by name: memory, time and balanced. A name may be missing."""
        return {
            name: Pick(
                pick.config.allocator,
                dict(pick.config.settings),
                with_library(pick.config.env, "image_platform" in self.view.host),
                pick.claim,
                dict(pick.searched.ratios),
                {m: Ratio(c.ratio, c.low, c.high) for m, c in pick.confirmed.items()},
                {m: c.program_verdict for m, c in pick.confirmed.items()},
            )
            for name, pick in self.view.picks.items()
        }

    def evaluations(self) -> list[Evaluation]:
        """Return the configurations of the search, in the order of first evaluation, without the default."""
        return list(self.view.evaluations)

    def front(self) -> list[Evaluation]:
        """Return the Pareto front of the search. Its members are selected by single runs, so they are optimistic."""
        return [e for e in self.view.evaluations if e.on_front]

    def runs(self) -> list[EvaluationRun]:
        """Return every run of every stage, in order, the default's included."""
        return list(self._runs)

    def to_csv(self) -> str:
        """Return every run as CSV, as `heapwright report --csv` writes it."""
        from heapwright.study.export import study_csv

        return study_csv({str(self.path): self._runs})

    def to_dataframe(self) -> pd.DataFrame:
        """Return every run as a pandas DataFrame, with the columns of `to_csv`.

        Settings and other texts have the dtype 'string'; an empty cell is NA. Settings may be names, or numbers that no
        float holds (18446744073709551615); `pandas.to_numeric` converts a column of numbers.

        Raises:
            HeapwrightError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise HeapwrightError("to_dataframe needs pandas", "pip install pandas") from None
        content = self.to_csv()
        columns = next(csv.reader(io.StringIO(content)))
        texts = [name for name in columns if name in _TEXTS or name.startswith("set.")]
        types = {**dict.fromkeys(texts, "string"), "generation": "Int64"}
        frame: pd.DataFrame = pandas.read_csv(io.StringIO(content), dtype=types, keep_default_na=False, na_values=[""])
        frame["feasible"] = frame["feasible"].astype(bool)
        return frame

    def rows(self) -> list[dict[str, str]]:
        """Return every run as a dictionary of texts, with the columns of `to_csv`; it needs no pandas."""
        return list(csv.DictReader(io.StringIO(self.to_csv())))


def open_study(path: str | os.PathLike[str]) -> Study:
    """Open a study for reading.

    Raises:
        HeapwrightError: the file is missing, is not a study, is damaged, or is another version's.
    """
    return Study(Path(path))
