"""Tests how often a study of recordings says that a question was verified before."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from heapwright.study.meta import StudyMeta
from heapwright.study.verifications import Question, times_verified, verified_again
from heapwright.workload.model import Input, Workload, WorkloadFile
from heapwright.workload.program import identify_program


def question(folder: Path, config: int = 2) -> Question:
    """The question about `./prog.py out.txt` in this folder, as it is now."""
    file = WorkloadFile(command=[sys.executable, "prog.py", "out.txt"])
    return Question(config, "python prog.py out.txt", identify_program(Workload(file, folder, (Input("a"),))))


def again(meta: StudyMeta, asked: Question) -> StudyMeta:
    """The facts of the study after one more verification, as its file stores them."""
    return msgspec.convert({"verified_builds": verified_again(meta, asked)}, StudyMeta)


def test_each_verification_of_a_build_counts(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text("1")
    meta = StudyMeta()
    for count in range(3):
        assert times_verified(meta, question(tmp_path)) == count
        meta = again(meta, question(tmp_path))
    assert times_verified(meta, question(tmp_path, config=3)) == 0
    assert len(meta.verified_builds) == 1


def test_a_new_build_is_a_new_question(tmp_path: Path) -> None:
    """Regression: after 20 nightly builds the interval was 33 standard errors wide."""
    meta = StudyMeta()
    for build in ("1", "2"):
        (tmp_path / "prog.py").write_text(build)
        assert times_verified(meta, question(tmp_path)) == 0
        meta = again(again(meta, question(tmp_path)), question(tmp_path))
    assert times_verified(meta, question(tmp_path)) == 2
    (tmp_path / "prog.py").write_text("1")
    assert times_verified(meta, question(tmp_path)) == 2, "the first build again"


def test_what_the_program_writes_is_no_new_build(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text("1")
    meta = StudyMeta()
    for count in range(3):
        asked = question(tmp_path)
        assert times_verified(meta, asked) == count
        (tmp_path / "out.txt").write_text(f"output {count}")
        meta = again(meta, asked)


def test_a_verdict_of_an_older_version_counts_once(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text("1")
    asked = question(tmp_path)
    meta = StudyMeta(verified={"config": 2, "on": asked.on, "verdict": "lost", "pairs": 10})
    assert times_verified(meta, asked) == 1
    assert times_verified(meta, question(tmp_path, config=3)) == 0
    assert again(meta, asked).verified_builds[0].times == 2
