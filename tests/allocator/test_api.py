"""What each malloc function answers, row by row, against glibc's answers on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.allocator.conftest import GLIBC, Malloc

# Where another answer is as good as glibc 2.36's, and why.
AS_GOOD = {
    # C17 requires an error for an invalid alignment; glibc before 2.38 rounds it up.
    "aligned_alloc(3, 16)": "NULL, errno EINVAL",
    "aligned_alloc(0, 16)": "NULL, errno EINVAL",
    # An alignment that no block can have: as much an invalid alignment as a lack of memory.
    "aligned_alloc(2^63, 16)": "NULL, errno EINVAL",
    # POSIX has the error returned and says nothing about errno; the man page says that it is not
    # set.
    "posix_memalign(64, SIZE_MAX)": "returns ENOMEM, errno kept, pointer untouched",
    "posix_memalign(64, PTRDIFF_MAX + 1)": "returns ENOMEM, errno kept, pointer untouched",
    # glibc's mallopt reports success for unknown parameters; its own parameter is meaningless
    # elsewhere.
    "mallopt(unknown)": "0",
    "mallopt(M_MXFAST, too much)": "1",
    # No longer in glibc's headers.
    "__posix_memalign": "works",
}

# C23's, which glibc has since 2.43 and we always.
OURS = {
    "free_sized": "works, errno kept",
    "free_aligned_sized": "works, errno kept",
}


def table(malloc: Malloc, path: Path) -> dict[str, str]:
    """The program's rows by name."""
    done = malloc.run(path)
    assert done.returncode == 0
    rows = [line.partition(": ") for line in done.stdout.decode().splitlines()]
    found = {name: answer for name, _, answer in rows}
    assert len(found) == len(rows), "two rows have one name"
    return found


@pytest.fixture(scope="module")
def reference(judge: Callable[[str], Path]) -> dict[str, str]:
    return table(GLIBC, judge("api"))


def test_the_reference_answers_every_row(reference: dict[str, str]) -> None:
    assert len(reference) > 100
    assert not [name for name, answer in reference.items() if "died" in answer]
    assert set(AS_GOOD) | set(OURS) <= set(reference)


def test_answers_are_glibc_s_or_as_good(
    allocator: Malloc, judge: Callable[[str], Path], reference: dict[str, str]
) -> None:
    found = table(allocator, judge("api"))
    assert found.keys() == reference.keys()
    expected = {**reference, **(OURS if allocator != GLIBC else {})}
    wrong = {
        name: (answer, expected[name])
        for name, answer in found.items()
        if answer not in (expected[name], AS_GOOD.get(name))
    }
    assert not wrong, "\n" + "\n".join(f"{name}: {is_}  [not: {not_}]" for name, (is_, not_) in wrong.items())
