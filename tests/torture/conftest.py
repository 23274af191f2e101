"""How much of the torture to do: its short form in every test run, all of it with `pytest --long` (`make torture`)."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def long(request: pytest.FixtureRequest) -> bool:
    """True where all of it is to run; a test that has no short form skips itself otherwise."""
    return bool(request.config.getoption("--long"))
