"""Defines the options of verbs that can run their command in a container, and opens it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from heapwright.errors import UsageError

if TYPE_CHECKING:
    from heapwright.allocators.registry import Allocator
    from heapwright.measure.container import Container


def add_container_option(
    parser: argparse.ArgumentParser, use: str = "run the command in containers of this image, by podman or docker"
) -> None:
    """Add the options of every verb that can run its command in a container; `use` says what for."""
    parser.add_argument("--container", metavar="IMAGE", help=f"{use} (docs/guides/containers.md)")
    parser.add_argument(
        "--container-args",
        metavar="ARGS",
        help="further arguments of podman run or docker run, in one quoted word: --container-args='-m 1g'",
    )


def opened_container(args: argparse.Namespace) -> Container | None:
    """Return where the command runs, as --container says; None for this machine.

    Raises:
        UsageError: an option cannot be used with it.
        HeapwrightError: the image cannot be used.
    """
    name = getattr(args, "container", None)
    if name is None:
        if getattr(args, "container_args", None) is not None:
            raise UsageError("--container-args needs an image", "add --container IMAGE")
        return None
    if getattr(args, "machines", None) is not None:
        raise UsageError("--container cannot be given in a plan", "leave it out: jobs run on the machines themselves")
    for option in ("cluster", "trace", "preset", "add_space", "space"):
        if getattr(args, option, None):
            other = option.replace("_", "-")
            raise UsageError(f"--container and --{other} cannot be given together", "leave out one of them")
    if getattr(args, "instructions", None) == "callgrind":
        raise UsageError("callgrind cannot count instructions in a container", "leave out --instructions")
    if getattr(args, "massif", None) == "valgrind":
        raise UsageError("Massif cannot measure in a container", "use --massif emulation")
    from heapwright.measure.container import open_container

    return open_container(name, args.container_args or "")


def allocators_inside(container: Container) -> dict[str, Allocator]:
    """Return the allocators that programs in a container can have, by name."""
    from heapwright.allocators.in_image import image_allocators

    image = container.image
    return image_allocators(image.platform, image.libraries, image.libc_version)
