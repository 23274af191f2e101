"""Tests the user's own search method and own objective with the installed command, as the guide says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..plugins import install_package
from .conftest import Heapwright

WORDS = ["tune", "--allocators", "glibc", "--budget", "6", "--proxy", "none", "--no-runtime", "--search-only"]


def test_an_own_method(heapwright: Heapwright, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heapwright.forked = False  # PYTHONPATH is read at the start
    monkeypatch.setenv("PYTHONPATH", str(install_package(tmp_path / "packages")))
    out = ["--no-report", "--json", "-"]
    done = heapwright(*WORDS, "--params", "mxfast,top_pad", "--method", "highest", *out, "--", "true")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert (found["method"], found["evaluations"]) == ("highest", 2)
    done = heapwright(*WORDS, "--method", "higest", "--", "true")
    assert (done.status, "unknown method 'higest' (did you mean 'highest'?)" in done.err) == (2, True)
    done = heapwright(*WORDS, "--method", "missing", "--study", "m.study", "--", "true")
    assert done.status == 1
    assert "'missing' of heapwright.methods (other_package_that_is_not_there:Nothing) cannot be imported" in done.err


def test_an_own_objective(heapwright: Heapwright) -> None:
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
    assert done.status == 1
    assert "objective (objective) cannot be measured here (it needs a workload file with [objective])" in done.err
