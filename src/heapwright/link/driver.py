"""Runs a compiler so that it calls heapwright's link step (step.py) instead of its linker.

A command that links nothing runs unchanged: `-c`, `-E`, `-S`, `-M`, queries such as -print-search-dirs, and commands
that are neither a compiler nor a linker (ar, options of ccache itself).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from heapwright.errors import HeapwrightError, UsageError
from heapwright.files import NATIVE
from heapwright.link import step
from heapwright.link.choose import LinkRequest
from heapwright.link.judge import Judgement, judge_link
from heapwright.link.linker_command import open_responses, read_line
from heapwright.terminal_text import say

_NO_LINK = {
    "-c",
    "-E",
    "-S",
    "-M",
    "-MM",
    "-###",
    "--version",
    "-fsyntax-only",
    "--help",
    "-V",
    "-dumpversion",
    "-dumpmachine",
}
_QUESTION = re.compile(r"^--?(print-|dump|help|target-help)")
_LINKER = re.compile(r"^(?:[\w.-]+-)?(ld(?:\.(?:bfd|gold|lld|mold))?|mold)(?:-[\d.]+)?$")
_OTHER = re.compile(r"^(?:[\w.-]+-)?(?:gcc-)?(ar|ranlib|nm|strip|objcopy|as|heapwright)(?:-[\d.]+)?$")
_LAUNCHERS = ("ccache", "sccache", "distcc", "icecc")  # whose first argument is the compiler


def run_compiler(command: Sequence[str], request: LinkRequest) -> int:
    """Runs the command; returns its exit status.

    Raises:
        UsageError: the command was not found.
        HeapwrightError: this installation lacks the link step.
    """
    program = shutil.which(command[0])
    if program is None:
        raise UsageError(
            f"there is no command '{command[0]}'", "put the compiler after --, for example: -- g++ main.o -o prog"
        )
    first = 2 if Path(command[0]).name in _LAUNCHERS and len(command) > 1 else 1
    compiler = list(command[:first])
    name = Path(compiler[-1]).name
    try:
        words = open_responses(command[first:])
    except ValueError:
        words = list(command[first:])  # the compiler reports the error
    if _OTHER.match(name) or any(w in _NO_LINK or _QUESTION.match(w) for w in words) or not words:
        return _run(list(command), dict(os.environ))
    folder = NATIVE / "ld"
    if not (folder / "ld").is_file():
        raise HeapwrightError(f"the link step in {folder} is missing", "install heapwright again, with CMake on PATH")
    with tempfile.TemporaryDirectory(prefix="heapwright-link-") as scratch:
        mark = Path(scratch) / "linked"
        env = {
            **os.environ,
            step.REQUEST: step.request_as_text(request),
            step.MARK: str(mark),
            "HEAPWRIGHT_LINK_PYTHON": sys.executable,
        }
        if _LINKER.match(name):
            env[step.LINKER] = program
            return _run([str(_executable(folder, Path(scratch)) / "ld"), *command[1:]], env)
        kept, named = _without_path(list(command[first:]))
        if named:
            env[step.LINKER] = named
        env[step.COMPILER] = json.dumps(
            [*compiler, *(w for w in words if w.startswith(("-B", "--target", "--sysroot")))]
        )
        before = _stamp(words)
        place = [f"-B{_executable(folder, Path(scratch))}/"] if _has_linker(compiler) else []
        status = _run([*compiler, *place, *kept], env)
        if status == 0 and not mark.exists() and _stamp(words) != before:
            say(
                f"{_output(words)}: linked without an allocator of heapwright: {name}"
                " did not call heapwright's link step"
            )
        return status


def _has_linker(compiler: list[str]) -> bool:
    """Tell whether this compiler calls a linker and has an option for its place, as gcc and clang do."""
    done = subprocess.run([*compiler, "-print-prog-name=ld"], capture_output=True, text=True, check=False)
    return done.returncode == 0 and Path(done.stdout.strip()).name == "ld"


def _executable(folder: Path, scratch: Path) -> Path:
    """Return the folder with the link step; a copy if the installation has lost the executable mode of its files."""
    if all(os.access(folder / name, os.X_OK) for name in step.NAMES):
        return folder
    copy = scratch / "ld"
    shutil.copytree(folder, copy)
    for name in step.NAMES:
        (copy / name).chmod(0o755)
    return copy


def _without_path(words: list[str]) -> tuple[list[str], str]:
    """Return the words without clang's --ld-path=, and the linker that it names."""
    named = [w.partition("=")[2] for w in words if w.startswith("--ld-path=")]
    return [w for w in words if not w.startswith("--ld-path=")], named[-1] if named else ""


def _output(words: Sequence[str]) -> str:
    for i, word in enumerate(words):
        if word == "-o" and i + 1 < len(words):
            return words[i + 1]
        if word.startswith("-o") and len(word) > 2:
            return word[2:]
    return "a.out"


def _stamp(words: Sequence[str]) -> int:
    try:
        return Path(_output(words)).stat().st_mtime_ns
    except OSError:
        return 0


def _run(command: list[str], env: dict[str, str]) -> int:
    sys.stdout.flush()
    done = subprocess.run(command, env=env, check=False)
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def inspect_command(command: Sequence[str], plugins: bool) -> Judgement:
    """Judge what a compiler's command would link. The compiler tells with -### how it would call its linker.

    Args:
        command: the compiler's command.
        plugins: whether code that is loaded with dlopen may start threads.

    Raises:
        HeapwrightError: the command fails, links nothing, or also compiles, so that its objects do not exist yet.
    """
    if shutil.which(command[0]) is None:
        raise UsageError(
            f"there is no command '{command[0]}'", "put the compiler after --, for example: -- g++ main.o -o prog"
        )
    if _LINKER.match(Path(command[0]).name):
        return judge_link(read_line(command[1:]), plugins)
    done = subprocess.run(
        [*command, "-###"], capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
    )
    if done.returncode:
        raise HeapwrightError(f"{command[0]} says: {(done.stderr.strip() or 'nothing').splitlines()[-1]}")
    lines = [shlex.split(line) for line in done.stderr.splitlines() if line.startswith((" ", "/"))]
    links = [words for words in lines if words and re.match(r"^(collect2|ld.*|mold)$", Path(words[0]).name)]
    if not links or len(lines) > len(links):
        raise HeapwrightError(
            "this command also compiles, or links nothing", "compile first, then inspect the link of the objects"
        )
    return judge_link(read_line(links[-1][1:]), plugins)
