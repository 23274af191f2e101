"""Tests the statistics against values known by construction or computed by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heapwright.interleaving.stats import (
    Ratio,
    harm_proven,
    holm,
    log_ratio,
    mean_is_below,
    narrow_enough,
    ratio_interval,
    relative_noise,
    signed_rank,
    signed_rank_p,
    summarise,
    verdict,
)

ps = st.lists(st.floats(0, 1), max_size=12)


def coverage(kind: str, inputs: int = 1, pairs: int = 10, simulations: int = 400) -> float:
    """The share of simulations in which the 95% interval contains the true mean log ratio."""
    rng = np.random.default_rng(20240229)
    truth, hits = -0.03, 0
    for _ in range(simulations):
        groups = {}
        for i in range(inputs):
            if kind == "normal":
                noise = rng.normal(0, 0.02, pairs)
            else:  # a long tail of slow runs: log-normal, less its mean
                noise = 0.02 * (rng.lognormal(0, 0.5, pairs) - math.exp(0.125))
            groups[str(i)] = list(truth + noise)
        found = ratio_interval(groups, seed=1)
        hits += found.low <= math.exp(truth) <= found.high
    return hits / simulations


def test_the_interval_has_its_nominal_coverage() -> None:
    assert 0.92 <= coverage("normal") <= 0.98


def test_the_interval_has_its_nominal_coverage_for_skewed_noise() -> None:
    assert 0.92 <= coverage("skewed") <= 0.98


def test_the_interval_over_several_inputs_has_its_nominal_coverage() -> None:
    assert 0.92 <= coverage("normal", inputs=4) <= 1.0


def test_the_interval_of_a_regular_sample_is_students_t() -> None:
    logs = list(np.random.default_rng(3).normal(0.01, 0.01, 12))
    found = ratio_interval({"": logs}, seed=1)
    from scipy.stats import t

    half = float(t.ppf(0.975, 11)) * float(np.std(logs, ddof=1)) / math.sqrt(12)
    assert found.value == pytest.approx(math.exp(float(np.mean(logs))))
    assert math.log(found.high) - math.log(found.low) == pytest.approx(2 * half)


def test_inputs_have_equal_weight_whatever_their_number_of_pairs() -> None:
    found = ratio_interval({"a": [0.0] * 30, "b": [0.2] * 10}, seed=1)
    assert found.value == pytest.approx(math.exp(0.1))
    assert found.low == pytest.approx(1.0)  # with two inputs, the bootstrap may draw only one of them
    assert found.high == pytest.approx(math.exp(0.2))


def test_the_same_data_give_the_same_interval() -> None:
    logs = {"": [0.01, 0.03, -0.02, 0.04]}
    assert ratio_interval(logs, 7) == ratio_interval(logs, 7)


def test_one_pair_has_an_unbounded_interval() -> None:
    assert ratio_interval({"": [-0.1]}, 1) == Ratio(math.exp(-0.1), 0.0, math.inf)


def test_without_noise_the_interval_has_no_width() -> None:
    found = ratio_interval({"": [0.0] * 10}, 1)
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)


@given(st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=20))
def test_the_estimate_is_the_geometric_mean_and_lies_inside(logs: list[float]) -> None:
    found = ratio_interval({"": logs}, 1)
    assert found.value == pytest.approx(math.exp(sum(logs) / len(logs)))
    assert found.low <= found.value * 1.001
    assert found.value <= found.high * 1.001


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30))
def test_an_interval_is_finite(logs: list[float]) -> None:
    found = ratio_interval({"": logs}, 1)
    assert 0 < found.low <= found.high < math.inf


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=30))
def test_the_interval_of_the_inverse_is_the_inverse(logs: list[float]) -> None:
    there, back = ratio_interval({"": logs}, 1), ratio_interval({"": [-v for v in logs]}, 1)
    assert there.value == pytest.approx(1 / back.value)
    assert there.high == pytest.approx(1 / back.low, rel=1e-6) or there.high > 1e300


# the rank test


def test_exact_p_of_small_samples() -> None:
    assert signed_rank_p([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(
        0.0625
    )  # the least p of five pairs; it is above 0.05
    assert signed_rank_p([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == pytest.approx(0.03125)
    assert signed_rank_p([-float(i) for i in range(1, 11)]) == pytest.approx(2 / 1024)


@pytest.mark.parametrize("logs", [[], [0.3], [0.0, 0.0], [0.0] * 40])
def test_p_is_1_if_nothing_differs_or_there_are_too_few_pairs(logs: list[float]) -> None:
    assert signed_rank_p(logs) == 1.0


def test_few_differences_among_many_equal_pairs_are_not_significant() -> None:
    assert signed_rank_p([0.1] + [0.0] * 20) > 0.05
    assert signed_rank_p([0.1, 0.2] + [0.0] * 20) > 0.05


@given(st.lists(st.integers(-4, 4), min_size=2, max_size=7).filter(any))
def test_p_is_exact_with_ties_and_zeros(logs: list[int]) -> None:
    sizes = [abs(x) for x in logs]
    ranks = [sum(s < size for s in sizes) + (sizes.count(size) + 1) / 2 for size in sizes]
    sums = [
        sum(r for r, s, up in zip(ranks, sizes, ups, strict=True) if s and up)
        for ups in itertools.product((False, True), repeat=len(logs))
    ]
    positive = sum(r for r, x in zip(ranks, logs, strict=True) if x > 0)
    tails = (sum(s <= positive for s in sums), sum(s >= positive for s in sums))
    assert signed_rank_p([float(x) for x in logs]) == pytest.approx(min(1.0, 2 * min(tails) / len(sums)))


def test_ties_among_many_pairs_are_exact_too() -> None:
    """scipy approximates here, and finds 2.2e-05."""
    assert signed_rank_p([0.1] * 18) == pytest.approx(2 / 2**18)


@settings(max_examples=25)
@given(st.lists(st.floats(-1, 1), max_size=40))
def test_p_is_a_probability_and_two_sided(logs: list[float]) -> None:
    p = signed_rank_p(logs)
    assert 0 <= p <= 1
    assert signed_rank_p([-x for x in logs]) == pytest.approx(p)


def test_the_direction_is_that_of_the_rank_sum() -> None:
    """Regression: it was that of most signs, so p < 0.01 for the one side was a proof of the other."""
    differences = [997.0] * 24 + [-3.0] * 26
    found = signed_rank(differences)
    assert (found.p < 0.01, found.above) == (True, True)
    assert signed_rank([-x for x in differences]) == (found.p, False)


# Holm


def test_holm_worked_by_hand() -> None:
    # 0.01·4, 0.02·3, 0.03·2 → 0.06 (not below the previous one), 0.04·1 → 0.06
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@given(ps)
def test_holm_is_between_the_raw_p_and_bonferroni(raw: list[float]) -> None:
    for p, adjusted in zip(raw, holm(raw), strict=True):
        assert p <= adjusted <= min(1.0, p * len(raw))


@given(ps)
def test_holm_keeps_the_order(raw: list[float]) -> None:
    adjusted = holm(raw)
    for i, p in enumerate(raw):
        assert all(adjusted[i] <= adjusted[j] for j, q in enumerate(raw) if p < q)


# verdicts

MARGIN = 0.005
VERDICTS = [
    # low, high, p, verdict
    (0.90, 0.95, 0.01, "better"),
    (1.05, 1.10, 0.01, "worse"),
    (0.999, 1.001, 0.5, "same"),
    (0.995, 1.005, 0.5, "same"),  # the margin itself counts as the same
    (0.998, 0.999, 0.001, "same"),  # a gain too small to matter, however certain
    (0.994, 0.999, 0.001, "better"),
    (0.90, 1.001, 0.01, "unproven"),  # the interval contains 1
    (0.90, 0.95, 0.05, "unproven"),  # the rank test does not agree
    (0.90, 0.95, None, "unproven"),  # not an objective, so no claim
    (1.05, 1.10, None, "unproven"),
    (0.0, math.inf, 0.01, "unproven"),
    (0.90, 1.0, 0.01, "unproven"),
]


@pytest.mark.parametrize(("low", "high", "p", "expected"), VERDICTS)
def test_the_verdict_follows_the_interval_the_p_value_and_the_margin(
    low: float, high: float, p: float | None, expected: str
) -> None:
    assert verdict(Ratio((low + min(high, 2)) / 2, low, high), p, MARGIN) == expected


@given(st.floats(0.5, 1.5), st.floats(0, 0.4), st.floats(0, 1), st.floats(0, 0.1))
def test_the_verdict_better_agrees_with_the_data(value: float, width: float, p: float, margin: float) -> None:
    ratio = Ratio(value, value - width, value + width)
    said = verdict(ratio, p, margin)
    assert (said != "better") or (ratio.high < 1 and p < 0.05 and ratio.low < 1 - margin)
    assert (said != "worse") or (ratio.low > 1 and p < 0.05 and ratio.high > 1 + margin)


def test_the_interval_is_narrow_enough_within_the_margin_or_a_quarter_of_the_effect() -> None:
    assert narrow_enough(Ratio(1.0, 0.996, 1.004), MARGIN)
    assert not narrow_enough(Ratio(1.0, 0.98, 1.02), MARGIN)
    assert narrow_enough(Ratio(0.8, 0.76, 0.84), MARGIN)  # a gain of a fifth, with a half width of a fifth of it
    assert not narrow_enough(Ratio(0.97, 0.95, 0.99), MARGIN)
    assert not narrow_enough(Ratio(0.9, 0.0, math.inf), MARGIN)


def test_stopping_depends_on_the_width_and_not_on_the_direction() -> None:
    for value, half in ((0.9, 0.02), (0.9, 0.03), (0.99, 0.006)):
        gain, loss = Ratio(value, value - half, value + half), Ratio(2 - value, 2 - value - half, 2 - value + half)
        assert narrow_enough(gain, MARGIN) == narrow_enough(loss, MARGIN)


# harm, as minify tests it


def test_a_cost_beyond_the_margin_is_proven() -> None:
    assert harm_proven([[0.05, 0.06, 0.05, 0.055, 0.06]], MARGIN)
    assert not harm_proven([[0.004, 0.004, 0.004, 0.004, 0.004]], MARGIN)  # proven, but within the margin
    assert not harm_proven([[-0.05] * 5], MARGIN)
    assert not harm_proven([[0.1, -0.1, 0.05, -0.05, 0.01]], MARGIN)


def test_without_data_harm_is_assumed() -> None:
    assert harm_proven([], MARGIN)
    assert harm_proven([[0.0]], MARGIN)


def test_harm_has_its_nominal_error_rate() -> None:
    rng = np.random.default_rng(5)
    found = [harm_proven([list(rng.normal(math.log1p(MARGIN), 0.01, 5))], MARGIN) for _ in range(2000)]
    assert 0.08 <= sum(found) / 2000 <= 0.12  # one-sided 90%


def test_differences_between_inputs_are_no_noise_of_their_mean() -> None:
    rng = np.random.default_rng(6)
    harm = [0.3, 0.0, 0.0]

    def inputs(mean: float, pairs: int) -> list[list[float]]:
        return [list(rng.normal(mean + far - 0.1, 0.01, pairs)) for far in harm]

    assert harm_proven(inputs(0.1, 3), MARGIN, 0.98)
    at_the_margin = [harm_proven(inputs(math.log1p(MARGIN), 4), MARGIN) for _ in range(2000)]
    assert 0.08 <= sum(at_the_margin) / 2000 <= 0.12
    assert mean_is_below(inputs(0.0, 4), 0.02, 0.9)


# small parts


def test_log_ratio_of_missing_or_impossible_values_is_none() -> None:
    assert log_ratio(2.0, 1.0) == pytest.approx(math.log(2))
    assert log_ratio(0.0, 0.0) == 0.0
    for value, reference in ((None, 1.0), (1.0, None), (0.0, 1.0), (1.0, 0.0), (-1.0, 2.0)):
        assert log_ratio(value, reference) is None


def test_summarise_returns_median_range_and_deviation() -> None:
    found = summarise([4.0, 1.0, 2.0, 100.0])
    assert (found.n, found.median, found.min, found.max, found.mad) == (4, 3.0, 1.0, 100.0, 1.5)


def test_relative_noise_is_that_of_the_logarithms_and_robust() -> None:
    values = list(np.random.default_rng(1).lognormal(5, 0.03, 400))
    assert relative_noise(values) == pytest.approx(0.03, rel=0.15)
    assert relative_noise([*values, 1e9]) == pytest.approx(0.03, rel=0.15)
    assert relative_noise([1.0]) == relative_noise([]) == relative_noise([0.0, 1.0]) == 0.0


@pytest.mark.parametrize("n", [2, 3, 5, 8, 12])
def test_relative_noise_of_few_runs_is_not_too_low(n: int) -> None:
    samples = np.random.default_rng(2).lognormal(3, 0.01, (4000, n))
    assert np.mean([relative_noise(list(row)) for row in samples]) == pytest.approx(0.01, rel=0.04)
