"""A landscape: one or two settings swept over their whole range, every place against the default beside it.

It is a journey with one leg (`study.journey`): calibrate, then every place `replicates` times, in blocks of the
default and five places. The order of places is drawn anew for each replicate, so that drift of the machine cannot
look like shape. Stored like any study, so it resumes, and more replicates go on from what is there.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Sequence

from heapwright.allocators.registry import Allocator
from heapwright.allocators.space import Space
from heapwright.errors import UsageError
from heapwright.study import options as opt
from heapwright.study.axes import MOST_PLACES, Axis, axis_of
from heapwright.study.journey import Journey
from heapwright.study.view import Config


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


class Sweep(Journey):
    """The sweep of a landscape: its options have axes, and one allocator."""

    def run(self) -> None:
        """Measures every place; what is stored already answers at once.

        Raises:
            HeapwrightError: the command does not work by itself, or nothing can be measured or stored.
            KeyboardInterrupt: everything measured so far is kept.
        """
        space, axes = plane(self.allocators[0], self.options.axes)
        self.phase("calibrate")
        self._calibrate()
        self.phase("landscape")
        places = [
            dict(zip((a.key for a in axes), v, strict=True)) for v in itertools.product(*(a.values for a in axes))
        ]
        registered = [self.register.config(space, settings) for settings in places]
        configs = list({c.id: c for c in registered if c.id != self.default.id}.values())
        chunks = math.ceil(len(configs) / opt.BLOCK)
        runs = self.options.replicates * (len(configs) + chunks) * len(self.workload.inputs)
        self.progress.phase("landscape", runs)
        for replicate in range(self.options.replicates):
            self._pass(replicate, configs, chunks)
        self.store.put({"phase": "done", "spent_s": self.spent_s})

    def _pass(self, replicate: int, configs: list[Config], chunks: int) -> None:
        """Every place once."""
        order = list(configs)
        random.Random(f"{self.options.seed}/landscape/{replicate}").shuffle(order)
        groups = [[self.default, *order[at : at + opt.BLOCK]] for at in range(0, len(order), opt.BLOCK)]
        self.blocks.measure_all("landscape", replicate * chunks, groups, self.workload.inputs)
