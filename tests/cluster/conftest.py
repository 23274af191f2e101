"""Provides one cluster for tests that leave it intact, and a new one for each test that harms it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .farm import Farm


@pytest.fixture(scope="package")  # its idle processes would take a fifth of a processor from all later tests
def shared_farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    farm = Farm(tmp_path_factory.mktemp("farm"))
    try:
        farm.start_scheduler()
        # With a nanny, which sets environment variables of malloc in its worker.
        farm.start_worker("one", nanny=True)
        farm.start_worker("two")
        yield farm
    finally:
        farm.close()


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    folder = tmp_path / "farm"
    folder.mkdir()
    farm = Farm(folder)
    try:
        yield farm
    finally:
        farm.close()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heapwright.cluster.worker_pool._SETTLE_S", 0.3)
