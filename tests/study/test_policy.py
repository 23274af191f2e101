"""Which trade-offs are good advice."""

from __future__ import annotations

import dataclasses
import math

import pytest

from heapwright.errors import UsageError
from heapwright.interleaving.candidates import Candidate
from heapwright.interleaving.configuration import Config
from heapwright.interleaving.records import StoredRun
from heapwright.interleaving.stats import Verdict
from heapwright.study.policy import Aims, Policy, parse_limits, parse_prices
from heapwright.study.view import Confirmation

OBJECTIVES = ("peak_rss_bytes", "cpu_s")
MIB = 1 << 20


def confirmed(memory: float, cpu: float, mib: float = 100) -> dict[str, Confirmation]:
    """Within 1% nothing is shown to differ, as far as `verdict` says."""

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
def test_the_policy_objects_to_bad_advice(memory: float, cpu: float, mib: float, objection: str) -> None:
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


def changed(metric: str, ratio: float, half: float = 0.005) -> dict[str, Confirmation]:
    """A gain of memory, and a change of another metric."""
    other = Confirmation(metric, ratio, ratio - half, ratio + half, None, 15, "unproven", 1.0, ratio)
    return {**confirmed(0.8, 1.0), "wall_s": confirmed(1.0, 1.0)["cpu_s"], metric: other}


@pytest.mark.parametrize(
    ("limit", "metric", "ratio"),
    [
        ("time=+2%", "throughput_per_s", 1.1),
        ("time=+2%", "minor_faults", 1.5),
        ("time=+2%", "sys_s", 1.5),
        ("memory=0", "peak_vm_bytes", 30.0),
        ("memory=0", "huge_bytes", 3.0),
        ("memory=0", "mean_rss_bytes", 1.006),
        ("time=+2%", "wall_s", 1.02),
    ],
)
def test_a_limit_of_a_kind_admits_what_costs_nothing(limit: str, metric: str, ratio: float) -> None:
    """Regression: a throughput 10% higher, or reserved address space, was beyond the limit."""
    policy = Policy(limits=parse_limits(limit))
    assert policy.objection(changed(metric, ratio), OBJECTIVES) == ""
    candidate = Candidate(Config(2, "toy", {}, {}), logs={metric: {"a": [math.log(ratio)]}})
    assert policy.excess(candidate, OBJECTIVES) == 0


def test_a_limit_of_a_kind_needs_a_proof_where_no_objective_is_named() -> None:
    policy = Policy(limits=parse_limits("memory=+2%,time=+2%"))
    assert policy.objection(changed("wall_s", 1.03, 0.02), OBJECTIVES) == ""
    assert policy.objection(changed("wall_s", 1.05, 0.02), OBJECTIVES).startswith("wall time +5.0% is beyond the limit")
    assert policy.objection(changed("mean_rss_bytes", 1.05), OBJECTIVES).startswith("mean resident memory +5.0% is")
    assert policy.objection(changed("sys_s", 1.05), (*OBJECTIVES, "sys_s")).startswith("system time +5.0% is beyond")


def test_a_limit_sees_a_metric_that_is_zero_by_default() -> None:
    """Regression: such a metric has no ratio, so no limit of it ever spoke against a setting."""

    def candidate(faults: list[float]) -> Candidate:
        found = Candidate(Config(2, "toy", {}, {}))
        for block, count in enumerate(faults):
            run = StoredRun("confirm", block, "a", 2, 1.0, "", "", {"major_faults": count}, {})
            found.add(run, dataclasses.replace(run, config=1, metrics={"major_faults": 0.0}))
        return found

    policy = Policy(limits=parse_limits("major_faults=0"))
    gain = confirmed(0.8, 1.0)
    many, one = candidate([5000.0] * 15), candidate([*([0.0] * 14), 1.0])
    assert policy.objection(gain, OBJECTIVES, many) == "major faults is beyond the limit of +0.0%: 5000, by default 0"
    assert policy.objection(gain, OBJECTIVES, one) == "", "one fault may be chance"
    assert policy.excess(many, OBJECTIVES) > 0


def test_the_search_is_led_away_from_limits() -> None:
    aims = Aims(OBJECTIVES, Policy(limits={"cpu_s": 1.02}))
    within, beyond = (-0.1, math.log(1.01)), (-0.5, math.log(1.05))

    def costs(logs: tuple[float, ...], **more: float) -> tuple[float, ...]:
        every = {**dict(zip(OBJECTIVES, logs, strict=True)), **more}
        found = aims.costs(Candidate(Config(2, "toy", {}, {}), logs={m: {"a": [v]} for m, v in every.items()}))
        assert found is not None
        return found

    assert costs(within) == within
    assert min(costs(beyond)) > -0.5
    assert costs(beyond)[1] > math.log(1.05)
    elsewhere = Aims(OBJECTIVES, Policy(limits={"wall_s": 1.05}))
    aims = elsewhere
    assert min(costs(within, wall_s=0.2)) > 0
    assert elsewhere.bounded == ["wall_s"]


def test_a_loss_that_is_not_proven_counts_too() -> None:
    """CPU time is 7% lower; memory +64% in every seventh run: a mean of 7%, which one test of six does not show."""
    memory = Confirmation("peak_rss_bytes", 1.09, 1.022, 1.163, 0.06, 40, "unproven", 1e8, 1e8)
    cpu = Confirmation("cpu_s", 0.93, 0.92, 0.94, 0.001, 40, "better", 1.0, 0.93)
    found = {c.metric: c for c in (memory, cpu)}
    assert Policy().objection(found, OBJECTIVES).startswith("peak resident memory +9.0% costs too much for CPU time")
    slight = {**found, "peak_rss_bytes": dataclasses.replace(memory, ratio=1.01, low=0.97, high=1.05)}
    assert Policy().objection(slight, OBJECTIVES) == ""


@pytest.mark.parametrize(("limit", "refused"), [("0", True), ("1%", True), ("2%", True), ("5%", False)])
def test_a_stricter_limit_admits_no_more(limit: str, refused: bool) -> None:
    noisy = {"cpu_s": Confirmation("cpu_s", 1.03, 0.995, 1.066, 0.1, 20, "unproven", 1.0, 1.03)}
    assert bool(Policy(limits=parse_limits(f"cpu={limit}")).objection(noisy, OBJECTIVES)) == refused
    none = {"cpu_s": Confirmation("cpu_s", 1.0001, 0.99, 1.01, 0.9, 20, "same", 1.0, 1.0)}
    assert Policy(limits=parse_limits(f"cpu={limit}")).objection(none, OBJECTIVES) == ""


@pytest.mark.parametrize("text", ["cpu", "cpu=", "cpu=-2%", "cpu=x", "nothing=1", "throughput=2%"])
def test_invalid_limits_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_limits(text)


@pytest.mark.parametrize("text", ["memory:cpu", "memory=1:2", "memory:cpu=0:1", "memory:cpu=1", "a:b=1:2"])
def test_invalid_prices_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_prices(text)
