"""What runs on a worker: three functions that the coordinator sends by name, so heapwright is installed there too.

    inspect     is this machine fit, and which traces has it not got yet?
    put_piece   a piece of a trace, into the cache by content hash
    run_block   runs a block and tells its results as an event, before the task ends

One block at a time runs in a worker process. A block whose task was cancelled, or whose scheduler is gone, is stopped
within a second: `_watch` asks the worker's own book of tasks. A worker that is killed takes its commands along, because
the meter dies with the thread that started it.

Workers of one machine share the cache; files come into it under a temporary name and are renamed. A file that was not
used for a week goes.
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
    Needs,
    Recipe,
    content_hash,
    decode,
    encode,
    restore,
    run_parcel,
    troubles,
)
from heapwright.errors import HeapwrightError
from heapwright.experiment.replays import Replays
from heapwright.experiment.runner import Work
from heapwright.measure.host import describe_host
from heapwright.measure.meter import Stopped

if TYPE_CHECKING:
    from heapwright.workload.execute import Executor


class Answer(msgspec.Struct):
    """What a worker says of itself.

    Attributes:
        boot: the same for all workers of one machine, in whatever containers they are.
        trouble: why it cannot be used, one line each.
        missing: traces that are not in its cache.
    """

    host: dict[str, Any]
    machine: str
    boot: str
    trouble: list[str]
    missing: list[str]


_WEEK_S = 7 * 24 * 3600.0
_LOOK_S = 0.2
_HASH = re.compile(r"[0-9a-f]{64}")
_OURS = re.compile(rf"[0-9a-f]{{64}}{re.escape(SUFFIX)}|\.[0-9a-f]{{64}}\.[0-9A-Za-z]+")
_one_at_a_time = threading.Lock()
_at_hand: dict[str, Executor | Replays] = {}  # the last recipe's; guarded by _one_at_a_time


def cache_folder() -> Path:
    """Where this machine keeps traces: $HEAPWRIGHT_CACHE, or a folder of the user's in the place for temporary files.

    Raises:
        HeapwrightError: it belongs to somebody else.
    """
    named = os.environ.get("HEAPWRIGHT_CACHE")
    folder = Path(named) if named else Path(tempfile.gettempdir()) / f"heapwright-cache-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The name can be predicted, and anybody may have put something there: a link of theirs must not lead us elsewhere.
    found = folder.stat() if named else folder.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or (not named and found.st_mode & 0o022):
        raise HeapwrightError(
            f"{folder} belongs to somebody else, or others may write there", "name another folder in $HEAPWRIGHT_CACHE"
        )
    return folder


def inspect(needs: str, word: str, search_path: str | None) -> str:
    """What there is to know of this machine: an Answer as JSON."""
    wanted = decode(needs, Needs)
    found = troubles(wanted, word, search_path)
    missing: list[str] = []
    try:
        folder = cache_folder()
        _tidy(folder, set(wanted.traces))
        missing = [hash_ for hash_ in wanted.traces if not (folder / f"{hash_}{SUFFIX}").is_file()]
    except (OSError, HeapwrightError) as error:
        found.append(f"no cache: {error}")
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return encode(Answer(describe_host(), socket.gethostname(), boot, found, missing))


def _tidy(folder: Path, used: set[str]) -> None:
    """Notes what is in use; removes what was not for a week, and what dead workers have left: ours, nothing else."""
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another worker may do the same
            if path.suffix == SUFFIX and path.stem in used:
                path.touch()
            elif _OURS.fullmatch(path.name) and path.is_file() and time.time() - path.stat().st_mtime > _WEEK_S:
                path.unlink()
            elif path.is_dir() and path.name.isdecimal() and not Path(f"/proc/{path.name}").exists():
                shutil.rmtree(path)  # a dead worker's


def put_piece(hash_: str, sender: str, offset: int, piece: bytes, last: bool) -> str:
    """A piece of a trace; the last one makes it whole. Returns what is wrong, or empty."""
    if not _HASH.fullmatch(hash_) or not sender.isalnum():  # they become names in the folder, and nowhere else
        return "a trace has a name that is none"
    folder = cache_folder()
    draft = folder / f".{hash_}.{sender}"
    try:
        with draft.open("r+b" if offset else "wb") as file:
            file.seek(offset)
            file.write(piece)
        if last:
            if content_hash(draft) != hash_:
                draft.unlink()
                return "a trace did not arrive whole"
            draft.replace(folder / f"{hash_}{SUFFIX}")
    except OSError as error:
        draft.unlink(missing_ok=True)
        return f"a trace cannot be kept: {error.strerror}"
    return ""


def run_block(topic: str, tag: int, recipe: str, work: str) -> None:
    """Runs a block; an event under `topic` says what came of it: tag, and finished (JSON) or error and hint."""
    from distributed import get_worker

    worker = get_worker()
    stop, done = threading.Event(), threading.Event()
    watcher = threading.Thread(target=_watch, args=(worker, worker.get_current_task(), stop, done), daemon=True)
    watcher.start()
    try:
        with _one_at_a_time:
            runs = _prepared(recipe)
            finished = run_parcel(decode(work, Work), runs, f"{socket.gethostname()}:{os.getpid()}", stop)
        told: dict[str, Any] = {"tag": tag, "finished": encode(finished)}
    except Stopped:
        return
    except HeapwrightError as error:
        told = {"tag": tag, "error": error.message, "hint": error.hint}
    except Exception as error:
        told = {"tag": tag, "error": f"{type(error).__name__}: {error}", "hint": ""}
    finally:
        done.set()
    if not stop.is_set():
        worker.log_event(topic, told)


def _watch(worker: Any, key: str, stop: threading.Event, done: threading.Event) -> None:
    while not done.wait(_LOOK_S):
        task = worker.state.tasks.get(key)
        if task is None or task.state != "executing" or worker.status.name not in ("running", "paused"):
            stop.set()
            return


def _prepared(text: str) -> Executor | Replays:
    """What runs this recipe; traces made ready stay for the next block."""
    if text not in _at_hand:
        for old in _at_hand.values():
            if isinstance(old, Replays):
                old.__exit__()
        _at_hand.clear()
        recipe, scratch = decode(text, Recipe), cache_folder() / str(os.getpid())
        scratch.mkdir(exist_ok=True)
        _at_hand[text] = restore(recipe, cache_folder(), scratch)
    return _at_hand[text]
