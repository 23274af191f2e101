"""Writes a figure to a file, completely or not at all."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from heapwright.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_picture(figure: Figure, out: Path) -> None:
    """Write a figure in the format of the file's suffix: .svg, .png or .pdf.

    Raises:
        OSError: the file cannot be written.
    """
    buffer = io.BytesIO()
    kind = out.suffix.removeprefix(".")
    figure.savefig(buffer, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    write_whole(out, buffer.getvalue())
