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
from dataclasses import dataclass

from heapwright.allocators.registry import Allocator
from heapwright.allocators.space import ParamSpec, Space
from heapwright.errors import UsageError
from heapwright.study import options as opt
from heapwright.study.journey import Journey
from heapwright.study.view import Config

MOST_PLACES = 20_000


@dataclass(frozen=True)
class Axis:
    """One swept setting.

    Attributes:
        values: as written for the allocator.
        scale: 'log2', 'linear', or 'names' for what is no number.
        default: the number that stands for unset, where the parameter's file names one (a fixed value there is not
            the same as unset: setting a glibc threshold stops it from growing).
    """

    key: str
    unit: str
    values: tuple[str, ...]
    scale: str
    default: float | None

    def at(self, value: str) -> float:
        """Where a value stands on the axis: its number, or its place among the names."""
        return float(self.values.index(value)) if self.scale == "names" else float(value)


def axis_text(spec: ParamSpec, low: int | None, high: int | None, step: float | None) -> str:
    """KEY:LOW:HIGH:STEP with what the user left open filled in; KEY alone for names.

    Raises:
        UsageError: a range for something that has none, or one that makes no sense.
    """
    if spec.type != "int":
        if low is not None or high is not None:
            raise UsageError(f"{spec.key} has no range: it is one of a few names")
        return spec.key
    log = spec.scale == "log2"
    low = low if low is not None else spec.expert_low if spec.expert_low is not None else spec.low
    high = high if high is not None else spec.expert_high if spec.expert_high is not None else spec.high
    if high is None and spec.high_per_core is not None:
        import os

        high = spec.high_per_core * (os.cpu_count() or 1)
    if low is None or high is None:
        raise UsageError(f"{spec.key} needs a range", f"for example --range {spec.key}=1:1024")
    if high <= low or (log and low < 1):
        raise UsageError(
            f"--range {spec.key}={low}:{high} is empty" if high <= low else f"{spec.key}: a log axis begins at 1"
        )
    return f"{spec.key}:{low}:{high}:{step or (0.5 if log else spec.step):g}"


def axis_of(spec: ParamSpec, text: str) -> Axis:
    """The axis that a stored text means.

    Raises:
        UsageError: more values than anybody would wait for.
    """
    key, *rest = text.split(":")
    start = spec.default.replace("-", " ").split(",")[0].split(" ")[0]
    if not rest:
        values = tuple(str(v) for v in spec.values) or ("0", "1")
        return Axis(key, spec.unit, values, "names", None)
    low, high, step = int(rest[0]), int(rest[1]), float(rest[2])
    count = (math.log2(high / low) if spec.scale == "log2" else high - low) / step
    if count >= MOST_PLACES:
        raise UsageError(f"{key}: {count:.0f} values are too many", "take a larger --step")
    steps = range(math.floor(count + 1e-9) + 1)
    numbers = [round(low * 2 ** (i * step)) if spec.scale == "log2" else round(low + i * step) for i in steps]
    return Axis(
        key, spec.unit, tuple(str(n) for n in dict.fromkeys(numbers)), spec.scale,
        float(start) if start.isdigit() and int(start) > 0 else None,
    )  # fmt: skip


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
        self._phase("calibrate")
        self._calibrate()
        self._phase("landscape")
        base = self.base_env()
        places = [
            dict(zip((a.key for a in axes), v, strict=True)) for v in itertools.product(*(a.values for a in axes))
        ]
        registered = [self._register(space, settings, base) for settings in places]
        configs = list({c.id: c for c in registered if c.id != self.default.id}.values())
        chunks = math.ceil(len(configs) / opt.BLOCK)
        runs = self.options.replicates * (len(configs) + chunks) * len(self.workload.inputs)
        self.progress.phase("landscape", runs)
        for replicate in range(self.options.replicates):
            self._pass(replicate, configs, chunks)
        self.store.put({"phase": "done", "spent_s": self.blocks.spent_s})

    def _pass(self, replicate: int, configs: list[Config], chunks: int) -> None:
        """Every place once."""
        order = list(configs)
        random.Random(f"{self.options.seed}/landscape/{replicate}").shuffle(order)
        for number in range(chunks):
            block = [self.default, *order[number * opt.BLOCK : (number + 1) * opt.BLOCK]]
            self.blocks.measure("landscape", replicate * chunks + number, block, self.workload.inputs)
