"""Tests the objective of a workload file: a number from a command or from an installed package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heapwright.errors import HeapwrightError, UsageError
from heapwright.workload.model import Objective, from_identity, load_workload

from ..plugins import install_package
from ..processes import alive, wait_for
from .executors import Make, run


def test_a_command_prints_the_number(make: Make) -> None:
    how = Objective(command=["sh", "-c", 'echo "error: $(wc -c <"$1")"', "sh", "{output}"])
    outcome = run(make("printf 12345", objective=how))
    assert (outcome.failure, outcome.run.metrics["objective"]) == ("", 5.0)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo it went wrong >&2; exit 4", "no objective: exit status 4: it went wrong"),
        ("true", "no objective: the command printed nothing"),
        ("echo 3 apples", "no objective: the command printed 'apples' last, which is not a number"),
        ("echo -1", "no objective: -1 is not a number above 0 and below 1e+24"),
        ("echo 1e30", "no objective: 1e+30 is not a number above 0 and below 1e+24"),
        ("echo nan", "no objective: nan is not a number above 0 and below 1e+24"),
    ],
)
def test_a_run_without_a_number_does_not_count(script: str, why: str, make: Make) -> None:
    outcome = run(make("echo hello", objective=Objective(command=["sh", "-c", script])))
    assert outcome.failure == why
    assert outcome.run.metrics["objective"] is None


def test_a_command_that_hangs_is_stopped(make: Make, tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! >{tmp_path}/pid; wait"
    executor = make("echo hello", objective=Objective(command=["sh", "-c", script]))
    executor.workload.file.timeout = 1.0
    outcome = run(executor)
    assert outcome.failure == "no objective: the command timed out after 1 s"
    wait_for(lambda: not alive(int((tmp_path / "pid").read_text())))


def test_a_command_that_is_not_there_is_an_error(make: Make) -> None:
    with pytest.raises(
        HeapwrightError, match=r"the command of \[objective\], ./no-such-program, does not start: No such"
    ):
        run(make("echo hello", objective=Objective(command=["./no-such-program"])))


def test_a_package_computes_the_number(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(install_package(tmp_path / "packages"))
    outcome = run(make("printf 1234567", objective=Objective(function="length")))
    assert outcome.run.metrics["objective"] == 7
    outcome = run(make("printf 1", objective=Objective(function="broken")))
    assert outcome.failure == "no objective: broken raised ValueError: no such luck"
    with pytest.raises(UsageError, match="unknown objective 'lenght'"):
        run(make("printf 1", objective=Objective(function="lenght")))


def test_the_objective_is_part_of_the_identity_of_a_workload(tmp_path: Path) -> None:
    file = tmp_path / "w.toml"
    file.write_text('command = ["true"]\n[objective]\ncommand = ["echo", "1"]\n')
    workload = load_workload(file)
    assert from_identity(workload.identity()).file.objective == Objective(command=["echo", "1"])
    plain: dict[str, Any] = {}
    file.write_text('command = ["true"]\n')
    plain = load_workload(file).identity()
    assert "objective" not in plain, "studies of older versions continue"
    file.write_text('command = ["true"]\n[objective]\n')
    with pytest.raises(UsageError, match="needs either a command or a function"):
        load_workload(file)
