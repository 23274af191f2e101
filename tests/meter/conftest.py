"""Provides the meter with each back end that works on this machine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import needs

from .harness import BACKENDS, EXACT, Meter

Make = Callable[[str], Meter]


@pytest.fixture(scope="session")
def works(meter: Path) -> dict[str, Any]:
    """The meter's probe of each back end."""
    probed: dict[str, Any] = json.loads(subprocess.run([meter, "--probe"], capture_output=True, check=True).stdout)
    return probed


@pytest.fixture
def meter_with(meter: Path, program: Callable[..., Path], tmp_path: Path, works: dict[str, Any]) -> Make:
    """Return the meter with the named back end; skip the test if it does not work here."""

    def make(backend: str) -> Meter:
        if not works[backend]["works"]:
            needs.machine_cannot(f"use {backend}: {works[backend]['why']}")
        return Meter(meter, backend, program("behaviours"), tmp_path)

    return make


@pytest.fixture(params=BACKENDS)
def any_meter(request: pytest.FixtureRequest, meter_with: Make) -> Meter:
    return meter_with(request.param)


@pytest.fixture(params=EXACT)
def exact_meter(request: pytest.FixtureRequest, meter_with: Make) -> Meter:
    return meter_with(request.param)
