"""Runs a command under Valgrind: callgrind counts its instructions, Massif reports its peak of mapped memory.

Both are repeatable whatever else the machine does, and 3 to 50 times slower than the command itself.
"""

from __future__ import annotations

import contextlib
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from heapwright.elf.image import read_file
from heapwright.errors import HeapwrightError
from heapwright.files import scratch_folder
from heapwright.measure.process_group import wait_group

# Massif's own memory on amd64 (native/meter/massif.h): its preloaded library, which a static
# program does not load, and the page below the first stack pointer, which only amd64 has. On other
# machines the library may differ by some pages.
_PRELOADED_BYTES = 36_864
_RED_ZONE_BYTES = 4_096
# With fewer snapshots Massif skips growth between two of them. 1,000 is the most that it accepts.
_MASSIF = ("--tool=massif", "--pages-as-heap=yes", "--peak-inaccuracy=0.0", "--max-snapshots=1000")

_SLOWER = 50  # how many times as long a run may take under Valgrind


@dataclass(frozen=True)
class _Ended:
    """A run under Valgrind: the folder with its profiles, the first process and the exit status (128 + signal).

    The status is None if the run took too long.
    """

    folder: Path
    pid: int
    status: int | None


@contextmanager
def _under_valgrind(
    option: str,
    tool: Sequence[str],
    command: Sequence[str],
    env: Mapping[str, str] | None,
    cwd: Path | None,
    stdin: Path | None,
    timeout: float,
) -> Iterator[_Ended]:
    """Run a command under a tool of Valgrind, which writes one profile per process into a folder.

    Args:
        option: the option of heapwright that asks for it, for the message.
        tool: Valgrind's options. '{}' stands for the path of a profile without its number.
        command: the program and its arguments.
        env: its environment; None for ours.
        cwd: its directory; None for ours.
        stdin: a file; None for /dev/null.
        timeout: seconds after which a run without Valgrind would be stopped; 0 for no limit.

    Raises:
        HeapwrightError: valgrind is missing.
    """
    # Debian's `valgrind` is a script that sets variables, one of which changes how C++ programs
    # allocate.
    valgrind = shutil.which("valgrind.bin") or shutil.which("valgrind")
    if valgrind is None:
        raise HeapwrightError(f"{option} needs valgrind", "sudo apt-get install -y valgrind")
    with scratch_folder() as folder:
        words = [valgrind, *(word.format(folder / "out") for word in tool), "--trace-children=yes", "--quiet"]
        source = stdin.open("rb") if stdin else None
        try:
            process = subprocess.Popen(
                [*words, "--", *command],
                env=dict(env) if env is not None else None,
                cwd=cwd,
                stdin=source or subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            if source:
                source.close()
        status: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = wait_group(process, _SLOWER * timeout or None)
        yield _Ended(folder, process.pid, status)


def count_instructions(
    command: Sequence[str],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: Path | None = None,
    *,
    status: int = 0,
    timeout: float = 0.0,
) -> float | None:
    """Count the user instructions (callgrind's Ir) of a command and its children, summed over processes.

    Args:
        command: the program and its arguments.
        env: its environment; None for ours.
        cwd: its directory; None for ours.
        stdin: a file; None for /dev/null.
        status: the expected exit status; 128 + signal if a signal should end the command.
        timeout: seconds after which a run without Valgrind would be stopped; 0 for no limit.

    Returns:
        The count; None if the command ended with another status. Some allocators reserve more address space than
        valgrind can give, which ends the program at its start.

    Raises:
        HeapwrightError: valgrind is missing or wrote no profile.
    """
    tool = ("--tool=callgrind", "--callgrind-out-file={}.%p")
    with _under_valgrind("--instructions=callgrind", tool, command, env, cwd, stdin, timeout) as ended:
        totals = [
            int(match[1])
            for path in ended.folder.iterdir()
            if (match := re.search(r"^(?:totals|summary): (\d+)", path.read_text(errors="replace"), re.M))
        ]
    if ended.status is None:
        return None
    if not totals:
        raise HeapwrightError(f"callgrind counted nothing for {command[0]}", "does it run under valgrind?")
    return float(sum(totals)) if ended.status == status else None


def massif_peak(
    command: Sequence[str],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: Path | None = None,
    *,
    status: int = 0,
    timeout: float = 0.0,
) -> float | None:
    """Measure the peak that Massif --pages-as-heap=yes reports for the first process, in bytes.

    It is the largest mem_heap_B of all snapshots, less Massif's own memory (native/meter/massif.h), so that it can be
    compared with the meter's emulation. If the command calls exec, it is the peak of the last program.

    Args:
        command: the program and its arguments.
        env: its environment; None for ours.
        cwd: its directory; None for ours.
        stdin: a file; None for /dev/null.
        status: the expected exit status; 128 + signal if a signal should end the command.
        timeout: seconds after which a run without Valgrind would be stopped; 0 for no limit.

    Returns:
        The peak; None if the command ended with another status.

    Raises:
        HeapwrightError: valgrind is missing or wrote no profile.
    """
    tool = (*_MASSIF, "--massif-out-file={}.%p")
    with _under_valgrind("--massif=valgrind", tool, command, env, cwd, stdin, timeout) as ended:
        profile = ended.folder / f"out.{ended.pid}"
        text = profile.read_text(errors="replace") if profile.exists() else ""
    heaps = [int(heap) for heap in re.findall(r"^mem_heap_B=(\d+)$", text, re.M)]
    if ended.status is None:
        return None
    if not heaps:
        raise HeapwrightError(f"Massif reported nothing for {command[0]}", "does it run under valgrind?")
    program = re.search(r"^cmd: (\S+)", text, re.M)
    own = _massifs_own_bytes(program[1] if program else "")
    return float(max(heaps) - own) if ended.status == status else None


def _massifs_own_bytes(program: str) -> int:
    """Return how much of a program's peak is Massif's own, in bytes.

    Args:
        program: its name or path. If it cannot be read, it counts as a dynamic program of this machine.
    """
    static, has_red_zone = False, platform.machine() == "x86_64"
    path = shutil.which(program)
    if path is not None:
        with contextlib.suppress(HeapwrightError):
            image = read_file(Path(path))
            static, has_red_zone = image.static, image.machine == "EM_X86_64"
    return (0 if static else _PRELOADED_BYTES) + (_RED_ZONE_BYTES if has_red_zone else 0)
