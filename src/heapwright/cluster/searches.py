"""Distributes the searches of an experiment over the workers of a cluster.

Each search is a `tune` on this machine whose blocks all go to one worker (`tune --worker`). Whole searches are
distributed, not the blocks of one: a search learns from each block before it asks for the next, so it makes the same
decisions as on one machine, however large the cluster is. And an experiment has more searches than a cluster has
machines, while a batch of a search has a few blocks at most.

If a worker is lost, its search is interrupted and goes on with its next block on another worker.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from heapwright import __version__
from heapwright.allocators.presets import load_preset, preset_allocators
from heapwright.allocators.registry import Allocator, get_allocator, ordinary_allocators
from heapwright.cluster.dask_runner import search_word
from heapwright.cluster.settings import read_settings
from heapwright.cluster.transport import MachineRequirements, check_texts, library_id, needs_of
from heapwright.cluster.worker_pool import PoolWorker, WorkerPool
from heapwright.errors import HeapwrightError
from heapwright.experiment.definition import Definition, PlannedSearch
from heapwright.experiment.run import Failures, check_end, is_done, kind_of, start_search, title_of
from heapwright.metrics import METRICS
from heapwright.objectives import parse_objectives
from heapwright.study.options import Options
from heapwright.workload.model import Input, Workload, WorkloadFile, load_workload

_WAIT_S = 0.3  # seconds between two looks at the searches
_END_S = 20.0  # seconds until an interrupted search is killed
_MAX_LOSSES = 20  # lost workers after which the search itself must be the cause
_NEEDS = "searches"  # the name of the requirements for a worker


@dataclass
class _RunningSearch:
    """A search, and the worker and the process that run it."""

    number: int
    planned: PlannedSearch
    losses: int = 0
    member: PoolWorker | None = None
    process: subprocess.Popen[str] | None = None
    said: Path = Path()


@dataclass(frozen=True)
class ExperimentRequirements:
    """The requirements of an experiment.

    Attributes:
        needs: for every worker.
        one_search_per_machine: a machine runs one search at a time, because time is an objective or a server has a
            port.
        single: programs of which the whole cluster runs one search at a time. They are servers, whose port on this
            machine the first runs use, and programs whose files are in one folder on all machines.
    """

    needs: MachineRequirements
    one_search_per_machine: bool
    single: frozenset[str]


def requirements_of_experiment(definition: Definition, base: Path, folder: Path) -> ExperimentRequirements:
    """Return the requirements of an experiment.

    Args:
        definition: the experiment.
        base: the folder of the definition.
        folder: where the studies are.

    Raises:
        UsageError: an allocator is unknown, or a workload is invalid.
    """
    libraries = {a.path: library_id(a.path) for a in _allocators(definition) if a.path}
    paths, programs, single = dict[str, None](), dict[str, None](), set[str]()
    for program in definition.program:
        if program.traces:
            continue
        if program.workload:
            workload = load_workload(base / program.workload)
        else:
            workload = Workload(WorkloadFile(command=program.command), base.absolute(), (Input("default"),))
        paths.update(dict.fromkeys(needs_of(workload, [], folder.absolute() / "references").paths))
        programs[search_word(workload)] = None
        file = workload.file
        if file.server is not None or file.setup or file.cleanup or file.output.compare == "files":
            single.add(program.name)
    needs = MachineRequirements(__version__, libraries, list(paths), programs=[p for p in programs if p])
    return ExperimentRequirements(needs, _timed(definition), frozenset(single))


def _allocators(definition: Definition) -> list[Allocator]:
    if definition.preset:
        return preset_allocators(load_preset(definition.preset), definition.allocators)
    return [get_allocator(name) for name in definition.allocators] or ordinary_allocators()


def _timed(definition: Definition) -> bool:
    """Whether an objective is a time, or may be one."""
    options = [*definition.options, *(word for program in definition.program for word in program.options)]
    if any(word.partition("=")[0] == "--maximize" for word in options):
        return True
    if definition.minimize:
        keys = [m.key for m in parse_objectives(",".join(definition.minimize))]
    else:
        preset = load_preset(definition.preset).options if definition.preset else {}
        keys = list(preset.get("objectives", Options().objectives))
    return any(METRICS[key].kind == "time" for key in keys)


def run_searches_on(
    where: str,
    planned_searches: Sequence[PlannedSearch],
    definition: Definition,
    base: Path,
    folder: Path,
    note: Callable[[str], None] | None,
) -> None:
    """Run all searches that are not finished on a cluster.

    Args:
        where: the argument of `--cluster`.
        planned_searches: the searches.
        definition: the experiment.
        base: the folder of the definition, in which commands run.
        folder: where the studies are.
        note: receives a line before each search, after one that failed, and about workers; None: nothing is shown.

    Raises:
        HeapwrightError: a search failed, or there is no usable worker.
        KeyboardInterrupt: all completed runs are stored.
    """
    settings = read_settings(where)
    todo = [
        _RunningSearch(number, planned)
        for number, planned in enumerate(planned_searches, 1)
        if not is_done(folder / planned.file)
    ]
    if not todo:
        return
    check_texts(os.environ)
    demands = requirements_of_experiment(definition, base, folder)
    tell, kind = note or (lambda _: None), kind_of(planned_searches, folder)
    with WorkerPool(settings, tell, kind) as pool, tempfile.TemporaryDirectory() as logs:
        fit = pool.start(demands.needs, "", os.environ.get("PATH"))
        tell(f"{fit} worker{'s' * (fit != 1)} at {pool.address} can be used")

        def start(search: _RunningSearch) -> subprocess.Popen[str]:
            assert search.member is not None
            search.said = Path(logs) / f"{search.number}"
            more = ["--cluster", pool.address, "--worker", search.member.address]
            with search.said.open("w") as errors:
                return start_search(search.planned, definition, base, folder, more, errors)

        _Distribution(pool, demands, todo, start, len(planned_searches), tell, Failures(note)).run()


class _Distribution:
    """Hands searches to workers until all are finished.

    Args:
        pool: the workers.
        demands: requirements of the experiment.
        todo: the searches.
        start: starts a search on its worker.
        count: number of all searches of the experiment.
        note: receives a line before each search.
        failures: receives the searches that failed.
    """

    def __init__(
        self,
        pool: WorkerPool,
        demands: ExperimentRequirements,
        todo: Sequence[_RunningSearch],
        start: Callable[[_RunningSearch], subprocess.Popen[str]],
        count: int,
        note: Callable[[str], None],
        failures: Failures,
    ) -> None:
        self._pool, self._demands = pool, demands
        self._todo, self._running = deque(todo), list[_RunningSearch]()
        self._start, self._count, self._note = start, count, note
        self._failures = failures

    def run(self) -> None:
        """Run all searches.

        Raises:
            HeapwrightError: a search failed, or there has been no usable worker for too long.
            KeyboardInterrupt: the user interrupted the experiment.
        """
        last_busy = time.monotonic()
        try:
            while self._todo or self._running:
                self._pool.look(self._demands.needs, _NEEDS, {}, _WAIT_S)
                self._collect()
                self._hand_out()
                if self._running:
                    last_busy = time.monotonic()
                elif self._todo and time.monotonic() - last_busy > (patience_s := self._pool.settings.patience_s):
                    raise HeapwrightError(
                        f"there has been no usable worker at {self._pool.address} for {patience_s:g} s",
                        "all measurements are stored: run the same command again to continue",
                    )
        finally:
            self._end(self._running)
        self._failures.check()

    def _collect(self) -> None:
        """Take finished searches, and put those of lost workers back into the queue."""
        for search in list(self._running):
            assert search.process is not None
            assert search.member is not None
            status = search.process.poll()
            if status is None and self._pool.members.get(search.member.address) is search.member:
                continue
            if status is None or (status and self._is_gone(search.member)):
                self._end([search])
                self._lost(search)
            else:
                self._check(search, status)
            self._running.remove(search)
            search.said.unlink(missing_ok=True)

    def _check(self, search: _RunningSearch, status: int) -> None:
        """Take note of a search that failed, and leave out those that would fail alike."""
        try:
            check_end(search.planned, status, search.said.read_text(errors="replace"))
        except HeapwrightError as error:
            self._failures.add(search.planned, error)
            self._todo = deque(s for s in self._todo if not self._failures.leaves_out(s.planned))

    def _is_gone(self, member: PoolWorker) -> bool:
        try:
            return member.address not in self._pool.addresses()
        except (OSError, RuntimeError, TimeoutError):
            return True

    def _lost(self, search: _RunningSearch) -> None:
        assert search.member is not None
        search.losses += 1
        if search.losses >= _MAX_LOSSES:
            raise HeapwrightError(
                f"{search.planned.file}: its worker was lost {_MAX_LOSSES} times",
                "check whether the program crashes its machine; the same command continues the experiment",
            )
        self._note(f"worker {search.member.address} is lost: {search.planned.file} will go on on another")
        self._todo.appendleft(search)

    def _hand_out(self) -> None:
        for member in self._pool.members.values():
            used = [s.member for s in self._running if s.member is not None]
            free = member.fit == _NEEDS and not member.refused and member not in used
            if not free or (self._demands.one_search_per_machine and member.boot in {m.boot for m in used}):
                continue
            search = self._next()
            if search is None:
                return
            self._todo.remove(search)
            search.member = member
            self._note(
                f"{title_of(search.planned, search.number, self._count)}, on {member.machine} ({member.address})"
            )
            search.process = self._start(search)
            self._running.append(search)

    def _next(self) -> _RunningSearch | None:
        """Return the next search that can begin; None if there is none."""
        busy = {s.planned.program.name for s in self._running} & self._demands.single
        return next((s for s in self._todo if s.planned.program.name not in busy), None)

    def _end(self, searches: Sequence[_RunningSearch]) -> None:
        """Interrupt searches, and wait until they have ended. Their completed runs are stored."""
        for search in searches:
            assert search.process is not None
            search.process.send_signal(signal.SIGINT)
        until = time.monotonic() + _END_S
        for search in searches:
            assert search.process is not None
            with contextlib.suppress(subprocess.TimeoutExpired):
                search.process.wait(max(0.0, until - time.monotonic()))
            search.process.kill()
            search.process.wait()
