"""Tests with fresh pairs whether a study's gain still holds: after a rebuild, or on another machine or base image.

The gain holds if every interval lies below its threshold (`tuning.thresholds`). It is lost if one interval lies above.
Otherwise more pairs run until the time is over. Repeated looks at the data would find something by chance. So each look
has its own error rate, and all looks together stay below `ALPHA` (alpha spending: the share 6/π²k² of it at look k).
The intervals are Student's t over the mean log ratios of the blocks, wider where runs fall into groups or come in
spells (`stats.mean_errors`).
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from heapwright.errors import HeapwrightError
from heapwright.files import scratch_folder
from heapwright.interleaving.blocks import Blocks
from heapwright.interleaving.budget import Budget
from heapwright.interleaving.candidates import Candidate, gather
from heapwright.interleaving.configuration import Config
from heapwright.interleaving.progress import Progress
from heapwright.interleaving.records import StoredRun
from heapwright.interleaving.runner import LocalRunner
from heapwright.interleaving.stats import log_ratio, mean_errors
from heapwright.metrics import METRICS
from heapwright.study.claim import costs_elsewhere
from heapwright.study.confirmation import judge_pairs
from heapwright.study.options import Options
from heapwright.study.policy import Policy, requirements_of, with_noise
from heapwright.study.requirement import Requirement
from heapwright.study.store import open_writable_study
from heapwright.study.view import Confirmation, Pick, RequirementResult
from heapwright.study.view import State as RequirementState
from heapwright.tuning.takeover_check import not_loaded
from heapwright.tuning.thresholds import KEEP, predicted_thresholds, thresholds
from heapwright.tuning.verification import State, Verification, overall_verdict, with_sentence
from heapwright.workload.execute import Executor, time_limit
from heapwright.workload.model import Workload

ALPHA = 0.02  # probability of a wrong verdict, over all looks
PHASE, _WARM_UP = "verify", "verify.warm-up"
_LOOKS = (8, 10, 13, 16, 20, 25, 32, 40, 50, 64, 80, 100, 125, 160, 200)

_REQUIREMENT_STATES: dict[State, RequirementState] = {"holds": "kept", "lost": "broken", "undecided": "not shown"}


@dataclass(frozen=True)
class _Demands:
    """The demands on the fresh pairs.

    Attributes:
        then: objective → confirmation in the study.
        metrics: the objectives, and other metrics that the user limits.
        requires: the requirements of the study.
        bounds: metric, or text of a requirement → the log ratio (the share of its bound, 1, for an absolute
            requirement; negated for a lower bound) that the interval must lie below. Requirements of every run have
            none.
        tolerated: metrics that only a limit of their kind bounds: they must not be shown to exceed it.
        earlier: number of earlier verifications of the same setting on the same build.
    """

    then: dict[str, Confirmation]
    metrics: tuple[str, ...]
    requires: tuple[Requirement, ...]
    bounds: dict[str, float]
    tolerated: frozenset[str]
    earlier: int


@dataclass(frozen=True)
class _Findings:
    """The result of the pairs so far: the verdict on each demand, the intervals, and the results of requirements."""

    states: dict[str, State]
    now: dict[str, Confirmation]
    results: tuple[RequirementResult, ...] = ()


@dataclass(frozen=True)
class _MeasuredPairs:
    """Fresh pairs and their judgement.

    Attributes:
        findings: the judgement of the pairs.
        failure: why the choice cannot be used, or empty.
        interrupted: whether the user stopped the measuring.
        complete: whether all pairs were made.
    """

    findings: _Findings
    failure: str
    interrupted: bool
    complete: bool


def decide(
    logs: Mapping[str, Sequence[float]],
    bounds: Mapping[str, float],
    look: int,
    earlier: int = 0,
    tolerated: Collection[str] = (),
) -> dict[str, State]:
    """The verdict on each objective and requirement after a look at the data.

    Args:
        logs: objective or text of a requirement → the values that its interval is of, one for each block or run: log
            ratios, or shares of the bound of an absolute requirement (`_bounded_values`).
        bounds: thresholds on these values (`thresholds`, `Requirement.upper_bound`).
        look: number of the look, from 1.
        earlier: number of earlier verifications of the same setting on the same build.
        tolerated: metrics that only a proof of the contrary loses (`_alphas`).
    """
    import numpy as np
    from scipy.stats import t

    alphas = _alphas(bounds, tolerated, look, earlier)
    states: dict[str, State] = {}
    for metric, bound in bounds.items():
        values = logs.get(metric, ())
        if len(values) < 2:
            states[metric] = "undecided"
            continue
        found = mean_errors(np.asarray(values, dtype=float)[None])
        mean = float(found.mean[0])
        half = float(t.isf(alphas[metric] / 2, found.freedom[0]) * found.error[0])
        states[metric] = "holds" if mean + half < bound else "lost" if mean - half > bound else "undecided"
    return states


def _alphas(demands: Collection[str], tolerated: Collection[str], look: int, earlier: int) -> dict[str, float]:
    """The two-sided error rate of the interval of each demand at one look; each earlier verification halves it.

    The demands that are not tolerated share the error rate of the look, and so do the tolerated ones among themselves.
    Nevertheless the verdict has that error rate. If the gain is there, it is lost wrongly only above an interval: half
    of the rate for the demands, and half for the tolerated metrics. If the gain is gone, it holds wrongly only below
    one interval of a demand, because tolerated metrics cannot make it hold.

    Args:
        demands: objectives, limited metrics and requirements with a bound.
        tolerated: those of them that only a proof of the contrary loses.
        look: number of the look, from 1.
        earlier: number of earlier verifications of the same setting on the same build.
    """
    rate = math.ldexp(ALPHA * 6 / (math.pi * look) ** 2, -earlier)
    lenient = sum(name in tolerated for name in demands)
    return {name: rate / (lenient if name in tolerated else len(demands) - lenient) for name in demands}


def _without_ratio(
    candidate: Candidate, bounds: Mapping[str, float], requires: Sequence[Requirement], alphas: Mapping[str, float]
) -> dict[str, State]:
    """The verdict on ratios of metrics that are 0 in one run of a pair: their values decide (`Candidate.is_above`).

    Args:
        candidate: the choice's runs.
        bounds: metric → the log ratio that it must stay below.
        requires: the requirements of the study.
        alphas: metric, or text of a requirement → probability of a wrong verdict on it (`_alphas`).
    """
    kept = {metric: candidate.is_above(metric, math.exp(bound), alphas[metric]) for metric, bound in bounds.items()}
    found = {metric: None if above is None else not above for metric, above in kept.items()}
    found |= {r.text: r.keeps(candidate, alphas[r.text]) for r in requires if r.relative and r.text in alphas}
    return {name: "holds" if holds else "lost" for name, holds in found.items() if holds is not None}


def verify(
    pick: Pick,
    configs: tuple[Config, Config],
    workload: Workload,
    options: Options,
    executor: Executor,
    progress: Progress,
    max_s: float,
    keep: float | None = None,
    predicted: bool = False,
    earlier: int = 0,
) -> Verification:
    """Measure fresh pairs of the default and a study's pick until the verdict is clear or the time is over.

    A run that takes ten times as long as the default's first one is stopped, unless the executor has another limit.

    Args:
        pick: the pick, with its confirmation in the study.
        configs: the default and the pick, as they run on this machine.
        workload: the program and its inputs.
        options: the study's options: objectives, margin, seed.
        executor: runs the program.
        progress: receives messages for the user.
        max_s: time limit in seconds; the last run may exceed it.
        keep: share of the claimed gain that must remain, from 0 to 1; None for the usual share.
        predicted: whether the study is one of recordings.
        earlier: number of earlier verifications of the same setting on the same build.

    Raises:
        HeapwrightError: the program does not work by itself, or an objective cannot be measured here.
        KeyboardInterrupt: the user stopped it before the first pair. After that, the pairs so far are judged.
    """
    began = time.monotonic()
    policy = Policy(options.limits, options.prices)
    demands = _demands(pick, options, policy, keep, predicted, earlier)
    measured = _measure_pairs(configs, demands, workload, options, executor, progress, max_s)
    found, failure = measured.findings, measured.failure
    objection = policy.objection(found.now, options.objectives) if predicted else ""
    costs = costs_elsewhere(found.now, options.objectives)
    now = {m: found.now[m] for m in demands.metrics if m in found.now}
    states: dict[str, State] = dict.fromkeys(found.states, "lost") if failure else found.states
    wall_s = time.monotonic() - began
    pairs = min((c.pairs for c in now.values()), default=0)
    ratios = {m: math.exp(demands.bounds[m]) for m in demands.metrics}
    verification = Verification(
        overall_verdict(states),
        states,
        "",
        demands.then,
        now,
        pairs,
        wall_s,
        failure,
        predicted,
        objection,
        costs,
        ratios,
        found.results,
        measured.interrupted,
        measured.complete,
        earlier,
    )
    return with_sentence(verification)


def _measure_pairs(
    configs: tuple[Config, Config],
    demands: _Demands,
    workload: Workload,
    options: Options,
    executor: Executor,
    progress: Progress,
    max_s: float,
) -> _MeasuredPairs:
    """Measure pairs of the default and the choice, and judge them at each look until the verdict is clear.

    Args:
        configs: the default and the choice.
        demands: on the pairs.
        workload, options, executor, progress, max_s: as in `verify`.
    """
    found = _Findings(dict.fromkeys([*demands.metrics, *(r.text for r in demands.requires)], "undecided"), {})
    runs: list[StoredRun] = []
    look, interrupted = 0, False
    with (
        scratch_folder() as folder,
        open_writable_study(Path(folder) / "verify.study") as store,
    ):
        default, choice = (store.config(c.allocator, c.settings, c.env) for c in configs)
        blocks = Blocks(store, LocalRunner(executor), options.seed, progress, Budget(max_s))
        blocks.phase(PHASE, (1 + _LOOKS[-1]) * 2 * len(workload.test))
        try:
            failure = _warm_up(blocks, default, choice, executor)
            for look, count in enumerate(_LOOKS if not failure else (), 1):
                made = len({run.block for run in runs})
                runs += blocks.measure_all(PHASE, made, [[default, choice]] * (count - made), workload.test)
                failure = _failure(runs)
                if failure:
                    break
                found = _findings(runs, look, demands, (default, choice), options)
                if overall_verdict(found.states) != "undecided" or blocks.budget.stopped:
                    break
        except KeyboardInterrupt:
            runs, interrupted = store.runs(PHASE), True
            if not any(run.config == choice.id for run in runs):
                raise
            failure = _failure(runs)
            if not failure:
                found = _findings(runs, look, demands, (default, choice), options)
    complete = look == len(_LOOKS) and not blocks.budget.stopped
    return _MeasuredPairs(found, failure, interrupted, complete)


def _demands(
    pick: Pick, options: Options, policy: Policy, keep: float | None, predicted: bool, earlier: int
) -> _Demands:
    limited = policy.limits_with(options.objectives)
    tolerated = frozenset(m for m in limited if policy.only_by_kind(m, options.objectives))
    limits = {m: math.log(with_noise(x)) for m, x in limited.items() if m in pick.confirmed or m not in tolerated}
    if predicted:
        bounds = predicted_thresholds(pick.confirmed, options.objectives, options.margin, keep or 0.0, limits)
    else:
        bounds = thresholds(pick.confirmed, options.objectives, KEEP if keep is None else keep, limits)
    then = {m: pick.confirmed[m] for m in bounds}
    bounds = limits | bounds
    requires = requirements_of(options)
    of_requirements = {r.text: r.upper_bound for r in requires if r.bound > 0}
    return _Demands(then, tuple(bounds), tuple(requires), bounds | of_requirements, tolerated, earlier)


def _warm_up(blocks: Blocks, default: Config, choice: Config, executor: Executor) -> str:
    """Run both settings once, and set the executor's time limit; return why the choice cannot be used, or empty."""
    workload = executor.workload
    first = blocks.measure(_WARM_UP, 0, [default], workload.test)
    if not executor.options.timeout:
        limit = time_limit((run.metrics["wall_s"] or 0.0 for run in first), workload)
        executor.options = dataclasses.replace(executor.options, timeout=limit)
    if workload.file.output.compare != "none":  # whether the output differs from run to run by itself
        blocks.measure(_WARM_UP, 1, [default], workload.test)
    last = blocks.measure(_WARM_UP, 2, [choice], workload.test)
    return _failure(last) or not_loaded(executor, choice.env, workload)


def _failure(runs: Sequence[StoredRun]) -> str:
    return next((run.failure for run in runs if run.failure), "")


def _findings(
    runs: Sequence[StoredRun], look: int, demands: _Demands, configs: tuple[Config, Config], options: Options
) -> _Findings:
    """Judge the pairs.

    Args:
        runs: the runs of all pairs so far.
        look: number of the look, from 1.
        demands: on the pairs.
        configs: the default and the choice.
        options: the study's options.

    Raises:
        HeapwrightError: a metric cannot be measured here.
    """
    default, choice = configs
    by_id = {config.id: config for config in configs}
    requires = demands.requires
    _check_measured(runs, [*(m for m in demands.metrics if m not in demands.tolerated), *(r.metric for r in requires)])
    logs = {metric: _by_block(runs, choice.id, metric) for metric in demands.metrics}
    logs |= {r.text: _bounded_values(r, runs, choice.id) for r in requires if r.bound > 0}
    candidate = gather(runs, by_id, default.id).get(choice.id, Candidate(choice))
    ratios = {metric: demands.bounds[metric] for metric in demands.metrics}
    of_look = (look, demands.earlier)
    states = decide(logs, demands.bounds, *of_look, demands.tolerated) | of_every_run(requires, runs, choice.id)
    states |= _without_ratio(candidate, ratios, requires, _alphas(demands.bounds, demands.tolerated, *of_look))
    states |= {m: "holds" for m in demands.tolerated & states.keys() if states[m] == "undecided"}
    now = judge_pairs(runs, by_id, default.id, options).get(choice.id, {})
    results = tuple(
        dataclasses.replace(r.judge(now, candidate), state=_REQUIREMENT_STATES[states[r.text]]) for r in requires
    )
    return _Findings(states, now, results)


def _check_measured(runs: Sequence[StoredRun], metrics: Sequence[str]) -> None:
    for metric in metrics:
        if runs and all(run.metrics.get(metric) is None for run in runs):
            raise HeapwrightError(
                f"{METRICS[metric].label} ({metric}) cannot be measured here", "see 'heapwright doctor'"
            )


def _by_block(runs: Sequence[StoredRun], choice: int, metric: str) -> list[float]:
    """The mean log ratio of each block over its inputs, without blocks that the deadline cut short.

    Empty if a pair has no ratio, because one of its values is 0: the other pairs alone would hide the change.
    """
    references = {(r.block, r.input): r for r in runs if r.config != choice}
    logs: dict[int, list[float]] = {}
    for run in runs:
        paired = references.get((run.block, run.input)) if run.config == choice else None
        value, other = run.metrics.get(metric), paired.metrics.get(metric) if paired else None
        ratio = log_ratio(value, other)
        if ratio is None and value is not None and other is not None:
            return []
        if ratio is not None:
            logs.setdefault(run.block, []).append(ratio)
    whole = max(map(len, logs.values()), default=0)
    return [math.fsum(group) / whole for group in logs.values() if len(group) == whole]


def _bounded_values(required: Requirement, runs: Sequence[StoredRun], choice: int) -> list[float]:
    """The values that a requirement bounds from above, negated for a lower bound.

    They are log ratios to the default, or values of the worst input as shares of the bound: a value of 0 has no
    logarithm.
    """
    sign = -1 if required.at_least else 1
    if required.relative:
        return [sign * log for log in _by_block(runs, choice, required.metric)]
    values: dict[str, list[float]] = {}
    for run in runs:
        value = run.metrics.get(required.metric) if run.config == choice else None
        if value is not None:
            values.setdefault(run.input, []).append(sign * value / required.bound)
    return max(values.values(), key=fmean, default=[])


def of_every_run(requires: Sequence[Requirement], runs: Sequence[StoredRun], choice: int) -> dict[str, State]:
    """The verdict on requirements that every run has to keep, such as load_errors <= 0: one other value breaks them.

    Args:
        requires: the requirements; those on means and ratios are left out.
        runs: runs of the default and of the setting.
        choice: configuration of the setting.
    """
    found: dict[str, State] = {}
    for required in requires:
        values = [run.metrics.get(required.metric) for run in runs if run.config == choice]
        if required.for_every_run:
            broken = any(value > required.bound for value in values if value is not None)
            found[required.text] = "lost" if broken else "holds"
        elif required.bound == 0:  # at least 0
            found[required.text] = "holds"
    return found
