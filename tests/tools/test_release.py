"""tools/release.py: the checksums of a release hold, its signatures are accepted, and it is made without a network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

from tests import needs
from tests.conftest import ROOT
from tests.tools.loading import load_tool


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool as a module."""
    return load_tool("release", monkeypatch)


@pytest.fixture
def sums(tool: ModuleType, tmp_path: Path) -> Path:
    """The checksums of a folder with two files."""
    (tmp_path / "b.whl").write_bytes(b"wheel")
    (tmp_path / "a.tar.gz").write_bytes(b"sources")
    path = tmp_path / "SHA256SUMS"
    path.write_text(tool.checksums(tmp_path))
    return path


def sha256sum(folder: Path) -> int:
    """The exit status of the command that SECURITY.md names."""
    words = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    return subprocess.run(words, cwd=folder, capture_output=True, check=False).returncode


def test_the_checksums_are_those_of_the_files(sums: Path) -> None:
    assert [line.split()[1] for line in sums.read_text().splitlines()] == ["a.tar.gz", "b.whl"]
    assert sha256sum(sums.parent) == 0
    (sums.parent / "b.whl").write_bytes(b"another wheel")
    assert sha256sum(sums.parent) == 1


def test_a_signature_by_an_ssh_key(tool: ModuleType, sums: Path, tmp_path: Path) -> None:
    needs.command("ssh-keygen")
    key = tmp_path / "keys/id"
    key.parent.mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "release", "-f", key], check=True)
    (tmp_path / "signers").write_text(f"release@example.org {key.with_suffix('.pub').read_text()}")
    signature = tool.sign(sums, str(key))
    words = ["ssh-keygen", "-Y", "verify", "-f", tmp_path / "signers", "-I", "release@example.org", "-n", "file"]
    check = [*words, "-s", signature]
    assert subprocess.run(check, input=sums.read_bytes(), capture_output=True, check=False).returncode == 0
    assert subprocess.run(check, input=b"other", capture_output=True, check=False).returncode != 0


def test_a_signature_by_gpg(tool: ModuleType, sums: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs.command("gpg")
    # The path of the agent's socket has at most 107 bytes, so the home is not below tmp_path.
    home = Path(subprocess.run(["mktemp", "-d", "/tmp/hw-gpg.XXXXXX"], capture_output=True, text=True).stdout.strip())
    monkeypatch.setenv("GNUPGHOME", str(home))
    try:
        words = ["gpg", "--batch", "--passphrase", "", "--quick-generate-key", "release@example.org", "ed25519", "sign"]
        subprocess.run(words, check=True, capture_output=True)
        signature = tool.sign(sums, "release@example.org")
        check = ["gpg", "--verify", signature, sums]
        assert subprocess.run(check, capture_output=True, check=False).returncode == 0
        sums.write_text("other")
        assert subprocess.run(check, capture_output=True, check=False).returncode != 0
    finally:
        subprocess.run(["gpgconf", "--kill", "gpg-agent"], capture_output=True, check=False)
        shutil.rmtree(home)


def test_a_missing_key_is_one_line(tool: ModuleType, sums: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNUPGHOME", str(sums.parent))
    with pytest.raises(tool.ToolError) as error:
        tool.sign(sums, "nobody@example.org")
    assert "\n" not in str(error.value)


@pytest.mark.long  # it builds the wheel
@pytest.mark.timeout(1500)
def test_a_release_is_made_without_a_network(tmp_path: Path) -> None:
    needs.root("leave the network")
    clone = tmp_path / "heapwright"
    subprocess.run(["git", "clone", "-q", "--no-local", ROOT, clone], check=True)
    env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    words = ["unshare", "--net", sys.executable, "tools/release.py"]
    done = subprocess.run(words, cwd=clone, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (folder,) = (clone / "dist").iterdir()
    assert sha256sum(folder) == 0
    version = folder.name.removeprefix("heapwright-")
    names = {path.name for path in folder.iterdir()}
    assert {f"{folder.name}.tar.gz", f"{folder.name}.cdx.json", "SHA256SUMS"} < names
    assert [name for name in names if name.endswith(".whl") and name.startswith(f"heapwright-{version}-")]
    with tarfile.open(folder / f"{folder.name}.tar.gz") as archive:
        assert f"{folder.name}/pyproject.toml" in archive.getnames()
    assert json.loads((folder / f"{folder.name}.cdx.json").read_text())["metadata"]["component"]["version"] == version
    first = (folder / "SHA256SUMS").read_bytes()
    subprocess.run(words, cwd=clone, env=env, capture_output=True, check=True)
    assert (folder / "SHA256SUMS").read_bytes() == first
