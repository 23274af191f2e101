"""Chooses the allocator that a link gets: by the verdict, by name, or from a study."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from heapwright.allocators.registry import OURS, get_allocator, library_folder
from heapwright.errors import HeapwrightError, UsageError

if TYPE_CHECKING:
    from heapwright.study.view import PickName


@dataclass(frozen=True)
class LinkRequest:
    """The user's request.

    Attributes:
        allocator: a name, or empty: by the verdict.
        study, pick: a study whose choice is to be linked in.
        options: to build in, as in EXGEN_OPTIONS.
        shared: link the shared library, not the archive.
        rpath: whether a shared one's folder is written into the program.
        secure: the hardened builds.
        plugins: whether dlopen counts.
    """

    allocator: str = ""
    study: str = ""
    pick: PickName | None = None
    options: str = ""
    shared: bool = False
    rpath: bool = True
    secure: bool = False
    plugins: bool = True


@dataclass(frozen=True)
class Choice:
    """The allocator that is linked in.

    Attributes:
        allocator: its name; 'none' keeps the C library's malloc.
        library: the file to link, or None.
        options: built in.
        why: for people.
        shared: whether `library` is a shared one.
        left: settings that cannot be built in, for people; or empty.
        caution: that the choice is only predicted; or empty.
    """

    allocator: str
    library: Path | None
    options: str
    why: str
    shared: bool
    left: str = ""
    caution: str = ""


def from_verdict(request: LinkRequest, verdict: str, why: str) -> Choice:
    """Choose exgen for a program with one thread, and otherwise reaper.

    Args:
        request: the user's request.
        verdict: 'single', 'multi' or 'unknown'.
        why: the reason of the verdict, for people.

    Raises:
        HeapwrightError: the library is not in this installation.
    """
    name = "exgen" if verdict == "single" else "reaper"
    return _ours(name + ("-secure" if request.secure else ""), request, request.options, why)


def from_request(request: LinkRequest) -> Choice | None:
    """Choose the allocator that the user asked for by name or by study; None to let the verdict choose.

    Raises:
        HeapwrightError: the study or the allocator cannot be used.
    """
    if request.study:
        return _from_study(request)
    if request.allocator:
        return _named(request.allocator, request, request.options, "asked for")
    return None


def _ours(name: str, request: LinkRequest, options: str, why: str) -> Choice:
    library = library_folder() / f"lib{name}.{'so' if request.shared else 'a'}"
    if not library.is_file():
        raise HeapwrightError(
            f"the library {library} is missing", "install heapwright again, with a C++ compiler on PATH"
        )
    return Choice(name, library, options, why, request.shared)


def _named(name: str, request: LinkRequest, options: str, why: str, left: str = "") -> Choice:
    from heapwright.interleaving.configuration import DEFAULT

    if request.secure and f"{name.removesuffix('-secure')}-secure" in OURS:
        name = f"{name.removesuffix('-secure')}-secure"
    if name in OURS:
        return replace(_ours(name, request, options, why), left=left)
    if request.secure:
        raise UsageError(f"only exgen and reaper have a hardened build, not {name}", "leave out --secure")
    if options:
        raise UsageError(f"only {', '.join(OURS)} can have options built in, not {name}", "leave out --options")
    if name in ("glibc", "none", DEFAULT):
        return Choice("none", None, "", why, False, left)
    found = get_allocator(name, preloads=False)
    if not found.path or not Path(found.path).is_file():
        raise HeapwrightError(f"the library of {name} is missing", "see 'heapwright allocators'")
    return Choice(found.name, Path(found.path).resolve(), "", why, True, left)


def _from_study(request: LinkRequest) -> Choice:
    """Choose a study's allocator; settings of exgen and reaper are built in, others (a runtime's too) are `left`."""
    from heapwright.allocators.huge_pages import with_library
    from heapwright.study.choose import chosen_pick, config_of, prediction_caution
    from heapwright.study.load import load_view

    view = load_view(Path(request.study))
    pick = chosen_pick(view, request.pick)
    config = config_of(view, pick)
    why = f"{request.study}: {pick.name if pick else 'nothing is proven better: the default'}"
    variable = f"{config.allocator.split('-')[0].upper()}_OPTIONS" if config.allocator in OURS else ""
    options = ",".join(filter(None, [config.env.get(variable, ""), request.options])) if variable else ""
    left = with_library({k: v for k, v in config.env.items() if k not in ("LD_PRELOAD", variable)})
    choice = _named(config.allocator, request, options, why, " ".join(f"{k}={shlex.quote(v)}" for k, v in left.items()))
    return replace(choice, caution=prediction_caution(view, pick, request.study))


def check_exgen_options(options: str) -> None:
    """Check options that are to be built in: exgen itself says which ones it does not understand.

    Raises:
        UsageError: an option is unknown, or its value is.
        HeapwrightError: exgen is not in this installation.
    """
    from heapwright.allocators.library_report import ask_library

    spec = get_allocator("exgen").file.allocator  # reaper and the hardened builds have the same options
    for complaint in ask_library(spec, {spec.env: options}).complaints if options else ():
        what, _, known = complaint.rpartition("ignored: ")[2].partition("; ")
        raise UsageError(f"--options: not understood: {what}", known)
