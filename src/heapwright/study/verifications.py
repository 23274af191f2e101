"""Stores the verdicts of `verify` in a study of recordings, and how often it judged a configuration on a build.

Each further look at the same question gets half of the error (`tuning.verify`). A new build of the program is a new
question, so a nightly verification keeps its precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from heapwright.study.choose import keep_choice
from heapwright.study.load import view_of
from heapwright.study.meta import StudyMeta, VerifiedBuild
from heapwright.study.store import Store
from heapwright.workload.program import ProgramIdentity, without_outputs


@dataclass(frozen=True)
class Question:
    """Whether a configuration gains on a program, as it is now.

    Attributes:
        config: number of the configuration.
        on: the program for people: its command or workload file.
        program: its identity before the runs.
    """

    config: int
    on: str
    program: ProgramIdentity


def store_verdict(store: Store, question: Question, verified: Mapping[str, Any]) -> None:
    """Store a verdict: it proves or refutes the claim of the study; an undecided one only adds its figures to cautions.

    Args:
        store: the study.
        question: the question.
        verified: the verdict as `StudyMeta.verified` has it. One that decides nothing keeps an earlier verdict.
    """
    if verified["pairs"]:
        store.update(verified_builds=verified_again(store.meta, question))
    if verified["verdict"] == "undecided":
        store.update(undecided=dict(verified))
        return
    store.update(verified=dict(verified), undecided=None, choice={})
    keep_choice(store, view_of(store))


def times_verified(meta: StudyMeta, question: Question) -> int:
    """How often this question was asked before; at least once if an older version stored a verdict on it."""
    entries = _entries_of(meta, question)
    if not entries:
        verdict = meta.verified or {}
        return int(bool(verdict.get("pairs")) and (verdict["config"], verdict["on"]) == (question.config, question.on))
    return sum(entry.times for entry in entries if _is_same_build(entry, question))


def verified_again(meta: StudyMeta, question: Question) -> list[dict[str, Any]]:
    """The value of `StudyMeta.verified_builds` after this question was asked once more.

    Args:
        meta: the facts of the study before.
        question: the question. Files that have changed since are left out, because the runs wrote them.
    """
    times = times_verified(meta, question) + 1
    others = [entry for entry in meta.verified_builds if not _is_asked(entry, question)]
    others += [entry for entry in _entries_of(meta, question) if not _is_same_build(entry, question)]
    build = sorted(_contents(without_outputs(question.program)))
    return [
        msgspec.to_builtins(entry) for entry in (*others, VerifiedBuild(question.config, question.on, build, times))
    ]


def _entries_of(meta: StudyMeta, question: Question) -> list[VerifiedBuild]:
    return [entry for entry in meta.verified_builds if _is_asked(entry, question)]


def _is_asked(entry: VerifiedBuild, question: Question) -> bool:
    return (entry.config, entry.on) == (question.config, question.on)


def _is_same_build(entry: VerifiedBuild, question: Question) -> bool:
    """Whether the program has all files of the entry. It may have others: its output is not in the entry."""
    return _contents(question.program).issuperset(entry.build)


def _contents(program: ProgramIdentity) -> set[str]:
    """Build id or digest of each file, and the digest of the image."""
    files = (program.executable, program.interpreter, *program.libraries, *program.files)
    return {file.build_id or file.digest for file in files if file is not None} | ({program.image_digest} - {""})
