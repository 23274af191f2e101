"""Looks up which functions of a known library start threads, in data/threads.toml.

A library that is not in the table is judged as a whole by its own references. Which of its functions makes a reference
is unknown without a disassembler.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Literal

Effect = Literal["starts", "may", "plugins", "lookups"]
_EFFECTS: tuple[Effect, ...] = ("starts", "may", "plugins", "lookups")


@dataclass(frozen=True)
class Library:
    """One library of the table.

    Attributes:
        names: as in lib<NAME>.so.* and lib<NAME>.a; patterns.
        starts: functions that start a thread.
        may: functions that start one if an argument or a setting says so.
        plugins: functions that load code by a name given at run time.
        lookups: functions that find a function by a name given at run time, in any loaded library.
        otherwise: the effect of all its other functions; empty for none.
        at_load: whether it starts a thread when it is loaded.
        why, when: reasons for the user; `when` is for functions in `may`.
    """

    names: list[str]
    starts: list[str] = field(default_factory=list)
    may: list[str] = field(default_factory=list)
    plugins: list[str] = field(default_factory=list)
    lookups: list[str] = field(default_factory=list)
    otherwise: str = ""
    at_load: bool = False
    why: str = ""
    when: str = ""

    def reason(self, effect: str) -> str:
        """Why, or when, a function has this effect; or empty."""
        return self.when or self.why if effect == "may" else self.why

    def effect(self, symbol: str) -> Effect | None:
        """Return the effect of a function of this library; None if it starts no thread."""
        for effect in _EFFECTS:
            if any(fnmatchcase(symbol, pattern) for pattern in getattr(self, effect)):
                return effect
        return next((e for e in _EFFECTS if e == self.otherwise), None)

    def exact_names(self) -> list[str]:
        """Return the function names in it, and of patterns the part before the first '*'."""
        return [n.split("*")[0] for effect in _EFFECTS for n in getattr(self, effect)]


@cache
def libraries() -> list[Library]:
    """The table."""
    import tomllib

    text = (files("heapwright.link") / "data/threads.toml").read_text(encoding="utf-8")
    return [Library(**entry) for entry in tomllib.loads(text)["library"]]


def plain_name(file: str) -> str:
    """'libzstd.so.1', '/x/libzstd.a', 'libzstd.a(x.o)' → 'zstd'."""
    name = file.split("(")[0].rsplit("/", 1)[-1]
    return re.sub(r"(\.so(\.[\w.]+)?|\.a)$", "", name.removeprefix("lib"))


@cache
def known_library(file: str) -> Library | None:
    """Find a library in the table by its soname or file name; None if it is unknown."""
    if not re.search(r"\.so(\.|$)|\.a$|\.a\(", file):
        return None
    name = plain_name(file)
    return next((one for one in libraries() if any(fnmatchcase(name, pattern) for pattern in one.names)), None)


@cache
def effect_by_name(symbol: str) -> Effect | None:
    """Return the effect of a function that no library defines, if its name is unmistakable (C library, C++, OpenMP)."""
    return next((e for one in libraries()[:UNMISTAKABLE] if (e := one.effect(symbol))), None)


UNMISTAKABLE = 4  # the first libraries of the table
