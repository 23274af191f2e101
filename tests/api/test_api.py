"""Tests the Python API on real programs: its results are those of the command, and importing it is cheap."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import heapwright
from heapwright.report.study_json import tune_json
from tests import needs

from ..study.conftest import Tuning
from ..study.fakes import World

ROOT = Path(__file__).parents[2]
TUNE: dict[str, Any] = {"allocators": ["glibc"], "method": "random", "budget": 6, "options": ["--proxy", "none"]}

SHORT = {"allocator": "toy", "method": "sobol", "evaluations": 12, "pairs_min": 6, "pairs_max": 6}


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import sys, heapwright; assert heapwright.__all__; print(sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = ast.literal_eval(done.stdout)
    assert not {"numpy", "scipy", "pymoo", "matplotlib", "msgspec", "pandas"} & set(loaded)


def test_every_name_is_there_and_no_other() -> None:
    for name in heapwright.__all__:
        assert callable(getattr(heapwright, name)) or name == "API_VERSION"
    from heapwright import api

    assert sorted(api.__all__) == sorted(heapwright.__all__)
    assert heapwright.API_VERSION == 1
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = heapwright.nothing


def test_the_citation_names_this_version() -> None:
    lines = (ROOT / "CITATION.cff").read_text().splitlines()
    assert f"version: {heapwright.__version__}" in lines
    assert "cff-version: 1.2.0" in lines


def test_the_page_names_every_name() -> None:
    page = (ROOT / "docs/api.md").read_text()
    for name in heapwright.__all__:
        assert f"`{name}" in page or f"heapwright.{name}" in page, name


def test_measure_is_the_package_and_the_function() -> None:
    from heapwright.measure.meter import MeterOptions

    assert MeterOptions().backend == "auto"
    found = heapwright.measure(["sh", "-c", "exit 3"], runs=2)
    assert [run["exit_code"] for run in found.runs] == [3, 3]
    assert found.summary["peak_rss_bytes"].n == 2
    assert found.summary["peak_rss_bytes"].min > 0


def test_a_command_that_ends_like_an_interrupted_one_is_a_result() -> None:
    assert heapwright.measure(["sh", "-c", "exit 130"]).runs[0]["exit_code"] == 130


def test_an_interrupted_verb_ends_by_itself(tmp_path: Path) -> None:
    """Regression: subprocess.run killed it after a quarter of a second."""
    (tmp_path / "python").write_text(
        f"#!/bin/sh\ntrap 'sleep 1; touch {tmp_path}/ended; exit 130' INT\ntouch {tmp_path}/began\n"
        "for i in $(seq 600); do sleep 0.1; done\n"  # no longer than a killed test should leave it
    )
    (tmp_path / "python").chmod(0o755)
    code = "import sys, heapwright; sys.executable = sys.argv[1]; heapwright.measure(['true'])"
    with subprocess.Popen([sys.executable, "-c", code, tmp_path / "python"], stderr=subprocess.PIPE) as process:
        while not (tmp_path / "began").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert said.endswith(b"KeyboardInterrupt\n")
    assert (tmp_path / "ended").exists()


def test_a_module_of_the_folder_does_not_take_the_place_of_pythons_own(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')\n")
    code = "import sys; sys.path.remove(''); import heapwright; print(len(heapwright.measure(['true']).runs))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_errors_of_the_api_are_one_line() -> None:
    with pytest.raises(heapwright.HeapwrightError, match="command not found: no-such-program") as caught:
        heapwright.measure(["no-such-program"])
    assert caught.value.status == 2
    with pytest.raises(heapwright.HeapwrightError, match="the command is one text"):
        heapwright.measure("ls -l")
    with pytest.raises(heapwright.HeapwrightError, match="no such study") as caught:
        heapwright.open_study("none.study")
    assert str(caught.value) == "no such study: none.study ('heapwright tune -- CMD' makes one)"


@pytest.mark.parametrize(
    ("words", "more", "message"),
    [
        (["true", 5], {}, "5 is not a str"),
        (["true", "a\0b"], {}, "has a null byte"),
        (["true"], {"env": {"A": 1}}, "1 is not a str"),
        (["true"], {"env": {"A=B": "x"}}, "'A=B' is not the name of a variable"),
        (["true"], {"options": ["--json", "file"]}, "--json cannot be among the options"),
        (["true"], {"options": "--timeout 20"}, "the options are one text"),
    ],
)
def test_wrong_arguments_of_the_api_are_one_line(words: list[Any], more: dict[str, Any], message: str) -> None:
    with pytest.raises(heapwright.HeapwrightError, match=message):
        heapwright.measure(words, **more)


def test_compare_returns_ratios_to_the_reference(program: Callable[..., Path]) -> None:
    bump = str(program("bump_malloc", "-shared", "-fPIC"))
    found = heapwright.compare([str(program("mapping_calls"))], allocators=["glibc", bump], rounds=3)
    assert found.reference == "glibc"
    reference, other = found.allocators.values()
    assert reference.ratio["peak_rss_bytes"].value == 1
    assert other.ratio["peak_rss_bytes"].low > 3
    assert len(other.runs) == 3
    single = heapwright.compare([str(program("mapping_calls"))], allocators=["glibc", bump], rounds=1)
    assert math.isnan(list(single.allocators.values())[1].ratio["peak_rss_bytes"].low)


def test_a_study_from_beginning_to_table(program: Callable[..., Path], tmp_path: Path) -> None:
    where = tmp_path / "a.study"
    study = heapwright.tune([str(program("mapping_calls"))], study=where, search_only=True, seed=7, **TUNE)
    assert len(study.evaluations()) == 6
    assert study.objectives == ["peak_rss_bytes", "cpu_s"]
    assert {e.number for e in study.front()} <= {e.number for e in study.evaluations()}
    assert not study.proven
    assert all(pick.claim.endswith("; not confirmed.") and not pick.confirmed for pick in study.picks.values())
    again = heapwright.tune([str(program("mapping_calls"))], study=where, search_only=True, **TUNE)
    assert [run.order for run in again.runs()] == [run.order for run in study.runs()], "resumed, without the seed"
    assert len(study.rows()) == len(study.runs())
    pandas = needs.module("pandas")
    frame = study.to_dataframe()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == len(study.runs())


def test_settings_in_a_table_are_texts(tuning: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = needs.module("pandas")
    made = tuning(World(noise=0.01), options=SHORT)
    made.go()
    study = heapwright.open_study(made.path)
    largest = dataclasses.replace(
        study.runs()[-1], evaluation=99, generation=2, settings={"cache": "18446744073709551615"}
    )
    monkeypatch.setattr(study, "_runs", [*study.runs(), largest])
    frame = study.to_dataframe()
    settings = frame.filter(like="set.")
    assert set(settings.dtypes) == {pandas.StringDtype()}
    assert settings["set.cache"].iloc[-1] == "18446744073709551615"
    default = frame[frame["evaluation"] == 0]
    assert default.filter(like="set.").isna().all(axis=None)
    assert not (settings == "").any(axis=None)
    assert frame["generation"].dtype == "Int64"
    assert frame["failure"].isna().all()
    assert frame["cpu_s"].dtype == "float64"


def test_without_pandas_a_line_says_so(tuning: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch) -> None:
    made = tuning(World(noise=0.01), options=SHORT)
    made.go()
    real = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(heapwright.HeapwrightError, match="to_dataframe needs pandas"):
        heapwright.open_study(made.path).to_dataframe()


def test_a_study_says_what_tune_says(tuning: Callable[..., Tuning]) -> None:
    made = tuning(World(noise=0.01), options=SHORT)
    view = made.go()
    study = heapwright.open_study(made.path)
    told = json.loads(json.dumps(tune_json(view)))
    assert study.claim == told["claim"]
    assert study.proven == told["proven"]
    assert {name: pick.settings for name, pick in study.picks.items()} == {
        name: pick["settings"] for name, pick in told["picks"].items()
    }
    for name, pick in study.picks.items():
        assert pick.verdict == {m: c["verdict"] for m, c in told["picks"][name]["confirmed"].items()}
    assert [e.number for e in study.front()] == [row["number"] for row in told["front"]]


def test_replay_returns_its_runs_and_refuses_an_unknown_setting(program: Callable[..., Path], tmp_path: Path) -> None:
    trace = tmp_path / "t.hwt"
    words = [sys.executable, "-m", "heapwright.cli.main", "record", "-q", "-o", str(trace), "--"]
    subprocess.run([*words, str(program("mapping_calls"))], check=True)
    found = heapwright.replay(trace, settings={"mmap_threshold": 65536}, runs=2)
    assert found.events > 0
    assert len(found.runs) == 2
    with pytest.raises(heapwright.HeapwrightError, match="unknown setting of glibc 'mmap_treshold'"):
        heapwright.replay(trace, settings={"mmap_treshold": 65536})


@pytest.mark.timeout(600)
@pytest.mark.long
def test_the_notebook_runs(tmp_path: Path) -> None:
    """Executes the code cells in order, in one process, as a notebook does."""
    notebook = json.loads((ROOT / "examples/study.ipynb").read_text())
    assert notebook["nbformat"] == 4
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    assert len(cells) >= 5
    assert all(not c["outputs"] for c in notebook["cells"] if c["cell_type"] == "code"), "no output is committed"
    script = tmp_path / "cells.py"
    script.write_text("\n\n".join(cells))
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" 6 evaluations") == 4
    assert done.stdout.count("minor_faults of the replay") == 2
    assert "set.mmap_threshold" in done.stdout or "to_dataframe needs pandas" in done.stdout
