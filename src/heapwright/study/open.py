"""Opens or begins the study a `tune` command means, and refuses to mix what must not be mixed."""

from __future__ import annotations

import hashlib
import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from heapwright import __version__
from heapwright.allocators.registry import Allocator
from heapwright.errors import HeapwrightError
from heapwright.measure.host import describe_host, differences
from heapwright.study.options import Options, conflicts
from heapwright.study.store import Store, open_study
from heapwright.workload.model import Workload


def default_path(workload: Workload, allocator: Allocator) -> Path:
    """`heapwright-PROGRAM-HASH.study` here: the same command finds its study again."""
    what = [workload.identity(), msgspec.to_builtins(allocator.file)]
    digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:6]
    program = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(workload.file.command[0]).name).strip("-.") or "program"
    return Path(f"heapwright-{program}-{digest}.study")


def open_or_begin(
    path: Path, workload: Workload, allocator: Allocator, given: dict[str, Any], reproduce: list[str]
) -> tuple[Store, Options]:
    """The study at this path, begun if it is new.

    Args:
        given: the options the user named; the rest are the stored study's, or the defaults.
        reproduce: the command line that makes the study again.

    Raises:
        HeapwrightError: the file holds a study of another command, setting space, machine or environment, or
            one begun with other options.
    """
    store = open_study(path)
    try:
        stored = store.get("options")
        if stored is None:
            options = msgspec.convert(given, Options)
            store.forget_references()
            store.put(
                {
                    "created": datetime.now(UTC).isoformat(timespec="seconds"),
                    "version": __version__,
                    "identity": workload.identity(),
                    "space": msgspec.to_builtins(allocator.file),
                    "host": describe_host(),
                    "environment": _environment(allocator),
                    "options": msgspec.to_builtins(options),
                    "reproduce": reproduce,
                    "phase": "calibrate",
                }
            )
            return store, options
        options = _resume(store, path, workload, allocator, msgspec.convert(stored, Options, strict=False), given)
        return store, options
    except BaseException:
        store.close()
        raise


def _resume(
    store: Store, path: Path, workload: Workload, allocator: Allocator, stored: Options, given: dict[str, Any]
) -> Options:
    other = "name another file with --study for a new one"
    identity = json.loads(json.dumps(workload.identity()))
    if store.get("identity") != identity:
        then = store.get("identity")
        differs = next((k for k in identity if then.get(k) != identity[k]), "command")
        raise HeapwrightError(
            f"{path} is a study of another command: {differs} was {_short(then.get(differs))},"
            f" is {_short(identity[differs])}",
            other,
        )
    if store.get("space") != json.loads(json.dumps(msgspec.to_builtins(allocator.file))):
        raise HeapwrightError(f"{path} searches another parameter space than {allocator.name}'s is now", other)
    clash = conflicts(stored, given)
    if clash:
        raise HeapwrightError(f"{path} was begun with {'; '.join(clash)}", f"leave that option out, or {other}")
    changed = differences(store.get("host"), describe_host())
    if changed:
        raise HeapwrightError(f"{path} was measured on another machine ({'; '.join(changed)})", other)
    environment = _environment(allocator)
    if store.get("environment") != environment:
        raise HeapwrightError(
            f"{path} was measured with {_short(store.get('environment'))} in the environment,"
            f" now it is {_short(environment)}",
            other,
        )
    options = msgspec.structs.replace(stored, **given)
    if "budget_s" in given or "evaluations" in given:  # a new budget replaces the old one, of either kind
        options = msgspec.structs.replace(
            options, evaluations=given.get("evaluations", 0), budget_s=given.get("budget_s", 0.0)
        )
    store.put({"options": msgspec.to_builtins(options)})
    return options


def _environment(allocator: Allocator) -> dict[str, str]:
    """What the user has set in the variables that settings are written into."""
    names = {p.env or allocator.file.allocator.env for p in allocator.file.param}
    names |= {"LD_PRELOAD", *(n for n in os.environ if n.startswith("MALLOC_"))}
    return {n: os.environ[n] for n in sorted(names - {""}) if n in os.environ}


def _short(value: object) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."
