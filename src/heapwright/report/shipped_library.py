"""Finds the libraries that a setting preloads, with their files, checksums and paths in an image."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from heapwright.platforms import INSIDE, host_platform, kit_path, sha256_if_readable


class ShippedLibrary(NamedTuple):
    """A library that a setting preloads.

    Attributes:
        path: as the setting names it.
        source: the file to copy: in the kit, or on this machine.
        in_kit: whether the kit has it.
        inside: its path in an image.
        sha256: of the file, in hex; empty if the file cannot be read.
    """

    path: str
    source: str
    in_kit: bool
    inside: str
    sha256: str

    @property
    def copy_instruction(self) -> str:
        """The instruction for another machine, for a comment beside a setting of this machine."""
        path = _on_one_line(self.path)
        return f"On another machine, copy {path} (sha256 {self.sha256 or 'unknown'}) and change its path below"

    @property
    def sentence(self) -> str:
        """The source of the library of an image, for a comment."""
        source = _on_one_line(self.source)
        where = f"{source} of this machine"
        if self.in_kit:
            platform = Path(source).parts[1]
            option = "" if platform == host_platform() else f" --platform {platform}"
            where = f"{source} of the kit ('heapwright kit{option}')"
        return f"Library: {where}, sha256 {self.sha256 or 'unknown: the file is not here'}"


def _on_one_line(path: str) -> str:
    """A path as a comment can hold it."""
    return path if path.isprintable() else repr(path)


def preloaded_libraries(env: Mapping[str, str], platform: str | None = None) -> list[ShippedLibrary]:
    """Return the libraries that LD_PRELOAD names by an absolute path.

    Args:
        env: the variables of a configuration.
        platform: of the image for which the setting was made; None for this machine. An image has its other libraries
            already, so only those of the kit are returned.
    """
    found = []
    for path in re.split("[: ]+", env.get("LD_PRELOAD", "")):
        if not os.path.isabs(path):  # noqa: PTH117 (an empty text is no path)
            continue
        kit = kit_path(path, platform)
        if kit is None and platform is not None:
            continue
        source, file = kit or (path, Path(path))
        found.append(
            ShippedLibrary(path, source, kit is not None, f"{INSIDE}/lib/{Path(path).name}", sha256_if_readable(file))
        )
    return found


def environment_inside(env: Mapping[str, str], libraries: list[ShippedLibrary]) -> dict[str, str]:
    """Return the variables with the paths that the libraries have in an image."""
    moved = {library.path: library.inside for library in libraries}
    words = [moved.get(word, word) for word in re.split("([: ]+)", env.get("LD_PRELOAD", ""))]
    return {**env, "LD_PRELOAD": "".join(words)} if moved else dict(env)
