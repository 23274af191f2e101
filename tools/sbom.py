"""Lists the parts of the wheel as CycloneDX JSON: `make sbom`, or python tools/sbom.py FILE.

The parts are the Python packages that heapwright requires directly or indirectly, in the versions
and with the hashes of requirements.lock, and the libraries that are linked into its native
programs, in the versions of this machine's compiler. The same sources on the same machine give the
same bytes: the time is $SOURCE_DATE_EPOCH, or 1970 if that is not set.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.dependency import Dependency
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def locked(text: str) -> dict[tuple[str, str], list[str]]:
    """Reads the SHA-256 of each package's files from a lock file, by name and version (which Python may decide)."""
    found = re.findall(
        r"^([\w.-]+)(?:\[[\w,-]+\])?==(\S+?)(?:\s*;[^\\]*)?\s*\\((?:\n    --hash=\S+[ \\]*)+)", text, re.MULTILINE
    )
    return {(canonicalize_name(n), v): re.findall(r"sha256:(\w+)", hashes) for n, v, hashes in found}


def needs(name: str) -> list[str]:
    """The packages that an installed package requires on this machine, of our extras with 'tune' alone."""
    extra = {"extra": "tune" if name == "heapwright" else ""}
    wanted = map(Requirement, metadata.requires(name) or [])
    return sorted({canonicalize_name(one.name) for one in wanted if one.marker is None or one.marker.evaluate(extra)})


def closure(name: str) -> dict[str, list[str]]:
    """The package and all its direct and indirect requirements, each with its own requirements."""
    found: dict[str, list[str]] = {}
    ahead = [name]
    while ahead:
        one = ahead.pop()
        if one not in found:
            found[one] = needs(one)
            ahead += found[one]
    return found


def linked() -> Iterator[tuple[str, str]]:
    """Yields name and version of the libraries linked into the native programs."""
    yield "glibc", (os.confstr("CS_GNU_LIBC_VERSION") or "unknown").split()[-1]
    done = subprocess.run(
        [os.environ.get("CXX", "c++"), "-dumpfullversion"], capture_output=True, text=True, check=True
    )
    yield "libstdc++", done.stdout.strip()
    for name, macro, file in (
        ("zstd", "ZSTD_VERSION", "zstd.h"),
        ("nlohmann-json", "NLOHMANN_JSON_VERSION", "nlohmann/detail/abi_macros.hpp"),
    ):
        header = Path("/usr/include") / file
        if header.exists():
            numbers = re.findall(rf"#define {macro}_(?:MAJOR|MINOR|RELEASE|PATCH) +(\d+)", header.read_text())
            yield name, ".".join(numbers)


def parts() -> Bom:
    """Makes the list of parts of the installed heapwright."""
    pins = locked((ROOT / "requirements.lock").read_text())
    needed = closure("heapwright")
    components = {}
    for name in needed:
        version = metadata.version(name)
        hashes = pins.get((name, version), [])
        url = PackageURL("pypi", name=name, version=version)
        files = ExternalReference(
            type=ExternalReferenceType.DISTRIBUTION,
            url=XsUri(f"https://pypi.org/project/{name}/{version}/#files"),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one) for one in hashes],
        )
        kind = ComponentType.APPLICATION if name == "heapwright" else ComponentType.LIBRARY
        references = [files] if hashes else []
        components[name] = Component(
            type=kind, name=name, version=version, purl=url, bom_ref=f"{name}@{version}", external_references=references
        )
    native = [Component(type=ComponentType.LIBRARY, name=n, version=v, bom_ref=f"{n}@{v}") for n, v in linked()]
    root = components.pop("heapwright")
    bom = Bom(components=[*components.values(), *native], serial_number=uuid.uuid5(uuid.NAMESPACE_URL, str(root.purl)))
    bom.metadata.component = root
    bom.metadata.timestamp = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
    everything = {**components, "heapwright": root}
    for name, wanted in needed.items():
        below = [Dependency(everything[one].bom_ref) for one in wanted]
        below += [Dependency(one.bom_ref) for one in native] if name == "heapwright" else []
        bom.dependencies.add(Dependency(everything[name].bom_ref, below))
    for one in native:
        bom.dependencies.add(Dependency(one.bom_ref))
    return bom


def main() -> None:
    """Writes the list."""
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/sbom.py FILE")
    target = Path(sys.argv[1])
    part = target.with_name(f".{target.name}.{os.getpid()}")
    part.write_text(JsonV1Dot6(parts()).output_as_string(indent=2) + "\n")
    part.replace(target)


if __name__ == "__main__":
    main()
