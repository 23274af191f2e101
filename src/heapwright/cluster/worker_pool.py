"""Keeps track of the workers of a Dask cluster: which are present and usable, and what each has done.

    coordinator ── Client ──► scheduler ──► workers            every task is pinned to one worker: `DaskRunner` decides
         ▲                        │                            which worker runs a block, and whether a machine runs one
         └──── events (topic) ◄───┴── log_event: results       block or several at once

Workers come and go. A thread (`_inspect_new_workers`) inspects each new worker and sends the traces that it lacks, so
that a slow machine does not delay the others. A worker that cannot be used is refused with one line. All other work is
done in the caller's thread; the two threads communicate through one queue. If the connection to the scheduler is lost,
the pool connects again, and the blocks that were running are run again.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from heapwright.cluster.settings import Settings
from heapwright.cluster.transport import MachineRequirements, decode, encode
from heapwright.cluster.worker import WorkerReport, inspect, put_piece, run_block
from heapwright.errors import HeapwrightError
from heapwright.measure.host import differences, fingerprint

_PIECE = 4 << 20  # bytes of a trace sent at once
_LOOK_S = 1.0  # seconds between two looks at the list of workers
_SETTLE_S = 2.0  # seconds without a new worker, after which the first workers are complete


@dataclass
class PoolWorker:
    """A worker.

    Attributes:
        address: of its Dask worker.
        machine: host name.
        boot: the same for all workers of one machine.
        fit: id of the needs that it satisfies.
        asked: id of the needs that it was last inspected for.
        busy: number of the block that it runs.
        refused: why it is not used; empty if it is.
        busy_s, blocks, runs: seconds, blocks and runs of its work so far.
        came, left: seconds of the monotonic clock.
    """

    address: str
    machine: str = ""
    boot: str = ""
    fit: str = ""
    asked: str = ""
    busy: int | None = None
    refused: str = ""
    busy_s: float = 0.0
    blocks: int = 0
    runs: int = 0
    came: float = field(default_factory=time.monotonic)
    left: float | None = None


@dataclass(frozen=True)
class LostBlocks:
    """Blocks that were lost: their numbers, and the reason."""

    blocks: list[int]
    why: str


BlockEvent = Mapping[str, Any]  # the result of a block, see worker.run_block
_Ask = tuple[PoolWorker, MachineRequirements, str, Mapping[str, Path]]  # a worker to inspect; see `WorkerPool.look`


class WorkerPool:
    """A connection to a cluster. Use as a context manager.

    Args:
        settings: where the scheduler is.
        note: shows one line to the user.
        kind: description of the machines that the study uses; None: most of the first workers decide.
    """

    def __init__(self, settings: Settings, note: Callable[[str], None], kind: dict[str, Any] | None) -> None:
        self.settings = settings
        self.note = note
        self.kind = kind
        self.members: dict[str, PoolWorker] = {}
        self.gone: list[PoolWorker] = []
        self._cluster: Any = None
        self._client: Any = None
        self._stream: Any = None  # the client's connection to the scheduler
        self._topic = f"heapwright-{uuid.uuid4().hex}"
        self._events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._asks: queue.SimpleQueue[_Ask | None] = queue.SimpleQueue()
        self._tasks: dict[int, tuple[Any, float | None]] = {}  # block → (future, when it ended without an event)
        self._search: tuple[str, str | None] = ("", None)
        self._looked = 0.0
        self._reconnecting = False

    def __enter__(self) -> WorkerPool:
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # this module reports the problems that matter
        self._cluster = self.settings.start()
        self._connect(self.settings.patience_s)
        threading.Thread(target=self._inspect_new_workers, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._asks.put(None)
        self._disconnect()
        if self._cluster is not None:
            self._cluster.close()

    # the connection

    @property
    def address(self) -> str:
        """The address of the scheduler."""
        return self.settings.scheduler or str(self._cluster.scheduler_address)

    def _connect(self, patience_s: float) -> None:
        from distributed import Client

        began, announced = time.monotonic(), False
        while True:
            try:
                self._client = Client(  # type: ignore[no-untyped-call]
                    self.address, timeout=5, set_as_default=False, name="heapwright"
                )
                break
            except (OSError, ValueError) as error:
                if isinstance(error, ValueError) or time.monotonic() - began > patience_s:
                    raise HeapwrightError(
                        f"there is no Dask scheduler at {self.address}", "start one with 'dask scheduler'"
                    ) from None
                if not announced:
                    self.note(f"waiting for a scheduler at {self.address}")
                    announced = True
                time.sleep(0.5)
        self._stream = self._client.scheduler_comm
        self._client.subscribe_topic(self._topic, lambda event: self._events.put(("block", event[1])))

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            try:
                client.close(timeout=2)
            except Exception:  # it may be half closed already
                logging.getLogger(__name__).debug("closing the client", exc_info=True)

    def _reconnect(self) -> LostBlocks:
        """Connect again; all blocks that were running are lost."""
        self.note(f"the connection to the scheduler at {self.address} is lost: connecting again")
        lost = list(self._tasks)
        self._tasks.clear()
        for member in self.members.values():
            self._leaves(member)
        self.members.clear()
        self._disconnect()
        self._connect(self.settings.patience_s)
        return LostBlocks(lost, "the connection to the scheduler was lost")

    # workers

    def start(self, needs: MachineRequirements, word: str, search_path: str | None) -> int:
        """Wait for the first workers, and choose the kind of machine that the study uses.

        Args:
            needs: requirements for a worker.
            word, search_path: see `worker.inspect`.

        Returns:
            The number of workers that can be used.

        Raises:
            HeapwrightError: there is no worker, or none can be used.
        """
        self._search = (word, search_path)
        addresses = self._first()
        raw = self._client.run(inspect, encode(needs), word, search_path, workers=addresses, on_error="return")
        answers = {address: _read(answer) for address, answer in raw.items()}
        kinds: Counter[str] = Counter()
        hosts = {}
        for answer in answers.values():
            if isinstance(answer, WorkerReport) and not answer.trouble:
                key = fingerprint(answer.host)
                kinds[key] += 1
                hosts[key] = answer.host
        if self.kind is None and kinds:
            self.kind = hosts[kinds.most_common(1)[0][0]]
        reasons = {a: self._unfit(answer) for a, answer in answers.items()}
        fit = sum(not text for text in reasons.values())
        if not fit:
            first = next(iter(reasons.items()), ("", "none answered"))
            raise HeapwrightError(f"no worker at {self.address} can be used: {first[0]}: {first[1]}")
        return fit

    def addresses(self) -> set[str]:
        """Return the addresses of the workers at present, or of the only one to use, if it is there.

        Raises:
            OSError, RuntimeError, TimeoutError: the connection to the scheduler is lost.
        """
        there = set(self._client.nthreads())
        return there & {self.settings.worker} if self.settings.worker else there

    def _first(self) -> list[str]:
        began, announced, count = time.monotonic(), False, 0
        stable = began
        while True:
            addresses = sorted(self.addresses())
            if len(addresses) != count:
                count, stable = len(addresses), time.monotonic()
            if addresses and (self.settings.worker or time.monotonic() - stable >= _SETTLE_S):
                return addresses
            if not addresses and not announced and time.monotonic() - began > _SETTLE_S:
                self.note(f"waiting for workers at {self.address}")
                announced = True
            if not addresses and time.monotonic() - began > self.settings.patience_s:
                raise HeapwrightError(
                    f"no worker connected to {self.address}", f"start one with 'dask worker {self.address}'"
                )
            time.sleep(0.2)

    def _unfit(self, answer: WorkerReport | str) -> str:
        """Return why a worker cannot be used; empty if it can."""
        if isinstance(answer, str):
            return answer
        if answer.trouble:
            return answer.trouble[0]
        other = differences(self.kind, answer.host) if self.kind is not None else []
        return f"another kind of machine: {other[0].replace(' then', ' in the study')}" if other else ""

    def refuse(self, member: PoolWorker, why: str) -> None:
        """Stop using a worker, and tell the user."""
        if not member.refused:
            self.note(f"worker {member.address} is not used: {why}")
        member.refused = why

    def look(
        self, needs: MachineRequirements, id_: str, files: Mapping[str, Path], wait_s: float
    ) -> BlockEvent | LostBlocks | None:
        """Wait for the next event.

        Args:
            needs: requirements for a worker.
            id_: their name.
            files: content hash → path of each required trace.
            wait_s: seconds to wait at most.

        Returns:
            The event of a block, blocks that were lost, or None if nothing happened.
        """
        if time.monotonic() - self._looked >= _LOOK_S:
            self._looked = time.monotonic()
            lost = self._refresh(needs, id_, files)
            if lost is not None and lost.blocks:
                return lost
        try:
            kind, value = self._events.get(timeout=wait_s)
        except queue.Empty:
            return None
        if kind == "block":
            self._tasks.pop(value["tag"], None)
            return dict(value)
        member, asked, answer = cast(tuple[PoolWorker, str, WorkerReport | str], value)
        if self.members.get(member.address) is member and not member.refused:
            why = self._unfit(answer)
            if why or isinstance(answer, str):
                self.refuse(member, why)
            else:
                member.machine, member.boot, member.fit = answer.machine, answer.boot, asked
        return None

    def _refresh(self, needs: MachineRequirements, id_: str, files: Mapping[str, Path]) -> LostBlocks | None:
        try:
            # A client can reconnect to a new scheduler by itself, but then it is not subscribed to
            # our topic.
            if self._client.status != "running" or self._client.scheduler_comm is not self._stream:
                return self._reconnect()
            there = self.addresses()
        except (OSError, RuntimeError, TimeoutError):
            return self._reconnect()
        lost = []
        for address in self.members.keys() - there:
            member = self.members.pop(address)
            self._leaves(member)
            if member.busy is not None:
                self.drop(member.busy)
                lost.append(member.busy)
                self.note(f"worker {address} is lost: its block will run again")
        for address in there:
            member = self.members.setdefault(address, PoolWorker(address))
            if not member.refused and member.asked != id_:
                member.asked = id_
                self._asks.put((member, needs, id_, files))
        silent = self._silent()
        if silent is None:
            return self._reconnect()
        return LostBlocks([*lost, *silent], "its worker was lost")

    def _leaves(self, member: PoolWorker) -> None:
        member.left = time.monotonic()
        if member.blocks:
            self.gone.append(member)

    def _silent(self) -> list[int] | None:
        """Return blocks whose task ended without an event; None if the client has lost its tasks."""
        ended = []
        for block, (future, since) in list(self._tasks.items()):
            if future.status in ("cancelled", "lost"):
                return None
            if future.status in ("finished", "error"):
                if future.status == "error":
                    self._events.put(("block", {"tag": block, "error": _words(future.exception()), "hint": ""}))
                elif since is not None and time.monotonic() - since > 2 * _LOOK_S:
                    ended.append(block)
                self._tasks[block] = future, since or time.monotonic()
        for block in ended:
            self.drop(block)
        return ended

    def _inspect_new_workers(self) -> None:
        """Inspect new workers and send them the traces that they lack; runs in its own thread."""
        while (ask := self._asks.get()) is not None:
            member, needs, id_, files = ask
            try:
                answer = self._inspect_worker(member.address, needs, files)
            except Exception as error:  # the worker or the cluster may be gone
                answer = _words(error)
                if member.left is None and not isinstance(error, HeapwrightError):
                    member.asked = ""  # inspect it again at the next look, if it is still there
                    continue
            self._events.put(("fit", (member, id_, answer)))

    def _inspect_worker(
        self, address: str, needs: MachineRequirements, files: Mapping[str, Path]
    ) -> WorkerReport | str:
        client = self._client
        answer = _read(client.run(inspect, encode(needs), *self._search, workers=[address], on_error="return")[address])
        if isinstance(answer, WorkerReport) and not answer.trouble:
            for hash_ in answer.missing:
                problem = self._send_file(client, address, hash_, files[hash_])
                if problem:
                    return problem
        return answer

    def _send_file(self, client: Any, address: str, hash_: str, path: Path) -> str:
        """Send a trace to a worker; return the problem, or empty."""
        sender, size, offset = uuid.uuid4().hex[:8], path.stat().st_size, 0
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                last = offset + len(piece) >= size
                problem: str = client.run(put_piece, hash_, sender, offset, piece, last, workers=[address])[address]
                if problem:
                    return problem
                offset += len(piece)
        return ""

    # work

    def send(self, member: PoolWorker, block: int, recipe: str, work: str) -> None:
        """Have a worker run a block.

        Args:
            member: the worker.
            block: number of the block.
            recipe, work: `Recipe` and `Work` as JSON.
        """
        future = self._client.submit(
            run_block, self._topic, block, recipe, work,
            workers=[member.address], allow_other_workers=False, pure=False, key=f"{self._topic}-{block}", retries=0,
        )  # fmt: skip
        self._tasks[block] = future, None

    def drop(self, block: int) -> None:
        """Forget a block, and cancel it if it is running."""
        task = self._tasks.pop(block, None)
        if task is not None and self._client is not None and self._client.status == "running":
            self._client.cancel([task[0]], force=True)

    def activity(self) -> list[dict[str, Any]]:
        """Return the work of each worker so far, also of lost ones."""
        now = time.monotonic()
        return [
            {
                "worker": m.address,
                "machine": m.machine,
                "blocks": m.blocks,
                "runs": m.runs,
                "busy_s": m.busy_s,
                "present_s": (m.left or now) - m.came,
                "lost": m.left is not None,
                "refused": m.refused,
            }
            for m in [*self.gone, *self.members.values()]
            if m.blocks or m.refused
        ]


def _words(error: BaseException | None) -> str:
    text = str(error).splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}".rstrip(": ")


def _read(answer: object) -> WorkerReport | str:
    """Return a worker's answer, or the reason why there is none."""
    if isinstance(answer, ModuleNotFoundError):
        return f"heapwright is not installed there ({answer})"
    if not isinstance(answer, str):
        return _words(answer if isinstance(answer, BaseException) else None)
    try:
        return decode(answer, WorkerReport)
    except ValueError:
        return "the worker runs another version of heapwright"
