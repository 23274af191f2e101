"""Bad input to `heapwright inspect` and `heapwright link` gets one clear line."""

from __future__ import annotations

import pytest

from .conftest import Heapwright


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        ((), 2, "there is nothing to inspect"),
        (("/etc/passwd",), 1, "is not an ELF file, but text"),
        (("/no/such",), 2, "/no/such: No such file"),
        (("x.cpp", "--", "g++"), 2, "cannot both be given"),
    ],
)
def test_inspect_refuses_bad_input_in_one_line(
    heapwright: Heapwright, words: tuple[str, ...], status: int, says: str
) -> None:
    done = heapwright("inspect", *words)
    assert (done.status, done.err.count("\n")) == (status, 1)
    assert says in done.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--allocator", "nonsense", "--", "g++", "x.o"), "unknown allocator 'nonsense'"),
        (("--study", "none.study", "--", "g++", "x.o"), "none.study"),
        (("--pick", "time", "--", "g++", "x.o"), "--pick needs --study"),
        (("--options", "keep=1,foo=1", "--", "g++", "x.o"), "--options: not understood: 'foo=1' (known are limit=SIZE"),
        (("--options", "keep=x", "--", "g++", "x.o"), "--options: not understood: 'keep=x'"),
        (("--allocator", "glibc", "--secure", "--", "g++", "x.o"), "only exgen and reaper have a hardened build"),
        (("--allocator", "glibc", "--options", "keep=1", "--", "g++", "x.o"), "can have options built in"),
        ((), "there is no command"),
    ],
)
def test_link_refuses_bad_input_in_one_line(heapwright: Heapwright, words: tuple[str, ...], says: str) -> None:
    done = heapwright("link", *words)
    assert done.status in (1, 2)
    assert done.err.count("\n") == 1
    assert says in done.err
