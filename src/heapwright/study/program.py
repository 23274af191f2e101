"""Says whether a study's program is still the one it was made of. Imports little: `heapwright run` asks it, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from heapwright.workload.program import ProgramIdentity

if TYPE_CHECKING:
    from heapwright.study.store import Store


def program_of(store: Store) -> ProgramIdentity | None:
    """The program that a study is of; None where the study does not know it, as those of older versions."""
    kept = store.meta.program
    if kept is None:
        return None
    identity = msgspec.convert(kept, ProgramIdentity)
    return identity if identity.settled else msgspec.structs.replace(identity, files=[])


def changed_sentence(changes: Sequence[str]) -> str:
    """'the program has changed since the study was made (./prog was rebuilt, and 2 more)'."""
    more = f", and {len(changes) - 1} more" if len(changes) > 1 else ""
    return f"the program has changed since the study was made ({changes[0]}{more})"
