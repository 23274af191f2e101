"""Sweeps one or two settings over their whole range, every place against the default beside it.

A sweep is a tuning pipeline with one stage (`tuning.pipeline`): it calibrates, then measures every place
`replicates` times, in blocks of the default and five places. Each replicate draws a new order of
places, so that drift of the machine cannot look like shape. The first replicate measures some places
twice, half a pass apart: how far the two runs of one place lie apart is the noise that differences
between places are judged by. Last, the places with the lowest and the highest ratio run again beside
the default, in fresh blocks: only these runs say whether places differ at all and what the best one
gains (`tuning.landscape`).

All runs are stored, so a sweep resumes, and more replicates go on from what is there.
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
from heapwright.experiment.candidates import gather
from heapwright.experiment.configuration import Config
from heapwright.experiment.phases import Phase
from heapwright.study import options as opt
from heapwright.study.axes import MOST_PLACES, Axis, axis_of
from heapwright.study.landscape_judge import ends
from heapwright.tuning.pipeline import TuningPipeline

FEWEST_REPEATS, REPEATED_SHARE = 8, 0.1  # places that the first replicate measures twice
END_ROUNDS, FURTHER_ROUNDS = 8, 4  # fresh blocks of the lowest and the highest place; more for each further replicate

_T = TypeVar("_T")


def plane(allocator: Allocator, texts: Sequence[str]) -> tuple[Space, tuple[Axis, ...]]:
    """The space of just these settings with just these values, and its axes in the order given.

    Raises:
        UsageError: a setting the allocator does not have here, or too many places.
    """
    keys = [text.split(":")[0] for text in texts]
    space = allocator.space(threads=True, expert=True).restrict(keys)
    found = {p.key: axis_of(p.spec, text) for text in texts for p in space.params if p.key == text.split(":")[0]}
    places = math.prod(len(a.values) for a in found.values())
    if places > MOST_PLACES:
        raise UsageError(f"{places} places are too many", "take a larger --step, or a smaller --range")
    params = tuple(dataclasses.replace(p, levels=found[p.key].values, specials=0) for p in space.params)
    return dataclasses.replace(space, params=params), tuple(found[key] for key in keys)


def with_repeats(order: Sequence[_T]) -> list[list[_T]]:
    """The blocks of a pass that measures every place, and some places again half a pass apart.

    A tenth of the places, at least eight, is measured again; they are evenly spaced over the order. Fewer
    than ten places are all measured again, until there are eight repeats. A place and its repeat are
    never in one block.
    """
    n = len(order)
    if n < 2 * opt.BLOCK:
        return _in_blocks(order) * (1 + math.ceil(FEWEST_REPEATS / max(n, 1)))
    repeats = max(FEWEST_REPEATS, math.ceil(n * REPEATED_SHARE))
    timed = [(float(at), place) for at, place in enumerate(order)]
    timed += [((at + n // 2) % n + 0.5, order[at]) for at in (k * n // repeats for k in range(repeats))]
    return _in_blocks([place for _, place in sorted(timed, key=lambda item: item[0])])


def _in_blocks(places: Sequence[_T]) -> list[list[_T]]:
    return [list(places[at : at + opt.BLOCK]) for at in range(0, len(places), opt.BLOCK)]


class Sweep(TuningPipeline):
    """The sweep of a landscape: its options have axes, and one allocator."""

    def run(self, metric: str = "") -> None:
        """Measures every place; what is stored already answers at once.

        Args:
            metric: whose lowest and highest place are measured again; empty for the one the sweep was begun for.

        Raises:
            HeapwrightError: the command does not work by itself, nothing can be measured or stored, or an older
                heapwright began the sweep.
            KeyboardInterrupt: everything measured so far is kept.
        """
        space, axes = plane(self.allocators[0], self.options.axes)
        if not self.store.meta.repeats and self.store.runs(Phase.LANDSCAPE):
            raise HeapwrightError(
                f"{self.store.path} was begun by an older heapwright, which measured no place twice",
                "name another file with --study for a new one",
            )
        self.store.update(repeats=True)
        self.phase(Phase.CALIBRATE)
        self._calibrate()
        self.phase(Phase.LANDSCAPE)
        places = [
            dict(zip((a.key for a in axes), v, strict=True)) for v in itertools.product(*(a.values for a in axes))
        ]
        registered = [self.config_cache.config(space, settings) for settings in places]
        configs = list({c.id: c for c in registered if c.id != self.default.id}.values())
        passes = [self._pass(replicate, configs) for replicate in range(self.options.replicates)]
        blocks = [block for one in passes for block in one]
        rounds = END_ROUNDS + FURTHER_ROUNDS * (self.options.replicates - 1)
        self.progress.phase(Phase.LANDSCAPE, (sum(map(len, blocks)) + 3 * rounds) * len(self.workload.inputs))
        for replicate, one in enumerate(passes):
            self.blocks.measure_all(Phase.LANDSCAPE, replicate * len(passes[0]), one, self.workload.inputs)
        self._measure_ends(metric or self.options.objectives[0], configs, rounds)
        self.store.update(phase=Phase.DONE, spent_s=self.spent_s)

    def _pass(self, replicate: int, configs: list[Config]) -> list[list[Config]]:
        """The blocks of one replicate: every place once, in the first replicate some of them twice."""
        order = list(configs)
        random.Random(f"{self.options.seed}/landscape/{replicate}").shuffle(order)
        groups = _in_blocks(order) if replicate else with_repeats(order)
        return [[self.default, *group] for group in groups]

    def _measure_ends(self, metric: str, configs: Sequence[Config], rounds: int) -> None:
        """Measures the lowest and the highest place again, beside the default in blocks of their own."""
        runs = self.store.runs(Phase.LANDSCAPE)
        found = gather(runs, self.config_cache.configs, self.default.id).values()
        costs = {c.config.id: cost for c in found if not c.failure and (cost := c.cost(metric)) is not None}
        ratios = {c.id: math.exp(costs[c.id]) for c in configs if c.id in costs}
        if not ratios:
            return
        members = [self.default, *(self.config_cache.configs[id_] for id_ in ends(ratios))]
        phase = Phase.ends(metric)
        first = self.blocks.first_block(phase, members)
        self.blocks.measure_all(phase, first, [members] * rounds, self.workload.inputs)
