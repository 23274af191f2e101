"""Writes names beside points of a picture, where they cover the fewest points and no other name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heapwright.report.drawing import COLOUR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Box = tuple[float, float, float, float]  # left, low, right, high; in pixels

# Where a name may stand: the side of the point (-1 left, 0 centred, 1 right), and lines above the
# point.
_PLACES = ((1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1), (0, -1), (1, 2.2), (-1, 2.2), (1, -2.2), (-1, -2.2))


@dataclass(frozen=True)
class _Surroundings:
    """Marks and edges that a name should not cover, in pixels.

    Attributes:
        marks: the points that get names.
        spots: the other points.
        inner: the area of the axes, which names should not leave.
        scale: pixels of a typographic point.
    """

    marks: Sequence[Any]
    spots: Sequence[Any]
    inner: Any
    scale: float

    def badness(self, box: Box, taken: Sequence[Box]) -> float:
        """Return how much a name in this box covers, beside the boxes of names that are already written."""
        names = sum(_overlap(box, t) for t in taken) + sum(_inside(box, m, 6 * self.scale) for m in self.marks)
        spots = sum(_inside(box, s, 2) for s in self.spots)
        inner = self.inner
        outside = bool(box[0] < inner.x0 or box[2] > inner.x1 or box[1] < inner.y0 or box[3] > inner.y1)
        return 3.0 * names + spots + 20.0 * outside


def write_labels(
    figure: Figure, axes: Axes, labels: list[tuple[str, str, float, float]], points: list[tuple[float, float]]
) -> None:
    """Write names beside their points.

    Args:
        figure, axes: where to write.
        labels: text, key of its colour, x and y.
        points: x and y of the points that a name should not cover.
    """
    figure.draw_without_rendering()
    scale = figure.dpi / 72
    spots = [axes.transData.transform(p) for p in points]
    marks = [axes.transData.transform((x, y)) for _, _, x, y in labels]
    around = _Surroundings(marks, spots, axes.get_window_extent(), scale)
    taken: list[Box] = []
    for (text, key, _, _), mark in zip(labels, marks, strict=True):
        best = min(_boxes_beside(mark, len(text), scale), key=lambda box: around.badness(box, taken))
        taken.append(best)
        x, y = axes.transData.inverted().transform((best[0], best[1] + 3 * scale))
        name = axes.text(x, y, text, color=COLOUR[key], fontweight="bold", zorder=5)
        name.set_in_layout(False)  # the layout must not shrink the axes to make room for a long name


def _boxes_beside(mark: Any, characters: int, scale: float) -> list[Box]:
    """Return the boxes that a name of so many characters may have beside its point, the best first."""
    px, py = mark
    wide, high = 6.3 * characters * scale, 13 * scale
    boxes = []
    for dx, dy in _PLACES:
        left = px + (dx * 10 * scale if dx > 0 else -10 * scale - wide if dx < 0 else -wide / 2)
        low = py + dy * 12 * scale - high / 2
        boxes.append((left, low, left + wide, low + high))
    return boxes


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _inside(box: Box, point: Any, margin: float) -> bool:
    return bool(box[0] - margin < point[0] < box[2] + margin and box[1] - margin < point[1] < box[3] + margin)
