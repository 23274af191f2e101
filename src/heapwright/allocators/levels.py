"""Computes the levels of a parameter (its values in a search) from its range, scale and special values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import overload

from heapwright.allocators.space_spec import Context, ParamSpec

MAX_LEVELS = 10_000  # of one parameter; more must be a mistake in the file


class WholeNumbers(Sequence[str]):
    """Every whole number from low to high as text; millions of them take no memory."""

    def __init__(self, low: int, high: int) -> None:
        self._numbers = range(low, high + 1)

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        if isinstance(at, slice):
            return tuple(str(n) for n in self._numbers[at])
        return str(self._numbers[at])

    def __contains__(self, value: object) -> bool:
        return isinstance(value, str) and value.isdecimal() and str(int(value)) == value and int(value) in self._numbers

    def index(self, value: str, start: int = 0, stop: int | None = None) -> int:
        """Return the position of a number, without looking at each.

        Args:
            value: the number as text.
            start, stop: the part of the list that counts.

        Raises:
            ValueError: the number is not there.
        """
        at = self._numbers.index(int(value)) if value in self else -1
        if at < start or (stop is not None and at >= stop):
            raise ValueError(f"{value} is not in the list")
        return at


class RangeError(Exception):
    """A parameter whose levels make no sense: which key of its table, and why."""

    def __init__(self, field: str, what: str) -> None:
        super().__init__(what)
        self.field, self.what = field, what


def levels_of(spec: ParamSpec, context: Context) -> tuple[Sequence[str], int]:
    """The texts a parameter may take, specials first, and how many specials there are.

    Raises:
        RangeError: its range contradicts itself.
    """
    if spec.omits_default and (spec.type != "int" or spec.scale == "uniform"):
        raise RangeError("omits_default", "is for an int that is not uniform")
    if spec.type == "bool":
        return ("1", "0") if not spec.values else tuple(str(v) for v in spec.values), 0
    if spec.type == "enum":
        if not spec.values:
            raise RangeError("values", "an enum needs its values")
        return tuple(str(v) for v in spec.values), 0
    low = spec.expert_low if context.expert and spec.expert_low is not None else spec.low
    high = spec.expert_high if context.expert and spec.expert_high is not None else spec.high
    if spec.high_per_core is not None:
        high = spec.high_per_core * context.cores
    if low is None or high is None:
        raise RangeError("low" if low is None else "high", "an int needs a range: low and high")
    if high < low:
        raise RangeError("low", f"{low} is above high, {high}")
    specials = tuple(dict.fromkeys(str(s) for s in spec.specials))
    if spec.scale == "uniform":
        if specials:
            raise RangeError("specials", "a uniform scale cannot have specials")
        return WholeNumbers(low, high), 0
    if not 0 < spec.step < math.inf:
        raise RangeError("step", "must be a positive number")
    if spec.scale == "linear":
        step = max(1, round(spec.step))
        count = (high - low) // step + 1
    elif low < 1:
        raise RangeError("low", "on a log2 scale low must be at least 1 (put 0 in specials)")
    else:
        count = math.floor((math.log2(high) - math.log2(low)) / spec.step + 1e-9) + 1
    if count > MAX_LEVELS:
        raise RangeError("step", f"gives {count} values; take a larger step, or scale = 'log2'")
    if spec.scale == "linear":
        numbers = [low + i * step for i in range(count)]
    else:
        numbers = [round(2 ** (math.log2(low) + i * spec.step)) for i in range(count)]
    texts = dict.fromkeys([*specials, *(str(n) for n in numbers)])
    if spec.omits_default:
        if spec.default not in texts:
            raise RangeError("omits_default", f"'{spec.default}' is not a value of the range")
        if len(texts) == 1:
            raise RangeError("omits_default", "leaves no value")
        del texts[spec.default]
        specials = tuple(s for s in specials if s != spec.default)
    return tuple(texts), len(specials)
