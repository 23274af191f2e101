"""Identifies the build of a program, so that a claim is not applied to another build.

A study stores the identity of the files that its runs depend on: the executable, the interpreter of a script, the
libraries that the loader lists (with the C library), the files that the command and its inputs name, and the libraries
of the allocators. If size and modification time are equal, a file is unchanged. Otherwise its build id decides, or
without one its content. Of inputs above 64 MiB only the size, the first and the last MiB are compared.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from heapwright.allocators.peers import build_id
from heapwright.allocators.program_file import ProgramFile, read_program
from heapwright.files import file_sha256
from heapwright.measure.container import image_digest
from heapwright.plugins import OBJECTIVES_GROUP, plugin_source
from heapwright.workload.model import Workload

_WHOLE_BYTES = 64 << 20
_PART_BYTES = 1 << 20
_MAX_FILES = 200  # of a command line


class FileIdentity(msgspec.Struct, frozen=True):
    """The identity of a file when a study began.

    Attributes:
        path: absolute.
        size: in bytes.
        mtime_ns: modification time, nanoseconds since 1970.
        build_id: the GNU build id in hex; empty where it has none.
        digest: SHA-256 in hex (of size, first and last MiB for a large input); empty for a library with a build id.
    """

    path: str
    size: int
    mtime_ns: int
    build_id: str = ""
    digest: str = ""


class ProgramIdentity(msgspec.Struct):
    """The identity of a study's program.

    Attributes:
        executable: the executable; None if it depends on the input.
        interpreter: of a script that starts with #!; None for others.
        libraries: those that the loader names at the start.
        files: regular files that the command, its inputs and its load name.
        search_code: code that only the search uses: the module of a search method of another package, and the files
            of the workload's [objective]. Another version of it is another search, but the same program.
        allocators: name of each allocator that is searched → its library.
        settled: whether files that the program itself writes are left out already.
        image: name of the image that the program runs in; empty for this machine.
        image_digest: the digest of the image.
    """

    executable: FileIdentity | None = None
    interpreter: FileIdentity | None = None
    libraries: list[FileIdentity] = []
    files: list[FileIdentity] = []
    search_code: list[FileIdentity] = []
    allocators: dict[str, FileIdentity] = {}
    settled: bool = False
    image: str = ""
    image_digest: str = ""


def identify_program(workload: Workload, code: Sequence[Path] = ()) -> ProgramIdentity:
    """Return the identity of a workload's program, as it is now. It reads the executable and its inputs.

    Args:
        workload: the program and its inputs.
        code: of the search, besides that of the workload's [objective].
    """
    search_code = _search_code(workload, code)
    if workload.container is not None:  # the command names files of the image
        image = workload.container.image
        return ProgramIdentity(search_code=search_code, settled=True, image=image.name, image_digest=image.digest)
    path = _executable(workload)
    if path is None:
        return ProgramIdentity(files=_named_files(workload), search_code=search_code)
    found = read_program(str(path))
    interpreter = found.path if found is not None and found.script else None
    return ProgramIdentity(
        _identify(path, whole=True),
        _identify(interpreter) if interpreter else None,
        [file for library in _libraries(found, workload.file.env) if (file := _identify(library)) is not None],
        _named_files(workload, {path}),
        search_code,
    )


def identify_file(path: str) -> FileIdentity | None:
    """Return the identity of a file; None if it cannot be read."""
    return _identify(Path(path))


def program_changes(then: ProgramIdentity) -> list[str]:
    """Return the changes since then, one phrase each ('./prog was rebuilt'); empty if there are none."""
    if then.image:
        now = image_digest(then.image)
        if not now:
            return [f"the image {then.image} is missing"]
        digests = f"{_short(then.image_digest)} then, {_short(now)} now"
        return [] if now == then.image_digest else [f"the image {then.image} was rebuilt ({digests})"]
    known = [f for f in (then.executable, then.interpreter, *then.libraries, *then.files) if f is not None]
    return [phrase for file in known if (phrase := file_change(file))]


def search_changes(then: ProgramIdentity) -> list[str]:
    """Return the changes of the code that only the search uses, one phrase each; empty if there are none."""
    return [phrase for file in then.search_code if (phrase := file_change(file))]


def allocator_changes(then: ProgramIdentity, paths: Mapping[str, str]) -> list[str]:
    """Return the changes of allocators' libraries, one phrase each; empty if there are none.

    Args:
        then: the identity that the study stores.
        paths: name of each allocator to compare → where its library is now.
    """
    pairs = ((then.allocators[name], path) for name, path in paths.items() if name in then.allocators)
    return [phrase for file, path in pairs if (phrase := file_change(file, path))]


def command_changes(then: ProgramIdentity, command: Sequence[str], cwd: Path) -> list[str]:
    """Return the changes of a program that is about to run, wherever its executable is now.

    Args:
        then: the identity that the study stores.
        command: the command to run; of the stored files only those that it names are compared.
        cwd: the directory that it runs in.
    """
    executable = then.executable
    found = shutil.which(command[0]) if executable else None
    phrases = [file_change(executable, os.path.abspath(found))] if executable and found else []  # noqa: PTH100
    named = {str(cwd / text) for word in command[1:] for text in (word, word.partition("=")[2]) if text}
    others = [f for f in (then.interpreter, *then.libraries) if f is not None]
    phrases += [file_change(f) for f in [*others, *(f for f in then.files if f.path in named)]]
    return [phrase for phrase in phrases if phrase]


def file_change(then: FileIdentity, path: str | None = None) -> str:
    """Return how a file has changed, as a phrase; empty if it has not.

    Args:
        then: the stored identity.
        path: where the file is now; None if it is where it was.
    """
    name = path or then.path
    try:
        status = Path(name).stat()
    except OSError:
        return f"{name} is missing"
    if name == then.path and (status.st_size, status.st_mtime_ns) == (then.size, then.mtime_ns):
        return ""
    if then.build_id:
        now = build_id(name) or ""
        ids = f"build id {then.build_id[:12]} then, {now[:12] or 'none'} now"
        return "" if now == then.build_id else f"{name} was rebuilt ({ids})"
    digest = _digest(Path(name), status.st_size, whole=not then.digest.startswith(_PARTS))
    return "" if digest == then.digest else f"{name} changed"


def without_outputs(identity: ProgramIdentity) -> ProgramIdentity:
    """Return the identity without files that a run of the program has just changed, because they are its output."""
    kept = [file for file in identity.files if not file_change(file)]
    return msgspec.structs.replace(identity, files=kept, settled=True)


def program_json(identity: ProgramIdentity) -> dict[str, str | None]:
    """Return the program as `tune --json` writes it."""
    executable = identity.executable
    return {
        "path": executable.path if executable else None,
        "build_id": (executable.build_id or None) if executable else None,
        "sha256": (executable.digest or None) if executable else None,
        **({"image": identity.image, "image_digest": identity.image_digest} if identity.image else {}),
    }


def _short(digest: str) -> str:
    return digest.rpartition(":")[2][:12]


def _executable(workload: Workload) -> Path | None:
    """Return the absolute path of the executable; None if it depends on the input or does not exist."""
    word = workload.program()
    search = {**os.environ, **workload.file.env}.get("PATH")
    found = shutil.which(word, path=search) if word else None
    return Path(os.path.abspath(found)) if found else None  # noqa: PTH100 (links stay: they may be moved)


def _libraries(program: ProgramFile | None, env: Mapping[str, str]) -> list[Path]:
    """Return the libraries that the loader would load with a program. The program does not run."""
    if program is None or not program.loader:
        return []
    try:
        done = subprocess.run(
            [program.loader, "--list", str(program.path)],
            env={k: v for k, v in {**os.environ, **env}.items() if k != "LD_PRELOAD"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [Path(name) for name in re.findall(r"=> (/.+) \(0x", done.stdout)]


def _named_files(workload: Workload, without: set[Path] | None = None) -> list[FileIdentity]:
    """Return the regular files that a workload names, each once."""
    file = workload.file
    words: list[str] = [*file.command[1:], *file.setup, file.stdin]
    for input_ in workload.inputs:
        words += [*input_.args, input_.stdin]
    if file.server is not None:
        words += [*(word for phase in file.server.phases for word in phase.load), *file.server.ready]
    outputs = {workload.cwd / name for name in file.output.files}
    return _files_in(words, workload.cwd, outputs | (without or set()), whole=workload.replays)


def _search_code(workload: Workload, code: Sequence[Path]) -> list[FileIdentity]:
    """Return these files, and those of the workload's [objective]."""
    objective, sources, named = workload.file.objective, list(code), list[FileIdentity]()
    if objective is not None:
        module = plugin_source(OBJECTIVES_GROUP, objective.function) if objective.function else None
        sources += [module] if module else []
        named = _files_in(objective.command, workload.cwd, set())
    found = [_identify(path, elf=False) for path in sources]
    return [*(identity for identity in found if identity is not None), *named]


def _files_in(words: Sequence[str], cwd: Path, without: set[Path], whole: bool = False) -> list[FileIdentity]:
    """Return the regular files that the words of a command name, each once.

    Args:
        words: the words; of a word like '--input=FILE' the part after '=' counts too.
        cwd: the working directory of the command.
        without: files to leave out.
        whole: read all of a large file.
    """
    found: dict[Path, FileIdentity] = {}
    for word in words:
        for text in dict.fromkeys((word, word.partition("=")[2])):
            path = cwd / text
            if not text or len(found) >= _MAX_FILES or path in without:
                continue
            try:
                regular = path.is_file()
            except (OSError, ValueError):  # not a valid file name: too long, or with a zero byte
                continue
            identity = _identify(path, whole=whole, elf=False) if regular else None
            if identity is not None:
                found[path] = identity
    return list(found.values())


_PARTS = "parts:"


def _identify(path: Path, whole: bool = False, elf: bool = True) -> FileIdentity | None:
    """Return the identity of a file; None if it cannot be read.

    Args:
        path: the file.
        whole: read all of it even if it is large, and even if it has a build id.
        elf: look for a build id.
    """
    try:
        status = path.stat()
        built = (build_id(str(path)) or "") if elf else ""
        digest = _digest(path, status.st_size, whole) if whole or not built else ""
    except OSError:
        return None
    return FileIdentity(str(path), status.st_size, status.st_mtime_ns, built, digest)


def _digest(path: Path, size: int, whole: bool) -> str:
    """Return a digest of a file's content, or of its size, first and last MiB if it is large and not `whole`."""
    if whole or size <= _WHOLE_BYTES:
        return file_sha256(path)
    with path.open("rb") as file:
        parts = hashlib.sha256(f"{size}:".encode())
        parts.update(file.read(_PART_BYTES))
        file.seek(-_PART_BYTES, os.SEEK_END)
        parts.update(file.read(_PART_BYTES))
        return _PARTS + parts.hexdigest()
