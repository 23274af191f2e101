"""Blocks as files, for job arrays: planned here, run anywhere, collected here.

    plan DIR tune … -- ./prog     writes the blocks that can be run now
    run-one DIR N                 runs block N and leaves its results beside it       (any machine, any order)
    collect DIR                   takes results in, and writes the blocks that come next; until none does

    DIR/plan.json                 the command, where it was given, the recipe, the blocks by name
    DIR/traces/HASH.hwt           traces that are replayed
    DIR/NAME.json                 a block (study.runner.Work); NAME is the hash of recipe and block
    DIR/NAME.result.json          what came of it (transport.Finished)

A study is a pure function of its options and what is stored, so both verbs give the same command again: results that
are there answer, and where one is missing the blocks are written and the pipeline stops. Files are whole or not there.
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
    Finished,
    Needs,
    Recipe,
    decode,
    encode,
    program_recipe,
    replays_recipe,
    restore,
    run_parcel,
    troubles,
)
from heapwright.errors import HeapwrightError, UsageError
from heapwright.experiment.replays import Replays
from heapwright.experiment.runner import Result, Runner, RunsInputs, Work
from heapwright.files import write_whole
from heapwright.measure.host import differences
from heapwright.study.store import Store
from heapwright.workload.execute import Executor

PLAN, TRACES = "plan.json", "traces"


class Plan(msgspec.Struct):
    """plan.json.

    Attributes:
        words: the command line after `heapwright`, with the target after '--'.
        directory: where it was given.
        recipe: how to run blocks; None before the first and after the last.
        blocks: their names, by number.
        blocks_at_once: how many a search asks for.
    """

    words: list[str]
    directory: str
    blocks_at_once: int
    recipe: Recipe | None = None
    blocks: list[str] = []


_NAME, _HASH = re.compile(r"[0-9a-f]{16}"), re.compile(r"[0-9a-f]{64}")


class Planned(Exception):
    """The blocks that come next are written; the pipeline goes on when they are collected."""


def read_plan(folder: Path) -> Plan:
    """The plan of a folder.

    Raises:
        UsageError: there is none.
    """
    try:
        plan = decode((folder / PLAN).read_bytes(), Plan)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        raise UsageError(f"{folder} holds no plan", "heapwright plan DIR tune … -- ./prog makes one") from None
    traces = plan.recipe.traces if plan.recipe is not None and plan.recipe.traces is not None else {}
    # Names become files in the folder, and nowhere else.
    if not all(map(_NAME.fullmatch, plan.blocks)) or not all(map(_HASH.fullmatch, traces.values())):
        raise HeapwrightError(f"{folder / PLAN} is damaged: it names what is no block or no trace")
    if plan.recipe is not None and not plan.recipe.file.command:
        raise HeapwrightError(f"{folder / PLAN} is damaged: it has no command")
    return plan


class FileRunner:
    """See runner.Runner: takes results from files; where one is missing, writes what to run and says `Planned`."""

    elsewhere = True

    def __init__(self, machines: FileMachines, recipe: Recipe, traces: dict[str, Path], single: bool = False) -> None:
        self.slots = 1 if single else machines.plan.blocks_at_once
        self._machines = machines
        self._recipe = recipe
        self._traces = traces
        self._waiting: list[Work] = []

    def submit(self, work: Work) -> None:
        """See Runner."""
        self._waiting.append(work)

    def results(self) -> Generator[Result]:
        """See Runner.

        Raises:
            Planned: some results are not there yet.
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
            raise Planned

    def cancel(self) -> None:
        """See Runner."""
        self._waiting.clear()


class FileMachines:
    """See runner.Machines.

    Args:
        needs: what every machine must have.
        store: the study; keeps the kind of its machines.
    """

    host = None

    def __init__(self, folder: Path, plan: Plan, needs: Needs, store: Store) -> None:
        self.folder = folder
        self.plan = plan
        self.needs = needs
        self.store = store
        self._kept = dict(store.meta.cluster)

    def for_program(self, executor: RunsInputs, timed: bool) -> Runner:  # noqa: ARG002
        """See Machines. Whether a machine runs one block at a time is up to who runs them."""
        assert isinstance(executor, Executor)
        file = executor.workload.file
        single = bool(file.setup or file.cleanup or file.output.compare == "files")
        return FileRunner(self, program_recipe(executor, self.needs, None), {}, single)

    def for_replays(self, replays: RunsInputs, timed: bool) -> Runner:  # noqa: ARG002
        """See Machines."""
        assert isinstance(replays, Replays)
        return FileRunner(self, *replays_recipe(replays, self.needs, None))

    def finished(self, name: str) -> Finished | None:
        """A block's results, if they are there and of the study's kind of machine."""
        path = self.folder / f"{name}.result.json"
        try:
            found = decode(path.read_bytes(), Finished)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise HeapwrightError(f"{path} is damaged", "remove it, and run its block again") from None
        kind = self._kept.get("kind")
        if kind is None:
            self._kept["kind"] = found.host
            self.store.update(cluster=self._kept)
        elif other := differences(kind, found.host):
            line = f"{path} is of another kind of machine: {other[0].replace(' then', ' in the study')}"
            raise HeapwrightError(line, "remove it, and run its block on a machine of the study's kind")
        return found

    def write(self, recipe: Recipe, works: dict[str, str], traces: dict[str, Path]) -> None:
        """Writes blocks, and then the plan that names them; what was taken in already goes."""
        for hash_, path in traces.items():
            whole = self.folder / TRACES / f"{hash_}{SUFFIX}"
            if not whole.exists():
                whole.parent.mkdir(exist_ok=True)
                shutil.copyfile(path, whole.with_suffix(".new"))
                whole.with_suffix(".new").replace(whole)
        for name, text in works.items():
            write_whole(self.folder / f"{name}.json", text)
        old = set(self.plan.blocks) - works.keys()
        self.plan = msgspec.structs.replace(self.plan, recipe=recipe, blocks=list(works))
        write_whole(self.folder / PLAN, encode(self.plan))
        for name in old:
            self.forget(name)

    def forget(self, name: str) -> None:
        """Removes a block whose results are in the study."""
        for suffix in (".json", ".result.json"):
            (self.folder / f"{name}{suffix}").unlink(missing_ok=True)

    def done(self) -> None:
        """The study is finished: there is nothing left to run."""
        for name in self.plan.blocks:
            self.forget(name)
        write_whole(self.folder / PLAN, encode(msgspec.structs.replace(self.plan, recipe=None, blocks=[])))


def run_one(folder: Path, number: int) -> None:
    """Runs a block of a plan here, unless its results are there.

    Raises:
        UsageError: there is no such block.
        HeapwrightError: this machine is not fit, or something cannot be run.
    """
    plan = read_plan(folder)
    if not 0 <= number < len(plan.blocks) or plan.recipe is None:
        have = f"they go from 0 to {len(plan.blocks) - 1}" if plan.blocks else "nothing is left to run"
        raise UsageError(f"{folder} has no block {number}", have)
    name, recipe = plan.blocks[number], plan.recipe
    result = folder / f"{name}.result.json"
    if result.exists():
        return
    word = recipe.file.command[0]
    found = troubles(recipe.needs, "" if "/" in word or recipe.traces is not None else word, os.environ.get("PATH"))
    if found:
        raise HeapwrightError(f"this machine cannot run it: {found[0]}")
    try:
        work = decode((folder / f"{name}.json").read_bytes(), Work)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise HeapwrightError(f"{folder / name}.json is damaged", "heapwright collect writes it anew") from None
    runs = restore(recipe, folder.absolute() / TRACES)
    try:
        finished = run_parcel(work, runs, f"{socket.gethostname()}:{os.getpid()}")
    finally:
        if isinstance(runs, Replays):
            runs.__exit__()
    write_whole(result, encode(finished))
