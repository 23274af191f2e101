"""Tests that the report explains its terms with the sentences of docs/glossary.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from heapwright.report.glossary import TERMS, Term
from heapwright.report.html import render_report
from tests.markdown import tables

from .views import STATES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def documented() -> dict[str, str]:
    """Term, in our word or in the field's, → its meaning in docs/glossary.md."""
    rows = [row for table in tables(ROOT / "docs/glossary.md") for row in table[1:]]
    return {name.strip(): meaning for *names, meaning in rows for cell in names for name in cell.split(",")}


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.key)
def test_terms_have_the_documented_meaning(term: Term, documented: dict[str, str]) -> None:
    assert documented[term.name] == term.meaning


@pytest.mark.long
def test_every_link_to_a_term_has_a_target() -> None:
    page = render_report([STATES["replayed"](), STATES["swept"]()])
    links = set(re.findall(r'href="#term-([^"]*)"', page))
    assert {"pick", "pair", "margin", "hypervolume", "Pareto-front"} <= links <= {term.key for term in TERMS}
    assert "such as <code>arena_max=1</code>." in page
