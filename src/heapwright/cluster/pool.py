"""The workers of a Dask cluster: who is there, who is fit, and what each has done.

    coordinator ── Client ──► scheduler ──► workers            tasks are pinned to one worker each: who runs what, and
         ▲                        │                            whether a machine runs one block or several at once, is
         └──── events (topic) ◄───┴── log_event: results       decided here (`DaskRunner`)

Workers come and go. Each newcomer is asked about itself, and gets the traces it lacks, in a thread (`_usher`),
so that a slow machine holds up nobody. What is not fit is refused with one line. All other work is in the caller's
thread; both talk through one queue. A lost connection to the scheduler is made anew; what was under way is run again.
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
from heapwright.cluster.transport import Needs, decode, encode
from heapwright.cluster.worker import Answer, inspect, put_piece, run_block
from heapwright.errors import HeapwrightError
from heapwright.measure.host import differences, fingerprint

_PIECE = 4 << 20
_LOOK_S = 1.0  # between two looks at who is there
_SETTLE_S = 2.0  # workers that are started together come one after the other


@dataclass
class Member:
    """A worker.

    Attributes:
        fit: for which needs it was found fit.
        asked: for which needs it was asked last.
        busy: the number of the block it runs.
        refused: why it is not used, or empty.
        busy_s, blocks, runs: what it has done.
        came, left: on the monotonic clock.
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
class Trouble:
    """Blocks that will not come back: their numbers, and why."""

    blocks: list[int]
    why: str


Observation = Mapping[str, Any]  # a block's event, see worker.run_block


class Pool:
    """A connection to a cluster. Use as a context manager.

    Args:
        note: tells people one line.
        kind: the host description of the study's machines; None: the first workers decide.
    """

    def __init__(self, settings: Settings, note: Callable[[str], None], kind: dict[str, Any] | None) -> None:
        self.settings = settings
        self.note = note
        self.kind = kind
        self.members: dict[str, Member] = {}
        self.gone: list[Member] = []
        self._cluster: Any = None
        self._client: Any = None
        self._stream: Any = None  # the client's own connection
        self._topic = f"heapwright-{uuid.uuid4().hex}"
        self._events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._asks: queue.SimpleQueue[tuple[Member, Needs, str, Mapping[str, Path]] | None] = queue.SimpleQueue()
        self._tasks: dict[int, tuple[Any, float | None]] = {}  # block → (future, since when it is done and silent)
        self._search: tuple[str, str | None] = ("", None)
        self._looked = 0.0
        self._reconnecting = False

    def __enter__(self) -> Pool:
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters of it is said here
        self._cluster = self.settings.start()
        self._connect(self.settings.patience_s)
        threading.Thread(target=self._usher, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._asks.put(None)
        self._disconnect()
        if self._cluster is not None:
            self._cluster.close()

    # the connection

    @property
    def address(self) -> str:
        """The scheduler's."""
        return self.settings.scheduler or str(self._cluster.scheduler_address)

    def _connect(self, patience_s: float) -> None:
        from distributed import Client

        began, said = time.monotonic(), False
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
                if not said:
                    self.note(f"waiting for a scheduler at {self.address}")
                    said = True
                time.sleep(0.5)
        self._stream = self._client.scheduler_comm
        self._client.subscribe_topic(self._topic, lambda event: self._events.put(("told", event[1])))

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            try:
                client.close(timeout=2)
            except Exception:  # it may be half closed already; there is nothing to lose
                logging.getLogger(__name__).debug("closing the client", exc_info=True)

    def _again(self) -> Trouble:
        """Connects anew; all that was under way is lost."""
        self.note(f"the connection to the scheduler at {self.address} is lost: connecting again")
        lost = list(self._tasks)
        self._tasks.clear()
        for member in self.members.values():
            self._leaves(member)
        self.members.clear()
        self._disconnect()
        self._connect(self.settings.patience_s)
        return Trouble(lost, "the scheduler was lost")

    # who is there

    def start(self, needs: Needs, word: str, search_path: str | None) -> int:
        """Waits for the first workers and finds what kind of machine the study is made on; the number of fit workers.

        Args:
            word, search_path: see `worker.inspect`.

        Raises:
            HeapwrightError: there is none, or none is fit.
        """
        self._search = (word, search_path)
        addresses = self._first()
        raw = self._client.run(inspect, encode(needs), word, search_path, workers=addresses, on_error="return")
        answers = {address: _read(answer) for address, answer in raw.items()}
        kinds: Counter[str] = Counter()
        hosts = {}
        for answer in answers.values():
            if isinstance(answer, Answer) and not answer.trouble:
                key = fingerprint(answer.host)
                kinds[key] += 1
                hosts[key] = answer.host
        if self.kind is None and kinds:
            self.kind = hosts[kinds.most_common(1)[0][0]]
        why = {a: self._unfit(answer) for a, answer in answers.items()}
        fit = sum(not text for text in why.values())
        if not fit:
            first = next(iter(why.items()), ("", "none answered"))
            raise HeapwrightError(f"no worker at {self.address} can be used: {first[0]}: {first[1]}")
        return fit

    def _first(self) -> list[str]:
        began, said, count = time.monotonic(), False, 0
        stable = began
        while True:
            addresses = list(self._client.nthreads())
            if len(addresses) != count:
                count, stable = len(addresses), time.monotonic()
            if addresses and time.monotonic() - stable >= _SETTLE_S:
                return addresses
            if not addresses and not said and time.monotonic() - began > _SETTLE_S:
                self.note(f"waiting for workers at {self.address}")
                said = True
            if not addresses and time.monotonic() - began > self.settings.patience_s:
                raise HeapwrightError(f"no worker came to {self.address}", f"dask worker {self.address}")
            time.sleep(0.2)

    def _unfit(self, answer: Answer | str) -> str:
        if isinstance(answer, str):
            return answer
        if answer.trouble:
            return answer.trouble[0]
        other = differences(self.kind, answer.host) if self.kind is not None else []
        return f"another kind of machine: {other[0].replace(' then', ' in the study')}" if other else ""

    def refuse(self, member: Member, why: str) -> None:
        """Uses a worker no more, and says so."""
        if not member.refused:
            self.note(f"worker {member.address} is not used: {why}")
        member.refused = why

    def look(self, needs: Needs, id_: str, files: Mapping[str, Path], wait_s: float) -> Observation | Trouble | None:
        """Waits for the next thing to happen, at most so long: a block's event, blocks that were lost, or nothing.

        Args:
            needs, id_: what workers must have, and a name for it.
            files: the traces among it, by content hash.
        """
        if time.monotonic() - self._looked >= _LOOK_S:
            self._looked = time.monotonic()
            found = self._refresh(needs, id_, files)
            if found is not None and found.blocks:
                return found
        try:
            what, value = self._events.get(timeout=wait_s)
        except queue.Empty:
            return None
        if what == "told":
            self._tasks.pop(value["tag"], None)
            return dict(value)
        member, asked, answer = cast(tuple[Member, str, Answer | str], value)
        if self.members.get(member.address) is member and not member.refused:
            why = self._unfit(answer)
            if why or isinstance(answer, str):
                self.refuse(member, why)
            else:
                member.machine, member.boot, member.fit = answer.machine, answer.boot, asked
        return None

    def _refresh(self, needs: Needs, id_: str, files: Mapping[str, Path]) -> Trouble | None:
        try:
            # A client that has found a new scheduler by itself goes on there, but nobody tells it of our topic.
            if self._client.status != "running" or self._client.scheduler_comm is not self._stream:
                return self._again()
            there = set(self._client.nthreads())
        except (OSError, RuntimeError, TimeoutError):
            return self._again()
        lost = []
        for address in self.members.keys() - there:
            member = self.members.pop(address)
            self._leaves(member)
            if member.busy is not None:
                self.drop(member.busy)
                lost.append(member.busy)
                self.note(f"worker {address} is lost: its block is run again")
        for address in there:
            member = self.members.setdefault(address, Member(address))
            if not member.refused and member.asked != id_:
                member.asked = id_
                self._asks.put((member, needs, id_, files))
        silent = self._silent()
        if silent is None:
            return self._again()
        return Trouble([*lost, *silent], "its worker was lost")

    def _leaves(self, member: Member) -> None:
        member.left = time.monotonic()
        if member.blocks:
            self.gone.append(member)

    def _silent(self) -> list[int] | None:
        """Blocks whose task is over though they told nothing; None where the client itself has lost them."""
        found = []
        for block, (future, since) in list(self._tasks.items()):
            if future.status in ("cancelled", "lost"):
                return None
            if future.status in ("finished", "error"):
                if future.status == "error":
                    self._events.put(("told", {"tag": block, "error": _words(future.exception()), "hint": ""}))
                elif since is not None and time.monotonic() - since > 2 * _LOOK_S:
                    found.append(block)
                self._tasks[block] = future, since or time.monotonic()
        for block in found:
            self.drop(block)
        return found

    def _usher(self) -> None:
        """Asks newcomers and gives them the traces they lack."""
        while (ask := self._asks.get()) is not None:
            member, needs, id_, files = ask
            try:
                answer = self._admit(member.address, needs, files)
            except Exception as error:  # it may be gone by now, or the whole cluster
                answer = _words(error)
                if member.left is None and not isinstance(error, HeapwrightError):
                    member.asked = ""  # asked again at the next look, if it is still there
                    continue
            self._events.put(("fit", (member, id_, answer)))

    def _admit(self, address: str, needs: Needs, files: Mapping[str, Path]) -> Answer | str:
        client = self._client
        answer = _read(client.run(inspect, encode(needs), *self._search, workers=[address], on_error="return")[address])
        if isinstance(answer, Answer) and not answer.trouble:
            for hash_ in answer.missing:
                wrong = self._send_file(client, address, hash_, files[hash_])
                if wrong:
                    return wrong
        return answer

    def _send_file(self, client: Any, address: str, hash_: str, path: Path) -> str:
        sender, size, offset = uuid.uuid4().hex[:8], path.stat().st_size, 0
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                last = offset + len(piece) >= size
                wrong: str = client.run(put_piece, hash_, sender, offset, piece, last, workers=[address])[address]
                if wrong:
                    return wrong
                offset += len(piece)
        return ""

    # work

    def send(self, member: Member, block: int, recipe: str, work: str) -> None:
        """Has a worker run a block."""
        future = self._client.submit(
            run_block, self._topic, block, recipe, work,
            workers=[member.address], allow_other_workers=False, pure=False, key=f"{self._topic}-{block}", retries=0,
        )  # fmt: skip
        self._tasks[block] = future, None

    def drop(self, block: int) -> None:
        """Forgets a block, and stops it if it is run."""
        task = self._tasks.pop(block, None)
        if task is not None and self._client is not None and self._client.status == "running":
            self._client.cancel([task[0]], force=True)

    def told(self) -> list[dict[str, Any]]:
        """What each worker has done."""
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


def _read(answer: object) -> Answer | str:
    """A worker's answer, or why there is none that can be read."""
    if isinstance(answer, ModuleNotFoundError):
        return f"heapwright is not installed there ({answer})"
    if not isinstance(answer, str):
        return _words(answer if isinstance(answer, BaseException) else None)
    try:
        return decode(answer, Answer)
    except ValueError:
        return "it answers in another version's words"
