"""Reads recordings that stand for a program: complete traces, samples of traces, and fitted models.

A study of recordings runs replays in place of the program. Each recording is an input of its workload, so inputs for
the search and inputs that are held out work as they do for a program (`workload.model`).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from heapwright.allocators.embedded import find_embedded
from heapwright.allocators.registry import Allocator, find_allocators, get_allocator, with_preload
from heapwright.allocators.space_spec import preloadable
from heapwright.errors import UsageError
from heapwright.files import file_sha256, scratch_folder
from heapwright.trace.info import nothing_in, read_info
from heapwright.trace.model import WindowsModel, load_model, synthesise
from heapwright.trace.pack import native_program, need_trace
from heapwright.trace.program_memory import ProgramMemory, program_memory
from heapwright.trace.replay import ReadyTrace, make_ready
from heapwright.workload.model import Input, Output, Workload, WorkloadFile

_C_LIBRARIES = ("libc.", "ld-musl-")  # of other systems: a program cannot have two

RecordingKind = Literal["complete", "sample", "model"]


@dataclass(frozen=True)
class Recording:
    """The facts of one recording.

    Attributes:
        path: absolute.
        kind: a complete trace, a sample of the objects, or a fitted model.
        rate: of a sample: one small object in so many is in it; otherwise 0.
        threads: number of threads of the recorded program.
        events: calls of malloc and the other allocation functions; of a sample those of the chosen objects.
        peak_live_bytes: the maximum of live bytes.
        allocator: the malloc that it was recorded on: a library's path, or 'glibc 2.36'; empty if unknown.
        executable: the recorded program; empty if unknown.
        held_out: whether the search does not use it.
        sha256: of the file, in hex.
        peak_resident_bytes: the program's peak resident memory by its own readings; 0 if there are none.
        forked: whether the process began as a fork, with memory of its parent that no replay has.
        memory: the program's resident memory over time; None if there are no readings.
        misfit: how far a replay on the recorded malloc was from these readings (`program_memory.misfit`); None if that
            is not known.
    """

    path: str
    kind: RecordingKind
    rate: int
    threads: int
    events: int
    peak_live_bytes: int
    allocator: str = ""
    executable: str = ""
    held_out: bool = False
    sha256: str = ""
    peak_resident_bytes: int = 0
    forked: bool = False
    memory: ProgramMemory | None = None
    misfit: float | None = None


@dataclass(frozen=True)
class Recordings:
    """The recordings of a study or comparison.

    Attributes:
        inputs: input name → recording.
        reference: name of the allocator that others are compared with.
        reference_why: why it is the reference, in one sentence.
        own_malloc: whether the recorded program has another malloc than the C library's.
    """

    inputs: dict[str, Recording] = field(default_factory=dict)
    reference: str = "glibc"
    reference_why: str = ""
    own_malloc: bool = False

    @property
    def command(self) -> list[str]:
        """The words that name the recordings in a report."""
        return ["heapwright", "replay", *(r.path for r in self.inputs.values())]

    @property
    def threads(self) -> bool:
        """Whether a recorded program has more than one thread."""
        return any(r.threads > 1 for r in self.inputs.values())

    @property
    def program_memory(self) -> dict[str, ProgramMemory]:
        """Input name → resident memory of the recorded program, if a replay can have its malloc."""
        if self.own_malloc and self.reference == "glibc":  # replays have another malloc than the program
            return {}
        return {
            name: r.memory or ProgramMemory(r.peak_resident_bytes)
            for name, r in self.inputs.items()
            if r.peak_resident_bytes and _replays_have(r.allocator)
        }

    def note_misfits(self, misfits: Mapping[str, float | None]) -> None:
        """Keeps the misfits of inputs that were replayed on the recorded malloc."""
        for name, misfit in misfits.items():
            self.inputs[name] = replace(self.inputs[name], misfit=misfit)

    @property
    def misfit(self) -> float:
        """The largest known misfit of a recording; 0 if none is known."""
        return max((r.misfit or 0.0 for r in self.inputs.values()), default=0.0)

    @property
    def kinds(self) -> list[RecordingKind]:
        """The kinds of the recordings, each once."""
        return list(dict.fromkeys(r.kind for r in self.inputs.values()))


def _replays_have(malloc: str) -> bool:
    """Returns whether a replay can have the malloc of a recording: glibc's, or that of the very library."""
    return malloc.startswith("glibc ") or (".so" in Path(malloc).name and os.access(malloc, os.R_OK))


def is_model(path: Path) -> bool:
    """Returns whether a file is a model and no trace: models are JSON objects."""
    try:
        with path.open("rb") as file:
            return file.read(64).lstrip()[:1] == b"{"
    except OSError:
        return False


def recorded_workload(train: Sequence[Path], test: Sequence[Path] = ()) -> Workload:
    """Returns a workload whose inputs are recordings.

    Args:
        train: the recordings that a search uses.
        test: those that are held out; if there are none, all recordings judge the result.

    Raises:
        UsageError: a file does not exist, cannot be read or is given twice.
    """
    paths = [(path, split) for paths, split in ((train, "train"), (test, "test")) for path in paths]
    inputs: list[Input] = []
    seen: set[str] = set()
    for path, split in paths:
        need_trace(path)
        whole = str(path.absolute())
        if whole in seen:
            raise UsageError(f"the recording {path} is given twice", "leave out one of them")
        seen.add(whole)
        file_name = os.fsencode(path.name).decode(errors="backslashreplace")
        names = {i.name for i in inputs}
        numbered = (f"{file_name} {number}" for number in itertools.count(2))
        name = next(n for n in itertools.chain([file_name], numbered) if n not in names)
        inputs.append(Input(name, "test" if split == "test" else "train", [whole]))
    file = WorkloadFile([str(native_program("heapwright-replay"))], output=Output(compare="none"), input=list(inputs))
    return Workload(file, Path.cwd(), tuple(inputs), replays=True)


def trace_of(input_: Input) -> Path:
    """Returns the recording of an input of `recorded_workload`."""
    return Path(input_.args[0])


def read_recordings(workload: Workload) -> Recordings:
    """Reads the facts of a workload's recordings, and finds the reference allocator.

    Raises:
        UsageError: a file is neither a trace nor a model.
        HeapwrightError: nothing of a trace can be read.
    """
    inputs = {i.name: read_recording(trace_of(i), i.split == "test") for i in workload.inputs}
    first = next(iter(inputs.values()))
    allocators = {r.allocator for r in inputs.values() if r.allocator}
    if len(allocators) > 1:
        names = " and ".join(sorted(allocators))
        why = f"The recordings were made on different mallocs ({names}), so glibc is the reference."
        return Recordings(inputs, "glibc", why, own_malloc=True)
    name = next(iter(allocators), "")
    if not name:
        which = "models do not name" if first.kind == "model" else "the recording does not name"
        return Recordings(inputs, "glibc", f"Reference: glibc, because {which} the program's malloc.")
    if name.startswith("glibc "):
        return Recordings(inputs, "glibc", f"Reference: glibc, on which the program was recorded ({name}).")
    found = _loadable(name)
    if found is None:
        why = f"Reference: glibc, because the program's malloc ({name}) cannot be loaded here."
        return Recordings(inputs, "glibc", why, own_malloc=True)
    here = found.path or ""
    where = "" if os.path.realpath(here) == os.path.realpath(name) else f"; here {here}"
    why = f"Reference: {found.name}, on which the program was recorded ({name}{where})."
    return Recordings(inputs, found.name if found.name in find_allocators() else name, why, own_malloc=True)


def read_recording(path: Path, held_out: bool = False) -> Recording:
    """Reads the facts of one recording.

    Args:
        path: the file.
        held_out: whether the search does not use it.

    Raises:
        UsageError: the file is neither a trace nor a model.
        HeapwrightError: nothing of a trace can be read, or it has no allocation.
    """
    whole = str(path.absolute())
    if is_model(path):
        model = load_model(path)
        threads = model.threads if isinstance(model, WindowsModel) else 1
        counts = (0, threads, model.events, model.peak_live_bytes)
        return Recording(whole, "model", *counts, held_out=held_out, sha256=file_sha256(path))
    info, _ = read_info(path)
    if not info.allocations:
        raise nothing_in(path, info)
    sample = info.sample
    return Recording(
        whole,
        "sample" if sample else "complete",
        sample.rate if sample else 0,
        info.threads,
        info.events,
        round(sample.peak_live_bytes) if sample else info.peak_live_bytes,
        info.allocator,
        info.executable,
        held_out,
        file_sha256(path),
        info.peak_resident_bytes or 0,
        info.forked,
        program_memory(info),
    )


def as_replayed(allocator: Allocator, recordings: Recordings) -> Allocator:
    """Returns an allocator as it replaces the malloc of the recorded program.

    A program with another malloc than the C library's does not use glibc's unless it is preloaded.
    """
    if allocator.name != "glibc" or not recordings.own_malloc or not allocator.path:
        return allocator
    return with_preload(allocator, allocator.path)


def reference_allocator(recordings: Recordings) -> Allocator:
    """Returns the allocator that others are compared with, as it is replayed."""
    return as_replayed(get_allocator(recordings.reference), recordings)


def _loadable(recorded: str) -> Allocator | None:
    """Returns the allocator of this machine that the program was recorded on; None if there is none.

    Args:
        recorded: path of the library or program whose malloc was recorded.
    """
    if Path(recorded).name.startswith(_C_LIBRARIES):
        return None
    installed = find_allocators()
    real_path = os.path.realpath(recorded)
    for one in installed.values():
        if one.preload and os.path.realpath(one.preload) == real_path:
            return one
    for one in installed.values():  # recorded on another machine
        if one.preload and Path(one.preload).name == Path(recorded).name:
            return one
    if ".so" in Path(recorded).name:
        return get_allocator(real_path) if os.access(real_path, os.R_OK) and preloadable(real_path) else None
    embedded = find_embedded(recorded)
    return installed.get(embedded.name) if embedded is not None else None


@contextmanager
def ready_of(recording: Path, folder: Path | None = None) -> Iterator[ReadyTrace]:
    """Makes a recording ready for replays (`make_ready`). Of a model it draws a trace first.

    Args:
        recording: a trace in any form, or a model.
        folder: for the files that replays read; None for the folder for temporary files.
    """
    if not is_model(recording):
        with make_ready(recording, folder) as ready:
            yield ready
        return
    with scratch_folder(folder) as own:
        trace = own / "synthetic.hwt"
        synthesise(load_model(recording), trace)
        with make_ready(trace, folder) as ready:
            yield ready
