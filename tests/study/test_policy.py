"""Which trade-offs are good advice."""

from __future__ import annotations

import math

import pytest

from heapwright.errors import UsageError
from heapwright.experiment.stats import Verdict
from heapwright.study.policy import Aims, Policy, parse_limits, parse_prices
from heapwright.study.view import Confirmation

OBJECTIVES = ("peak_rss_bytes", "cpu_s")
MIB = 1 << 20


def confirmed(memory: float, cpu: float, mib: float = 100) -> dict[str, Confirmation]:
    """Within 1 % nothing is shown to differ, as far as `verdict` says."""

    def one(metric: str, ratio: float, default: float) -> Confirmation:
        verdict: Verdict = "better" if ratio < 0.9999 else "worse" if ratio > 1.0001 else "same"
        return Confirmation(metric, ratio, ratio - 0.001, ratio + 0.001, 0.01, 15, verdict, default, default * ratio)

    return {
        "peak_rss_bytes": one("peak_rss_bytes", memory, mib * MIB),
        "cpu_s": one("cpu_s", cpu, 1.0),
        "wall_s": one("wall_s", 1.04, 1.0),
    }


@pytest.mark.parametrize(
    ("memory", "cpu", "mib", "objection"),
    [
        (0.80, 1.00, 100, ""),
        (0.80, 1.05, 100, ""),
        (0.80, 1.08, 100, "CPU time +8.0% costs too much for peak resident memory −20.0%"),
        (0.972, 1.657, 15, "the gain is too small to matter (peak resident memory −2.8%, 430.1 KiB)"),
        (0.946, 1.0, 2, "the gain is too small to matter (peak resident memory −5.4%, 110.6 KiB)"),
        (0.995, 1.0, 1000, "the gain is too small to matter (peak resident memory −0.5%, 5.0 MiB)"),
        (1.0, 0.985, 1, ""),
        (1.0, 0.995, 1, "the gain is too small to matter (CPU time −0.5%)"),
        (0.999, 0.9, 1, ""),
    ],
)
def test_what_is_good_advice(memory: float, cpu: float, mib: float, objection: str) -> None:
    assert Policy().objection(confirmed(memory, cpu, mib), OBJECTIVES) == objection


def test_a_price_of_the_users_own() -> None:
    """One per cent of memory may cost two of time."""
    policy = Policy(prices=parse_prices("memory:cpu=1:2"))
    assert policy.objection(confirmed(0.90, 1.2), OBJECTIVES) == ""
    assert policy.objection(confirmed(0.90, 1.25), OBJECTIVES) != ""
    assert policy.score({"peak_rss_bytes": -0.1, "cpu_s": 0.1}) == pytest.approx(-0.05)


def test_a_limit_holds_for_any_metric() -> None:
    found = confirmed(0.5, 1.03)
    assert Policy(limits=parse_limits("cpu=+3%")).objection(found, OBJECTIVES) == ""
    assert Policy(limits=parse_limits("cpu=2%")).objection(found, OBJECTIVES) == (
        "CPU time +3.0% is beyond the limit of +2.0%"
    )
    assert Policy(limits=parse_limits("wall=+2")).objection(found, OBJECTIVES).startswith("wall time +4.0% is beyond")
    assert Policy(limits=parse_limits("time=2")).objection(found, OBJECTIVES) != ""


def test_the_search_is_led_away_from_limits() -> None:
    aims = Aims(OBJECTIVES, Policy(limits={"cpu_s": 1.02}))
    within, beyond = (-0.1, math.log(1.01)), (-0.5, math.log(1.05))
    assert aims.policy.penalised_costs(within, OBJECTIVES) == within
    assert min(aims.policy.penalised_costs(beyond, OBJECTIVES)) > -0.5
    assert aims.policy.penalised_costs(beyond, OBJECTIVES)[1] > math.log(1.05)


@pytest.mark.parametrize("text", ["cpu", "cpu=", "cpu=-2%", "cpu=x", "nothing=1"])
def test_bad_limits(text: str) -> None:
    with pytest.raises(UsageError):
        parse_limits(text)


@pytest.mark.parametrize("text", ["memory:cpu", "memory=1:2", "memory:cpu=0:1", "memory:cpu=1", "a:b=1:2"])
def test_bad_prices(text: str) -> None:
    with pytest.raises(UsageError):
        parse_prices(text)
