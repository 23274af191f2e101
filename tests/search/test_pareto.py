"""Tests dominance, Pareto fronts and the balanced pick."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heapwright.search.pareto import balanced, dominates, front, thin_front, weighted_score

Costs = list[tuple[float, ...]]


@st.composite
def tables(draw: st.DrawFn) -> Costs:
    width = draw(st.integers(1, 3))
    cost = st.integers(-5, 5).map(float) | st.floats(-1, 1)
    return draw(st.lists(st.tuples(*[cost] * width), min_size=1, max_size=30))


def test_a_point_dominates_if_it_is_nowhere_worse_and_somewhere_better() -> None:
    assert dominates((1, 2), (1, 3))
    assert not dominates((1, 2), (1, 2))
    assert not dominates((0, 3), (1, 2))


def test_a_front_worked_by_hand() -> None:
    costs = [(3, 1), (1, 3), (2, 2), (2, 2), (3, 3), (1, 4)]
    assert front(costs) == [0, 1, 2]
    assert front([]) == []


@given(tables())
def test_members_are_not_dominated(costs: Costs) -> None:
    members = front(costs)
    assert members
    for i in members:
        assert not any(dominates(c, costs[i]) for c in costs)


@given(tables())
def test_everyone_else_is_dominated_by_or_equal_to_a_member(costs: Costs) -> None:
    members = front(costs)
    for i in set(range(len(costs))) - set(members):
        assert any(dominates(costs[m], costs[i]) or (costs[m] == costs[i] and m < i) for m in members)


@given(tables(), st.integers(1, 10))
def test_a_thinned_front_is_part_of_it_with_its_ends(costs: Costs, keep: int) -> None:
    members = front(costs)
    thinned = thin_front(costs, members, keep)
    assert set(thinned) <= set(members)
    assert len(thinned) == min(keep, len(members))
    assert thinned == sorted(set(thinned))
    if keep >= len(costs[0]):
        for objective in range(len(costs[0])):
            assert min(costs[i][objective] for i in thinned) == min(costs[i][objective] for i in members)


@given(tables())
def test_the_balanced_one_s_gains_outweigh_its_losses_most_of_all(costs: Costs) -> None:
    chosen = balanced(costs, front(costs))
    assert chosen in front(costs)
    assert all(weighted_score(costs[chosen]) <= weighted_score(c) + 1e-12 for c in costs)


def test_a_small_gain_for_hardly_a_loss_is_balanced() -> None:
    """As measured with numpy: a third less time costs 1% more memory, and slightly less time costs 11%."""
    assert balanced([(0.108, -0.43), (0.009, -0.37), (0.0, 0.0)], [0, 1, 2]) == 1


def test_a_thinned_line_is_spread_evenly() -> None:
    costs = [(float(i), float(100 - i)) for i in range(101)]
    assert thin_front(costs, front(costs), 5) == [0, 25, 50, 75, 100]
