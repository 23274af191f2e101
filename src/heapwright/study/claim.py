"""Generates a study's claims: sentences that follow from the confirmation and nothing else."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from heapwright.interleaving.candidates import Candidate
from heapwright.interleaving.configuration import DEFAULT, Config
from heapwright.interleaving.stats import Ratio
from heapwright.metrics import METRICS, show_seconds
from heapwright.study.options import ENOUGH_EVALUATIONS, MIN_GAIN
from heapwright.study.requirement import Requirement
from heapwright.study.usual_error import (
    MAX_MISFIT,
    error_sentence,
    memory_sentence,
    misfit_sentence,
    prediction_interval,
    time_sentence,
)
from heapwright.study.view import PICK_NAMES, Confirmation, Pick, PickName, RequirementResult
from heapwright.terminal_text import counted
from heapwright.trace.recordings import Recordings
from heapwright.units import percent, show_budget

PREDICTED = "Predicted by replays, not proven"
SEARCH_ONLY = "Nothing is confirmed: this study is a search only, and its picks are its best single evaluations."
NOTHING = "No proven improvement: keep the default."
# Metrics that a claim names although they are no objectives, and those that stand for another one
# of a load.
_ELSEWHERE = ("peak_rss_bytes", "mean_rss_bytes", "p99_ms", "time_per_op_s", "wall_s", "cpu_per_op_s", "cpu_s")
_MORE_EXACT = {"wall_s": "time_per_op_s", "cpu_s": "cpu_per_op_s"}
_MIN_HIGHER_RATIO = 1.05  # the whole interval must be at least this high
_MIN_RISK_PERCENT = 1.0  # the sentence mentions larger possible losses; smaller ones are in the interval


def effect(c: Confirmation) -> str:
    """'CPU time 17.2% lower [15.9, 18.4]', 'peak resident memory unchanged (+0.1% [−0.2, +0.3])'.

    If the data show no change, the sentence says how much worse it may be.
    """
    label = METRICS[c.metric].label
    change, low, high = (100 * (x - 1) for x in (c.ratio, c.low, c.high))
    if c.verdict == "better":
        return f"{label} {-change:.1f}% lower [{-high:.1f}, {-low:.1f}]".replace("[-", "[−")
    if c.verdict == "worse":
        return f"{label} {change:.1f}% higher [{low:.1f}, {high:.1f}]".replace("[-", "[−")
    state = "unchanged" if c.verdict == "same" else "not shown to change"
    if c.verdict == "unproven" and (c.low > 1 or c.high < 1):
        state = "not proven to change"
    risk = f": up to {high:.1f}% higher is possible" if c.verdict == "unproven" and high >= _MIN_RISK_PERCENT else ""
    return f"{label} {state} ({change:+.1f}% [{low:+.1f}, {high:+.1f}]{risk})".replace("-", "−")


def single_claim(ratios: Mapping[str, float], objectives: Sequence[str]) -> str:
    """One sentence for a pick of a search that was not confirmed: its ratios in the search, by metric."""
    changes = [f"{METRICS[m].label} {100 * (ratios[m] - 1):+.2f}%" for m in objectives if m in ratios]
    return f"In the search: {', '.join(changes)}; not confirmed.".replace("-", "−")


def pick_claim(
    confirmed: Mapping[str, Confirmation],
    objectives: Sequence[str],
    inputs: int,
    margin: float,
    part: str = "",
    replays: bool = False,
    earlier_looks: int = 0,
) -> str:
    """One sentence for one pick: every objective with its 95% interval, the number of pairs, and p.

    Args:
        confirmed: the pick's confirmation, by metric.
        objectives: metric keys.
        inputs: number of inputs of the confirmation.
        margin: equivalence margin, as a share.
        part: the part of a run that was compared (`Prefix.shown`); empty for whole runs.
        replays: whether the pairs are replays of recordings: then the sentence is a prediction.
        earlier_looks: how often results of the confirmation were shown before.
    """
    if replays:
        shown = {m: confirmed[m] for m in objectives if m in confirmed}
        what = "replays" if inputs == 1 else "recordings, replayed"
        what += " and from the error of such predictions"
        text = pick_claim(shown, objectives, inputs, margin, what, False, earlier_looks)
        return f"{PREDICTED}: {text[:1].lower() if not text.startswith('CPU') else text[:1]}{text[1:]}"
    tested = [confirmed[m] for m in objectives if m in confirmed]
    if not tested:
        return "Not confirmed."
    basis = _basis(tested, inputs, margin, part, earlier_looks)
    if not any(c.verdict == "better" for c in tested):
        return f"No proven improvement: {'; '.join(effect(c) for c in tested)}; {basis}."
    order = sorted(tested, key=lambda c: ("better", "worse", "same", "unproven").index(c.verdict))
    text = "; ".join(effect(c) for c in order)
    return f"{text[:1].upper()}{text[1:]}; {basis}.{costs_elsewhere(confirmed, objectives)}"


def costs_elsewhere(confirmed: Mapping[str, Confirmation], objectives: Sequence[str]) -> str:
    """A sentence about metrics that are not objectives and clearly grow: a gain of memory may double a latency."""
    known = [m for m in _ELSEWHERE if m in confirmed and m not in objectives]
    higher = [m for m in known if confirmed[m].low >= _MIN_HIGHER_RATIO and _MORE_EXACT.get(m) not in known]
    if not higher:
        return ""
    costs = "; ".join(effect(dataclasses.replace(confirmed[m], verdict="worse")) for m in higher)
    return f" Not an objective, but higher: {costs}."


def _basis(tested: Sequence[Confirmation], inputs: int, margin: float, part: str, earlier_looks: int) -> str:
    pairs = min(c.pairs for c in tested)
    over = (f" on {inputs} inputs" if inputs > 1 else "") + (f" of {part}" if part else "")
    ps = [c.p for c in tested if c.verdict in ("better", "worse") and c.p is not None]
    p = f", Holm-adjusted p {'< 0.001' if max(ps) < 0.001 else f'= {max(ps):.3f}'}" if ps else ""
    if p and earlier_looks:
        p += f" (with {counted(earlier_looks, 'earlier look')} at results)"
    return f"95% intervals from {counted(pairs, 'fresh interleaved pair')}{over}{p}, margin ±{100 * margin:g}%"


def proven_by(pick: Pick, verified: Mapping[str, Any] | None) -> bool:
    """Whether `verify` proved the predicted gain of a pick on the program."""
    return verified is not None and verified["config"] == pick.config.id and verified["verdict"] == "holds"


def with_verdict(picks: Mapping[PickName, Pick], verified: Mapping[str, Any] | None) -> dict[PickName, Pick]:
    """The picks of a study of recordings after `verify` has run: proven, or with an objection.

    Args:
        picks: by name.
        verified: `StudyMeta.verified`; None before.
    """
    found = dict(picks)
    for name, pick in picks.items():
        if verified is None or verified["config"] != pick.config.id:
            continue
        if verified["verdict"] == "holds":
            judged = [RequirementResult(**result) for result in verified.get("requirements", [])]
            found[name] = dataclasses.replace(
                pick,
                claim=f"{verified['sentence']} On the program: {verified['on']}",
                requirements=judged or pick.requirements,
                objection=verified.get("objection", ""),
            )
        elif verified["verdict"] == "lost":
            why = verified["sentence"].rstrip(".")
            found[name] = dataclasses.replace(pick, objection=f"{why[:1].lower()}{why[1:]} (on {verified['on']})")
    return found


def with_time_objection(picks: Mapping[PickName, Pick], objectives: Sequence[str]) -> dict[PickName, Pick]:
    """The picks of a study of recordings, with an objection to those that pay with memory for time.

    A replay makes only the calls of malloc and free. So its share of time is not the program's, and cannot be weighed
    against memory.
    """
    found = dict(picks)
    for name, pick in picks.items():
        tested = [pick.confirmed[m] for m in objectives if m in pick.confirmed]
        worse = [c for c in tested if c.verdict == "worse" and METRICS[c.metric].kind == "memory"]
        saves = any(c.verdict == "better" and METRICS[c.metric].kind == "memory" for c in tested)
        if worse and not saves and is_proven(pick, objectives):
            why = (
                "it saves time only in calls of malloc, and a replay does not show how much of the program's time these"
            )
            found[name] = dataclasses.replace(pick, objection=f"{effect(worse[0])}; {why} calls take")
    return found


def predicted_for_program(
    confirmed: Mapping[int, Mapping[str, Confirmation]], configs: Mapping[int, Config], recordings: Recordings | None
) -> dict[int, dict[str, Confirmation]]:
    """Confirmations of replays with the intervals of the program. The verdicts stay those of the replays.

    Args:
        confirmed: number of a configuration → metric → confirmation by pairs of replays.
        configs: configurations by number.
        recordings: the recordings; None for runs of the program, whose intervals stay.
    """

    def widened(c: Confirmation, allocator: str) -> Confirmation:
        if recordings is None:
            return c
        ratio = prediction_interval(recordings, c.metric, Ratio(c.ratio, c.low, c.high), allocator)
        return dataclasses.replace(c, low=ratio.low, high=ratio.high)

    return {id_: {m: widened(c, configs[id_].allocator) for m, c in found.items()} for id_, found in confirmed.items()}


def with_misfit_objection(picks: Mapping[PickName, Pick], recordings: Recordings) -> dict[PickName, Pick]:
    """The picks of a study of recordings, with an objection if replays miss the memory of the recording."""
    if recordings.misfit <= MAX_MISFIT:
        return dict(picks)
    why = misfit_sentence(recordings).rstrip(".")
    return {name: dataclasses.replace(pick, objection=f"{why[:1].lower()}{why[1:]}") for name, pick in picks.items()}


def is_proven(pick: Pick, objectives: Sequence[str]) -> bool:
    """Whether at least one objective is shown to be better."""
    return any(c.verdict == "better" for m, c in pick.confirmed.items() if m in objectives)


def losses(pick: Pick, objectives: Sequence[str]) -> list[Confirmation]:
    """The objectives that a pick is shown to worsen, if it improves none; else empty."""
    if is_proven(pick, objectives):
        return []
    return [c for m, c in pick.confirmed.items() if m in objectives and c.verdict == "worse"]


def recommended_pick(picks: Mapping[PickName, Pick], objectives: Sequence[str]) -> Pick | None:
    """The pick that a study recommends: of the picks with a proven gain and no objection, the one with the best score.

    Of equal picks the balanced one comes first.
    """
    order: list[PickName] = ["balanced", *(n for n in PICK_NAMES if n != "balanced")]
    proven = [picks[n] for n in order if n in picks and is_proven(picks[n], objectives)]
    return min((pick for pick in proven if not pick.objection), key=lambda pick: pick.score, default=None)


def _unproven(too_short: Mapping[str, float], predicted: str, no_prediction: str, replays: bool) -> str:
    """Why nothing is proven, or of recordings predicted, and which budget would be enough."""
    searched, replayed = too_short["searched"], too_short.get("replayed", 0.0)
    enough_s = too_short.get("enough_s")
    nothing, result, one = ("predicted", "prediction", "replay") if replays else ("proven", "proof", "run")
    step = f"A {result} needs --budget {show_budget(enough_s)}." if enough_s else "Give a larger --budget."
    if predicted:
        return f"Nothing is proven. Replays of the recorded allocations predict {predicted}. {step}"
    if not searched:
        run = f"one {one} takes about {show_seconds(too_short['run_s'])}"
        if no_prediction:
            why = f"the time budget holds no proof ({run}), and replays predict nothing: {no_prediction}"
            anew = "If other work made the runs so far slow, begin anew: name another file with --study."
            return f"Nothing is proven: {why}. {step} {anew}"
        if replayed:
            tried = f"{replayed:.0f} settings were tried" if replayed > 1 else "1 setting was tried"
            none = "none is predicted to gain anything beyond chance"
            return f"Nothing is proven. {tried} on replays of the recorded allocations; {none}. {step}"
        unmeasured = too_short.get("unmeasured", 0.0)
        if unmeasured:  # settings that only replays have tried
            which = f"the best of {unmeasured:.0f} settings" if unmeasured > 1 else "the setting"
            why = f"the time budget left no time to run the program with {which} tried on replays"
            return f"Nothing is proven: {why} ({run}). {step}"
        return f"Nothing is {nothing}: the time budget left no time to search ({run}). {step}"
    pairs = f"{too_short['pairs']:.0f} pairs take about {show_seconds(too_short['seconds'])}"
    if searched < ENOUGH_EVALUATIONS:
        tried = f"{searched:.0f} setting{'s were' if searched > 1 else ' was'} tried, none was"
        if not too_short.get("candidates", 1.0):
            return f"Not enough was measured to say anything: {tried} better than the default. Give a larger --budget."
        tried += " confirmed"
        return f"Not enough was measured to say anything: {tried} ({pairs}). Give a larger --budget."
    return f"Nothing is {nothing}: the time budget left no time for a confirmation ({pairs}). Give a larger --budget."


def unmet_claim(requires: Sequence[Requirement], tried: Sequence[Candidate]) -> str:
    """The claim of a study of which no setting meets the requirements: which comes nearest; empty if one meets them.

    Args:
        requires: the requirements.
        tried: all settings that the search measured.
    """
    measured = [c for c in tried if not c.failure and all(r.value_of(c) is not None for r in requires)]
    if not requires or not measured or any(all(r.excess(c) == 0 for r in requires) for c in measured):
        return ""
    nearest = min(measured, key=lambda c: sum(r.excess(c) for r in requires))
    names = f"requirement{'s' if requires[1:] else ''} {' and '.join(r.shown for r in requires)}"
    has = " and ".join(f"{METRICS[r.metric].short} = {r.value_shown(nearest)}" for r in requires)
    return (
        f"Keep the default: {counted(len(measured), 'setting')} ran, and none meets the {names}."
        f" Nearest: {configuration_name(nearest.config)}, with {has}."
    )


def study_claim(
    picks: Mapping[PickName, Pick],
    objectives: Sequence[str],
    confirmed: bool,
    too_short: Mapping[str, float] | None = None,
    predicted: str = "",
    no_prediction: str = "",
    unmet: str = "",
    replays: bool = False,
) -> str:
    """The study's claim in one sentence. Before the end of the confirmation it says that nothing is proven yet.

    Args:
        picks: by name, with their confirmations.
        objectives: metric keys.
        confirmed: whether the study is finished.
        too_short: if the time did not suffice: `searched` (number of configurations that ran), `run_s` (seconds of a
            run), and `pairs` and `seconds` that a confirmation would need; without a confirmation `replayed` (number
            of configurations that were replayed) and `enough_s` (seconds of a sufficient time budget). `unmeasured`
            is the number of replayed configurations if there was no time to run one of them on the program.
        predicted: the prediction of replays, as a phrase, if no proof was possible.
        no_prediction: why replays predict nothing, or empty.
        unmet: the claim if no setting meets the requirements (`unmet_claim`), or empty.
        replays: whether all runs are replays of recordings.
    """
    if not confirmed:
        return "Nothing is proven yet: the study has not been confirmed."
    best = recommended_pick(picks, objectives)
    objected = [pick for pick in picks.values() if pick.objection]
    if best is None and objected:
        pick = min(objected, key=lambda pick: pick.score)
        return (
            f"Keep the default, not {configuration_name(pick.config)}: {pick.objection}."
            f" 'heapwright apply STUDY --pick {pick.name}' prints it all the same."
        )
    if best is None and unmet:
        return unmet
    if best is None and too_short is not None:
        return _unproven(too_short, predicted, no_prediction, replays)
    if best is None:
        return NOTHING
    who = configuration_name(best.config)
    if best.claim.startswith(PREDICTED):
        return best.claim.replace(PREDICTED, f"{PREDICTED}: with {who}", 1)
    claim = best.claim if best.claim.startswith("CPU") else best.claim[:1].lower() + best.claim[1:]
    return f"With {who}: {claim}"


def prediction_claim(claim: str, recordings: Recordings, study: str, objectives: Sequence[str], gain: bool) -> str:
    """The claim of a study of recordings: its prediction, the usual error, and the command that proves it.

    Args:
        claim: the prediction (`study_claim`).
        recordings: the recordings.
        study: path of the study.
        objectives: metric keys.
        gain: whether a gain is predicted.
    """
    timed = [time_sentence()] if any(METRICS[m].kind == "time" for m in objectives) else []
    sentences = [error_sentence(recordings, objectives), misfit_sentence(recordings), memory_sentence(recordings)]
    error = " ".join(filter(None, sentences))
    if not gain:
        return " ".join([claim, "Every run was a replay of a recording.", error, *timed])
    command = shlex.join(["heapwright", "verify", study])
    lucky = "The pick is the best of all replayed settings, so the error mostly favours it: expect a smaller gain."
    step = f"Prove it with the real load: {command} -- CMD, or --workload FILE."
    return " ".join([claim, error, *timed, lucky, step])


def configuration_name(config: Config) -> str:
    """'exgen at its defaults', 'glibc's mxfast=0'."""
    what = ", ".join(f"{k}={v}" for k, v in config.settings.items() if "." not in k)
    extra = ", ".join(f"{k}={v}" for k, v in config.settings.items() if "." in k)
    own = f"{config.allocator}'s {what}" if what else f"{config.allocator} at its defaults"
    return extra if extra and config.allocator == DEFAULT else f"{own} and {extra}" if extra else own


def predicted_effect(config: Config, ratios: Mapping[str, float]) -> str:
    """'peak resident memory −8.0%, CPU time −3.1% with exgen at its defaults'; or that there is no gain to speak of."""
    if min(ratios.values(), default=1.0) > 1 - MIN_GAIN:
        return f"no gain of {100 * MIN_GAIN:g}% or more"
    changes = ", ".join(f"{METRICS[m].label} {percent(ratio)}" for m, ratio in ratios.items())
    return f"{changes} with {configuration_name(config)}"


def already_zero_text(metric: str) -> str:
    """The warning that an objective is 0 already."""
    return f"{METRICS[metric].label}: 0 with nothing changed, so no setting can make it less."


def tree_sentence(processes: int) -> str:
    """Why a study of several processes minimises proportional memory."""
    return (
        f"The command ran {processes} processes at once, so its memory is counted as proportional set size: a page that"
        " several processes share is divided among them. A sum of resident memory would count it once for each."
    )


def unread_tree_sentence(processes: int) -> str:
    """Why a study of several processes minimises the sum of resident memory."""
    return (
        f"The command ran {processes} processes at once, but in some of its runs the meter missed the peak of their"
        " proportional set size. So memory is counted as the sum of their resident set sizes: a page that several"
        " processes share counts once for each."
    )
