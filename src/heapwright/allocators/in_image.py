"""Finds the allocators that a program in an image can have: its C library's, ours from the kit, and the image's own."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from heapwright import __version__
from heapwright.allocators.peers import family_of, known_peers
from heapwright.allocators.registry import OURS, Allocator, bundled_names, bundled_space, not_preloadable
from heapwright.allocators.space_spec import AllocatorSpec, SpaceFile, preloadable
from heapwright.elf.image import read_file
from heapwright.errors import UsageError, unknown
from heapwright.platforms import INSIDE, find_platform


def image_allocators(platform: str, libraries: Mapping[str, str], libc_version: str) -> dict[str, Allocator]:
    """Return the allocators of an image by name.

    No library of an image is asked about its settings, because it cannot run on this machine.

    Args:
        platform: of the image, such as 'x86_64-musl'.
        libraries: file name of a shared library → path in the image.
        libc_version: of its glibc, or empty.
    """
    found: dict[str, Allocator] = {}
    if platform.endswith("-glibc"):
        path = libraries.get("libc.so.6") or "/lib/libc.so.6"
        found["glibc"] = Allocator("glibc", libc_version or None, path, False, "", bundled_space("glibc"))
    else:
        found["musl"] = Allocator("musl", None, None, False, "", SpaceFile(AllocatorSpec("musl")), ordinary=False)
    folder = None if lacking_parts(platform, libraries) else find_platform(platform)
    for name in OURS:
        if folder is not None and (folder / "lib" / f"lib{name}.so").is_file():
            path = f"{INSIDE}/lib/lib{name}.so"
            found[name] = _preloaded(name, path, __version__, {}, name, "-" not in name, bundled=True)
    for spec in known_peers():
        path = next((libraries[soname] for soname in spec.sonames if soname in libraries), "")
        if path:
            space = spec.space or spec.name
            found[spec.name] = _preloaded(spec.name, path, None, spec.env, space, not spec.hardened)
    return found


def lacking_parts(platform: str, libraries: Mapping[str, str]) -> list[str]:
    """Return the parts of glibc that our libraries for a platform need and an image does not have.

    Libraries for glibc 2.17 need libpthread.so.0 and libdl.so.2. Since 2.34 these are empty, and an image that has
    copies of a program's own libraries only lacks them.

    Args:
        platform: of the image.
        libraries: file name of a shared library → path in the image.
    """
    folder = find_platform(platform)
    if folder is None or not platform.endswith("-glibc"):
        return []
    needed = read_file(folder / "lib" / f"lib{OURS[0]}.so").needed
    return [part for part in needed if part.startswith("lib") and part not in libraries]


def not_in_image(platform: str, libraries: Mapping[str, str]) -> dict[str, str]:
    """Return why glibc cannot be chosen in an image with musl, and ours not in one that lacks parts of glibc.

    Args:
        platform: of the image.
        libraries: file name of a shared library → path in the image.
    """
    if platform.endswith("-musl"):
        return {"glibc": "the image has musl, whose own malloc is the default and has no settings"}
    lacking = lacking_parts(platform, libraries)
    why = f"the image lacks {' and '.join(lacking)}, parts of glibc that heapwright's libraries need"
    if "libc.so.6" not in libraries:
        why = "the image has no libc.so.6, so its programs are static, and nothing can be preloaded into them"
    return dict.fromkeys(("exgen", "reaper"), why) if lacking else {}


def check_parts(platform: str, libraries: Mapping[str, str]) -> None:
    """Fail if an image lacks a part of glibc that our libraries need (`lacking_parts`).

    Raises:
        UsageError: it does.
    """
    lacking = lacking_parts(platform, libraries)
    if lacking:
        raise UsageError(
            f"the image lacks {' and '.join(lacking)}, which heapwright's libraries need",
            "copy these parts of glibc into the image, beside libc.so.6",
        )


def image_allocator(name: str, found: Mapping[str, Allocator]) -> Allocator:
    """Return the allocator of this name in an image, or the library at this path of the image.

    Raises:
        UsageError: it is not in the image, or LD_PRELOAD cannot name it.
    """
    if name in found:
        return found[name]
    if name.startswith("/"):
        if not preloadable(name):
            raise not_preloadable(name)
        return _preloaded(name.rpartition("/")[2], name, None, {}, family_of(name), True)
    if name in OURS:
        raise UsageError(
            f"allocator '{name}' is not built for this image", "run 'make platforms' in heapwright's sources"
        )
    if name == "glibc":
        raise UsageError("the image has musl, not glibc", "musl's malloc is the default; leave out 'glibc'")
    spec = next((s for s in known_peers() if s.name == name), None)
    if spec is not None:
        raise UsageError(f"allocator '{name}' is not in the image", "install it there, or give its path in the image")
    raise unknown("allocator", name, found)


def _preloaded(
    name: str, path: str, version: str | None, env: Mapping[str, str], space: str, ordinary: bool, bundled: bool = False
) -> Allocator:
    file = bundled_space(space) if space in bundled_names() else SpaceFile(AllocatorSpec(name))
    spec = msgspec.structs.replace(file.allocator, name=name, preload=path, needs=dict(env), probe="")
    file = msgspec.structs.replace(file, allocator=spec)
    return Allocator(name, version, path, bundled, path, file, dict(env), ordinary)
