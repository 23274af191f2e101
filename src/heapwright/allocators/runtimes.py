"""Recognises the runtime of a language that runs a program (CPython, OpenJDK, …), with its version and its settings.

`runtimes/*.toml` describe the runtimes. The file name of the executable is not enough: the file itself must show
evidence, so a C program with the name python3 is not taken for Python. Nothing of the user's command runs. Only if no
file tells the version, the runtime's own executable is asked for it (`version_args`).

    command ──► executable: first line of a script, env, shims of pyenv and the like ──► names and evidence ──► version
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

import msgspec

from heapwright.allocators.huge_pages import thp_state
from heapwright.allocators.program_file import ElfView, elf_view, interpreter_of, is_privileged
from heapwright.allocators.space import Space, build_space
from heapwright.allocators.space_file import load_space_file
from heapwright.allocators.space_spec import Context, ParamSpec, RuntimeSpec, SpaceFile

_MAX_STEPS = 8  # from a command to its executable: scripts, env, shims
_SHIM = re.compile(rb'exec "?([^\s"]*\b(?:pyenv|rbenv|nodenv|goenv|jenv|asdf|mise))"? exec\b')
_ENV_WITH_VALUE = ("-u", "--unset", "-C", "--chdir")
_ASK_S = 20.0


@dataclass(frozen=True)
class Runtime:
    """A runtime that runs a program.

    Attributes:
        file: its parameter-space file.
        version: its version; empty if it is unknown.
        program: the path of the executable.
    """

    file: SpaceFile
    version: str
    program: Path

    @property
    def spec(self) -> RuntimeSpec:
        """The `[runtime]` table."""
        assert self.file.runtime is not None
        return self.file.runtime

    @property
    def name(self) -> str:
        """Its short name."""
        return self.spec.name

    @property
    def title(self) -> str:
        """Its name and version for people: 'CPython 3.11'."""
        return f"{self.spec.title} {self.version}".strip()

    def space(self, threads: bool, expert: bool = False) -> Space:
        """Its settings that can be searched, for a program with or without threads on this machine."""
        context = Context(self.version, os.cpu_count() or 1, threads, expert, thp=thp_state())
        if self.version:
            space = build_space(self.file, context, self.name)
            have = {param.key for param in space.params}  # skipped, too, if another version has another range
            return dataclasses.replace(space, skipped=tuple(one for one in space.skipped if one[0] not in have))
        bound = [spec for spec in self.file.param if _needs_version(spec)]
        rest = [msgspec.structs.replace(s, values=[v for v in s.values if str(v) not in s.values_since])
                for s in self.file.param if s not in bound]  # fmt: skip
        space = build_space(msgspec.structs.replace(self.file, param=rest), context, self.name)
        why = "the version is unknown, so it may not have this setting"
        return Space(space.allocator, space.gates, space.params, (*space.skipped, *((s.key, why) for s in bound)))


def _needs_version(spec: ParamSpec) -> bool:
    return bool(spec.requires.since or spec.requires.before)


@cache
def shipped_runtimes() -> tuple[SpaceFile, ...]:
    """The files of the runtimes that heapwright knows, by name."""
    folder = files("heapwright.allocators") / "runtimes"
    found = []
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".toml"):
            with as_file(entry) as path:
                found.append(load_space_file(path))
    return tuple(found)


def find_runtimes(
    command: Sequence[str],
    known: Sequence[SpaceFile] | None = None,
    env: Mapping[str, str] | None = None,
    loaded: Sequence[str] = (),
) -> list[Runtime]:
    """Find the runtimes that run a command, a language's before a library's.

    Args:
        command: its words, the program first: a path, or a name on PATH. One word suffices.
        known: the files of the runtimes to look for; default: those that heapwright brings.
        env: the command's environment; default: ours.
        loaded: names of further libraries that it was seen to load, as Python loads those of its modules.
    """
    path = find_executable(command, os.environ if env is None else env)
    if path is None:
        return []
    files_ = shipped_runtimes() if known is None else known
    with elf_view(path) as view:
        if view is None:
            return []
        specs = [(file, file.runtime) for file in files_ if file.runtime and _matches(file.runtime, path, view, loaded)]
        specs.sort(key=lambda found: found[1].library)
        return [Runtime(file, _version(spec, path, view, command[1:], loaded), path) for file, spec in specs]


def find_heap_owner(path: Path) -> RuntimeSpec | None:
    """Find the language's runtime that takes a program's heap from the kernel without malloc, by its file.

    Args:
        path: the executable, of any name.
    """
    with elf_view(path) as view:
        owners = (spec for spec in _heap_owners() if not spec.library)
        return None if view is None else next((spec for spec in owners if _has_evidence(spec, view)), None)


def find_heap_library(names: Collection[str]) -> RuntimeSpec | None:
    """Find the library that takes a heap from the kernel without malloc, as a collector does.

    Args:
        names: file names of the libraries that a process has loaded.
    """
    specs = (spec for spec in _heap_owners() if spec.library)
    return next((spec for spec in specs if any(re.fullmatch(p, name) for p in spec.libraries for name in names)), None)


def _heap_owners() -> Iterator[RuntimeSpec]:
    return (file.runtime for file in shipped_runtimes() if file.runtime and file.runtime.heap)


def runtime_named(name: str) -> RuntimeSpec | None:
    """The shipped runtime of a short name, such as 'openjdk'."""
    return next((file.runtime for file in shipped_runtimes() if file.allocator.name == name), None)


def find_executable(command: Sequence[str], env: Mapping[str, str]) -> Path | None:
    """Find the executable of a command: of a script its interpreter, of a shim the program for which it stands.

    Args:
        command: its words, the program first.
        env: the command's environment.
    """
    words = list(command)
    for _ in range(_MAX_STEPS):
        found = shutil.which(words[0], path=env.get("PATH")) if words else None
        if found is None:
            return None
        if Path(found).name == "env":
            words = _behind_env(words[1:])
            continue
        try:
            with Path(found).open("rb") as file:
                start = file.read(4096)
        except OSError:
            return None
        if start[:2] != b"#!":
            return Path(found)
        shim = _SHIM.search(start)
        target = _shim_target(os.fsdecode(shim[1]), Path(found).name, env) if shim else ""
        words = [target or interpreter_of(start)]
    return None


def _behind_env(words: Sequence[str]) -> list[str]:
    """The words of the command that `env` starts."""
    rest = list(words)
    while rest:
        if rest[0] in _ENV_WITH_VALUE:
            rest = rest[2:]
        elif rest[0].startswith("-") or "=" in rest[0]:
            rest = rest[1:]
        else:
            break
    return rest


def _shim_target(tool: str, name: str, env: Mapping[str, str]) -> str:
    """The program that a shim of pyenv, rbenv … starts, by the word of that tool; empty if it does not know.

    Args:
        tool: path or name of the tool.
        name: the shim's name.
        env: the command's environment.
    """
    said = _output_of([tool, "which", name], env).splitlines()
    return said[-1].strip() if said and Path(said[-1].strip()).is_file() else ""


def _output_of(words: list[str], env: Mapping[str, str] | None = None) -> str:
    """The output of a command on both streams; empty if it fails."""
    try:
        done = subprocess.run(
            words, env=None if env is None else dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=_ASK_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def _matches(spec: RuntimeSpec, path: Path, view: ElfView, loaded: Sequence[str]) -> bool:
    """Whether a file is an executable of this runtime.

    Args:
        spec: the runtime.
        path: the executable.
        view: its file.
        loaded: see `find_runtimes`.
    """
    names = {path.name, path.resolve().name}
    if spec.names and not any(re.fullmatch(pattern, name) for pattern in spec.names for name in names):
        return False
    return _has_evidence(spec, view, loaded if spec.library else ())


def _has_evidence(spec: RuntimeSpec, view: ElfView, loaded: Sequence[str] = ()) -> bool:
    """Whether a file shows that this runtime runs it, by its libraries, symbols and texts."""
    libraries = (*view.needed, *loaded)
    if any(re.fullmatch(pattern, library) for pattern in spec.libraries for library in libraries):
        return True
    if not (spec.symbols or spec.texts):
        return False
    return all(view.data.find(text.encode()) >= 0 for text in spec.texts) and all(map(view.defines, spec.symbols))


def _version(spec: RuntimeSpec, path: Path, view: ElfView, words: Sequence[str], loaded: Sequence[str]) -> str:
    """The runtime's version; empty if it is unknown.

    Args:
        spec: the runtime.
        path: the executable.
        view: its file.
        words: the command's words behind the program.
        loaded: see `find_runtimes`.
    """
    real = path.resolve()
    for text in (*view.needed, *(loaded if spec.library else ()), real.name):
        for pattern in spec.version:
            if found := re.search(pattern, text):
                return found[1]
    for pattern in spec.version:
        if match := re.search(pattern.encode(), view.data):
            return match[1].decode(errors="replace")
    for text in _version_texts(spec, path, words):
        for pattern in (*spec.version, r"(\d+\.\d+(?:\.\d+)*)"):
            if found := re.search(pattern, text):
                return found[1]
    return ""


def _version_texts(spec: RuntimeSpec, path: Path, words: Sequence[str]) -> Iterator[str]:
    """Yield the texts of files beside the executable, then its own output.

    Args:
        spec: the runtime.
        path: the executable.
        words: the command's words behind the program.
    """
    real = path.resolve()
    yield from (_start_of(file) for file in _version_files(spec, real, words))
    asked = not spec.version_names or any(re.fullmatch(pattern, real.name) for pattern in spec.version_names)
    if spec.version_args and asked and not is_privileged(path):
        yield _ask_version(str(path), tuple(spec.version_args))


def _version_files(spec: RuntimeSpec, real: Path, words: Sequence[str]) -> list[Path]:
    """The files that may tell the version.

    Args:
        spec: the runtime.
        real: the executable.
        words: the command's words behind the program.
    """
    if "{stem}" not in spec.version_file:
        return [real.parent / spec.version_file] if spec.version_file else []
    stems = [os.fspath(real), *(os.fspath(Path(word).with_suffix("")) for word in words if Path(word).suffix)]
    return [Path(spec.version_file.replace("{stem}", stem)) for stem in stems]


def _start_of(file: Path) -> str:
    """The beginning of a text file; empty if it cannot be read."""
    try:
        with file.open(errors="replace") as opened:
            return opened.read(65536)
    except (OSError, ValueError):
        return ""


@cache
def _ask_version(program: str, arguments: tuple[str, ...]) -> str:
    return _output_of([program, *arguments])
