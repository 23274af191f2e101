"""Runs every corpus entry through its harness and, in the long form, fuzzes the harnesses by coverage.

The native harnesses (tests/torture/fuzz/CMakeLists.txt) replay their corpora in `make native-test`, by ctest; here they
are built with clang and libFuzzer. The Python targets (targets.py) replay their corpora and some mutations here, and
atheris drives them if it is available.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import needs

from .fuzz.targets import TARGETS

FOLDER = Path(__file__).parent
CORPORA = FOLDER / "corpora"
NATIVE = ("raw", "packed", "events", "wl", "heaptrack", "synth", "options", "massif", "exgen", "reaper")
SECONDS = int(os.environ.get("HEAPWRIGHT_FUZZ_SECONDS", "60"))  # time for each harness in the long form

# Starts a fuzzer from a small process. A fuzzer limits its peak memory, which a process inherits from its parent, and a
# pytest worker may have had gigabytes.
SHELL = ("sh", "-c", '"$@"; exit $?', "sh")


def entries(name: str) -> list[bytes]:
    return [p.read_bytes() for p in sorted((CORPORA / name).iterdir())]


@pytest.mark.parametrize("name", [*NATIVE, *TARGETS])
def test_there_is_a_corpus(name: str) -> None:
    assert entries(name)


TOKENS = (b'"', b"{", b"[", b"-1", b"9" * 30, b"\xff", b"\0", b"1e999", b"null", b"=", b"\n", b"\t")


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
def test_python_parsers(name: str, long: bool) -> None:
    """Runs the corpus, and mutations of it for about a second (a minute in the long form)."""
    corpus, rng = entries(name), random.Random(7)
    for data in corpus:
        TARGETS[name](data)
    end = time.monotonic() + (SECONDS if long else 1.5)
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


@pytest.fixture(scope="module")
def libfuzzer() -> Path:
    """The native harnesses as libFuzzer programs."""
    clang, cmake = needs.command("clang++"), needs.command("cmake")
    folder = FOLDER.parents[1] / "build/fuzz"
    folder.mkdir(parents=True, exist_ok=True)
    probe = ["-fsanitize=fuzzer,address", "-x", "c++", "-", "-o", str(folder / "probe")]
    empty = b'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
    if subprocess.run([clang, *probe], input=empty, capture_output=True, check=False).returncode:
        needs.missing("libclang-rt-dev")
    configure: list[str | Path] = [cmake, "-S", FOLDER / "fuzz", "-B", folder, f"-DCMAKE_CXX_COMPILER={clang}"]
    subprocess.run(configure, check=True, capture_output=True)
    build: list[str | Path] = [cmake, "--build", folder, "-j", "2"]
    subprocess.run(build, check=True, capture_output=True)
    return folder


@pytest.mark.long
@pytest.mark.timeout(2 * SECONDS + 600)
@pytest.mark.parametrize("name", NATIVE)
def test_native_parsers_and_heaps_by_coverage(name: str, libfuzzer: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    options = [
        f"-max_total_time={SECONDS}",
        "-timeout=30",
        "-rss_limit_mb=3000",
        "-max_len=20000",
        "-print_final_stats=1",
    ]
    words: list[str | Path] = [
        *SHELL,
        libfuzzer / f"fuzz_{name}",
        *options,
        "-close_fd_mask=1",
        f"-artifact_prefix={tmp_path}/",
        corpus,
        CORPORA / name,
    ]
    done = subprocess.run(words, capture_output=True, check=False, timeout=SECONDS + 300)
    said = done.stderr.decode(errors="replace")
    assert done.returncode == 0, f"{[p.read_bytes().hex() for p in tmp_path.glob('*-*')]}\n{said[-3000:]}"


@pytest.fixture(scope="module")
def atheris(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with atheris, installed from the wheel that the lock file names."""
    folder = tmp_path_factory.mktemp("atheris")
    lock = FOLDER / "fuzz/requirements.lock"
    words: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--require-hashes",
        "--no-deps",
        "-r",
        lock,
        "--target",
        folder,
    ]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        needs.missing("atheris")
    return folder


@pytest.mark.long
@pytest.mark.timeout(2 * SECONDS + 600)
@pytest.mark.parametrize("name", TARGETS)
def test_python_parsers_by_coverage(name: str, atheris: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    options = [f"-max_total_time={SECONDS}", "-timeout=30", "-rss_limit_mb=3000", f"-artifact_prefix={tmp_path}/"]
    words: list[str | Path] = [*SHELL, sys.executable, "-m", "tests.torture.fuzz.drive", name, *options]
    env = {**os.environ, "PYTHONPATH": str(atheris)}
    root = FOLDER.parents[1]
    words += [corpus, CORPORA / name]
    done = subprocess.run(words, cwd=root, env=env, capture_output=True, check=False, timeout=SECONDS + 300)
    kept = [p.read_bytes() for p in tmp_path.glob("*-*")]
    for data in kept:
        TARGETS[name](data)  # raises the error here if the target found it
    assert done.returncode == 0, f"{kept}\n{done.stderr.decode(errors='replace')[-3000:]}"
