"""Asks an allocator library which of its settings took effect.

Most allocators do not report settings that they reject. So heapwright runs `true` under the library (milliseconds) and
reads its answer:

    ld.so       glibc: the target's loader lists its tunables (`glibc_tunables`)
    jemalloc    prints every option at exit (stats_print), and a message for each rejected setting
    mimalloc    prints every option at start (MIMALLOC_VERBOSE), and a message for each rejected setting
    names       prints nothing: heapwright searches the library file for the names of its variables
    complaint   exgen and reaper: print a line on stderr for each setting that they do not understand

If an allocator is linked into a program, heapwright runs that program, which native/nomain ends before its main. If
the program cannot be started in this way (`can_ask`), heapwright searches its file for the names of settings.

Keys in answers are those of the parameter-space files.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from heapwright.allocators.glibc_tunables import effective_glibc
from heapwright.allocators.program_file import is_privileged, read_program
from heapwright.allocators.space_spec import AllocatorSpec, preload_variables, preloadable
from heapwright.files import NATIVE

_JEMALLOC_OPTION = re.compile(r'^  opt\.(\w+): "?([^"\n]*?)"?(?: \(.*\))?$', re.MULTILINE)
_JEMALLOC_ASKED = "stats_print:true,stats_print_opts:mdablxeh"  # the options and no statistics
_ProbeKey = tuple[str, str, str, str]  # of an AllocatorSpec: env, probe, preload, program
_MIMALLOC_OPTION = re.compile(r"option '(\w+)': (-?\d+)")


@dataclass(frozen=True)
class LibraryReport:
    """The answer of a library about its settings.

    Attributes:
        values: setting → value in force, as it prints it; empty where it prints none.
        complaints: its own messages about settings that it rejected.
        version: of the library as it says, or empty.
        ran: whether the program that was to answer came to its end without an error.
    """

    values: dict[str, str] = field(default_factory=dict)
    complaints: tuple[str, ...] = ()
    version: str = ""
    ran: bool = False


def ask_library(allocator: AllocatorSpec, env: Mapping[str, str]) -> LibraryReport:
    """Ask the library under this environment; the answer is empty if it cannot be asked.

    Args:
        allocator: the library, and how to ask it.
        env: variables to set over the process's own; the library is preloaded besides.
    """
    if allocator.probe not in ("jemalloc", "mimalloc", "complaint"):
        return LibraryReport()
    if not (can_ask(allocator.program) if allocator.program else allocator.preload):
        return LibraryReport()
    words = {**os.environ, **env}
    words |= preload_variables(str(_nomain()) if allocator.program else allocator.preload, words)
    values: dict[str, str] = {}
    version = None
    if allocator.probe == "jemalloc":
        words[allocator.env] = ",".join(filter(None, (words.get(allocator.env, "").rstrip(","), _JEMALLOC_ASKED)))
        said, ran = _stderr_of_run(words, allocator.program)
        complaints = re.findall(r"^<jemalloc>: (.*)$", said, re.MULTILINE)
        version = re.search(r'^Version: "([\d.]+)', said, re.MULTILINE)
        values = {key: value for key, value in _JEMALLOC_OPTION.findall(said) if not key.startswith("stats_print")}
    elif allocator.probe == "mimalloc":
        said, ran = _stderr_of_run({**words, "MIMALLOC_VERBOSE": "1"}, allocator.program)
        complaints = re.findall(r"warning: (environment option .*)$", said, re.MULTILINE)
        version = re.search(r"^(?:mimalloc: )?v(?:ersion )?([\d.]+)", said, re.MULTILINE)
        values = {k: v for k, v in _MIMALLOC_OPTION.findall(said) if not k.startswith("deprecated_")}
    else:
        said, ran = _stderr_of_run(words, allocator.program)
        complaints = [line for line in said.splitlines() if "not understood" in line]
    return LibraryReport(values, tuple(dict.fromkeys(complaints)), version[1] if version else "", ran)


def _stderr_of_run(env: Mapping[str, str], program: str) -> tuple[str, bool]:
    """Run a program (`true` if the name is empty); return its stderr, and whether it succeeded."""
    try:
        done = subprocess.run(
            [program or shutil.which("true") or sys.executable], env=dict(env), capture_output=True, timeout=20,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return "", False
    return done.stderr.decode(errors="replace"), done.returncode == 0


def _nomain() -> Path:
    """Return the library that ends a program before its main."""
    return NATIVE / "lib/libheapwright-nomain.so"


@cache
def can_ask(program: str) -> bool:
    """Whether a program can be started so that it ends before its main: a library can be preloaded that starts it."""
    library, found = _nomain(), read_program(program)
    if found is None or found.static or found.foreign or is_privileged(found.path):
        return False
    if not library.is_file() or not preloadable(library):
        return False
    try:
        return b"\0__libc_start_main\0" in found.path.read_bytes()
    except OSError:
        return False


def _default_answer(allocator: AllocatorSpec) -> LibraryReport:
    """The library's answer with nothing set that it would read."""
    start = allocator.env.partition("{")[0]
    quiet = {name: "" for name in os.environ if start and name.startswith(start)}
    return _default_answer_cached(_probe_key(allocator), tuple(sorted(quiet)))


def _probe_key(allocator: AllocatorSpec) -> _ProbeKey:
    return allocator.env, allocator.probe, allocator.preload, allocator.program


@cache
def _default_answer_cached(key: _ProbeKey, quiet: tuple[str, ...]) -> LibraryReport:
    return ask_library(_spec(key), dict.fromkeys(quiet, ""))


def _spec(key: _ProbeKey) -> AllocatorSpec:
    env, probe, preload, program = key
    return AllocatorSpec("", env, probe=probe, preload=preload, program=program)  # type: ignore[arg-type]


@cache
def _names(library: str, start: str) -> frozenset[str]:
    """Variables named in a library's text: whole strings that begin so."""
    try:
        text = Path(library).read_bytes()
    except OSError:
        return frozenset()
    found = re.findall(rb"\x00" + re.escape(start.encode()) + rb"([A-Z0-9_]+)(?=\x00)", text)
    return frozenset(name.decode().lower() for name in found)


def known_keys(allocator: AllocatorSpec) -> frozenset[str] | None:
    """The settings this very library knows; None where it cannot be asked."""
    library = allocator.preload or allocator.program
    if allocator.probe == "names" and library:
        return _names(library, allocator.env.partition("{")[0]) or None
    if allocator.program and allocator.probe and not can_ask(allocator.program):
        return _words(allocator.program) or None
    values = _default_answer(allocator).values
    if allocator.probe == "jemalloc":  # it also lists options that this build lacks, but rejects them
        return _settable(_probe_key(allocator), tuple(values.items())) or None
    return frozenset(values) or None


@cache
def _words(program: str) -> frozenset[str]:
    """Whole strings in a program that may be names of settings. Linkers let one string end another, so ends count."""
    try:
        text = Path(program).read_bytes()
    except OSError:
        return frozenset()
    found = {word.decode() for word in re.findall(rb"(?<![a-z0-9_])(?!deprecated_)([a-z][a-z0-9_]{2,63})\x00", text)}
    return frozenset(found | {word[at + 1 :] for word in found for at, c in enumerate(word) if c == "_"})


@cache
def _settable(key: _ProbeKey, values: tuple[tuple[str, str], ...]) -> frozenset[str]:
    """Return the options that a jemalloc accepts: set each to its current value, and drop those that it rejects."""
    spec = _spec(key)
    text = ",".join(f"{key}:{value}" for key, value in values)
    refused = " ".join(f" {c}" for c in ask_library(spec, {spec.env: text}).complaints)
    return frozenset(key for key, _ in values if f" {key}:" not in refused)


def reported_version(allocator: AllocatorSpec) -> str | None:
    """The version as the library itself says, or None."""
    return _default_answer(allocator).version or None


def effective_settings(
    allocator: AllocatorSpec, program: str, settings: Mapping[str, str], env: Mapping[str, str]
) -> dict[str, str]:
    """Return the values in force for these settings, as far as known: key → value, or 'not understood'.

    Args:
        allocator: the allocator.
        settings: key → value, as they were set.
        program: the target; glibc's settings are read by its loader.
        env: the variables that make the settings so.
    """
    if not settings:
        return {}
    if allocator.probe == "ld.so":
        return effective_glibc(program, settings, env)
    answer = ask_library(allocator, env)
    if allocator.probe == "complaint":
        return {key: "not understood" for key in settings if any(f"{key}=" in text for text in answer.complaints)}
    return {key: answer.values[key] for key in settings if key in answer.values}
