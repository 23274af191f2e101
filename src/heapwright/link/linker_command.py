"""Reads a linker's command line as GNU ld, gold, lld and mold do: the inputs of the program, in order.

It also reads linker scripts in place of libraries. libc.so, libm.so and others are such text files:
'GROUP ( libc.so.6 AS_NEEDED ( ld.so ) )'.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from heapwright.errors import HeapwrightError
from heapwright.link.library_search import find_linked, is_file

_MAX_SCRIPTS = 20  # linker scripts that name each other
# Options whose value is the next word (or what follows the '=' of a long one).
_WITH_VALUE = frozenset(
    [
        "-o",
        "-m",
        "-T",
        "-z",
        "-y",
        "-h",
        "-e",
        "-A",
        "-a",
        "-b",
        "-c",
        "-f",
        "-F",
        "-G",
        "-I",
        "-O",
        "-R",
        "-u",
        "-Y",
        "-plugin",
        "-plugin-opt",
        "-dynamic-linker",
        "-rpath",
        "-rpath-link",
        "-soname",
        "-Map",
        "-version-script",
        "-dynamic-list",
        "-defsym",
        "-init",
        "-fini",
        "-entry",
        "-undefined",
        "-script",
        "-sysroot",
        "-wrap",
        "-format",
        "-oformat",
        "-retain-symbols-file",
        "-exclude-libs",
        "-hash-style",
        "-section-start",
        "-Ttext",
        "-Tdata",
        "-Tbss",
        "-output",
        "-library-path",
        "-default-script",
        "-dT",
        "-filter",
        "-auxiliary",
        "-mllvm",
        "-thinlto-cache-dir",
        "-threads",
        "-require-defined",
        "-image-base",
    ]
)
_STUCK = ("-o", "-z", "-m", "-T", "-y", "-h", "-u", "-O", "-A", "-R", "-Y", "-F", "-f", "-G", "-b", "-e", "-I")


_MAX_RESPONSES = 2000  # as gcc has it


@dataclass(frozen=True)
class LinkInput:
    """A file of the link.

    Attributes:
        at: which word of the command line brought it.
        whole: all members of the archive are taken.
        as_needed: a library that nothing refers to is left out.
    """

    path: Path
    at: int = 0
    whole: bool = False
    as_needed: bool = False


@dataclass
class LinkLine:
    """A parsed command line of a linker.

    Attributes:
        words: the whole command line after the linker's name, response files opened.
        inputs: the files, libraries found.
        output: of -o.
        program: False for a shared library or a relocatable object.
        exported: whether it exports all global symbols (-E), so that loaded code can call them.
        entry: the symbol at which the program starts.
        lost: libraries and files that were not found.
    """

    words: list[str]
    inputs: list[LinkInput] = field(default_factory=list)
    output: str = "a.out"
    program: bool = True
    static: bool = False
    exported: bool = False
    entry: str = "_start"
    folders: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


@dataclass
class _State:
    static: bool = False
    whole: bool = False
    as_needed: bool = False


def open_responses(words: Sequence[str]) -> list[str]:
    """Replace every @file by its content; an unreadable one stays, as in linkers.

    Raises:
        ValueError: a file cannot be split into words, or files name each other in a cycle.
    """
    found: list[str] = []
    waiting, opened = list(reversed(words)), 0
    while waiting:
        word = waiting.pop()
        path = Path(word[1:])
        if word.startswith("@") and is_file(path):
            opened += 1
            if opened > _MAX_RESPONSES:
                raise ValueError(f"{path}: too many response files, or one that names itself")
            waiting += reversed(shlex.split(path.read_text(errors="replace")))
        else:
            found.append(word)
    return found


def read_line(given: Sequence[str]) -> LinkLine:
    """Reads the words after the linker's name.

    Raises:
        HeapwrightError: a response file cannot be split into words.
    """
    try:
        words = open_responses(given)
    except ValueError as error:
        raise HeapwrightError(f"a response file of the linker cannot be read: {error}") from None
    return _Reader(words).read()


class _Reader:
    def __init__(self, words: list[str]) -> None:
        self.line = LinkLine(words)
        self.state = _State()
        self.saved: list[_State] = []
        self.sysroot = ""
        self.wanted: list[tuple[str, int, _State]] = []

    def read(self) -> LinkLine:
        """Goes through the words. Libraries are looked for at the end: -L counts for what stands before it too."""
        words, at = self.line.words, 0
        while at < len(words):
            at += self._word(words[at], words[at + 1] if at + 1 < len(words) else "", at)
        for name, where, state in self.wanted:
            self._add(name, where, state)
        return self.line

    def _word(self, word: str, after: str, at: int) -> int:
        """Takes one word; how many it took."""
        if not word.startswith("-") or word == "-":
            self._want(word, at)
            return 1
        one = word[1:] if word.startswith("--") else word
        name, equals, value = one.partition("=")
        if word.startswith(("-l", "-L")) and not word.startswith("-library"):
            value = word[2:] or after
            self._library(word[1], value, at)
            return 1 if word[2:] else 2
        if self._switch(one):
            return 1
        if name in _WITH_VALUE or name in ("-library",):
            self._value(name, value if equals else after, at)
            return 1 if equals else 2
        stuck = next((s for s in _STUCK if word.startswith(s)), "")
        if stuck and not word.startswith("--"):
            self._value(stuck, word[2:], at)
        return 1

    def _library(self, kind: str, value: str, at: int) -> None:
        if kind == "L":
            self.line.folders.append(self.sysroot + value[1:] if value.startswith("=") else value)
        else:
            self._want(f"-l{value}", at)

    def _want(self, name: str, at: int) -> None:
        state = self.state
        self.wanted.append((name, at, _State(state.static, state.whole, state.as_needed)))

    def _value(self, name: str, value: str, at: int) -> None:
        match name:
            case "-o" | "-output":
                self.line.output = value
            case "-e" | "-entry":
                self.line.entry = value
            case "-sysroot":
                self.sysroot = value
            case "-library":
                self._want(f"-l{value}", at)
            case "-library-path":
                self._library("L", value, at)

    def _switch(self, word: str) -> bool:
        line, state = self.line, self.state
        match word:
            case "-shared" | "-Bshareable" | "-r" | "-relocatable" | "-i" | "-Ur":
                line.program = False
            case "-static" | "-Bstatic" | "-dn" | "-non_shared":
                state.static = True
                line.static = line.static or word == "-static"
            case "-static-pie":
                line.static = state.static = True
            case "-Bdynamic" | "-dy" | "-call_shared":
                state.static = False
            case "-whole-archive" | "-no-whole-archive":
                state.whole = word == "-whole-archive"
            case "-as-needed" | "-no-as-needed":
                state.as_needed = word == "-as-needed"
            case "-push-state":
                self.saved.append(_State(state.static, state.whole, state.as_needed))
            case "-pop-state" if self.saved:
                self.state = self.saved.pop()
            case "-E" | "-export-dynamic":
                line.exported = True
            case _:
                return False
        return True

    def _add(self, name: str, at: int, state: _State, depth: int = 0) -> None:
        if depth > _MAX_SCRIPTS:
            raise HeapwrightError(f"linker scripts name each other: {name}", "name the libraries themselves")
        line = self.line
        path: Path | None = Path(name)
        if name.startswith("-l"):
            path = find_linked(name[2:], line.folders, state.static)
        if path is None or not is_file(path):
            line.lost.append(name)
            return
        script = read_script(path)
        if script is None:
            line.inputs.append(LinkInput(path, at, state.whole, state.as_needed))
            return
        for part, needed in script:
            inner = _State(state.static, state.whole, needed or state.as_needed)
            if not part.startswith(("-l", "/")):  # a plain name: beside the script, or where libraries are
                places = [Path(folder) / part for folder in (path.parent, *map(Path, line.folders))]
                part = next((str(place) for place in places if is_file(place)), part)
            self._add(part, at, inner, depth + 1)


def read_script(path: Path) -> list[tuple[str, bool]] | None:
    """Return the files that a linker script names, each with whether it is AS_NEEDED; None for a binary file."""
    with path.open("rb") as file:
        head = file.read(65536)
    if head[:4] == b"\x7fELF" or b"\0" in head or head.startswith((b"!<", b"BC\xc0\xde")):
        return None
    text = re.sub(r"/\*.*?\*/", " ", head.decode(errors="replace"), flags=re.DOTALL)
    found: list[tuple[str, bool]] = []
    for body in re.findall(r"\b(?:INPUT|GROUP)\s*\(((?:[^()]|\([^()]*\))*)\)", text):
        needed = False
        for token in re.findall(r"AS_NEEDED|[()]|[^\s(),]+", body):
            if token == "AS_NEEDED":
                needed = True
            elif token == ")":
                needed = False
            elif token != "(":
                found.append((token.strip('"'), needed))
    if not found and not re.search(r"\b(OUTPUT_FORMAT|SECTIONS|VERSION|INPUT|GROUP|SEARCH_DIR)\b|\{", text):
        raise HeapwrightError(
            f"{path} is neither an object, an archive, a library nor a linker script",
            "name files that the linker links, not a script or a source",
        )
    return found
