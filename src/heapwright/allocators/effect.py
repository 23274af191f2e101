"""What an allocator makes of its settings: asks the library itself, which alone knows what took effect.

Hardly an allocator complains of a setting it does not take. So `true` is run under the library (some milliseconds) and

    ld.so       glibc: the target's loader lists its tunables (`probe`)
    jemalloc    prints every option when it ends (stats_print), and says what it did not like
    mimalloc    prints every option when it starts (MIMALLOC_VERBOSE), and says what it did not like
    names       says nothing: the library's text is searched for the names of its variables
    complaint   exgen and reaper: a line on stderr for what is not understood

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

from heapwright.allocators.probe import effective_glibc
from heapwright.allocators.space import AllocatorSpec, preloading

_JEMALLOC_OPTION = re.compile(r'^  opt\.(\w+): "?([^"\n]*?)"?(?: \(.*\))?$', re.MULTILINE)
_JEMALLOC_ASKED = "stats_print:true,stats_print_opts:mdablxeh"  # the options and no statistics
_MIMALLOC_OPTION = re.compile(r"option '(\w+)': (-?\d+)")


@dataclass(frozen=True)
class Answer:
    """What a library said of itself.

    Attributes:
        values: setting → value in force, as it prints it; empty where it prints none.
        complaints: its own words on what it did not like.
        version: of the library as it says, or empty.
    """

    values: dict[str, str] = field(default_factory=dict)
    complaints: tuple[str, ...] = ()
    version: str = ""


def ask_library(allocator: AllocatorSpec, env: Mapping[str, str]) -> Answer:
    """What the library says under this environment; an empty answer where it cannot be asked.

    Args:
        env: variables to set over the process's own; the library is preloaded besides.
    """
    if not allocator.preload or allocator.probe not in ("jemalloc", "mimalloc", "complaint"):
        return Answer()
    words = {**os.environ, **env}
    words |= preloading(allocator.preload, words)
    if allocator.probe == "jemalloc":
        words["MALLOC_CONF"] = ",".join(filter(None, (words.get("MALLOC_CONF", "").rstrip(","), _JEMALLOC_ASKED)))
        said = _said(words)
        complaints = re.findall(r"^<jemalloc>: (.*)$", said, re.MULTILINE)
        version = re.search(r'^Version: "([\d.]+)', said, re.MULTILINE)
        values = {key: value for key, value in _JEMALLOC_OPTION.findall(said) if not key.startswith("stats_print")}
    elif allocator.probe == "mimalloc":
        said = _said({**words, "MIMALLOC_VERBOSE": "1"})
        complaints = re.findall(r"warning: (environment option .*)$", said, re.MULTILINE)
        version = re.search(r"^(?:mimalloc: )?v(?:ersion )?([\d.]+)", said, re.MULTILINE)
        values = {k: v for k, v in _MIMALLOC_OPTION.findall(said) if not k.startswith("deprecated_")}
    else:
        complaints = [line for line in _said(words).splitlines() if "not understood" in line]
        version, values = None, {}
    return Answer(values, tuple(dict.fromkeys(complaints)), version[1] if version else "")


def _said(env: Mapping[str, str]) -> str:
    """What `true` under this environment writes to stderr."""
    try:
        done = subprocess.run(
            [shutil.which("true") or sys.executable], env=dict(env), capture_output=True, timeout=20, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stderr.decode(errors="replace")


def _alone(allocator: AllocatorSpec) -> Answer:
    """The library's answer with nothing set that it would read."""
    start = allocator.env.partition("{")[0]
    quiet = {name: "" for name in os.environ if start and name.startswith(start)}
    return _alone_cached(allocator.probe, allocator.preload, tuple(sorted(quiet)))


@cache
def _alone_cached(probe: str, preload: str, quiet: tuple[str, ...]) -> Answer:
    spec = AllocatorSpec("", preload=preload, probe=probe)  # type: ignore[arg-type]
    return ask_library(spec, dict.fromkeys(quiet, ""))


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
    if allocator.probe == "names" and allocator.preload:
        return _names(allocator.preload, allocator.env.partition("{")[0]) or None
    values = _alone(allocator).values
    if allocator.probe == "jemalloc":  # it lists what it was built without, too, but refuses it
        return _settable(allocator.preload, tuple(values.items())) or None
    return frozenset(values) or None


@cache
def _settable(library: str, values: tuple[tuple[str, str], ...]) -> frozenset[str]:
    """The options a jemalloc takes: each is set to what it is, and those are left that it does not complain of."""
    spec = AllocatorSpec("", preload=library, probe="jemalloc")
    text = ",".join(f"{key}:{value}" for key, value in values)
    refused = " ".join(f" {c}" for c in ask_library(spec, {"MALLOC_CONF": text}).complaints)
    return frozenset(key for key, _ in values if f" {key}:" not in refused)


def said_version(allocator: AllocatorSpec) -> str | None:
    """The version as the library itself says, or None."""
    return _alone(allocator).version or None


def effective(
    allocator: AllocatorSpec, program: str, settings: Mapping[str, str], env: Mapping[str, str]
) -> dict[str, str]:
    """What is in force for these settings, as far as it can be told: key → value, or the words 'not understood'.

    Args:
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
