"""Chooses settings for huge pages that a search tries first, if the program's heap is large enough to gain from them.

A space has dozens of settings, and a short search tries few of them. The size of the heap tells whether huge pages
may matter. If so, the search begins with them: under `madvise` with the values that ask for huge pages, under `always`
with those that forbid them. If the user names a method, only the method chooses settings, because experiments compare
methods.
"""

from __future__ import annotations

from heapwright.allocators.huge_pages import thp_state
from heapwright.allocators.joint import ALLOCATOR, JointSpace
from heapwright.allocators.space import Point, Space
from heapwright.study.options import Options
from heapwright.tuning.session import Session

LARGE_BYTES = 32 << 20  # of peak resident memory: a smaller heap has few TLB misses
_ALLOCATORS = 3  # so many of the best allocators, besides the program's own


def huge_page_points(session: Session, space: Space) -> list[Point]:
    """Return the points to try first: each sets huge pages of one allocator, and nothing else.

    Args:
        session: the study's session, after calibration.
        space: the parameter space, its allocators the best first.
    """
    peaks = [run.metrics.get("peak_rss_bytes") or 0.0 for run in session.calibrated]
    named = session.options.method != Options().method
    if max(peaks, default=0.0) < LARGE_BYTES or named or session.options.search_only:
        return []
    state = thp_state()
    if not isinstance(space, JointSpace):
        return [_point(space, key, value) for key, value in _first_values(space, state)]
    cache = session.config_cache
    parts = [
        part
        for number, part in enumerate(space.parts)
        if number < _ALLOCATORS or cache.config(space, {ALLOCATOR: part.allocator.name}).is_default
    ]
    found = [
        space.point({ALLOCATOR: part.allocator.name, key: value})
        for part in parts
        for key, value in _first_values(part, state)
    ]
    return [point for point in found if point is not None]


def _first_values(space: Space, state: str) -> list[tuple[str, str]]:
    """Return setting and value of each setting of huge pages that is worth a try in this state."""
    pairs = [(param, param.spec.try_first.get(state, "")) for param in space.params]
    return [(param.key, value) for param, value in pairs if value in param.levels]


def _point(space: Space, key: str, value: str) -> Point:
    levels = (param.levels.index(value) + 1 if param.key == key else 0 for param in space.params)
    return space.normalise((*(0 for _ in space.gates), *levels))
