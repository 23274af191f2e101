"""Checks that dependencies are locked by hash, that the wheel builds reproducibly, and that its parts list is right."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from tests.conftest import ROOT

LEFT_OUT = (
    ".git",
    ".venv",
    "build",
    "out",
    "dist",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
)


def requirements(text: str) -> list[str]:
    """The requirements of a lock file, one logical line each."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    return [line for line in "\n".join(lines).replace("\\\n", " ").splitlines() if line.strip()]


def test_every_dependency_is_locked_by_its_hash() -> None:
    for line in requirements((ROOT / "requirements.lock").read_text()):
        assert re.match(r"[a-z0-9][a-z0-9.-]*(\[[a-z,]+\])?==\S+ ", line), line
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", line), line
    assert "--require-hashes -r requirements.lock" in (ROOT / "Makefile").read_text()


def test_a_line_without_a_hash_is_seen() -> None:
    assert requirements("a==1 \\\n    --hash=sha256:0\n    # via b\nc==2\n") == ["a==1      --hash=sha256:0", "c==2"]


def wheel(source: Path, target: Path) -> Path:
    """Builds the wheel of a source tree."""
    words = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--disable-pip-version-check",
    ]
    subprocess.run(
        [*words, "--wheel-dir", target, source],
        check=True,
        cwd=target,
        env=os.environ | {"SOURCE_DATE_EPOCH": "1577836800"},
    )
    return next(target.glob("*.whl"))


@pytest.mark.long  # it builds the wheel twice
@pytest.mark.timeout(1500)
def test_the_wheel_is_the_same_wherever_it_is_built(tmp_path: Path) -> None:
    made = []
    for name in ("here", "somewhere/else/with a longer name"):
        source, target = tmp_path / name / "source", tmp_path / name / "wheel"
        shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*LEFT_OUT))
        target.mkdir()
        made.append(wheel(source, target))
    members = [
        {m: hashlib.sha256(file.read(m)).hexdigest() for m in file.namelist()} for file in map(zipfile.ZipFile, made)
    ]
    assert [name for name in members[0] if members[0][name] != members[1].get(name)] == []
    assert made[0].read_bytes() == made[1].read_bytes()


def test_the_list_of_parts(tmp_path: Path) -> None:
    target = tmp_path / "sbom.json"
    subprocess.run([sys.executable, ROOT / "tools/sbom.py", target], check=True)
    bom = json.loads(target.read_text())
    assert bom["bomFormat"] == "CycloneDX"
    assert bom["metadata"]["component"]["name"] == "heapwright"
    parts = {part["name"]: part for part in bom["components"]}
    # Direct and indirect dependencies and libraries linked into our programs, but no dependencies
    # of tests.
    assert {"numpy", "scipy", "markupsafe", "glibc", "libstdc++"} <= {name.lower() for name in parts}
    assert not {"pytest", "mypy", "ruff", "selenium"} & parts.keys()
    assert all(part["version"] for part in parts.values())
    locked = {line.split()[0]: line for line in requirements((ROOT / "requirements.lock").read_text())}
    for name, part in parts.items():
        if part.get("purl", "").startswith("pkg:pypi/"):
            hashes = {one["content"] for one in part["externalReferences"][0]["hashes"]}
            assert part["version"] == metadata.version(name)
            assert hashes == set(re.findall(r"sha256:([0-9a-f]{64})", locked[f"{name}=={part['version']}"])), name
    known = {part["bom-ref"] for part in [bom["metadata"]["component"], *bom["components"]]}
    assert {one["ref"] for one in bom["dependencies"]} == known
    again = tmp_path / "again.json"
    subprocess.run([sys.executable, ROOT / "tools/sbom.py", again], check=True)
    assert again.read_bytes() == target.read_bytes()
