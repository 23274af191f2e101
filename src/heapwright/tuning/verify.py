"""Checks in fresh pairs whether a study's gain still holds: after a rebuild, on another machine, in another base image.

Every objective has a threshold on its log ratio:

    a gain that the study claims     half of it must be left                      (`keep`)
    another objective                what it cost then, and at most half of the claimed gain more

The gain holds when every interval lies below its threshold. It is lost when one lies above. Otherwise more pairs are
made, until the time is over. Looking at the pairs again and again would find something by luck, so the confidence of
each look grows: the error rates of all looks together stay below `ALPHA` (alpha spending, 6/π²k² of it at look k). The
intervals are Student's t over the blocks' mean log ratios, wider where runs fall into groups or come in spells
(`stats.mean_errors`).
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from heapwright.errors import HeapwrightError
from heapwright.experiment.blocks import Blocks
from heapwright.experiment.budget import Budget
from heapwright.experiment.configuration import Config
from heapwright.experiment.progress import Progress
from heapwright.experiment.records import StoredRun
from heapwright.experiment.runner import LocalRunner
from heapwright.experiment.stats import log_ratio, mean_errors
from heapwright.metrics import METRICS, show_seconds
from heapwright.study.confirmation import judge
from heapwright.study.options import Options
from heapwright.study.store import open_study
from heapwright.study.view import Confirmation, Pick
from heapwright.tuning.reach import not_loaded
from heapwright.workload.execute import Executor
from heapwright.workload.model import Workload

ALPHA = 0.02  # probability of a wrong verdict, over all looks
KEEP = 0.5  # share of the claimed gain that must be left
PHASE, _WARM_UP = "verify", "verify.warm-up"
_LOOKS = (8, 10, 13, 16, 20, 25, 32, 40, 50, 64, 80, 100, 125, 160, 200)

State = Literal["holds", "lost", "undecided"]


@dataclass(frozen=True)
class Verification:
    """What a verification found.

    Attributes:
        state: of the whole.
        states: of each objective.
        sentence: for people, with the intervals then and now.
        then, now: objective → confirmation of the study and of the fresh pairs (95 % intervals).
        pairs: fresh pairs of each input.
        wall_s: seconds it took.
        failure: why the setting cannot be used any more, or empty.
    """

    state: State
    states: dict[str, State]
    sentence: str
    then: dict[str, Confirmation]
    now: dict[str, Confirmation]
    pairs: int
    wall_s: float
    failure: str = ""


def thresholds(then: Mapping[str, Confirmation], objectives: Sequence[str], keep: float) -> dict[str, float]:
    """The log ratio that each objective must stay below for the gain to hold.

    Args:
        then: what the study confirmed, by objective.
        keep: share of the claimed gain that must be left, from 0 to 1.
    """
    gains = {m: math.log(then[m].ratio) for m in objectives if m in then and then[m].verdict == "better"}
    most = max((-gain for gain in gains.values()), default=0.0)
    found = {}
    for metric in objectives:
        if metric in gains:
            found[metric] = keep * gains[metric]
        elif metric in then:
            found[metric] = max(math.log(then[metric].high), 0.0) + (1 - keep) * most
    return found


def decide(logs: Mapping[str, Sequence[float]], bounds: Mapping[str, float], look: int) -> dict[str, State]:
    """Each objective's state after a look.

    Args:
        logs: objective → log ratios, one a block.
        bounds: see `thresholds`.
        look: its number, from 1.
    """
    import numpy as np
    from scipy.stats import t

    alpha = ALPHA * 6 / (math.pi * look) ** 2 / len(bounds)
    states: dict[str, State] = {}
    for metric, bound in bounds.items():
        values = logs.get(metric, ())
        if len(values) < 2:
            states[metric] = "undecided"
            continue
        found = mean_errors(np.asarray(values, dtype=float)[None])
        mean = float(found.mean[0])
        half = float(t.ppf(1 - alpha / 2, found.freedom[0]) * found.error[0])
        states[metric] = "holds" if mean + half < bound else "lost" if mean - half > bound else "undecided"
    return states


def overall(states: Mapping[str, State]) -> State:
    """Lost if an objective is; holds if all do."""
    if "lost" in states.values():
        return "lost"
    return "holds" if set(states.values()) == {"holds"} else "undecided"


def verify(
    pick: Pick,
    configs: tuple[Config, Config],
    workload: Workload,
    options: Options,
    executor: Executor,
    progress: Progress,
    max_s: float,
    keep: float = KEEP,
) -> Verification:
    """Measure fresh pairs of the default and a study's choice until the verdict is clear, or the time is over.

    Args:
        pick: the choice, with what the study confirmed of it.
        configs: the default and the choice as they are to be run here.
        options: of the study: objectives, margin, seed.
        max_s: seconds; one run past them at most.

    Raises:
        HeapwrightError: the command fails by itself, or an objective cannot be measured here.
    """
    began = time.monotonic()
    bounds = thresholds(pick.confirmed, options.objectives, keep)
    then = {m: pick.confirmed[m] for m in bounds}
    states: dict[str, State] = dict.fromkeys(bounds, "undecided")
    now: dict[str, Confirmation] = {}
    with (
        tempfile.TemporaryDirectory(prefix="heapwright-") as folder,
        open_study(Path(folder) / "verify.study") as store,
    ):
        default, choice = (store.config(c.allocator, c.settings, c.env) for c in configs)
        by_id = {c.id: c for c in (default, choice)}
        blocks = Blocks(store, LocalRunner(executor), options.seed, progress, Budget(max_s))
        blocks.phase(PHASE, (1 + _LOOKS[-1]) * 2 * len(workload.test))
        first = blocks.measure(_WARM_UP, 0, [default, choice], workload.test)
        failure = next((run.failure for run in first if run.failure), "") or not_loaded(executor, choice.env, workload)
        runs: list[StoredRun] = []
        for look, count in enumerate(_LOOKS if not failure else (), 1):
            made = len({run.block for run in runs})
            runs += blocks.measure_all(PHASE, made, [[default, choice]] * (count - made), workload.test)
            failure = next((run.failure for run in runs if run.failure), "")
            if failure:
                break
            _check_measured(runs, bounds)
            logs = {metric: _by_block(runs, choice.id, metric) for metric in bounds}
            states = decide(logs, bounds, look)
            now = judge(runs, by_id, default.id, options).get(choice.id, {})
            if overall(states) != "undecided" or blocks.budget.stopped:
                break
    now = {m: now[m] for m in bounds if m in now}
    state = "lost" if failure else overall(states)
    wall_s = time.monotonic() - began
    pairs = min((c.pairs for c in now.values()), default=0)
    sentence = _sentence(state, states, then, now, bounds, pairs, wall_s, failure)
    return Verification(state, states, sentence, then, now, pairs, wall_s, failure)


def refused(pick: Pick, why: str, objectives: Sequence[str]) -> Verification:
    """The verdict where the setting does not reach the program any more: nothing needs to be measured."""
    then = {m: pick.confirmed[m] for m in objectives if m in pick.confirmed}
    return Verification("lost", {}, _sentence("lost", {}, then, {}, {}, 0, 0.0, why), then, {}, 0, 0.0, why)


def _check_measured(runs: Sequence[StoredRun], bounds: Mapping[str, float]) -> None:
    for metric in bounds:
        if runs and all(run.metrics.get(metric) is None for run in runs):
            raise HeapwrightError(
                f"{METRICS[metric].label} ({metric}) cannot be measured here", "see 'heapwright doctor'"
            )


def _by_block(runs: Sequence[StoredRun], choice: int, metric: str) -> list[float]:
    """The mean log ratio of each block over its inputs; blocks that the deadline cut short are left out."""
    references = {(r.block, r.input): r for r in runs if r.config != choice}
    logs: dict[int, list[float]] = {}
    for run in runs:
        beside = references.get((run.block, run.input)) if run.config == choice else None
        ratio = log_ratio(run.metrics.get(metric), beside.metrics.get(metric)) if beside else None
        if ratio is not None:
            logs.setdefault(run.block, []).append(ratio)
    whole = max(map(len, logs.values()), default=0)
    return [math.fsum(group) / whole for group in logs.values() if len(group) == whole]


def _sentence(
    state: State,
    states: Mapping[str, State],
    then: Mapping[str, Confirmation],
    now: Mapping[str, Confirmation],
    bounds: Mapping[str, float],
    pairs: int,
    wall_s: float,
    failure: str,
) -> str:
    """The verdict in one sentence, with the intervals then and now."""
    both = "; ".join(
        f"{METRICS[m].label} {_change(then[m])} then, {_change(now[m]) if m in now else 'not measured'} now"
        for m in then
    )
    if failure:
        return f"The gain no longer holds: the setting cannot be used any more: {failure}."
    if state == "holds":
        return f"The gain holds: {both} ({pairs} fresh pairs)."
    if state == "undecided":
        return f"Undecided after {pairs} pairs in {show_seconds(wall_s)}: {both}. A longer --max-time may tell."
    lost = [m for m, found in states.items() if found == "lost"]
    why = "; ".join(
        f"{METRICS[m].label} is not {100 * -math.expm1(bounds[m]):.1f}% lower any more"
        if bounds[m] < 0
        else f"{METRICS[m].label} is more than {100 * math.expm1(bounds[m]):.1f}% higher"
        for m in lost
    )
    return f"The gain no longer holds: {why}: {both} ({pairs} fresh pairs)."


def _change(c: Confirmation) -> str:
    """'−17.2% [−18.4, −15.9]'."""
    change, low, high = (100 * (x - 1) for x in (c.ratio, c.low, c.high))
    return f"{change:+.1f}% [{low:+.1f}, {high:+.1f}]".replace("-", "−")
