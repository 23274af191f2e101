"""Warm start: a new study first tries the good settings of other studies.

They are measured like any other point. The only thing taken from the other studies is which settings to try.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from heapwright.allocators.joint import ALLOCATOR, JointSpace, point_of
from heapwright.allocators.space import Point, Space
from heapwright.errors import UsageError
from heapwright.study.load import load_view


def good_settings(paths: Sequence[Path], allocators: Sequence[str], most: int) -> list[dict[str, str]]:
    """The picks of other studies, then their Pareto fronts, each setting once, taken from the studies in turn.

    Args:
        paths: the study files.
        allocators: names of the allocators that the new study searches.
        most: maximum number of settings.

    Returns:
        Settings; each has its allocator's name under `ALLOCATOR`.

    Raises:
        HeapwrightError: no such study.
        UsageError: a study of other allocators only.
    """
    queues = []
    for path in paths:
        view = load_view(path)
        searched = str(view.options.get("allocator", ""))
        if not set(searched.split(",")) & set(allocators):
            raise UsageError(
                f"--warm-start {path}: it searched {searched}, not {','.join(allocators)}",
                "leave it out: their settings are not the same",
            )
        by_number = {e.number: e.config for e in view.evaluations}
        good = [*(p.config for p in view.picks.values()), *(by_number[n] for n in view.front)]
        queues.append(
            [{ALLOCATOR: c.allocator, **c.settings} for c in good if c.settings and c.allocator in allocators]
        )
    found: list[dict[str, str]] = []
    for rank in range(max(map(len, queues), default=0)):
        for queue in queues:
            if rank < len(queue) and queue[rank] not in found:
                found.append(queue[rank])
    return found[:most]


def points_of_settings(space: Space, settings: Iterable[Mapping[str, str]]) -> list[Point]:
    """The points of this space with exactly these settings; settings outside of the space are left out."""
    found: dict[Point, None] = {}
    for wanted in settings:
        if isinstance(space, JointSpace):
            joint_point = space.point(wanted)
            found |= {joint_point: None} if joint_point else {}
            continue
        point = point_of(space, {key: value for key, value in wanted.items() if key != ALLOCATOR})
        found |= {point: None} if point is not None and any(point) else {}
    return list(found)
