"""Points, levels, rendering, gates, requirements."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from heapwright.allocators.levels import RangeError, levels_of
from heapwright.allocators.registry import bundled_names, bundled_space
from heapwright.allocators.space import build_space
from heapwright.allocators.space_spec import Context, ParamSpec, Requires, version_key
from heapwright.errors import UsageError

from .spaces import number, small_space, threads_only, toy_space


def levels(spec: ParamSpec, context: Context | None = None) -> Sequence[str]:
    return small_space(spec, context=context).params[0].levels


# levels


def test_powers_of_two() -> None:
    assert levels(number("k", 1, 16)) == ("1", "2", "4", "8", "16")


def test_half_powers_of_two() -> None:
    assert levels(number("k", 256, 1024, step=0.5)) == ("256", "362", "512", "724", "1024")


def test_a_large_range_ends_exactly_at_its_end() -> None:
    found = levels(number("k", 32768, 1 << 34, step=0.5))
    assert (found[0], found[-1], len(found)) == ("32768", str(1 << 34), 39)


def test_linear_steps() -> None:
    assert levels(number("k", 24, 1032, scale="linear", step=112))[:3] == ("24", "136", "248")
    assert levels(number("k", 24, 1032, scale="linear", step=112))[-1] == "1032"


def test_small_steps_give_each_number_once() -> None:
    found = levels(number("k", 1, 8, step=0.25))
    assert len(set(found)) == len(found)
    assert found[:4] == ("1", "2", "3", "4")


def test_special_values_come_first_and_only_once() -> None:
    space = small_space(number("k", 1, 4, specials=[0, "never", 4]))
    assert space.params[0].levels == ("0", "never", "4", "1", "2")
    assert space.params[0].specials == 3


def test_a_default_is_no_level_where_setting_it_changes_nothing() -> None:
    """The default may be a special value; a default outside the range is a mistake in the file."""
    space = small_space(number("k", 1, 8, default="4", omits_default=True))
    assert space.params[0].levels == ("1", "2", "8")
    space = small_space(number("k", 1, 2, specials=[0, 7], default="0", omits_default=True))
    assert (space.params[0].levels, space.params[0].specials) == (("7", "1", "2"), 1)
    with pytest.raises(RangeError, match="'3' is not a value of the range"):
        levels_of(number("k", 1, 2, default="3", omits_default=True), Context())
    with pytest.raises(RangeError, match="leaves no value"):
        levels_of(number("k", 2, 2, default="2", omits_default=True), Context())
    with pytest.raises(RangeError, match="is for an int that is not uniform"):
        levels_of(ParamSpec("k", "e", type="bool", default="1", omits_default=True), Context())


def test_switches_and_choices_list_their_levels() -> None:
    assert levels(ParamSpec("k", "e", type="bool")) == ("1", "0")
    assert levels(ParamSpec("k", "e", type="enum", values=["best", 2])) == ("best", "2")


def test_a_range_may_depend_on_the_number_of_cores() -> None:
    spec = ParamSpec("k", "e", low=1, high_per_core=8)
    assert levels(spec, Context(cores=2)) == ("1", "2", "4", "8", "16")


def test_experts_get_a_wider_range() -> None:
    spec = number("k", 4, 8, expert_low=1, expert_high=16)
    assert levels(spec) == ("4", "8")
    assert levels(spec, Context(expert=True)) == ("1", "2", "4", "8", "16")


# points


def test_the_default_sets_nothing() -> None:
    space = toy_space()
    assert space.settings(space.default) == {}
    assert space.render(space.default, {"TOY": "own"}).env == {}


def test_a_gate_is_a_dimension_of_its_own() -> None:
    space = toy_space()
    assert space.sizes == (1, 11, 4, 9, 2)


def test_behind_a_closed_gate_nothing_is_set() -> None:
    space = toy_space()
    assert space.settings((0, 3, 1, 2, 0)) == {"count": "max"}
    assert space.normalise((0, 3, 1, 2, 0)) == (0, 0, 0, 2, 0)


def test_an_open_gate_with_nothing_behind_is_closed() -> None:
    assert toy_space().normalise((1, 0, 0, 2, 1)) == (0, 0, 0, 2, 1)


def test_settings_in_the_order_of_the_file() -> None:
    found = toy_space().settings((1, 2, 1, 1, 1))
    assert list(found.items()) == [("threshold", "45"), ("pad", "0"), ("count", "0"), ("switch", "1")]


# rendering and merging


def test_settings_are_joined_into_one_variable() -> None:
    rendered = toy_space().render((1, 1, 0, 3, 0), {})
    assert rendered.settings == {"threshold": "32", "count": "1"}
    assert rendered.env == {"TOY": "toy.threshold=32:toy.count=1"}


def test_the_users_other_settings_stay() -> None:
    env = toy_space().environment({"count": "5"}, {"TOY": "toy.other=1:toy.counter=2"})
    assert env == {"TOY": "toy.other=1:toy.counter=2:toy.count=5"}


def test_our_value_replaces_the_users_for_the_same_setting() -> None:
    env = toy_space().environment({"count": "5"}, {"TOY": "toy.count=9:toy.other=1:toy.count=7"})
    assert env == {"TOY": "toy.other=1:toy.count=5"}


def test_a_messy_variable_is_tidied_not_lost() -> None:
    assert toy_space().environment({"count": "5"}, {"TOY": "::toy.other=1:"})["TOY"] == "toy.other=1:toy.count=5"


def test_other_variables_are_not_touched() -> None:
    assert set(toy_space().environment({"count": "5"}, {"PATH": "/bin", "TOY": ""})) == {"TOY"}


def test_a_setting_with_a_variable_of_its_own() -> None:
    space = small_space(number("count"), number("delay", env="TOY_DELAY", pair="{value}ms"))
    env = space.environment({"count": "2", "delay": "8"}, {"TOY_DELAY": "3ms"})
    assert env == {"TOY": "toy.count=2", "TOY_DELAY": "8ms"}


# what applies


def test_requirements_are_said_when_not_met() -> None:
    space = small_space(
        number("new", requires=Requires(since="2.42")),
        number("old", requires=Requires(before="2.30")),
        number("now", requires=Requires(since="2.36", before="2.37")),
        number("many", requires=threads_only()),
        number("sharp", safe="expert", hazard="cuts"),
        number("debug", safe="no", hazard="a debugging aid"),
        context=Context("2.36", threads=False),
    )
    assert [p.key for p in space.params] == ["now"]
    assert dict(space.skipped) == {
        "new": "needs version 2.42, here is 2.36",
        "old": "gone since version 2.30, here is 2.36",
        "many": "the program has one thread",
        "sharp": "only with --expert: cuts",
        "debug": "never searched: a debugging aid",
    }


def test_one_setting_described_for_two_versions() -> None:
    specs = (number("k", 1, 2, requires=Requires(before="2.42")), number("k", 4, 8, requires=Requires(since="2.42")))
    assert small_space(*specs, context=Context("2.41")).params[0].levels == ("1", "2")
    assert small_space(*specs, context=Context("2.42")).params[0].levels == ("4", "8")
    for order in (specs, specs[::-1]):
        assert small_space(*order, context=Context()).params[0].levels == ("4", "8")  # version unknown: the newest
    again = number("k", requires=Requires(since="2.42"))
    for version in ("", "2.42"):
        with pytest.raises(UsageError, match="k: defined twice for the same version"):
            small_space(*specs, again, context=Context(version))


@pytest.mark.parametrize("name", bundled_names())
def test_every_space_can_be_built_for_an_unknown_version(name: str) -> None:
    for expert in (False, True):
        space = build_space(bundled_space(name), Context("", expert=expert), name)
        assert len({p.key for p in space.params}) == len(space.params)


def test_versions_compare_as_numbers() -> None:
    assert version_key("2.9") < version_key("2.36") < version_key("2.36.1") < version_key("3")


def test_a_gate_without_settings_disappears() -> None:
    space = small_space(
        number("a", gate="shut", requires=threads_only()),
        number("b"),
        gates=("shut",),
        context=Context(threads=False),
    )
    assert space.gates == ()
    assert space.sizes == (4,)


# restrict


def test_restrict_keeps_the_gates_that_are_needed() -> None:
    space = toy_space()
    assert space.restrict(["count"]).sizes == (9,)
    assert space.restrict(["pad", "switch"]).sizes == (1, 4, 2)
    assert [p.key for p in space.restrict(["switch", "pad"]).params] == ["pad", "switch"]


def test_restrict_to_an_unknown_name_says_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown parameter 'treshold'") as caught:
        toy_space().restrict(["treshold"])
    assert caught.value.hint == "did you mean 'threshold'?"


def test_restrict_to_a_name_far_from_all_lists_all() -> None:
    with pytest.raises(UsageError) as caught:
        toy_space().restrict(["zzz"])
    assert caught.value.hint == "known: count, pad, switch, threshold"


def test_restrict_to_what_does_not_apply_says_why() -> None:
    space = small_space(number("many", requires=threads_only()), number("b"), context=Context(threads=False))
    with pytest.raises(UsageError, match="parameter 'many' does not apply here: the program has one thread"):
        space.restrict(["many"])
