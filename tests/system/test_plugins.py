"""Tests the user's own search method and own objective with the installed command, as the guide says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..conftest import ROOT
from ..markdown import code_blocks
from ..plugins import install_package
from .conftest import Heapwright

WORDS = ["tune", "--allocators", "glibc", "--budget", "6", "--proxy", "none", "--no-runtime", "--search-only"]


def test_tune_uses_a_method_of_the_users_package(
    heapwright: Heapwright, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heapwright.forked = False  # PYTHONPATH is read at the start
    monkeypatch.setenv("PYTHONPATH", str(install_package(tmp_path / "packages")))
    out = ["--no-report", "--json", "-"]
    done = heapwright(*WORDS, "--params", "mxfast,top_pad", "--method", "highest", *out, "--", "true")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert (found["method"], found["evaluations"]) == ("highest", 2)
    done = heapwright(*WORDS, "--method", "higest", "--", "true")
    assert done.status == 2
    assert "unknown method 'higest' (did you mean 'highest'?; the package of a method of your own must" in done.err
    done = heapwright(*WORDS, "--method", "missing", "--study", "m.study", "--", "true")
    assert done.status == 1
    assert "'missing' of heapwright.methods (other_package_that_is_not_there:Nothing) cannot be imported" in done.err


def test_the_method_of_the_page_works(heapwright: Heapwright, monkeypatch: pytest.MonkeyPatch) -> None:
    package = install_package(heapwright.folder / "packages")
    (code,) = (b for b in code_blocks(ROOT / "docs/search.md") if b.language == "python")
    (package / "mypackage").mkdir()
    (package / "mypackage/climber.py").write_text("\n".join(code.lines))
    points = package / "other_package-1.0.dist-info/entry_points.txt"
    points.write_text("[heapwright.methods]\nclimber = mypackage.climber:Climber\n")
    monkeypatch.setenv("PYTHONPATH", str(package))
    done = heapwright(*WORDS, "--method", "climber", "--no-report", "--json", "-", "--", "true")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert (found["method"], found["evaluations"]) == ("climber", 6)


def test_a_fault_of_an_own_method_names_it(heapwright: Heapwright, monkeypatch: pytest.MonkeyPatch) -> None:
    package = install_package(heapwright.folder / "packages")
    monkeypatch.setenv("PYTHONPATH", str(package))
    for method, message in {
        "fails": f"the search method 'fails' fails: ValueError: my fault ({package}/other_package.py, line ",
        "outside": "'outside' proposes [99, 99, 99], which is not a point of the space: it needs 3 levels",
        "fraction": "'fraction' proposes [0.5, 0.5, 0.5], which is not a point of the space",
        "nothing": "the search method 'nothing' fails: ask returns None, which is not a list of points",
        "half": "the search method 'half' (Half) has no method 'tell'",
    }.items():
        study = ["--study", f"{method}.study", "--params", "mxfast,top_pad"]
        done = heapwright(*WORDS, *study, "--method", method, "--", "true")
        assert (done.status, message in done.err) == (1, True), done.err


def test_a_change_of_the_users_code_begins_a_new_search(
    heapwright: Heapwright, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = install_package(heapwright.folder / "packages")
    monkeypatch.setenv("PYTHONPATH", str(package))
    (heapwright.folder / "score").write_text("#!/bin/sh\necho 3\n")
    (heapwright.folder / "score").chmod(0o755)
    (heapwright.folder / "w.toml").write_text("command = ['true']\n[objective]\ncommand = ['./score']\n")
    words = [*WORDS, "--workload", "w.toml", "--minimize", "objective", "--params", "mxfast", "--study", "s.study"]
    words += ["--method", "highest"]
    for file in (None, heapwright.folder / "score", package / "other_package.py"):
        if file is not None:
            file.write_text(file.read_text() + "\n# another version\n")
        done = heapwright(*words)
        assert done.status == 0, done.err
        assert (f"code of the search has changed since the study was made ({file} changed)" in done.err) == bool(file)
    assert len(list(heapwright.folder.glob("s.*.study"))) == 2


def test_massif_peak_needs_no_other_option(heapwright: Heapwright) -> None:
    done = heapwright(*WORDS, "--minimize", "massif_peak", "--params", "mxfast", "--json", "-", "--", "true")
    assert done.status == 0, done.err
    assert json.loads(done.out)["baseline"]["massif_peak_bytes"]["median"] > 1 << 20


def test_an_experiment_goes_on_after_a_failure(heapwright: Heapwright, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(install_package(heapwright.folder / "packages")))
    (heapwright.folder / "e.toml").write_text(
        'methods = ["random", "fails"]\nseeds = 2\nbudgets = [3]\nminimize = ["minor_faults"]\n'
        'allocators = ["glibc"]\noptions = ["--proxy", "none", "--no-runtime"]\n'
        '[[program]]\nname = "true"\ncommand = ["true"]\n'
    )
    done = heapwright("experiment", "e.toml")
    assert done.status == 1
    last = done.err.splitlines()[-1]
    assert done.err.count("true-fails-3-1.study: the search method 'fails' fails: ValueError: my fault") == 1
    assert "1 search failed" in last
    assert "1 of the same program and method were left out" in last
    results = (heapwright.folder / "e/results.md").read_text()
    assert "Not finished: it lacks 2 searches." in results
    assert "| true | program | 3 | random | 2 |" in results
    (heapwright.folder / "e.toml").write_text((heapwright.folder / "e.toml").read_text().replace("fails", "half"))
    done = heapwright("experiment", "e.toml")
    assert (done.status, "has no method 'tell'" in done.err) == (1, True), "it is noticed before any search"


def test_tune_minimises_an_objective_of_the_user(heapwright: Heapwright) -> None:
    """The program prints a number that one setting lowers; the search finds the setting."""
    script = "case $GLIBC_TUNABLES in *mxfast*) echo 0.5;; *) echo 2;; esac"
    text = (
        f"command = ['sh', '-c', '{script}']\n[output]\ncompare = 'none'\n[objective]\ncommand = ['cat', '{{output}}']"
    )
    (heapwright.folder / "w.toml").write_text(text)
    words = ["--workload", "w.toml", "--minimize", "objective", "--params", "mxfast", "--method", "grid"]
    done = heapwright(*WORDS, *words, "--json", "-")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert found["objectives"] == ["objective"]
    assert found["baseline"]["objective"]["median"] == 2
    (pick,) = found["picks"].values()
    assert list(pick["settings"]) == ["mxfast"]
    assert pick["search"]["ratios"]["objective"] == 0.25
    done = heapwright(*WORDS, "--minimize", "objective", "--study", "o.study", "--", "true")
    assert done.status == 2
    assert "objective (objective) cannot be measured here (it needs a workload file with [objective])" in done.err
