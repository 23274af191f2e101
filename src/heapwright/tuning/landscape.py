"""Sweeps one or two settings over their whole range; every point is compared with the default beside it.

1. Calibrate the program, as `tuning.calibrate` does.
2. Measure every point of the grid `replicates` times, in blocks of the default and five points. Each replicate has a
   new random order, so that drift of the machine cannot look like shape. The first replicate measures some points
   twice, half a pass apart. The difference of the two runs of one point is the noise that differences between points
   are compared with.
3. Measure the points with the lowest and the highest ratio again beside the default, in fresh blocks. Only these runs
   show whether points differ at all, and how much the best one gains (`study.landscape_judge`).

All runs are stored, so a sweep resumes, and further replicates add to the stored ones.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Sequence
from typing import TypeVar

from heapwright.allocators.registry import Allocator
from heapwright.allocators.space import Space
from heapwright.errors import HeapwrightError, UsageError
from heapwright.interleaving.candidates import gather
from heapwright.interleaving.configuration import Config
from heapwright.interleaving.phases import Phase
from heapwright.metrics import show_estimate, show_seconds
from heapwright.study import options as opt
from heapwright.study.landscape_axes import MAX_POINTS, SweptAxis, axis_of
from heapwright.study.landscape_judge import extreme_configurations
from heapwright.terminal_text import counted
from heapwright.tuning.calibrate import calibrate
from heapwright.tuning.session import Session

MIN_REPEATS, REPEATED_SHARE = 8, 0.1  # points that the first replicate measures twice
END_ROUNDS, FURTHER_ROUNDS = (
    8,
    4,
)  # fresh blocks of the lowest and highest point, and for each replicate

_T = TypeVar("_T")


def grid_space(allocator: Allocator, texts: Sequence[str]) -> tuple[Space, tuple[SweptAxis, ...]]:
    """The space that contains only these settings with these values, and its axes in the order given.

    Raises:
        UsageError: the allocator has no such setting here, or there are too many points.
    """
    keys = [text.split(":")[0] for text in texts]
    space = allocator.space(threads=True, expert=True).restrict(keys)
    found = {p.key: axis_of(p.spec, text) for text in texts for p in space.params if p.key == text.split(":")[0]}
    points = math.prod(len(a.values) for a in found.values())
    if points > MAX_POINTS:
        raise UsageError(f"{points} points are too many", "take a larger --step, or a smaller --range")
    params = tuple(dataclasses.replace(p, levels=found[p.key].values, specials=0) for p in space.params)
    return dataclasses.replace(space, params=params), tuple(found[key] for key in keys)


def with_repeats(order: Sequence[_T]) -> list[list[_T]]:
    """The blocks of a pass that measures every point once, and some points again half a pass later.

    A tenth of the points, at least eight, are measured again; they are evenly spaced over the order. With fewer than
    ten points, all are measured again until there are eight repeats. A point and its repeat are never in one block.
    """
    n = len(order)
    if n < 2 * opt.BLOCK:
        return _in_blocks(order) * (1 + math.ceil(MIN_REPEATS / max(n, 1)))
    repeats = max(MIN_REPEATS, math.ceil(n * REPEATED_SHARE))
    timed = [(float(at), point) for at, point in enumerate(order)]
    timed += [((at + n // 2) % n + 0.5, order[at]) for at in (k * n // repeats for k in range(repeats))]
    return _in_blocks([point for _, point in sorted(timed, key=lambda item: item[0])])


def _in_blocks(points: Sequence[_T]) -> list[list[_T]]:
    return [list(points[at : at + opt.BLOCK]) for at in range(0, len(points), opt.BLOCK)]


def sweep(session: Session, metric: str = "") -> None:
    """Measure every point of a landscape. Stored runs answer at once.

    Args:
        session: a session of a study whose options have axes, with a single allocator.
        metric: the metric whose lowest and highest point are measured again; empty for the landscape's own.

    Raises:
        HeapwrightError: the program does not work by itself, nothing can be measured or stored, or an older
            heapwright began the sweep.
        KeyboardInterrupt: all runs measured so far are stored.
    """
    store, options, inputs = session.store, session.options, session.workload.inputs
    space, axes = grid_space(session.allocators[0], options.axes)
    if not store.meta.repeats and store.runs(Phase.LANDSCAPE):
        raise HeapwrightError(
            f"{store.path} was begun by an older heapwright, which measured no point twice",
            "name another file with --study for a new one",
        )
    store.update(repeats=True)
    session.phase(Phase.CALIBRATE)
    calibrate(session)
    session.phase(Phase.LANDSCAPE)
    points = [dict(zip((a.key for a in axes), v, strict=True)) for v in itertools.product(*(a.values for a in axes))]
    registered = [session.config_cache.config(space, settings) for settings in points]
    configs = list({c.id: c for c in registered if c.id != session.default.id}.values())
    passes = [_pass(session, replicate, configs) for replicate in range(options.replicates)]
    blocks = [block for one in passes for block in one]
    rounds = END_ROUNDS + FURTHER_ROUNDS * (options.replicates - 1)
    fresh = rounds * min(3, 1 + len(configs))
    total = (sum(map(len, blocks)) + fresh) * len(inputs)
    _tell_plan(session, metric or options.objectives[0], len(configs), total, fresh * len(inputs))
    session.progress.phase(Phase.LANDSCAPE, total)
    for replicate, one in enumerate(passes):
        session.blocks.measure_all(Phase.LANDSCAPE, replicate * len(passes[0]), one, inputs)
    _measure_ends(session, metric or session.options.objectives[0], configs, rounds)
    session.phase(Phase.DONE)


def _tell_plan(session: Session, metric: str, points: int, total: int, fresh: int) -> None:
    """Tell the user how many runs are to come and how long they take; nothing if all are stored.

    Args:
        session: the study's session.
        metric: the metric whose ends are measured again.
        points: number of points.
        total: runs of the whole sweep.
        fresh: how many of them are runs of the ends.
    """
    sweep_left = max(0, total - fresh - len(session.store.runs(Phase.LANDSCAPE)))
    ends_left = fresh if sweep_left else max(0, fresh - len(session.store.runs(Phase.ends(metric))))
    if not sweep_left + ends_left:
        return
    seconds = (sweep_left + ends_left) * session.run_s
    session.progress.left(seconds)
    counts = [
        f"{counted(sweep_left, 'run')} of {counted(points, 'point')} and the default" if sweep_left else "",
        f"{counted(ends_left, 'run')} of the default, the lowest and the highest point" if ends_left else "",
    ]
    session.progress.note(
        f"One run takes {show_seconds(session.run_s)}. The sweep takes about {show_estimate(seconds)}:"
        f" {', then '.join(filter(None, counts))}."
    )


def _pass(session: Session, replicate: int, configs: list[Config]) -> list[list[Config]]:
    """The blocks of one replicate: every point once; in the first replicate some points twice."""
    order = list(configs)
    random.Random(f"{session.options.seed}/landscape/{replicate}").shuffle(order)
    groups = _in_blocks(order) if replicate else with_repeats(order)
    return [[session.default, *group] for group in groups]


def _measure_ends(session: Session, metric: str, configs: Sequence[Config], rounds: int) -> None:
    """Measure the points with the lowest and the highest ratio again, beside the default, in fresh blocks."""
    runs = session.store.runs(Phase.LANDSCAPE)
    found = gather(runs, session.config_cache.configs, session.default.id).values()
    costs = {c.config.id: cost for c in found if not c.failure and (cost := c.cost(metric)) is not None}
    ratios = {c.id: math.exp(costs[c.id]) for c in configs if c.id in costs}
    if not ratios:
        return
    members = [session.default, *(session.config_cache.configs[id_] for id_ in extreme_configurations(ratios))]
    phase = Phase.ends(metric)
    first = session.blocks.first_block(phase, members)
    session.blocks.measure_all(phase, first, [members] * rounds, session.workload.inputs)
