"""Finds the runtime that runs a study's program, and screens its settings before the search.

    look       the file of the program, or of the process with the most memory, tells the runtime (allocators.runtimes)
    screen     each setting alone, at its lowest, middle and highest level, in blocks with the program as it is
    keep       settings that change an objective by more than the noise; the others are not searched further

The study stores the runtime, so a resumed study searches the same settings. Spaces that the user adds
(`--add-space`) are treated alike.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from heapwright.allocators.huge_pages import PROCESS, has_huge_page_pool, process_space, thp_state
from heapwright.allocators.joint import ALLOCATOR, JointSpace, extra_settings, has_extras, join
from heapwright.allocators.library_mallocs import SEARCHED, LibraryMalloc, find_library_mallocs, own_malloc_clause
from heapwright.allocators.registry import Allocator
from heapwright.allocators.runtimes import Runtime, find_runtimes, shipped_runtimes
from heapwright.allocators.space import Param, Point, Space, build_space
from heapwright.allocators.space_spec import AllocatorSpec, Context, SpaceFile
from heapwright.errors import HeapwrightError
from heapwright.interleaving.candidates import Candidate, gather
from heapwright.interleaving.configuration import DEFAULT, Config
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.records import StoredRun
from heapwright.study.extra_space_text import searched_too
from heapwright.study.left_out import USELESS_ALONE, not_searched
from heapwright.study.local_environment import set_variables
from heapwright.study.options import BLOCK, RUNTIME_ROUNDS
from heapwright.tuning.schedule import begin
from heapwright.tuning.session import ExtraSpace, Session


def find_extras(session: Session, busiest: str, loaded: Sequence[str] = ()) -> None:
    """Look for the program's runtime, unless an earlier session did, and tell the user about it.

    Args:
        session: the study's session; `extras` is set.
        busiest: path of the program with the most memory, if that is not the command itself; else empty.
        loaded: paths of the libraries of the process with the most memory, where their mallocs may hold much of it.
    """
    if not session.store.meta.seeks_runtimes:
        return
    stored = session.store.meta.runtimes
    if stored is None:
        found = {extra.space.allocator.name: extra for extra in find_extra_spaces(session, busiest, loaded)}
        for extra in found.values():
            extra.sentence = extra_sentence(extra, extra_space(extra, session))
        stored = {name: msgspec.to_builtins(extra) for name, extra in found.items()}
        of_libraries = set_variables([extra.space for extra in found.values() if extra.libraries])
        session.store.update(runtimes=stored, environment={**session.store.meta.environment, **of_libraries})
    extras = [msgspec.convert(extra, ExtraSpace) for extra in stored.values()]
    session.extras = tuple(extras)
    _check_params(session)
    spaces = [extra_space(extra, session) for extra in extras]
    levels = sum(len(_screened_levels(param)) for space in spaces for param in space.params)
    session.extra_levels = min(levels, _max_screened(session))
    for extra in extras:
        session.progress.note(extra.sentence)


def _check_params(session: Session) -> None:
    """Refuse a setting of a library's malloc (`--params`) that this program has not."""
    names = {extra.space.allocator.name for extra in session.extras} | {a.name for a in session.allocators}
    names |= {file.allocator.name for file in shipped_runtimes()}
    for key in session.options.params:
        name, _, rest = key.partition(".")
        if rest in SEARCHED and name not in names:
            raise HeapwrightError(
                f"the program has no library '{name}' with a malloc of its own",
                "tune without --params names its libraries",
            )


def as_it_is() -> Allocator:
    """The program as it is, as an allocator without settings: where only a runtime's settings can be searched."""
    return Allocator(DEFAULT, None, None, False, "", SpaceFile(AllocatorSpec(DEFAULT)))


def extra_sentence(extra: ExtraSpace, space: Space) -> str:
    """'CPython 3.11 runs this program: its settings are searched too (malloc).'"""
    title = f"{extra.title} {extra.version}".strip()
    runs = f"{title} runs this program" if extra.program else f"The space {title} is added"
    if extra.space.runtime is not None and extra.space.runtime.library:
        runs = f"The program uses {title}"
    elif extra.libraries:
        runs = own_malloc_clause(extra.libraries, title)
        if not extra.space.param:
            return f"{runs}; heapwright searches none of its settings."
    if extra.title == PROCESS:
        runs = "The process can go without transparent huge pages, which are 'always' here"
    skipped = [f"{key} ({why})" for key, why in space.skipped if not why.startswith("only with --expert")]
    without = f" Not searched: {', '.join(skipped)}." if skipped else ""
    if not space.params:
        return f"{runs}; it has no setting that applies.{without}"
    return f"{runs}: {searched_too([p.key for p in space.params])}{without}"


def extra_space(extra: ExtraSpace, session: Session) -> Space:
    """The settings of an extra space that this study may search."""
    options = session.options
    if extra.program:
        found = Runtime(extra.space, extra.version, Path(extra.program)).space(session.threads, options.expert)
    else:
        thp, pool = thp_state(), has_huge_page_pool()
        context = Context(extra.version, os.cpu_count() or 1, session.threads, options.expert, thp=thp, pool=pool)
        found = build_space(extra.space, context, extra.title)
    if not options.params:
        return found
    wanted = {f"{found.allocator.name}.{p.key}": p for p in found.params}
    return _with_params(found, [param for key, param in wanted.items() if key in options.params])


def screened_extras(session: Session, space: Space) -> tuple[Space, list[StoredRun]]:
    """Add the extra spaces to the allocators', with those settings only that matter.

    Args:
        session: the study's session.
        space: the space of the allocators, the best first.

    Returns:
        The whole space, and the runs of the screening.
    """
    extras = [extra_space(extra, session) for extra in session.extras]
    whole = _space_with(space, extras)
    if not isinstance(whole, JointSpace) or not any(extra.params for extra in extras):
        return whole, []
    begin(session, Phase.RUNTIMES)
    base, tried = _design(session, whole)
    runs = _measure(session, base, [config for _, config in tried])
    configs = {c.id: c for c in (session.default, base, *(c for _, c in tried))}
    candidates = gather(runs, configs, base.id)
    left_out: dict[str, str] = {}
    for key in dict.fromkeys(key for key, _ in tried):
        levels = [candidates.get(config.id) for name, config in tried if name == key]
        known = [c for c in levels if c is not None]
        if len(known) < len(levels) or any(_may_pay(session, c) for c in known):
            continue
        failure = next((c.failure for c in known if c.failure), "")
        left_out[key] = f"each run failed ({failure})" if all(c.failure for c in known) else USELESS_ALONE
    kept = [
        _with_params(e, [p for p in e.params if f"{e.allocator.name}.{p.key}" not in left_out]) for e in whole.extras
    ]
    for sentence in not_searched(left_out):
        session.progress.note(sentence)
    session.store.update(not_searched={**session.store.meta.not_searched, **left_out})
    return _space_with(space, kept), runs


_COMBINED = 3  # so many settings of allocators with so many of the runtime are tried first


def combinations(session: Session, space: Space, measured: Sequence[StoredRun]) -> list[Point]:
    """Points that join the best settings of allocators with the best of the runtime, each measured without the other.

    Args:
        session: the study's session.
        space: the whole space.
        measured: the runs of the program so far.
    """
    if not isinstance(space, JointSpace) or not has_extras(space):
        return []
    objectives = session.options.objectives
    costed = [
        (sum(costs), candidate.config)
        for candidate in gather(measured, session.config_cache.configs, session.default.id).values()
        if (costs := candidate.costs(objectives)) is not None
    ]
    extra_of = {c.id: extra_settings(space, c.settings) for _, c in costed}
    order = sorted(costed, key=lambda found: found[0])
    plain = [c for _, c in order if not extra_of[c.id]][:_COMBINED]
    settings = [extra_of[c.id] for _, c in order if extra_of[c.id]][:_COMBINED]
    found = [space.point({ALLOCATOR: c.allocator, **c.settings, **more}) for more in settings for c in plain]
    return list(dict.fromkeys(point for point in found if point is not None))


def find_extra_spaces(session: Session, busiest: str = "", loaded: Sequence[str] = ()) -> list[ExtraSpace]:
    """The extra spaces of a new study: of its program's runtimes and libraries, and those that the user added.

    Args:
        session: the study's session.
        busiest, loaded: see `find_extras`.
    """
    added = {file.allocator.name: file for file in session.added}
    known = [
        *(f for f in shipped_runtimes() if f.allocator.name not in added),
        *(f for f in added.values() if f.runtime),
    ]
    workload = session.workload
    command = workload.command(workload.train[0])
    command = [workload.program(workload.train[0]), *command[1:]]
    base = session.config_cache.base
    if busiest and not find_runtimes(command, known, base):
        command = [busiest]
    found = find_runtimes(command, known, base, [Path(path).name for path in loaded])
    mallocs = find_library_mallocs(loaded)
    for name, file in added.items():
        if file.runtime is not None and name not in {one.name for one in found}:
            title = file.runtime.title
            session.progress.note(f"{title} does not run this program, so the settings of --add-space are not searched")
    process = ExtraSpace(process_space(), PROCESS)
    taken = {*(a.name for a in session.allocators), *(f.allocator.name for f in shipped_runtimes()), *added, PROCESS}
    return [
        *(
            ExtraSpace(one.file, one.spec.title, one.version, str(one.program), _libraries_of(one, mallocs))
            for one in found
        ),
        *_library_spaces(mallocs, found, taken),
        *(ExtraSpace(file, name) for name, file in added.items() if file.runtime is None),
        *([process] if thp_state() == "always" and extra_space(process, session).params else []),
    ]


def _libraries_of(runtime: Runtime, mallocs: Sequence[LibraryMalloc]) -> tuple[str, ...]:
    """The paths of the libraries with a malloc of their own whose settings a runtime's are."""
    patterns = runtime.spec.libraries if runtime.spec.library else []
    paths = (path for malloc in mallocs for path in malloc.paths)
    return tuple(str(path) for path in paths if any(re.fullmatch(p, path.name) for p in patterns))


def _library_spaces(
    mallocs: Sequence[LibraryMalloc], runtimes: Sequence[Runtime], taken: Collection[str]
) -> Iterator[ExtraSpace]:
    """Yield the spaces of the mallocs of libraries, also without settings, but not of libraries that are runtimes.

    Args:
        mallocs: the mallocs.
        runtimes: the program's runtimes.
        taken: names of other spaces.
    """
    known = {path for runtime in runtimes for path in _libraries_of(runtime, mallocs)}
    names = set(taken)
    for malloc in mallocs:
        if not known.isdisjoint(map(str, malloc.paths)):
            continue
        numbered = (f"{malloc.name}-{number}" for number in itertools.count(2))
        name = next(one for one in itertools.chain([malloc.name], numbered) if one not in names)
        names.add(name)
        title, libraries = " and ".join(malloc.families), tuple(map(str, malloc.paths))
        yield ExtraSpace(malloc.space(name), title, malloc.version, libraries=libraries)


def _space_with(space: Space, extras: Sequence[Space]) -> Space:
    """The space of the allocators with these beside it."""
    parts = space.parts if isinstance(space, JointSpace) else (space,)
    return join(parts, extras)


def _with_params(space: Space, params: Sequence[Param]) -> Space:
    used = {p.spec.gate for p in params}
    return dataclasses.replace(space, gates=tuple(g for g in space.gates if g.key in used), params=tuple(params))


def _screened_levels(param: Param) -> list[str]:
    """The levels of a setting for the screening: all of a switch; of a range the lowest, the middle and the highest."""
    last = len(param.levels) - 1
    chosen = range(last + 1) if param.spec.type != "int" else dict.fromkeys((0, last // 2, last))
    return [param.levels[at] for at in chosen]


def _max_screened(session: Session) -> int:
    """The number of levels that the screening may measure: half of the budget's evaluations; the search needs the rest.

    Settings that it does not reach are searched all the same.
    """
    return max(1, session.options.evaluations // 2) if session.options.evaluations else sys.maxsize


def _in_turn(extras: Sequence[Space]) -> Iterator[tuple[Space, Param, str]]:
    """The levels to try: a first one of each setting, then a second one …, so that a short time reaches all settings.

    Of a range the lowest comes first, or the middle one if a hazard is known: the lowest limit may end the program.
    """
    turns: list[list[tuple[Space, Param, str]]] = []
    for extra in extras:
        for param in extra.params:
            levels = _screened_levels(param)
            if param.spec.hazard and param.spec.type == "int" and len(levels) > 1:
                levels[0], levels[1] = levels[1], levels[0]
            turns.append([(extra, param, level) for level in levels])
    return (one for turn in itertools.zip_longest(*turns) for one in turn if one is not None)


def _design(session: Session, whole: JointSpace) -> tuple[Config, list[tuple[str, Config]]]:
    """Choose what to measure.

    Returns:
        The program as it is, or else the best allocator at its defaults; and NAME.KEY and configuration of each level
        to try alone under it: all values of a switch, a spread of a range.
    """
    default = session.default
    names = [part.allocator.name for part in whole.parts]
    as_it_is = (name for name in names if session.config_cache.config(whole, {ALLOCATOR: name}).id == default.id)
    base: Mapping[str, str] = {ALLOCATOR: next(as_it_is, names[0])}
    found: list[tuple[str, Config]] = []
    for extra, param, level in _in_turn(whole.extras):
        if param.spec.requires.allocators and base[ALLOCATOR] not in param.spec.requires.allocators:
            continue  # it shows only under another allocator; the search tries it there
        key = f"{extra.allocator.name}.{param.key}"
        found.append((key, session.config_cache.config(whole, {**base, key: level})))
    return session.config_cache.config(whole, base), [(key, c) for key, c in found if c.id != default.id]


def _measure(session: Session, base: Config, configs: Sequence[Config]) -> list[StoredRun]:
    """Run configurations in blocks with the default, round by round, as far as the budget and the stage's time allow.

    Args:
        session: the study's session.
        base: the configuration that they are compared with; it runs in each block too.
        configs: the configurations.
    """
    blocks, inputs = session.blocks, session.workload.train
    head = [session.default] if base.is_default else [session.default, base]
    fitting = configs[: _max_screened(session)]
    groups = [[*head, *fitting[at : at + BLOCK]] for at in range(0, len(fitting), BLOCK)]
    in_round = math.ceil(len(configs) / BLOCK)  # numbers of blocks stay if the budget grows
    blocks.phase(Phase.RUNTIMES, RUNTIME_ROUNDS * sum(map(len, groups)) * len(inputs))
    runs: list[StoredRun] = []
    for number in range(RUNTIME_ROUNDS):
        for at, group in enumerate(groups):
            fits = len(group)
            while fits > len(head) and session.budget.over(fits * len(inputs) * session.run_s):
                fits -= 1
            if fits == len(head):
                return runs
            runs += blocks.measure(Phase.RUNTIMES, number * in_round + at, group[:fits], inputs)
            if fits < len(group):
                return runs
    return runs


def _may_pay(session: Session, candidate: Candidate) -> bool:
    """Whether a setting alone improved an objective by more than the margin and one standard error.

    Few runs show a gain badly, and a setting that is left out here is lost. So the search also gets settings that only
    look better by chance. A failure says nothing.
    """
    if candidate.failure:
        return False
    costs = candidate.costs(session.options.objectives)
    if costs is None:
        return False
    rounds = max(1.0, candidate.runs / len(session.workload.train))
    margin = math.log1p(session.options.margin)
    errors = (noise / math.sqrt(rounds) for noise in session.noise or (0.0,) * len(costs))
    return any(cost < -max(error, margin) for cost, error in zip(costs, errors, strict=True))
