"""Runs a study through files for job arrays: plans blocks as files, runs them anywhere, and collects their results.

    plan DIR tune … -- ./prog     writes the blocks that can be run now
    run-one DIR N                 runs block N and writes its results beside it      (any machine, any order)
    collect DIR                   stores the results and writes the next blocks, until there are none

    DIR/plan.json                 the command, its directory, the recipe, the names of the blocks
    DIR/traces/HASH.hwt           traces to replay
    DIR/NAME.json                 a block (interleaving.runner.Work); NAME is the hash of recipe and block
    DIR/NAME.result.json          its results (transport.TransportedBlockResult)

A study is a pure function of its options and its stored results. Therefore both `plan` and `collect` run the study's
command from its start: it takes the results that exist, and where results are missing it writes the blocks and stops.
Every file is written completely or not at all.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
from collections.abc import Generator
from pathlib import Path

import msgspec

from heapwright.cluster.transport import (
    SUFFIX,
    MachineRequirements,
    Recipe,
    TransportedBlockResult,
    decode,
    encode,
    program_recipe,
    replays_recipe,
    restore,
    run_transported,
    unmet_requirements,
)
from heapwright.errors import HeapwrightError, UsageError
from heapwright.files import write_whole
from heapwright.interleaving.replays import Replays
from heapwright.interleaving.runner import JobResult, Runner, RunsInputs, Work
from heapwright.measure.host import differences
from heapwright.study.store import Store
from heapwright.workload.execute import Executor

PLAN, TRACES = "plan.json", "traces"


class JobPlan(msgspec.Struct):
    """The content of plan.json.

    Attributes:
        words: the command line after `heapwright`, with the target after '--'.
        directory: the working directory of the command.
        blocks_at_once: number of blocks that a search requests at once.
        recipe: how to run blocks; None before the first block and after the last.
        blocks: their names, by number.
    """

    words: list[str]
    directory: str
    blocks_at_once: int
    recipe: Recipe | None = None
    blocks: list[str] = []


_NAME, _HASH = re.compile(r"[0-9a-f]{16}"), re.compile(r"[0-9a-f]{64}")


class BlocksWritten(Exception):
    """The next blocks are written; the pipeline continues when their results are collected."""


def read_plan(folder: Path) -> JobPlan:
    """Return the plan of a folder.

    Raises:
        UsageError: the folder has no plan.
        HeapwrightError: the plan is damaged.
    """
    try:
        plan = decode((folder / PLAN).read_bytes(), JobPlan)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        raise UsageError(f"{folder} has no plan", "heapwright plan DIR tune … -- ./prog makes one") from None
    traces = plan.recipe.traces if plan.recipe is not None and plan.recipe.traces is not None else {}
    # Names and hashes become file names and must not leave the folder.
    if not all(map(_NAME.fullmatch, plan.blocks)) or not all(map(_HASH.fullmatch, traces.values())):
        raise HeapwrightError(f"{folder / PLAN} is damaged: it has an invalid name of a block or a trace")
    if plan.recipe is not None and not plan.recipe.file.command:
        raise HeapwrightError(f"{folder / PLAN} is damaged: it has no command")
    return plan


class FileRunner:
    """Takes results from files; if some are missing, writes their blocks, raises `BlocksWritten`. See runner.Runner."""

    on_other_machines = True

    def __init__(self, machines: FileMachines, recipe: Recipe, traces: dict[str, Path], single: bool = False) -> None:
        self.slots = 1 if single else machines.plan.blocks_at_once
        self._machines = machines
        self._recipe = recipe
        self._traces = traces
        self._waiting: list[Work] = []

    def submit(self, work: Work) -> None:
        """See Runner."""
        self._waiting.append(work)

    def results(self) -> Generator[JobResult]:
        """See Runner.

        Raises:
            BlocksWritten: some results do not exist yet.
        """
        machines, works = self._machines, self._waiting
        self._waiting = []
        head = hashlib.sha256(encode(self._recipe).encode())
        missing: dict[str, str] = {}
        for work in works:
            text, digest = encode(work), head.copy()
            digest.update(text.encode())
            name = digest.hexdigest()[:16]
            finished = machines.finished(name)
            if finished is None:
                missing[name] = text
            elif not all(0 <= ran.job < len(work.jobs) for ran in finished.ran):
                raise HeapwrightError(f"{name}.result.json is damaged", "remove it, and run its block again")
            else:
                yield from finished.results(work)
        if missing:
            machines.write(self._recipe, missing, self._traces)
            raise BlocksWritten

    def cancel(self) -> None:
        """See Runner."""
        self._waiting.clear()


class FileMachines:
    """Machines that run blocks from files; see runner.Machines.

    Args:
        folder: the plan's folder.
        plan: its plan.
        needs: requirements for every machine.
        store: the study, which also stores the kind of its machines.
    """

    host = None

    def __init__(self, folder: Path, plan: JobPlan, needs: MachineRequirements, store: Store) -> None:
        self.folder = folder
        self.plan = plan
        self.needs = needs
        self.store = store
        self._stored = dict(store.meta.cluster)

    def for_program(self, executor: RunsInputs, timed: bool) -> Runner:  # noqa: ARG002
        """See Machines. The user decides whether a machine runs one block at a time."""
        assert isinstance(executor, Executor)
        file = executor.workload.file
        single = bool(file.setup or file.cleanup or file.output.compare == "files")
        return FileRunner(self, program_recipe(executor, self.needs, None), {}, single)

    def for_replays(self, replays: RunsInputs, timed: bool) -> Runner:  # noqa: ARG002
        """See Machines."""
        assert isinstance(replays, Replays)
        return FileRunner(self, *replays_recipe(replays, self.needs, None))

    def finished(self, name: str) -> TransportedBlockResult | None:
        """Return the results of a block; None if there are none.

        Raises:
            HeapwrightError: the file is damaged, or its results are from another kind of machine than the study's.
        """
        path = self.folder / f"{name}.result.json"
        try:
            found = decode(path.read_bytes(), TransportedBlockResult)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise HeapwrightError(f"{path} is damaged", "remove it, and run its block again") from None
        kind = self._stored.get("kind")
        if kind is None:
            self._stored["kind"] = found.host
            self.store.update(cluster=self._stored)
        elif other := differences(kind, found.host):
            line = f"{path} is from another kind of machine: {other[0].replace(' then', ' in the study')}"
            raise HeapwrightError(line, "remove it, and run its block on a machine of the study's kind")
        return found

    def write(self, recipe: Recipe, works: dict[str, str], traces: dict[str, Path]) -> None:
        """Write blocks, then the plan that names them; remove blocks whose results are stored.

        Args:
            recipe: how to run the blocks.
            works: name of each block → `Work` as JSON.
            traces: content hash → path of each trace to replay.
        """
        for hash_, path in traces.items():
            target = self.folder / TRACES / f"{hash_}{SUFFIX}"
            if not target.exists():
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(path, target.with_suffix(".new"))
                target.with_suffix(".new").replace(target)
        for name, text in works.items():
            write_whole(self.folder / f"{name}.json", text)
        old = set(self.plan.blocks) - works.keys()
        self.plan = msgspec.structs.replace(self.plan, recipe=recipe, blocks=list(works))
        write_whole(self.folder / PLAN, encode(self.plan))
        for name in old:
            self.forget(name)

    def forget(self, name: str) -> None:
        """Remove the files of a block whose results are in the study."""
        for suffix in (".json", ".result.json"):
            (self.folder / f"{name}{suffix}").unlink(missing_ok=True)

    def done(self) -> None:
        """Remove all blocks after the end of the study."""
        for name in self.plan.blocks:
            self.forget(name)
        write_whole(self.folder / PLAN, encode(msgspec.structs.replace(self.plan, recipe=None, blocks=[])))


def run_planned_block(folder: Path, number: int) -> None:
    """Run a block of a plan on this machine, unless its results exist.

    Raises:
        UsageError: there is no such block.
        HeapwrightError: this machine does not meet the requirements, or a job cannot be run.
    """
    plan = read_plan(folder)
    if not 0 <= number < len(plan.blocks) or plan.recipe is None:
        hint = f"they go from 0 to {len(plan.blocks) - 1}" if plan.blocks else "nothing is left to run"
        raise UsageError(f"{folder} has no block {number}", hint)
    name, recipe = plan.blocks[number], plan.recipe
    result = folder / f"{name}.result.json"
    if result.exists():
        return
    word = recipe.file.command[0]
    reasons = unmet_requirements(
        recipe.needs, "" if "/" in word or recipe.traces is not None else word, os.environ.get("PATH")
    )
    if reasons:
        raise HeapwrightError(f"this machine cannot run the block: {reasons[0]}")
    try:
        work = decode((folder / f"{name}.json").read_bytes(), Work)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise HeapwrightError(f"{folder / name}.json is damaged", "heapwright collect writes it again") from None
    runs = restore(recipe, folder.absolute() / TRACES)
    try:
        finished = run_transported(work, runs, f"{socket.gethostname()}:{os.getpid()}")
    finally:
        if isinstance(runs, Replays):
            runs.__exit__()
    write_whole(result, encode(finished))
