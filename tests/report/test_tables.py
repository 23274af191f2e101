"""Tests tables of text as Markdown, CSV and LaTeX: no cell is lost, no character has another meaning."""

from __future__ import annotations

import csv
import io
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.report.tables import csv_table, latex_table, markdown_table, tex
from tests import needs

ROWS = [["method", "a_b & 50%", "{x}^~\\"], ["gp", "−0.1", "#1 $2"], ["nsga2", "not run: it timed out"]]


def test_every_special_character_is_escaped() -> None:
    assert tex("a_b & 50% {x} #1 $2") == r"a\_b \& 50\% \{x\} \#1 \$2"
    assert tex("\\^~") == r"\textbackslash{}\textasciicircum{}\textasciitilde{}"


def test_a_short_row_spans_the_rest() -> None:
    text = latex_table(ROWS, "A caption", "tab:x")
    assert r"nsga2 & \multicolumn{2}{l}{not run: it timed out} \\" in text
    assert r"\caption{A caption}" in text
    assert r"\begin{tabular}{lrr}" in text


@pytest.mark.long
@needs.with_command("pdflatex")
def test_latex_typesets_any_cell(tmp_path: Path) -> None:
    document = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}" + latex_table(ROWS, "50% & more")
    (tmp_path / "t.tex").write_text(document + "\\end{document}")
    done = subprocess.run(["pdflatex", "-halt-on-error", "t.tex"], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stdout


@given(
    st.lists(
        st.lists(st.text(st.characters(exclude_characters="\r\0", codec="utf-8"), min_size=1), min_size=3, max_size=3),
        min_size=1,
    )
)
def test_csv_keeps_every_cell(rows: list[list[str]]) -> None:
    assert list(csv.reader(io.StringIO(csv_table(rows), newline=""))) == rows


def test_a_bar_does_not_end_a_cell() -> None:
    assert markdown_table([["a", "b"], ["x|y", "z"]])[2] == "| x\\|y | z |"
