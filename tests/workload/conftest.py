"""The fixture of the tests that run real small commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from heapwright.measure.meter import MeterOptions
from heapwright.workload.execute import Executor
from heapwright.workload.model import Input, Workload, WorkloadFile

from .executors import Make


@pytest.fixture
def make(tmp_path: Path, meter: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """An executor of a shell script, in a fresh directory."""
    monkeypatch.setenv("HEAPWRIGHT_METER", str(meter))

    def build(script: str, timeout: float = 20.0, **file: Any) -> Executor:
        definition = msgspec.structs.replace(WorkloadFile(command=["/bin/sh", "-c", script, "sh"]), **file)
        workload = Workload(definition, tmp_path, (Input("default"),))
        return Executor(workload, MeterOptions(timeout=timeout, series=20), tmp_path / "references")

    return build
