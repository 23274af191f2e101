"""Collects a release in dist/heapwright-VERSION, without a network: `make release` calls it.

    .venv/bin/python tools/release.py [--key KEY] [--uncommitted]

The folder gets the sources of HEAD, the wheels and kits that lie in dist/ (`make wheels`, `make kit`), the list of
parts (tools/sbom.py), and SHA256SUMS with the checksums of these files. If dist/ has no wheel of this version, the tool
builds that of this machine. The same commit gives the same bytes on the same machine: times are those of the commit.

    --key KEY      signs SHA256SUMS. The path of a private SSH key gives SHA256SUMS.sig (ssh-keygen -Y sign, namespace
                   'file'); anything else is a key of gpg's and gives SHA256SUMS.asc
    --uncommitted  goes on although HEAD is not what lies in the folder; for a trial only

SECURITY.md says how to check a release.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from calling import ROOT, ToolError, call

DIST = ROOT / "dist"
SUMS = "SHA256SUMS"


def sources(version: str, folder: Path) -> None:
    """Writes the sources of HEAD as a compressed archive, with the time of the commit.

    Args:
        version: of the release.
        folder: that gets the archive.
    """
    archive = folder / f"heapwright-{version}.tar"
    call("git", "archive", f"--prefix=heapwright-{version}/", "-o", archive, "HEAD")
    call("gzip", "--no-name", "--best", archive)


def wheel(folder: Path, env: dict[str, str]) -> None:
    """Builds the wheel of this machine with the installed build tools, without an index of packages."""
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    call(sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", folder, ROOT, env=env)


def checksums(folder: Path) -> str:
    """The lines of SHA256SUMS for the files of a folder, as sha256sum writes them."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith(SUMS))
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def sign(sums: Path, key: str) -> Path:
    """Signs the checksums with an SSH key or a key of gpg's; returns the signature's path."""
    if Path(key).is_file():
        call("ssh-keygen", "-Y", "sign", "-f", key, "-n", "file", sums)
        return sums.with_name(f"{sums.name}.sig")
    signature = sums.with_name(f"{sums.name}.asc")
    call("gpg", "--batch", "--local-user", key, "--armor", "--output", signature, "--detach-sign", sums)
    return signature


def release(key: str | None, uncommitted: bool) -> Path:
    """Makes the release's folder; an older one of the same version is replaced as a whole.

    Args:
        key: signs the checksums; None for no signature.
        uncommitted: whether changes that HEAD does not have are allowed.

    Returns:
        The folder.
    """
    if call("git", "status", "--porcelain") and not uncommitted:
        raise ToolError("there are uncommitted changes; commit them first")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    epoch = call("git", "log", "-1", "--format=%ct").strip()
    env = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    target = DIST / f"heapwright-{version}"
    draft = DIST / f".{target.name}.{os.getpid()}"
    draft.mkdir(parents=True)
    try:
        sources(version, draft)
        for path in sorted([*DIST.glob(f"heapwright-{version}-*.whl"), *DIST.glob(f"heapwright-kit-{version}*")]):
            shutil.copy2(path, draft)
        if not list(draft.glob("*.whl")):
            wheel(draft, env)
        call(sys.executable, ROOT / "tools/sbom.py", draft / f"heapwright-{version}.cdx.json", env=env)
        (draft / SUMS).write_text(checksums(draft))
        if key is not None:
            sign(draft / SUMS, key)
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def main() -> int:
    """Makes the release and lists its files; returns the exit status."""
    parser = argparse.ArgumentParser(description="Collects a release in dist/, without a network.")
    parser.add_argument("--key", help="an SSH key file, or a key of gpg's, that signs the checksums")
    parser.add_argument("--uncommitted", action="store_true", help="allow changes that are not committed")
    args = parser.parse_args()
    try:
        folder = release(args.key, args.uncommitted)
    except ToolError as error:
        print(f"heapwright: {error}", file=sys.stderr)
        return 1
    for path in sorted(folder.iterdir()):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size:,} bytes")
    if args.key is None:
        print("heapwright: not signed: make release KEY=… signs SHA256SUMS", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
