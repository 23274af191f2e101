"""What travels: how to run (Recipe), what to run (study.runner.Work), what came of it (Finished), all as JSON.

    study ── Recipe + Work ──►  restore(recipe) runs the work  ── Finished ──►  study

A recipe is everything a machine must know besides what stands on the shared file system: the workload as it was read,
how to measure, and of replays the traces by content hash. Dask tasks and job files carry the same two texts.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shlex
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from heapwright import __version__
from heapwright.allocators.peers import build_id
from heapwright.allocators.registry import Allocator
from heapwright.errors import HeapwrightError
from heapwright.experiment.phases import Phase
from heapwright.experiment.replays import Replays
from heapwright.experiment.runner import Job, Result, RunsInputs, Work, run_work
from heapwright.measure.host import describe_host, fingerprint
from heapwright.measure.meter import MeterOptions
from heapwright.workload.execute import Executor, Outcome
from heapwright.workload.model import Input, Workload, WorkloadFile

SUFFIX = ".hwt"
_T = TypeVar("_T")


class Needs(msgspec.Struct):
    """What must be on a machine before it is used.

    Attributes:
        version: of heapwright.
        libraries: path → build id (or content hash), of every allocator that may be run.
        paths: files and folders that must be there: the workload's own.
        traces: content hashes of the traces that must be in the cache.
    """

    version: str
    libraries: dict[str, str]
    paths: list[str]
    traces: list[str] = []


class Recipe(msgspec.Struct):
    """How to run blocks.

    Attributes:
        references: see `Executor`.
        traces: input → content hash, where replays are run; None: the program is.
        environ: the environment of the study, so that a worker's own does not matter; None: that of who runs it.
        keep_output: see `Executor`.
    """

    file: WorkloadFile
    cwd: str
    inputs: list[Input]
    meter: MeterOptions
    references: str
    traces: dict[str, str] | None
    environ: dict[str, str] | None
    needs: Needs
    keep_output: bool = False


class Ran(msgspec.Struct):
    """One job's result; `job` is its place in the work."""

    job: int
    outcome: Outcome
    started: str
    elapsed_s: float
    retried: list[str]


class Finished(msgspec.Struct):
    """What came of a block, and on which kind of machine."""

    ran: list[Ran]
    host: dict[str, Any]
    machine: str

    def results(self, work: Work) -> Iterator[Result]:
        """As the study takes them."""
        kind = fingerprint(self.host)
        for r in self.ran:
            yield Result(work.jobs[r.job], r.outcome, r.started, r.elapsed_s, tuple(r.retried), self.machine, kind)


def encode(value: Any) -> str:
    """As JSON.

    Raises:
        HeapwrightError: there are bytes in it that are no text (UTF-8), which JSON cannot say.
    """
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError as error:
        raise HeapwrightError(f"'{error.object}' is no text (UTF-8): it cannot be sent to other machines") from None


def check_texts(environ: Mapping[str, str]) -> None:
    """Sees that all variables can be sent: the program is to find the same ones on every machine, or none is tried.

    Raises:
        HeapwrightError: one is no text.
    """
    for name, value in environ.items():
        if re.search("[\ud800-\udfff]", name + value):
            raise HeapwrightError(
                f"the variable {name} is no text (UTF-8): it cannot be sent to other machines",
                f"leave it out: env -u {shlex.quote(name)} heapwright ...",
            )


def decode(text: str | bytes, kind: type[_T]) -> _T:
    """From JSON.

    Raises:
        msgspec.DecodeError: it is not that.
    """
    return msgspec.json.decode(text, type=kind)


def content_hash(path: Path) -> str:
    """SHA-256 of a file, as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def library_id(path: str) -> str:
    """A library's build id, or its content hash where it has none; empty where it is not there."""
    if not Path(path).is_file():
        return ""
    return build_id(path) or content_hash(Path(path))


def needs_of(workload: Workload, allocators: list[Allocator], references: Path) -> Needs:
    """What every machine must have for this study."""
    libraries = {a.path: library_id(a.path) for a in allocators if a.path}
    paths = [str(workload.cwd), *(i.stdin for i in workload.inputs if i.stdin), workload.file.stdin]
    word = workload.program()
    paths.append(str(Path(word).absolute()) if "/" in word else "")
    if not word:
        paths += [i.args[0] for i in workload.inputs]
    if workload.file.output.compare == "command":  # the reference output is kept beside the study
        paths.append(str(references.parent))
    return Needs(__version__, libraries, [p for p in paths if p])


def program_recipe(executor: Executor, needs: Needs, environ: Mapping[str, str] | None) -> Recipe:
    """The recipe that runs the program."""
    w = executor.workload
    kept = dict(environ) if environ is not None else None
    references = str(executor.references.absolute())
    inputs, keep = list(w.inputs), executor.keep_output
    return Recipe(w.file, str(w.cwd), inputs, executor.options, references, None, kept, needs, keep)


def replays_recipe(replays: Replays, needs: Needs, environ: Mapping[str, str] | None) -> tuple[Recipe, dict[str, Path]]:
    """The recipe that runs replays, and where each trace is, by content hash."""
    hashes = {name: content_hash(path) for name, path in replays.traces.items()}
    files = {hashes[name]: path for name, path in replays.traces.items()}
    needs = msgspec.structs.replace(needs, paths=[], traces=sorted(files))
    kept, w = dict(environ) if environ is not None else None, replays.workload
    return Recipe(w.file, str(w.cwd), list(w.inputs), replays.options, "", hashes, kept, needs), files


def restore(recipe: Recipe, traces: Path, scratch: Path | None = None) -> Executor | Replays:
    """What runs a recipe's jobs here.

    Args:
        traces: the folder with the traces, by content hash.
        scratch: where the files go that replays read.
    """
    workload = Workload(recipe.file, Path(recipe.cwd), tuple(recipe.inputs))
    environ = recipe.environ
    if environ is not None and "TMPDIR" in os.environ:  # each machine has its own
        environ = {**environ, "TMPDIR": os.environ["TMPDIR"]}
    if recipe.traces is None:
        return Executor(workload, recipe.meter, Path(recipe.references), environ, recipe.keep_output)
    paths = {name: traces / f"{hash_}{SUFFIX}" for name, hash_ in recipe.traces.items()}
    return Replays(workload, paths, recipe.meter, environ, scratch)


def troubles(needs: Needs, word: str, search_path: str | None) -> list[str]:
    """Why this machine cannot be used, one line each; none if it can.

    Args:
        word: the program's name where it is looked for on PATH, or empty.
    """
    import shutil

    found = []
    if needs.version != __version__:
        found.append(f"heapwright {__version__} there, {needs.version} here")
    for path, wanted in needs.libraries.items():
        there = library_id(path)
        if there != wanted:
            found.append(f"another build of {path}" if there else f"it has no {path}")
    found += [f"it does not see {path} (is it on a shared file system?)" for path in needs.paths if not _there(path)]
    if word and shutil.which(word, path=search_path) is None:
        found.append(f"it has no program {word}")
    return found


def _there(path: str) -> bool:
    return Path(path).exists()


def run_parcel(work: Work, runs: RunsInputs, machine: str, stop: threading.Event | None = None) -> Finished:
    """Runs a block here.

    Args:
        machine: this machine's name, as it is to be stored.

    Raises:
        HeapwrightError: something could not be run or measured at all.
        Stopped: `stop` was set.
    """
    places = {_place(job): number for number, job in enumerate(work.jobs)}
    ran = []
    for result in run_work(work, runs, stop):
        outcome = result.outcome
        if not keeps_series(result.job):
            outcome = dataclasses.replace(outcome, run=dataclasses.replace(outcome.run, series=None))
        ran.append(Ran(places[_place(result.job)], outcome, result.started, result.elapsed_s, list(result.retried)))
    return Finished(ran, describe_host(), machine)


def _place(job: Job) -> tuple[str, int, str, int]:
    return job.phase, job.block, job.input.name, job.config


def keeps_series(job: Job) -> bool:
    """Whether the study may keep this run's memory over time: they are most of a result's size."""
    return job.phase in (Phase.CALIBRATE, Phase.CONFIRM)
