"""Tells which searches of an experiment's folder are those of its definition.

The folder keeps a digest of each search in experiment.json: of all that the definition says about it, and of the
contents of its recordings and its workload file. Each study knows the build of its program, the files that the command
names, and the code of its method and objective. A search is made again if one of these has changed; its old study is
renamed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from heapwright.errors import HeapwrightError
from heapwright.experiment.definition import Definition, PlannedSearch
from heapwright.experiment.run import is_done
from heapwright.files import write_whole
from heapwright.platforms import sha256_if_readable
from heapwright.study.open import changed_since, put_aside

_NAME = "experiment.json"


class _StoredSearches(msgspec.Struct, forbid_unknown_fields=True):
    """The file experiment.json: `PlannedSearch.file` → digest of the search."""

    searches: dict[str, str] = {}


def digests_of(planned_searches: Sequence[PlannedSearch], definition: Definition, base: Path) -> dict[str, str]:
    """Return `PlannedSearch.file` → a digest of what determines the search.

    Args:
        planned_searches: the searches.
        definition: the experiment.
        base: the folder of the definition.
    """
    contents: dict[str, str] = {}

    def content(name: str) -> str:
        if name not in contents:
            contents[name] = sha256_if_readable(base / name)
        return contents[name]

    found = {}
    for planned in planned_searches:
        program = planned.program
        parts = [
            planned.method, planned.seed, planned.budget, definition.minimize, definition.allocators, definition.preset,
            definition.confirm, [*definition.options, *program.options], program.command,
            content(program.workload) if program.workload else "", [content(trace) for trace in program.traces],
        ]  # fmt: skip
        found[planned.file] = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return found


def _read(folder: Path) -> dict[str, str]:
    path = folder / _NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=_StoredSearches).searches if path.exists() else {}
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HeapwrightError(f"{path} cannot be read ({error})", "give another folder with -o") from None


@contextmanager
def exclusive_folder(folder: Path) -> Iterator[None]:
    """Keep other experiments out of a folder meanwhile: their searches would disturb each other's times.

    Raises:
        HeapwrightError: another one works there.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            hint = "wait for it, or name another folder with -o"
            raise HeapwrightError(f"another heapwright experiment works in {folder}", hint) from None
        except OSError:
            pass  # a file system without locks; each study has a lock of its own
        yield
    finally:
        os.close(lock)


def put_outdated_aside(digests: Mapping[str, str], folder: Path, note: Callable[[str], None]) -> None:
    """Rename the studies of searches whose definition, program or code is another now, and keep the digests.

    Args:
        digests: see `digests_of`.
        folder: where the studies are.
        note: receives a line about each renamed study.

    Raises:
        HeapwrightError: experiment.json cannot be read, or a study is open elsewhere.
    """
    kept = _read(folder)
    for file, digest in digests.items():
        if not (folder / file).exists():
            continue
        if kept.get(file, digest) != digest:
            why = f"{file} is of another definition"
        elif is_done(folder / file) and (changed := changed_since(folder / file)):  # `tune` looks at the others itself
            why = f"{file}: {changed}"
        else:
            continue
        note(f"{why}: a new search begins, the old one is kept as {put_aside(folder / file)}")
    searches = {**kept, **digests}
    if searches != kept:
        write_whole(
            folder / _NAME, msgspec.json.format(msgspec.json.encode(_StoredSearches(searches)), indent=1) + b"\n"
        )


def finished(digests: Mapping[str, str], folder: Path) -> dict[str, Path]:
    """Return `PlannedSearch.file` → study of the finished searches that are those of the definition.

    Args:
        digests: see `digests_of`.
        folder: where the studies are.

    Raises:
        HeapwrightError: experiment.json cannot be read.
    """
    kept = _read(folder)
    return {
        file: folder / file
        for file, digest in digests.items()
        if kept.get(file, digest) == digest and is_done(folder / file)
    }
