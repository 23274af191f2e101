"""The axes of a landscape: the values of a setting that a sweep visits, and their notation in a study's options.

KEY:LOW:HIGH:STEP    a number; on a log2 scale, STEP is in powers of two
KEY                  a switch, or one of a few names
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from heapwright.allocators.space_spec import ParamSpec
from heapwright.errors import UsageError

MAX_POINTS = 20_000


@dataclass(frozen=True)
class SweptAxis:
    """One swept setting.

    Attributes:
        key: the setting. unit: of its values.
        values: the values, in the allocator's notation.
        scale: 'log2', 'linear', or 'names' for values that are not numbers.
        default: the number at which the unset setting starts, if the space file names one. Setting that value is not
            the same as unset: a glibc threshold that is set no longer grows.
    """

    key: str
    unit: str
    values: tuple[str, ...]
    scale: str
    default: float | None

    def at(self, value: str) -> float:
        """The position of a value on the axis: its number, or its index among the names."""
        return float(self.values.index(value)) if self.scale == "names" else float(value)


def axis_text(spec: ParamSpec, low: int | None, high: int | None, step: float | None) -> str:
    """The notation KEY:LOW:HIGH:STEP of an axis; KEY alone for names.

    Args:
        spec: the parameter.
        low, high: the range that the user chose; None for the parameter's own.
        step: the step that the user chose; None for the parameter's own.

    Raises:
        UsageError: a range for a parameter that has none, or an empty range.
    """
    if spec.type != "int":
        if low is not None or high is not None:
            raise UsageError(f"{spec.key} has no range: it is one of a few names")
        return spec.key
    log = spec.scale == "log2"
    low = low if low is not None else spec.expert_low if spec.expert_low is not None else spec.low
    high = high if high is not None else spec.expert_high if spec.expert_high is not None else spec.high
    if high is None and spec.high_per_core is not None:
        high = spec.high_per_core * (os.cpu_count() or 1)
    if low is None or high is None:
        raise UsageError(f"{spec.key} needs a range", f"for example --range {spec.key}=1:1024")
    if high <= low or (log and low < 1):
        empty = f"--range {spec.key}={low}:{high} is empty: LOW must be below HIGH"
        raise UsageError(empty if high <= low else f"{spec.key}: a log axis begins at 1")
    return f"{spec.key}:{low}:{high}:{step or (0.5 if log else spec.step):g}"


def axis_of(spec: ParamSpec, text: str) -> SweptAxis:
    """The axis with this notation.

    Raises:
        UsageError: the axis has too many values.
    """
    key, *rest = text.split(":")
    start = spec.default.replace("-", " ").split(",")[0].split(" ")[0]
    if not rest:
        values = tuple(str(v) for v in spec.values) or ("0", "1")
        return SweptAxis(key, spec.unit, values, "names", None)
    low, high, step = int(rest[0]), int(rest[1]), float(rest[2])
    count = (math.log2(high / low) if spec.scale == "log2" else high - low) / step
    if count >= MAX_POINTS:
        raise UsageError(f"{key}: {count:.0f} values are too many", "take a larger --step")
    steps = range(math.floor(count + 1e-9) + 1)
    numbers = [round(low * 2 ** (i * step)) if spec.scale == "log2" else round(low + i * step) for i in steps]
    return SweptAxis(
        key, spec.unit, tuple(str(n) for n in dict.fromkeys(numbers)), spec.scale,
        float(start) if start.isdecimal() and int(start) > 0 else None,
    )  # fmt: skip
