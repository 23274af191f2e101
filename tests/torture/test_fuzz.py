"""Runs every corpus entry of the Python harnesses, and some mutations of them.

The native harnesses (tests/torture/fuzz/CMakeLists.txt) replay their corpora in `make native-test`, by ctest.
tools/fuzz.py (`make fuzz`, a part of `make torture`) fuzzes all harnesses by coverage, with libFuzzer and atheris.
"""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest

from .fuzz.targets import TARGETS

FOLDER = Path(__file__).parent
CORPORA = FOLDER / "corpora"
# As the build knows them.
HARNESSES = re.findall(
    r"^set\((?:HEAP_)?HARNESSES ([\w ]+)\)", (FOLDER / "fuzz/CMakeLists.txt").read_text(), re.MULTILINE
)
NATIVE = " ".join(HARNESSES).split()


def entries(name: str) -> list[bytes]:
    return [p.read_bytes() for p in sorted((CORPORA / name).iterdir())]


@pytest.mark.parametrize("name", [*NATIVE, *TARGETS])
def test_there_is_a_corpus(name: str) -> None:
    assert entries(name)


def mutated(rng: random.Random, corpus: list[bytes]) -> bytes:
    """Makes a small change to a random corpus entry, and sometimes joins it to another."""
    data = bytearray(rng.choice(corpus))
    if rng.random() < 0.2:
        data += rng.choice(corpus)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                data[at:at] = bytes([rng.randrange(256)])
            case 1:
                del data[at : at + rng.randrange(1, 20)]
            case 2:
                data[at:at] = data[at : at + rng.randrange(1, 50)]
            case 3:
                data[at:at] = rng.choice(
                    (b'"', b"{", b"[", b"-1", b"9" * 30, b"\xff", b"\0", b"1e999", b"null", b"=", b"\n")
                )
            case _:
                data[at : at + 1] = bytes([rng.randrange(256)])
    return bytes(data)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.few(4)
def test_python_parsers_survive_mutated_inputs(name: str) -> None:
    """Runs the corpus, and mutations of it for about a second."""
    corpus, rng = entries(name), random.Random(7)
    for data in corpus:
        TARGETS[name](data)
    end = time.monotonic() + 1
    tried = 0
    while time.monotonic() < end:
        data = mutated(rng, corpus)
        try:
            TARGETS[name](data)
        except BaseException:
            print(f"the input: {data!r}")
            raise
        tried += 1
    assert tried > 2
