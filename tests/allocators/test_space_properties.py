"""What holds for every space and every point of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heapwright.allocators.registry import bundled_space
from heapwright.allocators.space import Point, Space, build_space
from heapwright.allocators.space_spec import Context, ParamSpec

from .spaces import number, small_space

KEYS = ("alpha", "alpha_two", "beta", "gamma", "delta")


@st.composite
def params(draw: st.DrawFn, key: str) -> ParamSpec:
    gate = draw(st.sampled_from(["", "g1", "g2"]))
    if draw(st.booleans()):
        return ParamSpec(key, "e", type="bool", gate=gate)
    low = draw(st.integers(1, 1 << 20))
    high = draw(st.integers(low, 1 << 35))
    specials = draw(st.lists(st.integers(0, 3), max_size=2))
    return number(key, low, high, gate=gate, step=draw(st.sampled_from([0.5, 1.0, 3.0])), specials=specials)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, unique=True))
    return small_space(*(draw(params(k)) for k in keys), gates=("g1", "g2"))


def glibc(version: str, threads: bool, expert: bool) -> Space:
    return build_space(bundled_space("glibc"), Context(version, 4, threads, expert))


any_space = spaces() | st.builds(glibc, st.sampled_from(["2.31", "2.36", "2.42", "2.43"]), st.booleans(), st.booleans())


def points(space: Space) -> st.SearchStrategy[Point]:
    return st.tuples(*(st.integers(0, size) for size in space.sizes))


def parse(text: str, space: Space) -> dict[str, str]:
    """Reads a rendered variable back, as the allocator would: later settings win."""
    pairs = (part.split("=") for part in text.split(space.allocator.join) if part)
    head = space.allocator.pair.partition("{key}")[0]
    return {name.removeprefix(head): value for name, value in pairs}


@given(st.data())
def test_a_rendered_point_reads_back_as_its_settings(data: st.DataObject) -> None:
    space = data.draw(any_space)
    rendered = space.render(data.draw(points(space)), {})
    env = rendered.env.get(space.allocator.env, "")
    assert parse(env, space) == rendered.settings
    assert set(rendered.env) == ({space.allocator.env} if rendered.settings else set())


@given(st.data())
def test_normalise_is_idempotent_and_changes_no_setting(data: st.DataObject) -> None:
    space = data.draw(any_space)
    point = data.draw(points(space))
    once = space.normalise(point)
    assert space.normalise(once) == once
    assert space.settings(once) == space.settings(point)
    assert all(0 <= v <= n for v, n in zip(once, space.sizes, strict=True))


@given(st.data())
def test_points_that_differ_when_normal_have_different_settings(data: st.DataObject) -> None:
    space = data.draw(any_space)
    a, b = (space.normalise(data.draw(points(space))) for _ in range(2))
    assert (space.settings(a) == space.settings(b)) == (a == b)


@given(st.data())
def test_numbers_are_plain_decimals_within_bounds(data: st.DataObject) -> None:
    space = data.draw(any_space)
    for param in space.params:
        assert len(set(param.levels)) == len(param.levels)
        assert all(level.isdigit() and str(int(level)) == level for level in param.levels)
        ascending = [int(level) for level in param.levels[param.specials :]]
        if param.spec.type == "int":
            assert ascending == sorted(ascending)
            low, high = param.spec.low, param.spec.high
            if low is not None and high is not None and param.spec.expert_low is None:
                assert all(low <= n <= high for n in ascending)


@given(st.data())
def test_the_users_other_settings_survive(data: st.DataObject) -> None:
    space = data.draw(any_space)
    rendered = space.render(data.draw(points(space)), {})
    foreign = data.draw(st.dictionaries(st.sampled_from(["x.one", "x.two", "glibc.rtld.nns"]), st.just("7")))
    clash = data.draw(st.dictionaries(st.sampled_from([p.key for p in space.params]), st.just("1")))
    own = [f"{k}={v}" for k, v in foreign.items()]
    own += [space.allocator.pair.format(key=k, value=v) for k, v in clash.items()]
    env = space.environment(rendered.settings, {space.allocator.env: space.allocator.join.join(own)})
    if rendered.settings:
        found = parse(env[space.allocator.env], space)
        assert found == {**foreign, **clash, **rendered.settings}
    else:
        assert env == {}


@given(st.data())
def test_rendering_twice_changes_nothing(data: st.DataObject) -> None:
    space = data.draw(any_space)
    settings_ = space.settings(data.draw(points(space)))
    once = space.environment(settings_, {})
    assert space.environment(settings_, once) == once


@given(st.data())
def test_restricting_to_all_is_no_restriction(data: st.DataObject) -> None:
    space = data.draw(any_space)
    keys = [p.key for p in space.params]
    assert space.restrict(keys) == space
    some = data.draw(st.lists(st.sampled_from(keys), min_size=1))
    assert {p.key for p in space.restrict(some).params} == set(some)
