"""Tests that a method whose package is missing says so in one line, and that the extra `tune` has each package."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

import pytest

from heapwright.cli.main import main
from heapwright.search import methods
from heapwright.search.methods import METHODS, check_method
from tests.conftest import ROOT


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if method.needs])
def test_a_missing_package_is_one_line(
    method: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = set(METHODS[method].needs)
    find = importlib.util.find_spec
    monkeypatch.setattr(methods, "find_spec", lambda name: None if name in missing else find(name))
    assert main(["tune", "--method", method, "--", "true"]) == 1
    said = capsys.readouterr().err.strip()
    assert f"the search method '{method}' needs {next(iter(METHODS[method].needs.values()))}" in said
    assert "pip install './WHEEL.whl[tune]', or in a clone, pip install '.[tune]'" in said
    if method == "auto":
        assert f"\n{said}\n" in (ROOT / "docs/wheels.md").read_text(), "the page quotes the message"
    check_method("sobol")


def test_a_missing_package_is_reported_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(methods, "find_spec", lambda _: None)
    words = ["tune", "--budget", "6", "--study", str(tmp_path / "s.study"), "--", "touch", str(tmp_path / "ran")]
    assert main(words) == 1
    assert "the search method 'auto' needs scikit-learn" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_the_extra_has_what_the_methods_need() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    packages = {package for method in METHODS.values() for package in method.needs.values()}
    assert packages | {"threadpoolctl"} == {one.partition(">")[0] for one in extras["tune"]}


def test_methods_that_state_no_need_import_none() -> None:
    """Only the modules of the methods that state a need import the extra's packages."""
    folder = ROOT / "src/heapwright"
    modules = {method.module for method in METHODS.values() if method.needs} - {"auto"}
    for file in folder.rglob("*.py"):
        text = file.read_text()
        if any(
            f"import {name}" in text or f"from {name}" in text for name in ("sklearn", "pymoo", "cma", "threadpoolctl")
        ):
            assert file.parent.name == "search"
            assert file.stem in modules
