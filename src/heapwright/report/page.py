"""Renders templates as self-contained HTML pages, and writes them: the report and the smaller pages.

A page's content security policy allows its own style and scripts by their hashes and nothing else: no other script, no
style attribute, no request. A page served live may ask its own server for news.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from heapwright import __version__
from heapwright.errors import HeapwrightError
from heapwright.files import write_whole


def _hashed(text: str) -> str:
    """Return the source expression of a Content-Security-Policy that allows exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _allow_only(css: str, scripts: Sequence[str], live: bool = False) -> str:
    """Return a Content-Security-Policy that allows one style sheet, some scripts, and nothing else.

    Args:
        css: the style sheet.
        scripts: the scripts.
        live: whether the page may ask its own server for news.
    """
    script = f"script-src {' '.join(map(_hashed, scripts))}; " if scripts else ""
    connect = "connect-src 'self'; " if live else ""
    styles = f"style-src {_hashed(css)}; img-src data:"
    return f"default-src 'none'; {script}{styles}; {connect}base-uri 'none'; form-action 'none'"


def render_page(template: str, scripts: Sequence[str] = (), live: bool = False, **fields: Any) -> str:
    """Return a page as text, with the style of all pages.

    Args:
        template: the name of its template.
        scripts: the names of its scripts.
        live: whether the page may ask its own server for news.
        fields: the template's own fields.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("heapwright.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    folder = files("heapwright.report").joinpath("templates")
    css, *texts = (folder.joinpath(name).read_text() for name in ("page.css", *scripts))
    return environment.get_template(template).render(
        version=__version__,
        policy=_allow_only(css, texts, live),
        css=Markup(css),
        scripts=[Markup(text) for text in texts],
        **fields,
    )


def save_page(page: str, out: Path, what: str = "page") -> None:
    """Write a page to a file, completely or not at all.

    Args:
        page: its text.
        out: the file.
        what: how to call it in a message.

    Raises:
        HeapwrightError: the file cannot be written.
    """
    try:
        write_whole(out, page)
    except OSError as error:
        raise HeapwrightError(f"cannot write the {what} {out}: {error.strerror}") from None
