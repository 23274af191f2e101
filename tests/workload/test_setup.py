"""Tests set-up and clean-up: they surround every run, and what their failures mean."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from heapwright.errors import HeapwrightError
from heapwright.measure.prefix import Prefix
from heapwright.workload import execute

from .executors import Make, run, sha


def test_a_set_up_that_hangs_ends_at_the_time_limit(make: Make) -> None:
    executor = make("true", setup=["sleep", "60"])
    file = msgspec.structs.replace(executor.workload.file, timeout=0.2)
    executor.workload = dataclasses.replace(executor.workload, file=file)
    with pytest.raises(HeapwrightError, match=r"the setup command did not end within 0\.2 s"):
        run(executor)


def test_set_up_and_clean_up_surround_every_run(make: Make, tmp_path: Path) -> None:
    executor = make(
        "cat log",
        setup=["sh", "-c", "echo set-up $WHO > log"],
        cleanup=["sh", "-c", "echo clean-up $WHO >> log"],
        env={"WHO": "me"},
    )
    assert run(executor, WHO="the setting on trial").digest == sha("set-up me\n")
    assert (tmp_path / "log").read_text() == "set-up me\nclean-up me\n"


def test_clean_up_also_after_a_failure(make: Make, tmp_path: Path) -> None:
    assert run(make("exit 3", cleanup=["touch", "cleaned"])).failure == "exit status 3"
    assert (tmp_path / "cleaned").exists()


def test_a_clean_up_that_fails_after_a_failure_is_a_warning(make: Make) -> None:
    """A candidate that crashes leaves no file, so `rm FILE` fails: the candidate is infeasible."""
    outcome = run(make("exit 3", cleanup=["sh", "-c", "echo no file >&2; exit 1"]))
    assert outcome.failure == "exit status 3"
    said = "after a run that did not end properly, the cleanup command failed with status 1: no file"
    assert outcome.run.warnings[-1] == said
    ends_early = make("sleep 60", cleanup=["false"], prefix=Prefix(seconds=0.2))
    assert run(ends_early).failure == "", "the prefix ended before the program wrote its file"


def test_a_clean_up_that_fails_keeps_ctrl_c(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "run_metered", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(make("true", cleanup=["sh", "-c", "touch cleaned; exit 1"]))
    assert (tmp_path / "cleaned").exists()


@pytest.mark.parametrize("what", ["setup", "cleanup"])
def test_helpers_that_fail_end_the_study_in_one_line(what: str, make: Make) -> None:
    with pytest.raises(HeapwrightError) as caught:
        run(make("true", **{what: ["sh", "-c", "echo first >&2; echo no room >&2; exit 9"]}))
    assert caught.value.message == f"the {what} command failed with status 9: no room"
    with pytest.raises(HeapwrightError, match=f"^the {what} command does not start: .*no-such"):
        run(make("true", **{what: ["no-such-program"]}))
