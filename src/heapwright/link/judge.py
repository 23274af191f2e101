"""The verdict: can this program, library or link start threads?

    multi    it can: the program's own code reaches a function that starts one
    unknown  it may: a library outside the table of known libraries refers to such a function, an argument or a plug-in
             decides, or a file is missing
    single   no such function is reached

The verdict 'single' never rests on a guess. It does not see threads made by the system call itself, and code that is
loaded at the start of the program (LD_PRELOAD); docs/link.md says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from heapwright.elf.image import WEAK, Image
from heapwright.elf.note import LinkedAllocator, read_note
from heapwright.link.archive import Archive
from heapwright.link.closure import Closure, read_input, resolve
from heapwright.link.known_libraries import Library, effect_by_name, known_library
from heapwright.link.linker_command import LinkInput, LinkLine
from heapwright.link.loaded_files import LoadedFiles, load_all
from heapwright.link.reachable_calls import reachable_calls

Verdict = Literal["single", "multi", "unknown"]
_SAYS = {
    "starts": "starts a thread",
    "may": "may start a thread",
    "plugins": "loads plug-ins",
    "lookups": "finds functions by names given at run time",
    "missing": "was not found",
    "told": "reaches code that --no-plugins says starts no threads",
    "none": "has no reference",
    "harmless": "is reached by no function that is used",
}
_MAX_MANGLED = 1000  # characters; the demangler recurses, and the files may be hostile
_ORDER = ("starts", "may", "plugins", "lookups", "missing", "told", "harmless", "none")


@dataclass(frozen=True)
class Evidence:
    """One reason for a verdict.

    Attributes:
        symbol: the function, or the library that is missing.
        origin: the file that refers to it.
        via: the path to it, from the program on.
        effect: one of `_SAYS`.
        why: further facts, for people.
    """

    symbol: str
    origin: str
    via: str
    effect: str
    why: str = ""

    def as_json(self) -> dict[str, str]:
        """As `inspect --json` has it."""
        return {"symbol": self.symbol, "from": self.origin, "via": self.via, "effect": self.effect, "why": self.why}

    def says(self) -> str:
        """One line for people."""
        return f"{demangled_name(self.symbol)} {_SAYS[self.effect]}{f' ({self.why})' if self.why else ''}"


@dataclass(frozen=True)
class Judgement:
    """A verdict with its evidence.

    Attributes:
        file: the judged file or link.
        evidence: the deciding evidence first.
        linked: the note of `heapwright link` in the program, if there is one.
    """

    file: str
    verdict: Verdict
    evidence: list[Evidence]
    linked: LinkedAllocator | None = None

    def as_json(self) -> dict[str, Any]:
        """As `inspect --json` has it."""
        linked = {"linked": self.linked.as_json()} if self.linked else {}
        return {
            "file": self.file,
            "verdict": self.verdict,
            "evidence": [e.as_json() for e in self.evidence],
            **linked,
        }


@dataclass
class _Case:
    """Collects evidence."""

    plugins: bool
    found: dict[tuple[str, str], Evidence] = field(default_factory=dict)

    def add(self, symbol: str, origin: str, via: Sequence[str], effect: str, why: str = "") -> None:
        if effect in ("plugins", "lookups") and not self.plugins:
            effect = "told"
        key = (symbol, origin)
        old = self.found.get(key)
        if old is None or _ORDER.index(effect) < _ORDER.index(old.effect):
            self.found[key] = Evidence(symbol, origin, " > ".join(via), effect, why)

    def close(self, file: str, looked_at: Iterable[str]) -> Judgement:
        evidence = sorted(self.found.values(), key=lambda e: _ORDER.index(e.effect))
        effects = {e.effect for e in evidence}
        verdict: Verdict = "single"
        if "starts" in effects:
            verdict = "multi"
        elif effects & {"may", "plugins", "lookups", "missing"}:
            verdict = "unknown"
        elif not evidence:
            evidence = [
                Evidence("pthread_create", file, " > ".join([file]), "none", f"looked at {', '.join(looked_at)}")
            ]
        return Judgement(file, verdict, evidence)


def inspect_files(paths: Sequence[Path], plugins: bool = True) -> list[Judgement]:
    """Judges files: objects and archives together, as one link; programs and libraries each by itself.

    With an object among them, libraries belong to the link too.

    Args:
        paths: what to judge.
        plugins: whether code that is loaded with dlopen is reckoned with.

    Raises:
        HeapwrightError: a file cannot be judged; the line says why.
    """
    opened = {path: read_input(path) for path in paths}
    parts = [p for p, found in opened.items() if isinstance(found, Archive) or found.kind == "object"]
    objects = [p for p in parts if not isinstance(opened[p], Archive)]
    result = []
    together = [
        p
        for p in paths
        if p in parts or (objects and isinstance(found := opened[p], Image) and found.kind == "library")
    ]
    if parts:
        line = LinkLine([], [LinkInput(path, whole=not objects) for path in together])
        result.append(judge_link(_with_system_libraries(line), plugins, ", ".join(map(str, together))))
    for path, found in opened.items():
        if path not in together and isinstance(found, Image):
            result.append(judge_image(path, found, plugins))
    return result


def judge_image(path: Path, image: Image, plugins: bool = True) -> Judgement:
    """Judge a program or a shared library as the loader would load it.

    Args:
        path: the file.
        image: its content.
        plugins: whether it may load plug-ins.

    Raises:
        HeapwrightError: a library that it needs is damaged.
    """
    linked = read_note(image)
    if linked:
        evidence = Evidence("", str(path), str(path), "none", f"judged when it was linked: {linked.why}")
        verdict: Verdict = linked.verdict if linked.verdict in ("single", "multi") else "unknown"  # type: ignore[assignment]
        return Judgement(str(path), verdict, [evidence], linked)
    case = _Case(plugins)
    if "Go" in image.notes or ".go.buildinfo" in image.sections or ".note.go.buildid" in image.sections:
        case.add(
            "runtime.newosproc", str(path), [str(path)], "starts", "the runtime of Go has threads from the beginning"
        )
        return case.close(str(path), [])
    if image.static:
        _judge_static(case, str(path), image)
        return case.close(str(path), [str(path)])
    loaded = load_all(path, image)
    _judge_loaded(case, loaded)
    if image.kind == "library":
        _judge_exports(case, image, loaded.reached[0].name)
    own = {"pthread_create", "exgen_become_threaded"} & image.exports
    if own and image.kind == "program":
        case.add(
            "pthread_create", str(path), [str(path)], "may", "the program brings its own: who calls it cannot be seen"
        )
    names = [str(path), *(one.name for one in loaded.others())]
    return case.close(str(path), names)


def _judge_static(case: _Case, path: str, image: Image) -> None:
    names = {s.name for s in image.symbols if s.defined}
    if not names:
        case.add("pthread_create", path, [path], "missing", "static, and its symbols are stripped: nothing can be seen")
        return
    terminal = {"start_thread", "__pthread_create", "pthread_create", "__pthread_create_2_1"} & names
    if terminal:
        symbol = "pthread_create"
        case.add(symbol, path, [path], "starts", "it is linked in, which the linker does only for what refers to it")
    if {"dlopen", "__dlopen"} & names:
        case.add(
            "dlopen",
            path,
            [path],
            "plugins",
            "or only the C library's own use of it: a static program does not show which",
        )


def _judge_loaded(case: _Case, loaded: LoadedFiles, within: Sequence[str] = ()) -> None:
    """Judge a loaded program. Its own references count in full; those of a library may or may not be reached.

    Args:
        case: collects the evidence.
        loaded: the program with its libraries.
        within: the path to a library of a link; empty for a program. With a path, no reference counts in full.
    """
    first, used = loaded.reached[0], set()
    for item in loaded.reached:
        way = [*within, *item.via]
        for name in item.missing:
            case.add(name, item.name, way, "missing", "a library that is needed")
        for symbol in item.image.imports:
            provider = loaded.provider(symbol)
            library = known_library(provider) if provider else None
            effect, why = effect_of(symbol.name, provider, library)
            if not effect or provider == item.name or (symbol.binding == WEAK and not provider):
                continue
            if effect == "starts" and (within or item is not first):
                effect, why = "may", f"{item.name} refers to it; from which function is not known"
            case.add(symbol.name, item.name, way, effect, why)
            used.add(provider)
    for item in loaded.everything.values():
        library = known_library(item.name)
        if library and library.at_load:
            case.add(item.name, first.name, [*within, *item.via], "starts", library.why)
        elif library and item.name not in used and any(s.name == "pthread_create" for s in item.image.imports):
            case.add("pthread_create", item.name, [*within, *item.via], "harmless")


def effect_of(symbol: str, provider: str, library: Library | None) -> tuple[str, str]:
    """Return the effect of a function and its reason, or two empty strings.

    Args:
        symbol: the function.
        provider: the library that defines it; if empty, only an unmistakable name has an effect.
        library: the table's entry of that library, or None.
    """
    effect = library.effect(symbol) if library else None if provider else effect_by_name(symbol)
    return (effect, library.reason(effect) if library else "") if effect else ("", "")


def _judge_exports(case: _Case, image: Image, name: str) -> None:
    """Add the thread-starting functions of a known library that is itself judged."""
    library = known_library(name)
    for symbol in sorted(image.exports) if library else ():
        effect, why = effect_of(symbol, name, library)
        if effect and not any(e.effect == effect for e in case.found.values()):
            case.add(symbol, name, [name], effect, why)


def judge_link(line: LinkLine, plugins: bool = True, title: str = "") -> Judgement:
    """Judge the program that a link would make.

    Args:
        line: the linker's command line.
        plugins: whether code that is loaded with dlopen may start threads.
        title: name of the program in the evidence; empty for the output file.

    Raises:
        HeapwrightError: an input cannot be read.
    """
    return judge_closure(line, resolve(line), plugins, title)


def judge_closure(line: LinkLine, closure: Closure, plugins: bool = True, title: str = "") -> Judgement:
    """Judge a resolved link.

    Args:
        line: the linker's command line.
        closure: the objects, archive members and libraries that the link takes in.
        plugins: whether the program may load plug-ins.
        title: name of the program in the evidence; empty for the linker's output.
    """
    case = _Case(plugins)
    title = title or line.output
    for lost in line.lost:
        case.add(lost, title, [title], "missing", "the linker will say more")
    for call in reachable_calls(line, closure):
        way = [*call.via, *([call.library] if call.library else [])]
        effect, why = effect_of(call.symbol, call.library, known_library(call.library) if call.library else None)
        if effect:
            case.add(call.symbol, call.origin, way, effect, why)
        elif not call.library and not call.weak and not _of_the_linker(call.symbol):
            case.add(call.symbol, call.origin, way, "missing", "no object or library that was named defines it")
    for path, image in closure.libraries.items():
        loaded = load_all(path, image, closure.libraries.values())
        library = known_library(loaded.reached[0].name)
        if library is None:
            _judge_loaded(case, loaded, [title])
        elif library.at_load:
            case.add(loaded.reached[0].name, title, [title], "starts", library.why)
    return case.close(
        title, [*(o.name for o in closure.objects if not known_library(o.name)), *map(str, closure.libraries)]
    )


def _of_the_linker(symbol: str) -> bool:
    """Whether the linker itself defines the symbol."""
    return symbol in ("_GLOBAL_OFFSET_TABLE_", "_DYNAMIC", "_end", "end", "_edata", "edata", "_etext", "etext") or (
        symbol.startswith(
            ("__init_array", "__fini_array", "__preinit_array", "__start_", "__stop_", "__rela_iplt", "__tls")
        )
        or symbol
        in ("__bss_start", "__ehdr_start", "__executable_start", "__dso_handle", "__TMC_END__", "__data_start")
        or symbol in ("__GNU_EH_FRAME_HDR", "__global_pointer$", "_TLS_MODULE_BASE_")
    )


def _with_system_libraries(line: LinkLine) -> LinkLine:
    """Add the libraries that every compiler links by default, if this machine has them."""
    from heapwright.link.library_search import find_loaded

    found = next((i for item in line.inputs if isinstance(i := read_input(item.path), Image) and i.machine), None)
    machine, bits = (found.machine, found.bits) if found else ("EM_X86_64", 64)
    for name in (
        "libstdc++.so.6",
        "libm.so.6",
        "libmvec.so.1",
        "libgcc_s.so.1",
        "libgomp.so.1",
        "libgfortran.so.5",
        "libc.so.6",
    ):
        path = find_loaded(name, machine, bits, [], [])
        if path:
            line.inputs.append(LinkInput(path, as_needed=True))
    return line


def demangled_name(symbol: str) -> str:
    """Demangle a C++ function's name and drop its parameters: 'std::thread::_M_start_thread'.

    Other names stay as they are, and so does every name where the C++ runtime library is missing.
    """
    if not symbol.startswith("_Z") or len(symbol) > _MAX_MANGLED:
        return symbol
    try:
        import cxxfilt

        text = str(cxxfilt.demangle(symbol))
    except Exception:  # no cxxfilt, no libstdc++, or not a valid name: the mangled name is still evidence
        return symbol
    depth = 0
    for at in range(text.rfind(")"), -1, -1):
        depth += {")": 1, "(": -1}.get(text[at], 0)
        if depth == 0:
            return text[:at] or text
    return text


def reason(judgement: Judgement) -> str:
    """Why, in a few words."""
    if not judgement.evidence:
        return ""
    first = judgement.evidence[0]
    if first.effect == "none":
        return first.why if judgement.linked else "no way to start a thread is referred to"
    if judgement.verdict == "single":
        return "no way to start a thread is reached"
    return f"{first.says()}: {first.via}"
