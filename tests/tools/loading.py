"""Loads a program of tools/ as a module, so that a test can call its functions and replace its settings."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

import pytest

from tests.conftest import ROOT


def load_tool(name: str, monkeypatch: pytest.MonkeyPatch | None = None) -> ModuleType:
    """The program tools/NAME.py as a fresh module, which `monkeypatch` forgets after the test."""
    spec = spec_from_file_location(f"{name}_tool", ROOT / f"tools/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    if monkeypatch is None:
        sys.modules[spec.name] = module
    else:
        monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module
