"""Defines the three functions that the coordinator runs on a worker.

    inspect     reports whether this machine can be used, and which traces it lacks
    put_piece   stores a piece of a trace in the cache, by content hash
    run_block   runs a block and sends its results as an event before the task ends

Dask sends them by name, so heapwright must be installed on the worker. A worker process runs one block at a time. A
block whose task was cancelled, or whose scheduler is gone, stops within a second: `_watch` polls the worker's table
of tasks. When a worker is killed, its commands end too, because the meter ends with the thread that started it.

The workers of a machine share the cache. They write a file under a temporary name and then rename it. They remove
files that were not used for a week.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import stat
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from heapwright.cluster.transport import (
    SUFFIX,
    MachineRequirements,
    Recipe,
    decode,
    encode,
    restore,
    run_transported,
    unmet_requirements,
)
from heapwright.errors import HeapwrightError
from heapwright.files import file_sha256
from heapwright.interleaving.replays import Replays
from heapwright.interleaving.runner import Work
from heapwright.measure.host import describe_host
from heapwright.measure.streams import Stopped

if TYPE_CHECKING:
    from heapwright.workload.execute import Executor


class WorkerReport(msgspec.Struct):
    """A worker's description of itself.

    Attributes:
        host: description of its machine (`describe_host`).
        machine: host name.
        boot: the same for all workers of one machine, also in containers.
        trouble: reasons why it cannot be used, one line each.
        missing: content hashes of required traces that are not in its cache.
    """

    host: dict[str, Any]
    machine: str
    boot: str
    trouble: list[str]
    missing: list[str]


_WEEK_S = 7 * 24 * 3600.0
_LOOK_S = 0.2  # seconds between two looks at the table of tasks
_HASH = re.compile(r"[0-9a-f]{64}")
_OURS = re.compile(rf"[0-9a-f]{{64}}{re.escape(SUFFIX)}|\.[0-9a-f]{{64}}\.[0-9A-Za-z]+")
_one_at_a_time = threading.Lock()
_prepared_runs: dict[str, Executor | Replays] = {}  # of the last recipe; guarded by _one_at_a_time


def cache_folder() -> Path:
    """Return the folder for traces: $HEAPWRIGHT_CACHE, or the user's own in the folder for temporary files.

    Raises:
        HeapwrightError: the folder belongs to another user, or others may write there.
    """
    named = os.environ.get("HEAPWRIGHT_CACHE")
    folder = Path(named) if named else Path(tempfile.gettempdir()) / f"heapwright-cache-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The default name is predictable, so another user may have created it, for example as a link:
    # do not follow it.
    status = folder.stat() if named else folder.lstat()
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode) or (not named and status.st_mode & 0o022):
        raise HeapwrightError(
            f"{folder} belongs to another user, or others may write there", "set HEAPWRIGHT_CACHE to another folder"
        )
    return folder


def inspect(needs: str, word: str, search_path: str | None) -> str:
    """Describe this machine and check whether it can be used.

    Args:
        needs: the requirements, `MachineRequirements` as JSON.
        word: the program's name if it is searched on PATH; else empty.
        search_path: PATH of the study; None for this machine's.

    Returns:
        A `WorkerReport` as JSON.
    """
    wanted = decode(needs, MachineRequirements)
    problems = unmet_requirements(wanted, word, search_path)
    missing: list[str] = []
    try:
        folder = cache_folder()
        _tidy(folder, set(wanted.traces))
        missing = [hash_ for hash_ in wanted.traces if not (folder / f"{hash_}{SUFFIX}").is_file()]
    except (OSError, HeapwrightError) as error:
        problems.append(f"no cache: {error}")
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return encode(WorkerReport(describe_host(), socket.gethostname(), boot, problems, missing))


def _tidy(folder: Path, used: set[str]) -> None:
    """Mark traces in use; remove our files that were unused for a week, and the folders of ended workers."""
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another worker may do the same
            if path.suffix == SUFFIX and path.stem in used:
                path.touch()
            elif _OURS.fullmatch(path.name) and path.is_file() and time.time() - path.stat().st_mtime > _WEEK_S:
                path.unlink()
            elif path.is_dir() and (pid := _worker_of(path.name)) and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(path)  # the scratch folder of a worker that has ended


def _scratch_name() -> str:
    """Return the name of this worker's scratch folder. It holds for one boot and one PID namespace.

    Several machines or containers may share the folder of traces.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    return f"worker-{boot}-{namespace}-{os.getpid()}"


def _worker_of(name: str) -> str:
    """Return the process id in the name of a scratch folder; empty if it cannot be a worker of this PID namespace."""
    head, _, pid = name.rpartition("-")
    return pid if head == _scratch_name().rpartition("-")[0] and pid.isdecimal() else ""


def put_piece(hash_: str, sender: str, offset: int, piece: bytes, last: bool) -> str:
    """Store a piece of a trace; the last piece completes the file.

    Args:
        hash_: content hash of the whole trace.
        sender: unique name of this transfer.
        offset: of the piece, bytes.
        piece: the data.
        last: whether it is the last piece.

    Returns:
        What is wrong; empty if nothing is.
    """
    if not _HASH.fullmatch(hash_) or not sender.isalnum():  # both become file names and must not leave the folder
        return "invalid name of a trace"
    folder = cache_folder()
    draft = folder / f".{hash_}.{sender}"
    try:
        with draft.open("r+b" if offset else "wb") as file:
            file.seek(offset)
            file.write(piece)
        if last:
            if file_sha256(draft) != hash_:
                draft.unlink()
                return "a trace was damaged in transfer"
            draft.replace(folder / f"{hash_}{SUFFIX}")
    except OSError as error:
        draft.unlink(missing_ok=True)
        return f"cannot store a trace: {error.strerror}"
    return ""


def run_block(topic: str, tag: int, recipe: str, work: str) -> None:
    """Run a block and send an event with its result: `tag`, and `finished` (JSON) or `error` and `hint`.

    A cancelled block sends no event.

    Args:
        topic: of the event.
        tag: number of the block.
        recipe, work: `Recipe` and `Work` as JSON.
    """
    from distributed import get_worker

    worker = get_worker()
    stop, done = threading.Event(), threading.Event()
    watcher = threading.Thread(target=_watch, args=(worker, worker.get_current_task(), stop, done), daemon=True)
    watcher.start()
    try:
        with _one_at_a_time:
            runs = _prepared(recipe)
            finished = run_transported(decode(work, Work), runs, f"{socket.gethostname()}:{os.getpid()}", stop)
        event: dict[str, Any] = {"tag": tag, "finished": encode(finished)}
    except Stopped:
        return
    except HeapwrightError as error:
        event = {"tag": tag, "error": error.message, "hint": error.hint}
    except Exception as error:
        event = {"tag": tag, "error": f"{type(error).__name__}: {error}", "hint": ""}
    finally:
        done.set()
    if not stop.is_set():
        worker.log_event(topic, event)


def _watch(worker: Any, key: str, stop: threading.Event, done: threading.Event) -> None:
    while not done.wait(_LOOK_S):
        task = worker.state.tasks.get(key)
        if task is None or task.state != "executing" or worker.status.name not in ("running", "paused"):
            stop.set()
            return


def _prepared(text: str) -> Executor | Replays:
    """Return the object that runs this recipe's jobs; it is kept for the next block, with its prepared traces."""
    if text not in _prepared_runs:
        for old in _prepared_runs.values():
            if isinstance(old, Replays):
                old.__exit__()
        _prepared_runs.clear()
        recipe, scratch = decode(text, Recipe), cache_folder() / _scratch_name()
        scratch.mkdir(exist_ok=True)
        _prepared_runs[text] = restore(recipe, cache_folder(), scratch)
    return _prepared_runs[text]
