"""Writes files whole or not at all, no more readable than the user's umask allows; finds our own native files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Native programs and libraries. In an installation by `make dev` it is a link.
NATIVE = Path(__file__).parent / "_native"


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Create an empty file with a random name beside `path`; rename it to `path` if the block succeeds.

    Raises:
        OSError: the file cannot be created or renamed.
    """
    made, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=path.suffix[:20], dir=path.parent)
    os.close(made)
    draft = Path(name)
    try:
        yield draft
        mask = os.umask(0o077)  # the umask can only be read by setting it
        os.umask(mask)
        draft.chmod(0o666 & ~mask)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file under a temporary name and rename it. A device such as /dev/stderr is written directly.

    File names in a text may hold bytes that are not UTF-8; they are written as \\udcXX.
    """
    data = content if isinstance(content, bytes) else content.encode(errors="backslashreplace")
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    with draft_of(path) as draft:
        draft.write_bytes(data)
