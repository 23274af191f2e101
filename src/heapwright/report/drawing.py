"""Turns matplotlib figures into inline SVG that follows the page's colours and width.

matplotlib draws in sentinel colours. CSS variables then replace these, so that one picture serves light and dark pages.
Every picture is drawn twice, wide and narrow, and the page shows the one that fits, so that letters keep their size on
a phone. The SVG has no style attributes, because the page's content security policy forbids them.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from heapwright.report.matplotlib_cache import load_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# sentinel colour → CSS value
_COLOURS = {
    "#010203": "currentColor",
    "#010204": "var(--faint)",
    "#010205": "var(--default)",
    "#010206": "var(--memory)",
    "#010207": "var(--time)",
    "#010208": "var(--balanced)",
    "#010209": "var(--front)",
    "#01020a": "var(--dominated)",
    "#01020b": "var(--goodbg)",
    "#01020c": "var(--good)",
    "#01020d": "var(--muted)",
    "#01020e": "var(--bad)",
    "#010211": "var(--a1)",
    "#010212": "var(--a2)",
    "#010213": "var(--a3)",
    "#010214": "var(--a4)",
    "#010215": "var(--a5)",
    "#010216": "var(--a6)",
}
TEXT, FAINT = "#010203", "#010204"
COLOUR = {"default": "#010205", "memory": "#010206", "time": "#010207", "balanced": "#010208"}
FRONT, DOMINATED = "#010209", "#01020a"
GOOD_GROUND, GOOD, MUTED, BAD = "#01020b", "#01020c", "#01020d", "#01020e"
ALLOCATORS = (
    "#010211",
    "#010212",
    "#010213",
    "#010214",
    "#010215",
    "#010216",
)  # used in turn; each allocator also has its own marker
MARKER = {"default": "s", "memory": "v", "time": "^", "balanced": "D"}
_WIDE, _NARROW = 9.4, 3.7  # inches; 10 points of type are about 14 pixels in the page, on a phone about 13
_DROPPED = ("font-family", "-inkscape-stroke", "font")  # properties that the page sets itself


def figure_of(narrow: bool, height: float, columns: int = 1, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """Return an empty figure and its axes in reading order.

    Args:
        narrow: as wide as a phone instead of a page.
        height: inches.
        columns, rows: of axes.
    """
    mpl = load_matplotlib("svg")
    mpl.rcParams.update(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "heapwright",
            "font.family": "sans-serif",
            "font.size": 10,
            "text.color": TEXT,
            "axes.labelcolor": TEXT,
            "axes.edgecolor": FAINT,
            "axes.titlesize": 10,
            "axes.titlelocation": "left",
            "xtick.color": TEXT,
            "ytick.color": TEXT,
            "xtick.major.size": 0,
            "ytick.major.size": 0,
            "xtick.major.pad": 6,
            "ytick.major.pad": 6,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": FAINT,
            "grid.linewidth": 0.5,
            "legend.frameon": False,
            "legend.fontsize": 10,
            "legend.handletextpad": 0.4,
            "legend.columnspacing": 1.4,
            "legend.borderaxespad": 0.1,
            "figure.constrained_layout.use": True,
        }
    )
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_NARROW if narrow else _WIDE, height))
    axes = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    return figure, axes


def _attributes(match: re.Match[str]) -> str:
    """Return a style attribute as presentation attributes."""
    pairs = (part.partition(":") for part in match[1].split(";"))
    properties = ((k.strip(), v.strip()) for k, _, v in pairs if v.strip() and k.strip() not in _DROPPED)
    return " ".join(f'{k}="{v}"' for k, v in properties)


def _svg(figure: Figure, names: tuple[str, str], tips: dict[str, str], prefix: str, kind: str) -> str:
    """Return the figure as an inline <svg> element.

    Args:
        figure: the figure.
        names: title and description, for screen readers.
        tips: element id → tooltip.
        prefix: put before every id, so that ids are unique in a page with several pictures.
        kind: CSS class: 'wide' or 'narrow'.
    """
    from markupsafe import escape
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    canvas = FigureCanvasSVG(figure)
    # Figure.savefig would draw the figure one more time to lay it out, which takes a fifth of a
    # page's time.
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")
    for patch in (figure.patch, *(axes.patch for axes in figure.axes)):  # transparent
        patch.set_facecolor("none")
        patch.set_edgecolor("none")
    buffer = io.StringIO()
    canvas.print_svg(buffer, metadata={"Date": None})  # type: ignore[no-untyped-call]
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
    # HTML knows the namespaces, and `href` replaces the old `xlink:href`.
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(
        r"<[^>]*>", lambda tag: re.sub(r"(\d+\.\d)\d+", r"\1", tag[0]), text
    )  # one decimal is enough; only inside tags, not in text
    text = re.sub(r'<g id="([^"]*)">', lambda group: group[0] if group[1] in tips else "<g>", text)
    # Markers take their colour from the <use> element; with their own they could not change when
    # pointed at.
    text = re.sub(r'(<defs>\s*<path [^>]*?)style="[^"]*"', r"\1", text)
    text = re.sub(r'style="([^"]*)"', _attributes, text)
    text = re.sub(r' transform="rotate\(-?0 [^"]*"', "", text)
    text = re.sub(r'<g id="patch_1">\s*<path [^>]*/>\s*</g>', "", text)  # the empty background
    text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
    text = re.sub(r"\s*\n\s*", " ", text).replace("> <", "><")
    text = re.sub(r"<g>(<(?:use|path|g clip-path=[^>]*><use) [^>]*/>(?:</g>)?)</g>", r"\1", text)
    text = re.sub(r'<g id="[^"]*"/>', "", text)  # tick marks, which have no length
    for _ in range(2):
        text = re.sub(r"<g>(<(?:use|path) [^>]*/>|<text [^>]*>[^<]*</text>)</g>", r"\1", text)
    for sentinel, css in _COLOURS.items():
        text = text.replace(sentinel, css)
    for gid, tip in tips.items():
        text = text.replace(f'id="{prefix}-{gid}">', f'id="{prefix}-{gid}" class="pt"><title>{escape(tip)}</title>', 1)
    head = f'class="{kind}" role="img" aria-labelledby="{prefix}-title" aria-describedby="{prefix}-desc"'
    text = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', rf'<svg viewBox="\1" {head}>', text, count=1)
    start = text.index(">") + 1
    title, description = names
    words = f'<title id="{prefix}-title">{escape(title)}</title><desc id="{prefix}-desc">{escape(description)}</desc>'
    return text[:start] + words + text[start:]


def picture(
    draw: Callable[[bool], tuple[Figure, dict[str, str]]], anchor: str, key: str, title: str, description: str
) -> str:
    """Return the wide and the narrow SVG of one picture.

    Args:
        draw: called with whether to draw the narrow version; returns the figure and element id → tooltip.
        anchor: id of the study's section.
        key: name of the picture, unique in its section.
        title: for screen readers.
        description: the picture's content in words.
    """
    found = []
    for kind, narrow in (("wide", False), ("narrow", True)):
        figure, tips = draw(narrow)
        found.append(_svg(figure, (title, description), tips, f"{anchor}-{key}-{kind}", kind))
    return "".join(found)
