"""Renders the report as one self-contained HTML page.

The page needs no network and is readable without JavaScript, in light and dark mode, and on paper. `templates/` has its
structure (`report.html.j2`), style (`page.css`) and behaviour (`page.js`; also `live.js` if `heapwright watch` serves
the page). `sections` fills the template, and `embedded_data` makes the data inside. The page's content security policy
allows this style and these scripts by their hashes and nothing else: no other script, no style attribute, no request.
The live page may ask its own server for news.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heapwright import SCHEMA_VERSION
from heapwright.errors import USAGE, HeapwrightError
from heapwright.report.embedded_data import report_data, unpack_study
from heapwright.report.glossary import TERMS
from heapwright.report.page import render_page, save_page
from heapwright.report.sections import comparison_section, study_section
from heapwright.study.view import StudyView

_DATA = re.compile(r'<script type="application/json" id="heapwright-data">(.*?)</script>', re.DOTALL)


def render_report(views: Sequence[StudyView], live: str = "") -> str:
    """Return the page as text.

    Args:
        views: the studies, in the order of their sections.
        live: for a page served live, the state of the studies that it shows. The page then has a script that fetches
            the page again when its server names another state.
    """
    from markupsafe import Markup

    data = json.dumps(
        {"schema_version": SCHEMA_VERSION, "studies": [report_data(v) for v in views]},
        allow_nan=False,
        separators=(",", ":"),
    )
    return render_page(
        "report.html.j2",
        scripts=("page.js", *(["live.js"] if live else [])),
        live=bool(live),
        studies=[study_section(view, f"s{i}") for i, view in enumerate(views, 1)],
        comparison=comparison_section(views) if len(views) > 1 else None,
        glossary=[{"key": t.key, "name": t.name, "html": _with_code(t.meaning)} for t in TERMS],
        state=live,
        data=Markup(data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")),
    )


def _with_code(text: str) -> Any:
    """Escaped text in which `words` between backticks become <code> elements."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def write_report(views: Sequence[StudyView], out: Path) -> None:
    """Write the page to `out`, completely or not at all.

    Raises:
        HeapwrightError: the file cannot be written.
    """
    save_page(render_report(views), out, "report")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number in JSON")


def extract(path: Path) -> dict[str, Any]:
    """Return the data embedded in a report.

    Raises:
        HeapwrightError: the file cannot be read, or is not a report by heapwright.
    """
    try:
        found = _DATA.search(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise HeapwrightError(f"cannot read {path}: {error.strerror or error}", status=USAGE) from None
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise HeapwrightError(f"{path} is not a heapwright report")
    try:
        data: dict[str, Any] = json.loads(found[1], parse_constant=_refuse_constant)
        return {**data, "studies": [unpack_study(study) for study in data["studies"]]}
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise HeapwrightError(f"{path} is a damaged report ({reason})", "make it again from its study") from None
