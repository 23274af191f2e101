"""Serialises as JSON how to run blocks (Recipe), a block (interleaving.runner.Work) and its results.

    study ── Recipe + Work ──►  restore(recipe) runs the work  ── TransportedBlockResult ──►  study

A recipe has everything that a machine must know besides the files on the shared file system: the workload, how to
measure, and the content hashes of the traces to replay. Dask tasks and job files carry the same two texts.
"""

from __future__ import annotations

import dataclasses
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
from heapwright.files import file_sha256
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.replays import Replays
from heapwright.interleaving.runner import Job, JobResult, RunsInputs, Work, run_work
from heapwright.measure.host import describe_host, fingerprint
from heapwright.measure.meter import MeterOptions
from heapwright.trace.program_memory import ProgramMemory
from heapwright.workload.execute import Executor, Outcome
from heapwright.workload.model import Input, Workload, WorkloadFile

SUFFIX = ".hwt"
_T = TypeVar("_T")


class MachineRequirements(msgspec.Struct):
    """Requirements for a machine.

    Attributes:
        version: of heapwright.
        libraries: path → build id (or content hash) of every allocator that may be run.
        paths: files and folders of the workload that must exist.
        traces: content hashes of the traces that must be in the cache.
        programs: names of programs that must be on PATH.
    """

    version: str
    libraries: dict[str, str]
    paths: list[str]
    traces: list[str] = []
    programs: list[str] = []


class Recipe(msgspec.Struct):
    """How to run blocks.

    Attributes:
        file, cwd, inputs: the workload.
        meter: how to measure.
        references: see `Executor`.
        traces: input → content hash of the trace to replay; None: run the program.
        environ: the study's environment, which replaces the worker's; None: use that of the process that runs the
            block.
        needs: requirements for the machine.
        keep_output: see `Executor`.
        program_memory, program_s: see `Replays`.
    """

    file: WorkloadFile
    cwd: str
    inputs: list[Input]
    meter: MeterOptions
    references: str
    traces: dict[str, str] | None
    environ: dict[str, str] | None
    needs: MachineRequirements
    keep_output: bool = False
    program_memory: dict[str, ProgramMemory] = {}
    program_s: dict[str, float] = {}


class TransportedJobResult(msgspec.Struct):
    """The result of one job; `job` is its index in the work."""

    job: int
    outcome: Outcome
    started: str
    elapsed_s: float
    retried: list[str]


class TransportedBlockResult(msgspec.Struct):
    """The results of a block, with the description and the name of the machine that ran it."""

    ran: list[TransportedJobResult]
    host: dict[str, Any]
    machine: str

    def results(self, work: Work) -> Iterator[JobResult]:
        """Return the results in the form that a study stores."""
        kind = fingerprint(self.host)
        for r in self.ran:
            yield JobResult(work.jobs[r.job], r.outcome, r.started, r.elapsed_s, tuple(r.retried), self.machine, kind)


def encode(value: Any) -> str:
    """Return a value as JSON.

    Raises:
        HeapwrightError: a text in it is not valid UTF-8.
    """
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError as error:
        raise HeapwrightError(f"'{error.object}' is not valid UTF-8, so it cannot be sent to other machines") from None


def check_texts(environ: Mapping[str, str]) -> None:
    """Check that all environment variables can be sent, because the program needs the same ones on every machine.

    Raises:
        HeapwrightError: a variable is not valid UTF-8.
    """
    for name, value in environ.items():
        if re.search("[\ud800-\udfff]", name + value):
            raise HeapwrightError(
                f"the environment variable {name} is not valid UTF-8, so it cannot be sent to other machines",
                f"leave it out: env -u {shlex.quote(name)} heapwright ...",
            )


def decode(text: str | bytes, kind: type[_T]) -> _T:
    """Decode JSON as a value of type `kind`.

    Raises:
        msgspec.DecodeError: the text is not such a value.
    """
    return msgspec.json.decode(text, type=kind)


def library_id(path: str) -> str:
    """Return a library's build id, or its content hash if it has none; empty if the file does not exist."""
    if not Path(path).is_file():
        return ""
    return build_id(path) or file_sha256(Path(path))


def needs_of(workload: Workload, allocators: list[Allocator], references: Path) -> MachineRequirements:
    """Return the requirements for a machine.

    Args:
        workload: the program.
        allocators: all allocators that may be run.
        references: folder of the reference outputs, beside the study.
    """
    libraries = {a.path: library_id(a.path) for a in allocators if a.path}
    if workload.replays:  # the recordings are sent, and each machine has its own replayer
        return MachineRequirements(__version__, libraries, [])
    paths = [str(workload.cwd), *(i.stdin for i in workload.inputs if i.stdin), workload.file.stdin]
    word = workload.program()
    paths.append(str(Path(word).absolute()) if "/" in word else "")
    if not word:
        paths += [i.args[0] for i in workload.inputs]
    if workload.file.output.compare == "command":  # the reference output is beside the study
        paths.append(str(references.parent))
    return MachineRequirements(__version__, libraries, [p for p in paths if p])


def program_recipe(executor: Executor, needs: MachineRequirements, environ: Mapping[str, str] | None) -> Recipe:
    """Return the recipe that runs the program.

    Args:
        executor: runs the program here.
        needs: requirements for the machine.
        environ: see `Recipe`.
    """
    w = executor.workload
    variables = dict(environ) if environ is not None else None
    references = str(executor.references.absolute())
    inputs, keep = list(w.inputs), executor.keep_output
    return Recipe(w.file, str(w.cwd), inputs, executor.options, references, None, variables, needs, keep)


def replays_recipe(
    replays: Replays, needs: MachineRequirements, environ: Mapping[str, str] | None
) -> tuple[Recipe, dict[str, Path]]:
    """Return the recipe that runs replays, and content hash → path of each trace.

    Args:
        replays: runs replays here.
        needs: requirements for the machine.
        environ: see `Recipe`.
    """
    hashes = {name: file_sha256(path) for name, path in replays.traces.items()}
    files = {hashes[name]: path for name, path in replays.traces.items()}
    needs = msgspec.structs.replace(needs, paths=[], traces=sorted(files))
    variables, w = dict(environ) if environ is not None else None, replays.workload
    recipe = Recipe(w.file, str(w.cwd), list(w.inputs), replays.options, "", hashes, variables, needs)
    return msgspec.structs.replace(recipe, program_memory=replays.program_memory, program_s=replays.program_s), files


def restore(recipe: Recipe, traces: Path, scratch: Path | None = None) -> Executor | Replays:
    """Return the object that runs a recipe's jobs on this machine.

    Args:
        recipe: how to run.
        traces: the folder of the traces, whose names are their content hashes.
        scratch: folder for the files that replays read.
    """
    workload = Workload(recipe.file, Path(recipe.cwd), tuple(recipe.inputs))
    environ = recipe.environ
    if environ is not None and "TMPDIR" in os.environ:  # each machine has its own
        environ = {**environ, "TMPDIR": os.environ["TMPDIR"]}
    if recipe.traces is None:
        return Executor(workload, recipe.meter, Path(recipe.references), environ, recipe.keep_output)
    paths = {name: traces / f"{hash_}{SUFFIX}" for name, hash_ in recipe.traces.items()}
    return Replays(workload, paths, recipe.meter, environ, scratch, recipe.program_memory, recipe.program_s)


def unmet_requirements(needs: MachineRequirements, word: str, search_path: str | None) -> list[str]:
    """Return the reasons why this machine cannot be used, one line each; empty if it can.

    Args:
        needs: the requirements.
        word: the program's name if it is searched on PATH; else empty.
        search_path: PATH of the study; None for this machine's.
    """
    import shutil

    reasons = []
    if needs.version != __version__:
        reasons.append(f"it has heapwright {__version__}, but the study needs {needs.version}")
    for path, wanted in needs.libraries.items():
        found = library_id(path)
        if found != wanted:
            reasons.append(f"it has another build of {path}" if found else f"it has no {path}")
    reasons += [f"it does not see {path} (is it on a shared file system?)" for path in needs.paths if not _exists(path)]
    for program in filter(None, [word, *needs.programs]):
        if shutil.which(program, path=search_path) is None:
            reasons.append(f"it has no program {program}")
    return reasons


def _exists(path: str) -> bool:
    return Path(path).exists()


def run_transported(
    work: Work, runs: RunsInputs, machine: str, stop: threading.Event | None = None
) -> TransportedBlockResult:
    """Run a block on this machine.

    Args:
        work: the block.
        runs: runs its jobs.
        machine: this machine's name, for the study.
        stop: an event that cancels the block from another thread.

    Raises:
        HeapwrightError: a job could not be run or measured.
        Stopped: `stop` was set.
    """
    indices = {_key(job): number for number, job in enumerate(work.jobs)}
    ran = []
    for result in run_work(work, runs, stop):
        outcome = result.outcome
        if not keeps_series(result.job):
            outcome = dataclasses.replace(outcome, run=dataclasses.replace(outcome.run, series=None))
        ran.append(
            TransportedJobResult(
                indices[_key(result.job)], outcome, result.started, result.elapsed_s, list(result.retried)
            )
        )
    return TransportedBlockResult(ran, describe_host(), machine)


def _key(job: Job) -> tuple[str, int, str, int]:
    return job.phase, job.block, job.input.name, job.config


def keeps_series(job: Job) -> bool:
    """Return whether the study may store this run's memory over time, which is most of a result's size."""
    return job.phase in (Phase.CALIBRATE, Phase.CONFIRM)
