"""Runs in place of the linker, and calls the linker with an allocator added.

`heapwright link -- g++ …` (driver.py) makes the compiler look for its linker in `_native/ld` first. The script there
starts this module under the name ld, ld.bfd, ld.gold, ld.lld or ld.mold, with the command line that the linker would
get: existing objects, complete library options, no compiler options. So this module need not know any compiler's
command line, and compiling and linking in one command works too.

If the link with the allocator fails, the step repeats it unchanged. If that succeeds, the program has no allocator of
heapwright, and one line says why. Every other failure here also ends in the unchanged link and a line. The exit status
is that of the linker.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from heapwright import __version__
from heapwright.allocators.registry import OURS, glibc_version
from heapwright.elf.image import Image, read_file
from heapwright.elf.note import MACHINES, LinkedAllocator, note_object, read_note
from heapwright.errors import HeapwrightError
from heapwright.link.archive import Archive
from heapwright.link.choose import Choice, LinkRequest, from_request, from_verdict
from heapwright.link.closure import Closure, read_input, resolve
from heapwright.link.judge import judge_closure, reason
from heapwright.link.known_libraries import known_library
from heapwright.link.linker_command import LinkLine, read_line
from heapwright.terminal_text import say, warn

REQUEST, COMPILER, MARK, LINKER = (
    "HEAPWRIGHT_LINK_REQUEST",
    "HEAPWRIGHT_LINK_COMPILER",
    "HEAPWRIGHT_LINK_MARK",
    "HEAPWRIGHT_LINK_LD",
)
NAMES = ("ld", "ld.bfd", "ld.gold", "ld.lld", "ld.mold")
_WHOLE = ("malloc", "free", "calloc", "realloc", "posix_memalign")
THROW_BAD_ALLOC = "_ZSt17__throw_bad_allocv"  # std::__throw_bad_alloc, of libstdc++ and libc++
_START_FILE = re.compile(r"^[A-Za-z]*crt[\w.]*\.o$")


class Declined(HeapwrightError):
    """This program gets no allocator of heapwright; the message says why."""


def real_linker(name: str) -> str:
    """Return the linker that the compiler would have called by this name."""
    if os.environ.get(LINKER):
        return os.environ[LINKER]
    compiler = json.loads(os.environ.get(COMPILER, "[]"))
    if compiler:
        done = subprocess.run([*compiler, f"-print-prog-name={name}"], capture_output=True, text=True, check=False)
        found = shutil.which(done.stdout.strip() or name)
        if found and Path(found).resolve().parent != Path(sys.argv[1]).resolve().parent:
            return found
    found = shutil.which(name)
    if found is None:
        raise HeapwrightError(f"linker not found: {name}")
    return found


def main(argv: Sequence[str]) -> int:
    """Run the link step and return the linker's exit status.

    Args:
        argv: the path by which the step was called, then the linker's words.
    """
    called, words = argv[0], list(argv[1:])
    if os.environ.get(MARK):
        Path(os.environ[MARK]).touch()
    try:
        linker = real_linker(Path(called).name)
    except HeapwrightError as error:
        say(f"{error.message}; set {LINKER}")
        return 1
    what = "linked without an allocator of heapwright"
    try:
        return link(linker, words, LinkRequest(**json.loads(os.environ.get(REQUEST, "{}"))))
    except HeapwrightError as error:
        warn(f"{what}: {error.message}{f' ({error.hint})' if error.hint else ''}")
    except Exception as error:  # the program must be linked even if heapwright has a bug
        warn(f"{what}: a bug in heapwright, please report it: {error!r}")
    return subprocess.run([linker, *words], check=False).returncode


def link(linker: str, words: list[str], request: LinkRequest) -> int:
    """Link with the requested allocator.

    Args:
        linker: path of the real linker.
        words: the linker's command line.
        request: the user's request.

    Raises:
        HeapwrightError: there is no such link; the caller must link unchanged.
    """
    line = read_line(words)
    if not line.program or not line.inputs:
        return subprocess.run([linker, *words], check=False).returncode
    try:
        return _link_program(linker, line, request)
    except HeapwrightError as error:
        raise HeapwrightError(f"{line.output}: {error.message}", error.hint) from None


def _link_program(linker: str, line: LinkLine, request: LinkRequest) -> int:
    closure = resolve(line)
    machine = closure.machine()[0] or "EM_X86_64"
    if machine not in MACHINES:
        raise Declined(f"heapwright has no allocator for {machine.removeprefix('EM_')}")
    judgement = judge_closure(line, closure, request.plugins)
    verdict_text = f"{judgement.verdict}: {_without_temporary_names(reason(judgement))}"
    choice = from_request(request)
    choice = (
        replace(choice, why=f"{choice.why}; {verdict_text}")
        if choice
        else from_verdict(request, judgement.verdict, verdict_text)
    )
    _check_c_library(choice, closure)
    _check(closure)
    if choice.library:
        _check_machine(choice.library, machine, closure.machine()[1])
    if line.static and choice.shared:
        raise Declined(f"{choice.allocator} is a shared library, and the program is static")
    return _link_with(linker, line, choice, judgement.verdict, machine, request, closure)


def _without_temporary_names(why: str) -> str:
    """Return the reason without names of temporary objects, because the same link must give the same program."""
    return re.sub(rf"{re.escape(tempfile.gettempdir())}/[^\s/]+\.o\b", "its own code", why)


def _check(closure: Closure) -> None:
    """Raise Declined if an input already defines malloc."""
    own = closure.definitions.get("malloc")
    if own and not known_library(own.name):
        raise Declined(f"{own.name} defines its own malloc")
    for path, library in closure.libraries.items():
        if "malloc" in library.exports and not (library.soname.startswith(("libc.so", "libc.musl", "ld-"))):
            raise Declined(f"{path.name} defines its own malloc")


def _check_c_library(choice: Choice, closure: Closure) -> None:
    """Raise Declined if the allocator is this installation's, for glibc, and the program has another C library."""

    def has(symbol: str) -> bool:
        return symbol in closure.exports or closure.offers(symbol)

    if choice.allocator in OURS and glibc_version() and has("__libc_start_main") and not has("gnu_get_libc_version"):
        name = choice.library.name if choice.library else choice.allocator
        raise Declined(
            f"its C library is not glibc, and {name} is for glibc",
            "for musl, name an archive of 'make platforms' in the link, see docs/platforms.md",
        )


def _check_machine(library: Path, machine: str, bits: int) -> None:
    found = read_input(library)
    image: Image | None = found.members[0] if isinstance(found, Archive) else found
    if image and (image.machine, image.bits) != (machine, bits or image.bits):
        raise Declined(f"{library.name} is for {image.machine.removeprefix('EM_')}, the program is not")


def _link_with(
    linker: str, line: LinkLine, choice: Choice, verdict: str, machine: str, request: LinkRequest, closure: Closure
) -> int:
    how = "shared" if choice.shared else "static"
    linked = LinkedAllocator(
        choice.allocator, __version__, how if choice.library else "", verdict, choice.why, choice.options
    )
    with tempfile.TemporaryDirectory(prefix="heapwright-ld-") as folder:
        note = Path(folder) / "heapwright-note.o"
        note.write_bytes(note_object(linked, machine))
        done = subprocess.run(
            [linker, *_with(line, choice, note, request, closure)],
            capture_output=True,
            text=True,
            check=False,
            errors="replace",
        )
        failure = _cause(done.stderr) if done.returncode else ""
        if not done.returncode:
            failure = _look_at(Path(line.output), choice)
        if done.returncode or failure:
            plain = subprocess.run([linker, *line.words], check=False).returncode
            if plain == 0:
                warn(f"{line.output}: linked without {choice.allocator}, because the link with it failed: {failure}")
            return plain
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    what = f"{choice.allocator} linked in, {how}" if choice.library else "the C library's malloc stays"
    built = f", with {choice.options}" if choice.options else ""
    say(f"{line.output}: {what}{built} ({choice.why})")
    if choice.left:
        say(f"{line.output}: these settings cannot be built in; set them where the program runs: {choice.left}")
    if choice.caution:
        say(choice.caution)
    return 0


def _cause(errors: str) -> str:
    """Return the first line of a linker's errors that says what is wrong. A line before it may only name the place."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return next((line for line in lines if not line.endswith(":")), lines[0] if lines else "")


def _forced_symbols(line: LinkLine, closure: Closure) -> list[str]:
    """Return the symbols that the linker must take from archives although nothing insists on them."""
    symbols = ["malloc"]
    if line.static:  # native/allocator/platform/thread_functions.cpp says why
        symbols.append("heapwright_thread_functions")
    # Our operator new refers to this function weakly, because C programs have none. Without it, it
    # aborts.
    if closure.offers(THROW_BAD_ALLOC) and any(name.startswith(("_Znw", "_Zna")) for name in closure.definitions):
        symbols.append(THROW_BAD_ALLOC)
    return symbols


def _libraries(closure: Closure) -> list[str]:
    """Return the libraries of functions that our archives call, if libc does not have them: glibc before 2.34."""
    return [] if "dlsym" in closure.exports or closure.offers("dlsym") else ["-lpthread", "-ldl"]


def _with(line: LinkLine, choice: Choice, note: Path, request: LinkRequest, closure: Closure) -> list[str]:
    """Return the linker's words with the allocator before the program's objects, so that its malloc is found first."""
    words = list(line.words)
    ours = [i.at for i in line.inputs if not _START_FILE.match(i.path.name)]
    at = min(ours, default=len(words))
    if choice.library is None:
        return [*words[:at], str(note), *words[at:]]
    more = [word for symbol in _forced_symbols(line, closure) for word in ("-u", symbol)]
    if choice.shared:
        more += ["--push-state", "--no-as-needed", str(choice.library), "--pop-state"]
        if request.rpath:
            more += ["-rpath", str(choice.library.parent)]
    else:
        more += [str(choice.library), *_libraries(closure)]
    return [*words[:at], *more, str(note), *words[at:]]


def _look_at(output: Path, choice: Choice) -> str:
    """Return what is wrong with a linked program, or empty.

    The C library's own functions must find the new malloc. Otherwise the program frees a block of strdup with another
    allocator than the one that allocated it. --exclude-libs and version scripts can hide the new malloc.
    """
    image = read_file(output)
    if not read_note(image):
        return "its note is not in the program"
    if choice.library is None or image.static:
        return ""
    if choice.shared:
        soname = read_file(choice.library).soname
        names = [soname] if soname else [str(choice.library), choice.library.name]  # linkers differ
        return "" if set(names) & set(image.needed) else f"{names[-1]} is not among the libraries it loads"
    hidden = [name for name in _WHOLE if name not in image.exports]
    return f"{hidden[0]} is hidden from libraries (by --exclude-libs or a version script)" if hidden else ""


def request_as_text(request: LinkRequest) -> str:
    """For the environment of the link step."""
    return json.dumps(asdict(request))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
