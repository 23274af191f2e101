"""Models of traces: fitting one, checking one that somebody hands over, and making up a trace from it.

docs/synth.md describes the JSON. A model holds counts, sizes and times: no addresses, no contents; the command
line of the program only where `fit --with-command` was asked for. Counting and generating is native
(native/model); models pass through here so that what a user may have written by hand is checked with the errors of a
person's file, not of a program's.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec

from heapwright import __version__
from heapwright.errors import HeapwrightError, UsageError
from heapwright.trace.info import Loss
from heapwright.trace.pack import native_program, need_trace
from heapwright.trace.replay import Library, runtime_of

SCHEMA = "heapwright-model"
VERSION = 2
MODEL_BYTES = 150_000  # a fitted model is no larger: classes are merged until it fits
_LONGEST = 64 << 20  # bytes: of a model somebody else has made
_FRAME_BYTES = 2_000  # of these, for what is added to the native program's part

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]
PerMille: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1000)]


class Origin(msgspec.Struct, omit_defaults=True):
    """Where a model comes from."""

    heapwright: str = ""
    command: list[str] = []


class SizeClass(msgspec.Struct, forbid_unknown_fields=True):
    """Sizes that are counted together. See docs/synth.md."""

    sizes: Annotated[list[Count], msgspec.Meta(min_length=2)]
    callocs: Count
    alignments: list[Count]
    in_order: PerMille
    in_reverse: PerMille
    touched: Annotated[int, msgspec.Meta(ge=-1, le=1000)]
    brief: list[Count]
    threads: Annotated[list[Count], msgspec.Meta(min_length=2)]
    freed_own: Count
    freed_by: list[Count]


class Window(msgspec.Struct, forbid_unknown_fields=True):
    """A stretch of the trace. See docs/synth.md."""

    ticks: Count
    ns: Count
    turns: Count
    parts: list[Count]
    rows: list[Count]
    handed: list[Count]
    resizes: list[Count]


class WindowsModel(msgspec.Struct, tag="windows", tag_field="kind", forbid_unknown_fields=True):
    """The empirical model: sizes and lifetimes by window. Times in ns, sizes in bytes, lengths in ticks."""

    schema: Literal["heapwright-model"]
    version: int
    ticks: Count
    ns: Count
    events: Count
    allocations: Count
    peak_live_bytes: Count
    script_from: Count
    sized_frees: PerMille
    threads: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    classes: Annotated[list[SizeClass], msgspec.Meta(min_length=1)]
    windows: list[Window]
    script: list[Annotated[int, msgspec.Meta(ge=-1, le=1 << 48)]]
    thread_ends: list[Count]
    libraries: list[Library]
    origin: Origin = msgspec.field(default_factory=Origin)


class RandMallocModel(msgspec.Struct, tag="rand-malloc", tag_field="kind", forbid_unknown_fields=True):
    """The kind of model rand_malloc runs: for each class (size, count, mean lifetime in ticks)."""

    schema: Literal["heapwright-model"]
    version: int
    ticks: Count
    ns: Count
    events: Count
    allocations: Count
    peak_live_bytes: Count
    classes: Annotated[list[tuple[Count, Count, Count]], msgspec.Meta(min_length=1)]
    libraries: list[Library]
    origin: Origin = msgspec.field(default_factory=Origin)


Model: TypeAlias = WindowsModel | RandMallocModel
Kind = Literal["windows", "rand-malloc"]


class Made(msgspec.Struct):
    """What the native program wrote: a packed trace. Bytes."""

    events: int
    allocations: int
    threads: int
    peak_live_bytes: int
    peak_live_objects: int
    loss: Loss


def run_native(*words: str | Path, given: bytes | None = None) -> tuple[bytes, str]:
    """Runs a sub-command of heapwright-trace.

    Args:
        given: its stdin; none where None.

    Returns:
        stdout, and its last line on stderr: a warning.

    Raises:
        HeapwrightError: it failed; its own line says why.
    """
    done = subprocess.run(
        [native_program("heapwright-trace"), *words], input=given or b"", capture_output=True, check=False
    )
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    line = said[-1].removeprefix("heapwright-trace: ") if said else ""
    if done.returncode:
        raise HeapwrightError(line or f"heapwright-trace {words[0]} ended with status {done.returncode}")
    return done.stdout, line


def fit(trace: Path, kind: Kind = "windows", windows: int = 200, with_command: bool = False) -> tuple[Model, str]:
    """Fits a model to a trace.

    Args:
        windows: into how many stretches the trace is cut; fewer where the model would be too large.
        with_command: keep the program's command line in the model.

    Returns:
        the model, and a warning where the trace has lost something.

    Raises:
        UsageError: there is no such file.
        HeapwrightError: nothing of it can be read, or it holds no allocation.
    """
    need_trace(trace)
    words = ("fit", trace, kind, str(windows), str(MODEL_BYTES - _FRAME_BYTES))
    text, warning = run_native(*words)
    origin = Origin(heapwright=__version__)
    if with_command:
        from heapwright.trace.info import read_info

        origin.command = read_info(trace)[0].command
    found = msgspec.json.decode(text)
    whole = {
        "schema": SCHEMA,
        "version": VERSION,
        **found["model"],
        "libraries": runtime_of(found["executable"]),
        "origin": msgspec.to_builtins(origin),
    }
    model: Model = msgspec.convert(whole, WindowsModel | RandMallocModel)
    return model, warning


def to_text(model: Model) -> str:
    """The model as a file: JSON, one window a line."""
    text = msgspec.json.encode(model).decode()
    return text.replace('{"ticks"', '\n{"ticks"').replace('"script":[', '\n"script":[') + "\n"


def load_model(path: Path) -> Model:
    """Reads a model and checks it.

    Raises:
        UsageError: no such file, or no model; the line says where.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_LONGEST + 1)
    except FileNotFoundError:
        raise UsageError(f"no such model: {path}", "heapwright fit makes one") from None
    except OSError as error:
        raise UsageError(f"the model cannot be read: {path}: {error.strerror}") from None
    if len(text) > _LONGEST:
        raise UsageError(f"this is no model: {path}: it is longer than {_LONGEST >> 20} MiB")
    try:
        head = msgspec.json.decode(text)
        if not isinstance(head, dict) or head.get("schema") != SCHEMA:
            raise UsageError(f"this is no model: {path}", "heapwright fit makes one from a trace")
        if head.get("version") != VERSION:
            raise UsageError(
                f"{path} is a model of version {head.get('version')}, this heapwright knows {VERSION}", "fit it again"
            )
        model: Model = msgspec.convert(head, WindowsModel | RandMallocModel)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"this is no model: {path}: {error}") from None
    return model


def synthesise(model: Model, trace: Path, seed: int = 0, scale: float = 1.0, time_scale: float = 1.0) -> Made:
    """Writes the packed trace a model and a seed make; whole under its name, or not there.

    Args:
        seed: another seed is another trace of the same model.
        scale: multiplies live bytes, and with them events.
        time_scale: multiplies events at the same live bytes.

    Raises:
        HeapwrightError: the model contradicts itself, or the file cannot be written.
    """
    libraries = ",".join(model.libraries) or "-"
    words = ("synth", repr(scale), repr(time_scale), str(seed), trace, libraries)
    text, _ = run_native(*words, given=msgspec.json.encode(model))
    return msgspec.json.decode(text, type=Made)
