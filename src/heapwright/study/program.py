"""Tells whether a study's program is still the same build. Imports little, because `heapwright run` uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from heapwright.workload.program import ProgramIdentity

if TYPE_CHECKING:
    from heapwright.study.store import Store


def program_of(store: Store) -> ProgramIdentity | None:
    """The identity of a study's program; None if unknown, as in studies of older versions."""
    stored = store.meta.program
    if stored is None:
        return None
    identity = msgspec.convert(stored, ProgramIdentity)
    return identity if identity.settled else msgspec.structs.replace(identity, files=[])


def changed_sentence(changes: Sequence[str], what: str = "the program") -> str:
    """'the program has changed since the study was made (./prog was rebuilt, and 2 more)'.

    Args:
        changes: phrases of `workload.program.program_changes`.
        what: what the study is of.
    """
    more = f", and {len(changes) - 1} more" if len(changes) > 1 else ""
    return f"{what} has changed since the study was made ({changes[0]}{more})"
