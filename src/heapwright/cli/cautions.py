"""Warns of settings in the environment that will not take effect, and of programs that changed since their study."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from heapwright.terminal_text import warn

if TYPE_CHECKING:
    from heapwright.allocators.registry import Allocator
    from heapwright.workload.model import Workload


def warn_of_settings(
    workload: Workload | None = None, allocators: list[Allocator] | None = None, env: Mapping[str, str] | None = None
) -> None:
    """Warn on stderr of malloc settings in the environment that will not take effect.

    Args:
        workload: what is run; the environments of the workload and its inputs count too.
        allocators: the allocators that will run (default: all that are installed).
        env: further variables that are set for the command.
    """
    import os

    if workload is not None and workload.container is not None:
        return  # this machine's variables do not reach it
    from heapwright.allocators.embedded import find_embedded
    from heapwright.allocators.user_settings import environment_problems

    embedded = find_embedded(workload.program(workload.inputs[0])) if workload else None
    if embedded is not None:
        allocators = [embedded]
    own = dict(workload.file.env) if workload else {}
    inputs = [dict(i.env) for i in workload.inputs] if workload else []
    program = workload.program() if workload else None
    lines = [
        x
        for more in inputs or [{}]
        for x in environment_problems({**os.environ, **own, **more, **(env or {})}, allocators, program)
    ]
    for line in dict.fromkeys(lines):
        warn(line)


def warn_of_changes(study: Path) -> None:
    """Warn on stderr, in one line, if the program has changed since a study was made."""
    from heapwright.study.program import changed_sentence, program_of
    from heapwright.study.store import read_study, study_errors
    from heapwright.workload.program import program_changes

    with read_study(study) as store, study_errors(study):
        identity = program_of(store) if store.meta.recordings is None else None
        changes = program_changes(identity) if identity else []
    if changes:
        command = shlex.join(["heapwright", "verify", str(study)])
        warn(f"{changed_sentence(changes)}; to check whether its gain still holds: {command}")
