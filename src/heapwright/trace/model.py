"""Fits models to traces, reads models from files, and generates synthetic traces from them.

docs/synth.md describes the JSON. A model holds counts, sizes and times, but no addresses and no contents. It holds the
command line of the program only with `fit --with-command`. The native program fits and generates (native/model). This
module checks the types of a model, which a user may have written by hand, so that errors name the place in the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec

from heapwright import __version__
from heapwright.errors import HeapwrightError, UsageError
from heapwright.trace.info import Loss, SampleEstimates, nothing_in, read_info
from heapwright.trace.pack import Packed, ask, draft_for_native, need_trace, run_native
from heapwright.trace.replay import Library, runtime_of

SCHEMA = "heapwright-model"
VERSION = 2
MODEL_BYTES = 150_000  # of a fitted model, at most: classes are merged until it fits
_MAX_FILE_BYTES = 64 << 20  # of a model file that is read
_PACKED = b"HWPACK"  # a packed trace begins so
_FRAME_BYTES = 2_000  # of MODEL_BYTES, for the fields that this module adds

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]
PerMille: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1000)]


class Origin(msgspec.Struct, omit_defaults=True):
    """The origin of a model.

    Attributes:
        heapwright: the version that fitted it.
        command: the command line of the program, empty unless it was asked for.
    """

    heapwright: str = ""
    command: list[str] = []


class SizeClass(msgspec.Struct, forbid_unknown_fields=True):
    """A size class: sizes that are counted together. See docs/synth.md."""

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
    count_error: Count | msgspec.UnsetType = msgspec.UNSET
    bytes_error: Count | msgspec.UnsetType = msgspec.UNSET


class Window(msgspec.Struct, forbid_unknown_fields=True):
    """A range of ticks of the trace. See docs/synth.md."""

    ticks: Count
    ns: Count
    turns: Count
    parts: list[Count]
    rows: list[Count]
    handed: list[Count]
    resizes: list[Count]


class WindowsModel(msgspec.Struct, tag="windows", tag_field="kind", forbid_unknown_fields=True):
    """The empirical model: sizes and lifetimes by window. Times are in ns, sizes in bytes, lengths in ticks."""

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
    sample: SampleEstimates | msgspec.UnsetType = msgspec.UNSET


class RandMallocModel(msgspec.Struct, tag="rand-malloc", tag_field="kind", forbid_unknown_fields=True):
    """The kind of model that rand_malloc runs: for each class (size in bytes, count, mean lifetime in ticks)."""

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
    sample: SampleEstimates | msgspec.UnsetType = msgspec.UNSET


Model: TypeAlias = WindowsModel | RandMallocModel
Kind = Literal["windows", "rand-malloc"]


class PackedCounts(msgspec.Struct):
    """Counts of a packed trace that the native program has written. Sizes are in bytes."""

    events: int
    allocations: int
    threads: int
    peak_live_bytes: int
    peak_live_objects: int
    loss: Loss


def fit(trace: Path, kind: Kind = "windows", windows: int = 200, with_command: bool = False) -> tuple[Model, str]:
    """Fits a model to a trace.

    Args:
        trace: in any form.
        kind: of the model.
        windows: number of windows that the trace is cut into; fewer if the model would be too large.
        with_command: keep the program's command line in the model.

    Returns:
        The model, and a warning if the trace has lost events, or an empty string.

    Raises:
        UsageError: there is no such file.
        HeapwrightError: nothing of the trace can be read, or it holds no allocation.
    """
    need_trace(trace)
    words = ("fit", trace, kind, str(windows), str(MODEL_BYTES - _FRAME_BYTES))
    try:
        text, warning = run_native(*words)
    except HeapwrightError:
        info = read_info(trace)[0]
        if info.loss.why and not info.allocations:
            raise nothing_in(trace, info) from None
        raise
    origin = Origin(heapwright=__version__)
    if with_command:
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
    """Returns the text of a model file: JSON with one window per line."""
    text = msgspec.json.encode(model).decode()
    return text.replace('{"ticks"', '\n{"ticks"').replace('"script":[', '\n"script":[') + "\n"


def load_model(path: Path) -> Model:
    """Reads a model and checks it.

    Raises:
        UsageError: there is no such file, or it is not a model; the message names the place.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"no such model: {path}", "heapwright fit makes one") from None
    except OSError as error:
        raise UsageError(f"the model cannot be read: {path}: {error.strerror}") from None
    if len(text) > _MAX_FILE_BYTES:
        raise UsageError(f"not a model: {path} is longer than {_MAX_FILE_BYTES >> 20} MiB")
    try:
        head = msgspec.json.decode(text)
        if not isinstance(head, dict) or head.get("schema") != SCHEMA:
            raise UsageError(f"not a model: {path}", "heapwright fit makes one from a trace")
        if head.get("version") != VERSION:
            raise UsageError(
                f"{path} is a model of version {head.get('version')}, this heapwright reads version {VERSION}",
                "fit the model again",
            )
        model: Model = msgspec.convert(head, WindowsModel | RandMallocModel)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"not a model: {path}: {error}") from None
    return model


def synthesise(model: Model, trace: Path, seed: int = 0, scale: float = 1.0, time_scale: float = 1.0) -> PackedCounts:
    """Generates a synthetic trace and writes it packed. The file is complete, or it does not exist.

    Args:
        model: whose counts the trace follows.
        trace: the file to write.
        seed: 0 to 2^47; another seed makes another trace of the same model.
        scale: ratio by which live bytes, and with them events, are multiplied.
        time_scale: ratio by which events are multiplied at the same live bytes.

    Returns:
        Counts of the trace.

    Raises:
        HeapwrightError: the model contradicts itself, or the file cannot be written.
    """
    libraries = ",".join(model.libraries) or "-"
    with draft_for_native(trace) as draft:
        words = ("synth", repr(scale), repr(time_scale), str(seed), draft, libraries)
        text, _ = run_native(*words, stdin=[msgspec.json.encode(model)])
    return msgspec.json.decode(text, type=PackedCounts)


def is_trace(path: Path) -> bool:
    """Returns whether a file is a packed trace, such as a sample, and not a model."""
    try:
        with path.open("rb") as file:
            return file.read(len(_PACKED)) == _PACKED
    except OSError:
        return False


def expand_sample(sample: Path, trace: Path, seed: int = 0) -> tuple[Packed, str]:
    """Expands a sample to a complete trace and writes it packed.

    Args:
        sample: a sample of a trace; a complete trace is copied.
        trace: the file to write.
        seed: of the expansion.

    Returns:
        Counts of the trace, and a warning if the sample has lost events, or an empty string.

    Raises:
        HeapwrightError: nothing of the sample can be read.
    """
    need_trace(sample)
    with draft_for_native(trace) as draft:
        made, warning = ask(Packed, "complete", sample, draft, str(seed))
        if not made.events:
            raise nothing_in(sample)
    return made, warning
