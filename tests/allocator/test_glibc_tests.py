"""glibc's own tests of malloc under our libraries: no hang, and no failure but those that are of glibc's own making."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import needs
from tests.allocator import glibc_tests
from tests.allocator.conftest import GLIBC, Malloc

# Tests of features that only glibc's malloc has, with the reason.
OF_GLIBC = {
    "tst-malloc-backtrace": "damages the header of a chunk, and expects glibc's next malloc to notice",
    "tst-malloc-stats-cancellation": "expects the words of glibc's malloc_stats",
    "tst-malloc-thread-fail": "expects posix_memalign to set errno, which its manual page excludes",
    "tst-safe-linking": "damages glibc's own free lists",
}
# Hardened builds pass these: the others do not look for a block that is freed twice in a row.
OF_HARDENED = ("tst-tcfree1", "tst-tcfree2")
# It writes before a freed block. Hardened builds place blocks at random: the damaged bytes are
# those of the block that malloc hands out next, which it notices (the test passes), of another
# block (it fails), or of no mapping (it crashes).
BY_CHANCE = {"tst-malloc-backtrace"}
LEAST = 25  # so many apply, or they were not built as they should be


@pytest.fixture(scope="module")
def tests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tests that apply: those that pass under glibc's own malloc."""
    source = glibc_tests.sources()
    if source is None:
        needs.missing(f"the source of {glibc_tests.PACKAGE}")
    built = glibc_tests.build(source, tmp_path_factory.mktemp("glibc"))
    return {name: test for name, test in built.items() if glibc_tests.outcome(test, GLIBC) == "passed"}


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_glibcs_tests_pass(allocator: Malloc, tests: dict[str, Path]) -> None:
    assert len(tests) >= LEAST
    outcomes = {name: glibc_tests.outcome(test, allocator) for name, test in tests.items()}
    failed = {name: what for name, what in outcomes.items() if what != "passed"}
    excused = {*OF_GLIBC, *(() if allocator.name.endswith("secure") else OF_HARDENED)}
    assert not {name: what for name, what in failed.items() if name not in excused or what == "hangs"}
    open_ = BY_CHANCE if allocator.name.endswith("secure") else set()
    assert {*failed} - open_ == {*excused} & {*tests} - open_, "a reason is given for each that fails, and for no other"
