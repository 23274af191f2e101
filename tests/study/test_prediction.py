"""Tests the claims of studies of recordings: predicted, then proven or refuted by `verify`."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest

from heapwright.study.claim import (
    PREDICTED,
    configuration_name,
    pick_claim,
    predicted_for_program,
    prediction_claim,
    proven_by,
    recommended_pick,
    study_claim,
    with_misfit_objection,
    with_time_objection,
    with_verdict,
)
from heapwright.study.usual_error import half_width
from heapwright.study.view import Pick, PickName, RequirementResult
from heapwright.trace.recordings import Recording, Recordings

from .test_claim import OBJECTIVES, cpu, memory, pick

RECORDINGS = Recordings({"a.hwt": Recording("/a.hwt", "sample", 64, 4, 10, 100)})


def predicted(name: PickName, of_memory: object, of_cpu: object) -> Pick:
    made = pick(name, of_memory, of_cpu)  # type: ignore[arg-type]
    return replace(made, claim=pick_claim(made.confirmed, OBJECTIVES, 1, 0.005, replays=True))


GAIN = predicted("memory", memory(0.8, "better"), cpu(1.0, "same"))
NAME = configuration_name(GAIN.config)


def test_the_claim_says_predicted_with_error_and_next_step() -> None:
    assert GAIN.claim.startswith("Predicted by replays, not proven: peak resident memory 20.0% lower")
    assert "12 fresh interleaved pairs of replays" in GAIN.claim
    claim = study_claim({"memory": GAIN}, OBJECTIVES, confirmed=True)
    assert claim.startswith(f"{PREDICTED}: with glibc's mxfast=0: peak resident memory 20.0% lower")
    whole = prediction_claim(claim, RECORDINGS, "my study", OBJECTIVES, gain=True)
    assert "samples of programs with several threads" in whole
    assert "docs/results/sample.md" in whole
    assert whole.endswith("Prove it with the real load: heapwright verify 'my study' -- CMD, or --workload FILE.")
    assert "CPU and wall time are those of the replay" in whole
    assert "CPU" not in prediction_claim("", RECORDINGS, "s", ["peak_rss_bytes"], gain=True)
    assert "no recording contains how much memory the program has besides malloc's" in whole
    known = Recordings({"a.hwt": replace(RECORDINGS.inputs["a.hwt"], allocator="glibc 2.36", peak_resident_bytes=1000)})
    assert "besides malloc's" not in prediction_claim(claim, known, "my study", OBJECTIVES, gain=True)
    both = Recordings({**known.inputs, "b.hwt": RECORDINGS.inputs["a.hwt"]})
    assert "because b.hwt does not contain how much" in prediction_claim(claim, both, "s", OBJECTIVES, gain=True)
    none = prediction_claim(study_claim({}, OBJECTIVES, confirmed=True), RECORDINGS, "s", OBJECTIVES, gain=False)
    assert none.startswith("No proven improvement: keep the default. Every run was a replay")
    assert "verify" not in none


def test_the_interval_is_that_of_the_program_and_the_verdict_that_of_replays() -> None:
    found = predicted_for_program({7: GAIN.confirmed}, {7: replace(GAIN.config, allocator="exgen")}, RECORDINGS)[7]
    wide, narrow = found["peak_rss_bytes"], GAIN.confirmed["peak_rss_bytes"]
    half = math.exp(half_width(RECORDINGS, "peak_rss_bytes"))
    assert (wide.low, wide.high) == pytest.approx((narrow.low / half, narrow.high * half))
    assert (wide.ratio, wide.verdict) == (narrow.ratio, "better")
    assert wide.high > 1
    assert wide.verdict_text == "better in replays"
    assert wide.program_verdict == "unproven", "JSON and the Python API have no verdict that the interval does not show"
    assert narrow.program_verdict == "better"
    assert narrow.verdict_text == "better"
    assert found["cpu_s"] == GAIN.confirmed["cpu_s"], "times are those of replays"
    settings = predicted_for_program({7: GAIN.confirmed}, {7: GAIN.config}, RECORDINGS)[7]["peak_rss_bytes"]
    assert wide.low < settings.low < narrow.low, "settings of the recorded malloc are predicted better"
    assert predicted_for_program({7: GAIN.confirmed}, {7: GAIN.config}, None) == {7: dict(GAIN.confirmed)}


def test_a_recording_that_replays_miss_predicts_nothing() -> None:
    missed = Recordings(dict(RECORDINGS.inputs))
    assert with_misfit_objection({"memory": GAIN}, missed) == {"memory": GAIN}
    missed.note_misfits({"a.hwt": 0.5})
    picks = with_misfit_objection({"memory": GAIN}, missed)
    assert recommended_pick(picks, OBJECTIVES) is None
    claim = study_claim(picks, OBJECTIVES, confirmed=True)
    assert claim.startswith(
        f"Keep the default, not {NAME}: on the recorded malloc, the replay of a.hwt misses the memory"
    )
    assert "by 50% of the program's peak, so it predicts nothing" in claim


@pytest.mark.parametrize(
    ("of_memory", "of_cpu", "objects"),
    [
        (memory(1.02, "worse"), cpu(0.6, "better"), True),
        (memory(1.0, "same"), cpu(0.6, "better"), False),
        (memory(0.9, "better"), cpu(0.6, "better"), False),
        (memory(1.02, "worse"), cpu(1.0, "same"), False),
    ],
)
def test_time_of_a_replay_does_not_pay_for_memory(of_memory: object, of_cpu: object, objects: bool) -> None:
    found = with_time_objection({"time": predicted("time", of_memory, of_cpu)}, OBJECTIVES)["time"]
    assert bool(found.objection) == objects
    if objects:
        assert recommended_pick({"time": found}, OBJECTIVES) is None


def verdict(state: str, config: int) -> dict[str, object]:
    return {"config": config, "verdict": state, "sentence": "The verdict: so and so.", "on": "./prog"}


def test_verify_proves_or_refutes_the_pick_that_it_ran() -> None:
    picks: dict[PickName, Pick] = {"memory": GAIN}
    holds = verdict("holds", GAIN.config.id)
    proven = with_verdict(picks, holds)["memory"]
    assert proven.claim == "The verdict: so and so. On the program: ./prog"
    assert proven_by(proven, holds)
    judged = RequirementResult("p99 <= 1.05x", "kept", "−1.0% to +0.5%", "p99_ms", "<= 1.05x")
    on_program = {**holds, "requirements": [asdict(judged)]}
    assert with_verdict(picks, on_program)["memory"].requirements == [judged], "no longer those of replays"
    costly = with_verdict(picks, {**holds, "objection": "it costs too much"})
    assert study_claim(costly, OBJECTIVES, confirmed=True).startswith(f"Keep the default, not {NAME}: it costs")
    lost = with_verdict(picks, verdict("lost", GAIN.config.id))
    assert study_claim(lost, OBJECTIVES, confirmed=True).startswith(f"Keep the default, not {NAME}: the verdict: ")
    for other in (None, verdict("holds", GAIN.config.id + 1), verdict("undecided", GAIN.config.id)):
        assert with_verdict(picks, other) == picks
        assert not proven_by(GAIN, other)
