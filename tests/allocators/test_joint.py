"""Several allocators' spaces as one: what holds for every point of it, and which allocators are found worth it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.allocators.joint import (
    ALLOCATOR,
    JointSpace,
    extra_settings,
    has_extras,
    join,
    replayable,
    restricted,
)
from heapwright.allocators.registry import bundled_names, bundled_space
from heapwright.allocators.space import Point, Space, build_space
from heapwright.allocators.space_spec import AllocatorSpec, Context, GateSpec, Requires, SpaceFile
from heapwright.errors import HeapwrightError
from heapwright.search.nsga2 import Nsga2
from heapwright.search.protocol import Setup
from heapwright.tuning.warm_start import points_of_settings

from .spaces import number

VERSIONS = {"glibc": "2.36", "jemalloc": "5.3.0", "mimalloc": "2.3.2", "tcmalloc": "2.10"}


def bundled(name: str, threads: bool = True) -> Space:
    """A space that comes with heapwright, wherever its library is."""
    return build_space(bundled_space(name), Context(VERSIONS.get(name, ""), 2, threads, False))


def toy(name: str) -> Space:
    spec = AllocatorSpec(name, env=name.upper(), pair="{key}={value}", join=",", preload=f"/{name}.so")
    params = [number("same", 1, 4, specials=[0]), number("shut", 1, 2, gate="g")]
    return build_space(SpaceFile(spec, [GateSpec("g", "e")], params), Context())


spaces = st.lists(
    st.sampled_from(bundled_names()).map(bundled) | st.sampled_from(["a", "b"]).map(toy),
    min_size=2, max_size=5, unique_by=lambda s: s.allocator.name,
).map(join)  # fmt: skip


def extra(name: str) -> Space:
    """A space without an allocator; one of its settings has an effect under allocator 'a' only."""
    spec = AllocatorSpec(name, env="A", pair="{key}={value}", join=",")
    params = [
        number("free", 1, 4),
        number("bound", 1, 2, requires=Requires(allocators=["a"]), unless={"free": [4]}),
        number("behind", 1, 2, gate="g"),
    ]
    return build_space(SpaceFile(spec, [GateSpec("g", "e")], params), Context())


spaces_with_extras = st.tuples(
    st.lists(st.sampled_from(["a", "b", "c"]).map(toy), min_size=1, unique_by=lambda s: s.allocator.name),
    st.lists(st.sampled_from(["x", "y"]).map(extra), min_size=1, unique_by=lambda s: s.allocator.name),
).map(lambda both: join(*both))


def points(space: Space) -> st.SearchStrategy[Point]:
    return st.tuples(*(st.integers(0, size) for size in space.sizes))


@given(st.data())
def test_a_point_means_one_allocator_and_its_settings(data: st.DataObject) -> None:
    space = data.draw(spaces)
    assert isinstance(space, JointSpace)
    point = data.draw(points(space))
    once = space.normalise(point)
    assert space.normalise(once) == once
    settings = space.settings(point)
    assert space.settings(once) == settings
    part = space.part(settings[ALLOCATOR])
    own = {k: v for k, v in settings.items() if k != ALLOCATOR}
    assert set(own) <= {p.key for p in part.params}
    assert space.environment(settings, {}) == part.environment(own, {})
    assert space.point(settings) == once


@given(st.data())
def test_points_that_differ_when_normal_run_differently(data: st.DataObject) -> None:
    space = data.draw(spaces)
    a, b = (space.normalise(data.draw(points(space))) for _ in range(2))
    assert (space.settings(a) == space.settings(b)) == (a == b)


@given(st.data())
def test_settings_beside_the_allocators(data: st.DataObject) -> None:
    space = data.draw(spaces_with_extras)
    assert isinstance(space, JointSpace)
    assert len({p.key for p in space.params}) == len(space.params)
    point = data.draw(points(space))
    once = space.normalise(point)
    settings = space.settings(point)
    assert (space.normalise(once), space.settings(once), space.point(settings)) == (once, settings, once)
    own, more = space.split(settings)
    assert extra_settings(space, settings).keys() == settings.keys() - own.keys() - {ALLOCATOR}
    env = space.environment(settings, {"A": "free=9,mine=1"})
    expected = space.part(settings[ALLOCATOR]).environment(own, {"A": "free=9,mine=1"})
    for extra, wanted in zip(space.extras, more, strict=True):
        expected |= extra.environment(wanted, {"A": "free=9,mine=1", **expected})
        assert settings[ALLOCATOR] == "a" or "bound" not in wanted
        assert wanted.get("free") != "4" or "bound" not in wanted
    assert env == expected
    assert "A" not in env or "mine=1" in env["A"]
    assert space.environment(space.settings(space.default), {}) == space.parts[0].environment({}, {})
    assert not has_extras(replayable(space))


def test_two_spaces_of_one_name_are_refused() -> None:
    with pytest.raises(HeapwrightError, match="two parameter spaces have the name 'a'"):
        join([toy("a")], [extra("a")])


@given(st.data())
def test_a_joint_space_has_unique_keys_and_the_allocator_first(data: st.DataObject) -> None:
    space = data.draw(spaces)
    keys = [p.key for p in space.params]
    assert len(set(keys)) == len(keys)
    assert keys[0] == ALLOCATOR
    assert len(space.sizes) == len(space.gates) + len(space.params)
    assert all(value == 0 for value in space.default)


def test_joining_one_space_returns_it() -> None:
    assert join([toy("a")]) == toy("a")


def test_settings_of_other_allocators_have_no_effect() -> None:
    space = join([toy("a"), toy("b")])
    # gates of a, b | allocator | a.same, a.shut | b.same, b.shut
    assert space.sizes == (1, 1, 1, 4, 2, 4, 2)
    assert space.settings((1, 1, 0, 1, 1, 2, 2)) == {ALLOCATOR: "a", "same": "0", "shut": "1"}
    assert space.settings((0, 1, 1, 1, 1, 2, 2)) == {ALLOCATOR: "b", "same": "1", "shut": "2"}
    assert space.normalise((1, 0, 1, 3, 1, 0, 2)) == (0, 0, 1, 0, 0, 0, 0)
    env = space.environment(space.settings((0, 1, 1, 1, 1, 2, 2)), {"LD_PRELOAD": "/mine.so", "A": "same=3"})
    assert env == {"B": "same=1,shut=2", "LD_PRELOAD": "/b.so:/mine.so"}


def test_settings_that_are_not_there_have_no_point() -> None:
    space = join([toy("a"), toy("b")])
    assert isinstance(space, JointSpace)
    assert space.point({ALLOCATOR: "c"}) is None
    assert space.point({ALLOCATOR: "a", "same": "3"}) is None
    assert space.point({ALLOCATOR: "a", "other": "1"}) is None


def test_restricting_one_part() -> None:
    assert [p.key for p in restricted(toy("a"), ["a.same"]).params] == ["same"]
    assert restricted(toy("a"), ["a.same"]).gates == ()
    assert [p.key for p in restricted(toy("a"), ["shut", "b.same"]).params] == ["shut"]
    assert restricted(toy("a"), ["b.same"]).params == ()


def test_a_method_made_for_one_space_searches_several() -> None:
    space = join([bundled(name) for name in ("glibc", "jemalloc", "mimalloc")])
    asked = Nsga2(Setup(space, 2, 48, 1)).ask()
    assert {space.settings(p)[ALLOCATOR] for p in asked} == {"glibc", "jemalloc", "mimalloc"}


def test_a_stored_setting_that_equals_the_default_counts_as_unset() -> None:
    """Studies made before `omits_default` may have it beside others; it must not hide those."""
    stored = {ALLOCATOR: "exgen", "keep": "2097152", "front": "32768"}
    without = {ALLOCATOR: "exgen", "front": "32768"}
    exgen = bundled("exgen")
    for space in (exgen, join([bundled("glibc"), exgen]), join([bundled("glibc"), exgen], [extra("x")])):
        points = points_of_settings(space, [without])
        assert len(points) == 1
        assert points_of_settings(space, [stored]) == points
    assert points_of_settings(exgen, [{ALLOCATOR: "exgen", "keep": "2097152"}]) == []
