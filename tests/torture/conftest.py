"""Selects the form of these tests: the short one in every test run, the long one with `pytest --long`."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def long(request: pytest.FixtureRequest) -> bool:
    """Whether the long form runs (`pytest --long`, `make torture`)."""
    return bool(request.config.getoption("--long"))
