"""Opens or begins the study of a `tune` command. Refuses to add runs of other programs, machines or options."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from heapwright import __version__
from heapwright.allocators.huge_pages import thp_state
from heapwright.allocators.registry import Allocator, upstream_version
from heapwright.allocators.runtimes import shipped_runtimes
from heapwright.allocators.space_spec import SpaceFile, version_trouble
from heapwright.errors import HeapwrightError
from heapwright.interleaving.phases import Phase
from heapwright.measure.cold_pages import cold_sentence, measure_cold_pages
from heapwright.measure.host import describe_host, differences
from heapwright.plugins import METHODS_GROUP, plugin_source
from heapwright.search.methods import METHODS
from heapwright.study.cold_pages import COLD, TOUCH
from heapwright.study.local_environment import changed_variables, set_variables
from heapwright.study.options import Options, conflicts
from heapwright.study.prefix import chosen_prefix
from heapwright.study.program import changed_sentence, program_of
from heapwright.study.store import FOLDERS, Store, open_writable_study, read_study, study_errors
from heapwright.workload.model import Workload
from heapwright.workload.program import (
    ProgramIdentity,
    allocator_changes,
    identify_file,
    identify_program,
    program_changes,
    search_changes,
)
from heapwright.workload.work_done import replacement_metrics

_TEXTS = ("explain", "hazard")  # of a parameter or a gate, for the report


def default_path(workload: Workload, named: Sequence[Allocator], added: Sequence[SpaceFile] = ()) -> Path:
    """The default path, `heapwright-PROGRAM-HASH.study` in the current folder: the same command finds its study again.

    Args:
        workload: the program and its inputs.
        named: the allocators that the user named; empty to search all that are found.
        added: spaces that the user adds to those of the allocators.
    """
    identity = [workload.identity(), *_without_text({**_added(added), **_spaces(named)}).values()]
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:6]
    first = workload.inputs[0].args[0] if workload.replays else workload.file.command[0]
    name = Path(first).name.removesuffix(".hwt") if workload.replays else Path(first).name
    program = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "program"
    return Path(f"heapwright-{program}-{digest}.study")


def open_or_begin(
    path: Path,
    workload: Workload,
    allocators: Sequence[Allocator],
    given: dict[str, Any],
    reproduce: list[str],
    same_program: bool = False,
    tell: Callable[[str], None] = lambda _: None,
    added: Sequence[SpaceFile] = (),
) -> tuple[Store, Options]:
    """Open the study at this path. Begin it if it is new, or if its program or an allocator was another build.

    Args:
        path: the study file.
        workload: the program and its inputs.
        allocators: the allocators to search.
        given: the options that the user named; the others are those of the stored study, or the defaults.
        reproduce: the command line that makes the study again.
        same_program: whether to go on with a study although its program or an allocator has changed.
        tell: receives the message that a study of another build was renamed.
        added: spaces that the user adds to those of the allocators.

    Raises:
        HeapwrightError: the file holds a study of another command, setting space, machine or environment, or
            one begun with other options.
    """
    paths = {a.name: a.library for a in allocators if a.library and workload.container is None}
    _put_aside_if_changed(path, workload, paths, given, same_program, tell)
    store = open_writable_study(path)
    try:
        stored = store.meta.options
        if not stored:
            options = _with_budget(msgspec.convert(given, Options), given)
            identity = identify_program(workload, _code_of(options.method))
            identity.allocators = {name: f for name, p in paths.items() if (f := identify_file(p)) is not None}
            store.forget_files()
            store.update(
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                version=__version__,
                identity=workload.identity(),
                workload_file=workload.path,
                spaces=_spaces(allocators),
                seeks_runtimes=options.runtime and not options.axes,
                added=_added(added),
                host={
                    **describe_host(),
                    **workload.where(),
                    "load_average": round(os.getloadavg()[0], 2),
                    **_huge_page_touch(),
                },
                environment=_environment(allocators, added, options.runtime and not options.axes),
                options=msgspec.to_builtins(options),
                objectives_given="objectives" in given,
                program=msgspec.to_builtins(identity),
                reproduce=reproduce,
                phase=Phase.CALIBRATE,
            )
            return store, options
        with study_errors(path):
            before = msgspec.convert(stored, Options, strict=False)
            options = _resume(store, path, workload, allocators, before, given, added)
        return store, options
    except BaseException:
        store.close()
        raise


def _put_aside_if_changed(
    path: Path,
    workload: Workload,
    paths: Mapping[str, str],
    given: dict[str, Any],
    same_program: bool,
    tell: Callable[[str], None],
) -> None:
    """Rename a study that cannot go on, with the files beside it: of another build of its files, or of prefixes.

    A study that measures prefixes because its time was short ends with that time.
    """
    if not path.is_file() or not path.stat().st_size:
        return
    try:
        with read_study(path) as store, study_errors(path):
            same = store.meta.identity == json.loads(json.dumps(workload.identity()))
            identity = program_of(store) if same and not same_program else None
            options = store.meta.study_options
            longer = given.get("budget_s", 0.0) > options.budget_s or given.get("evaluations", 0) > 0
            early = chosen_prefix(store) if same and longer else None
    except HeapwrightError:  # opening it for writing reports the error
        return
    why = _what_changed(identity, "a recording" if workload.replays else "the program", paths)
    if not why and early is not None:
        why = f"its budget held only {early.prefix.shown()}"
    if why:
        tell(f"{why}: a new study begins, the old one is kept as {put_aside(path)}")


def _code_of(method: str) -> list[Path]:
    """Return the file of a search method of another package."""
    source = plugin_source(METHODS_GROUP, method) if method not in METHODS else None
    return [source] if source else []


def _what_changed(identity: ProgramIdentity | None, what: str, paths: Mapping[str, str]) -> str:
    """Return a sentence about the program, an allocator or the search's code, if it has changed; else an empty text.

    Args:
        identity: the one in the study; None if unknown.
        what: "the program" or "a recording".
        paths: name of each allocator to compare → where its library is now.
    """
    if identity is None:
        return ""
    if changes := program_changes(identity):
        return changed_sentence(changes, what)
    if changes := allocator_changes(identity, paths):
        return changed_sentence(changes, "an allocator")
    changes = search_changes(identity)
    return changed_sentence(changes, "code of the search") if changes else ""


def changed_since(path: Path) -> str:
    """Return a sentence about changes since a study was made: of its program, recordings, allocators or search code.

    Returns:
        An empty text if nothing has, or if the study does not tell.

    Raises:
        HeapwrightError: the study cannot be read.
    """
    with read_study(path) as store, study_errors(path):
        identity = program_of(store)
        paths = {name: file.path for name, file in identity.allocators.items()} if identity else {}
        return _what_changed(identity, "a recording" if store.meta.recordings else "the program", paths)


def put_aside(path: Path) -> Path:
    """Rename a study, with the files beside it, so that a new one can begin. Return its new path, NAME.1.study or so.

    Raises:
        HeapwrightError: another process has it open, or it is not a study.
    """
    with open_writable_study(path) as store:  # fails while another process is at it
        for number in itertools.count(1):
            aside = path.with_name(f"{path.stem}.{number}{path.suffix}")
            names = [(of(path), of(aside)) for of in (*FOLDERS, report_path)] + [(path, aside)]
            if not any(new.exists() for _, new in names):  # one may be left of a study that the user deleted
                break
        store.move(names)
    return aside


def report_path(study: Path) -> Path:
    """Where the report of a study is, if nobody says otherwise."""
    return study.parent / f"{study.name.removesuffix('.study')}.html"  # with_name() refuses '.' and '/'


def _resume(
    store: Store,
    path: Path,
    workload: Workload,
    allocators: Sequence[Allocator],
    stored: Options,
    given: dict[str, Any],
    added: Sequence[SpaceFile],
) -> Options:
    other = "name another file with --study for a new one"
    identity = json.loads(json.dumps(workload.identity()))
    if store.meta.identity != identity:
        then = store.meta.identity
        differs = next((k for k in identity if then.get(k) != identity[k]), "command")
        if differs == "stdin":
            had = then.get("stdin") or "none"
            raise HeapwrightError(
                f"{path} was made with another standard input: {had}", f"give --stdin {had}, or {other}"
            )
        raise HeapwrightError(
            f"{path} is a study of another command: {differs} was {_short(then.get(differs))},"
            f" is {_short(identity[differs])}",
            other,
        )
    if store.meta.fixed_time and replacement_metrics(given.get("objectives", ()), minimised=True) == stored.objectives:
        given = {name: value for name, value in given.items() if name != "objectives"}
    clash = conflicts(stored, given)
    if clash:
        raise HeapwrightError(f"{path} was begun with {'; '.join(clash)}", f"leave that option out, or {other}")
    spaces = json.loads(json.dumps({**_added(added), **_spaces(allocators)}))
    then, now = (_without_text(s) for s in ({**store.meta.added, **store.meta.spaces}, spaces))
    if then != now:
        name = next(n for n in {**then, **now} if then.get(n) != now.get(n))
        raise HeapwrightError(f"{path} searches another parameter space than {name}'s is now", other)
    changed = differences(store.meta.host, describe_host())
    if changed:
        raise HeapwrightError(f"{path} was measured on another machine ({'; '.join(changed)})", other)
    before, now_set = changed_variables(store.meta.environment, _searched_files(store, allocators, added))
    if before:
        raise HeapwrightError(f"{path} was measured with {before} in the environment, now it is {now_set}", other)
    options = _with_budget(msgspec.structs.replace(stored, **given), given)
    # Without the choice: `run` must not start an old one if this study ends before a new one is
    # stored.
    store.update(options=msgspec.to_builtins(options), workload_file=workload.path, choice={})
    if options.budget_s != stored.budget_s:
        store.update(stopped_s=None)  # a new budget has a new deadline
    return options


def _with_budget(options: Options, given: dict[str, Any]) -> Options:
    """The options with the budget that the user gave: evaluations or a time, whichever it was, and not the other."""
    if "budget_s" not in given and "evaluations" not in given:
        return options
    return msgspec.structs.replace(
        options, evaluations=given.get("evaluations", 0), budget_s=given.get("budget_s", 0.0)
    )


def _huge_page_touch() -> dict[str, Any]:
    """Measure once whether huge pages are cold, where the system may give some."""
    found = measure_cold_pages() if thp_state() in ("always", "madvise") else None
    return {COLD: found["cold"], TOUCH: cold_sentence(found)} if found else {}


def _spaces(allocators: Sequence[Allocator]) -> dict[str, Any]:
    """Each allocator's parameter-space file, as stored: what there is in the version that is searched."""
    return {
        a.name: msgspec.to_builtins(
            msgspec.structs.replace(
                a.file, param=[p for p in a.file.param if not version_trouble(p, upstream_version(a.version or ""))]
            )
        )
        for a in allocators
    }


def _without_text(spaces: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Parameter spaces without their texts for the user: a study may go on when only these have changed.

    Keys that the version which began the study did not know have their defaults.
    """

    def plain(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return [{k: v for k, v in entry.items() if k not in _TEXTS} for entry in value]

    whole = {name: msgspec.to_builtins(msgspec.convert(space, SpaceFile)) for name, space in spaces.items()}
    return {name: {key: plain(value) for key, value in space.items()} for name, space in whole.items()}


def stored_allocators(path: Path) -> list[str]:
    """The names of the allocators that the study at this path searches.

    Raises:
        HeapwrightError: the file is not a study.
    """
    with read_study(path) as store:
        return [name for name in store.meta.options.get("allocator", "").split(",") if name]


def _added(files: Sequence[SpaceFile]) -> dict[str, Any]:
    """The spaces that the user adds, by name, as stored."""
    return {file.allocator.name: msgspec.to_builtins(file) for file in files}


def _environment(allocators: Sequence[Allocator], added: Sequence[SpaceFile], runtimes: bool) -> dict[str, str]:
    """The values that the user has set in the variables that hold settings.

    Args:
        allocators: those of the study.
        added: the spaces that the user adds.
        runtimes: whether the study searches the settings of a runtime.
    """
    files = [*(a.file for a in allocators), *added, *(shipped_runtimes() if runtimes else ())]
    return set_variables(files)


def _searched_files(store: Store, allocators: Sequence[Allocator], added: Sequence[SpaceFile]) -> list[SpaceFile]:
    """The spaces that a study searches; before its first run has told its runtimes, those of all runtimes."""
    files = [*(a.file for a in allocators), *added]
    if store.meta.runtimes is not None:
        return files + [msgspec.convert(extra["space"], SpaceFile) for extra in store.meta.runtimes.values()]
    return files + list(shipped_runtimes() if store.meta.seeks_runtimes else ())


def _plain(value: object) -> str:
    """A value of a workload's identity as words: an input is 'name=small args=-n 3'."""
    if not isinstance(value, dict):
        return str(value)
    words = (f"{k}={' '.join(map(str, v)) if isinstance(v, list) else v}" for k, v in value.items() if v)
    return " ".join(words) or "none"


def _short(value: object) -> str:
    text = " ".join(map(_plain, value)) if isinstance(value, list) else _plain(value)
    return text if len(text) <= 80 else text[:77] + "..."
