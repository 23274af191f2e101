"""The confirmation: fresh, randomised, interleaved pairs of each pick and the default.

Nothing measured during the search counts here: the best of 200 noisy runs 'wins' 2.75 % where there is
nothing to win.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heapwright.metrics import NUMERIC
from heapwright.study.blocks import Blocks, Candidate, gather
from heapwright.study.options import CONFIRM_LOOK, Options
from heapwright.study.stats import ALPHA, Ratio, holm, narrow_enough, ratio_interval, signed_rank_p, summarise, verdict
from heapwright.study.store import StoredRun
from heapwright.study.view import Config, Confirmation
from heapwright.workload.model import Input


def confirm(
    configs: Sequence[Config],
    *,
    blocks: Blocks,
    inputs: Sequence[Input],
    options: Options,
    over: Callable[[], bool],
) -> None:
    """Measures blocks of the default and all picks until every objective's interval is narrow enough.

    At least `pairs_min` blocks, and as many as the rank test needs to be able to speak, whatever the budget says;
    at most `pairs_max`. Whether to go on is decided by
    the intervals' widths at every fifth block, not by whether they show a gain.
    """
    blocks.progress.phase("confirm", options.pairs_max * len(configs) * len(inputs))
    runs: list[StoredRun] = []
    needed = pairs_needed(len(inputs), (len(configs) - 1) * len(options.objectives))
    least = min(max(options.pairs_min, needed), options.pairs_max)
    if needed > options.pairs_max:
        blocks.progress.note(f"{options.pairs_max} pairs can prove nothing here: it takes at least {needed} (--pairs)")
    first = blocks.first_block("confirm", configs)
    done = 0
    while done < options.pairs_max:
        further = min(CONFIRM_LOOK if done else least, options.pairs_max - done)
        runs += blocks.measure_all("confirm", first + done, [configs] * further, inputs)
        done += further
        candidates = gather(runs, {c.id: c for c in configs}, configs[0].id)
        if over() or all(_settled(c, options) for c in candidates.values()):
            return


def pairs_needed(inputs: int, tests: int) -> int:
    """How many pairs of each input let a signed-rank test's smallest p, 2 / 2^n, survive Holm over so many tests."""
    return next(n for n in range(1, 64) if tests * 2.0 ** (1 - n * inputs) < ALPHA)


def _settled(candidate: Candidate, options: Options) -> bool:
    if candidate.failure:
        return True
    return all(
        narrow_enough(ratio_interval(candidate.logs[m], options.seed), options.margin)
        for m in options.objectives
        if m in candidate.logs
    )


def judge(
    runs: Sequence[StoredRun], configs: dict[int, Config], default: int, options: Options
) -> dict[int, dict[str, Confirmation]]:
    """Every pick's confirmation by metric, objectives first; a pick that failed a run has none.

    Holm's adjustment runs over picks × objectives. Metrics that were no objective are shown with their
    interval and never called better or worse.
    """
    candidates = {k: c for k, c in gather(runs, configs, default).items() if not c.failure}
    tested = [(k, m) for k, c in candidates.items() for m in options.objectives if _enough(c, m)]
    raw = [signed_rank_p([x for g in candidates[k].logs[m].values() for x in g]) for k, m in tested]
    adjusted = dict(zip(tested, holm(raw), strict=True))
    values = _values(runs)
    result: dict[int, dict[str, Confirmation]] = {}
    for id_, candidate in candidates.items():
        order = [*options.objectives, *(m for m in NUMERIC if m not in options.objectives)]
        result[id_] = {
            metric: _confirmation(
                metric,
                ratio_interval(candidate.logs[metric], options.seed),
                adjusted.get((id_, metric)),
                candidate,
                options.margin,
                summarise(values[default, metric]).median,
                summarise(values[id_, metric]).median,
            )
            for metric in order
            if _enough(candidate, metric)
        }
    return result


def _enough(candidate: Candidate, metric: str) -> bool:
    """Whether there are two ratios of every input; a count that is mostly zero has few or none."""
    groups = candidate.logs.get(metric, {})
    return min((len(g) for g in groups.values()), default=0) > 1


def _values(runs: Sequence[StoredRun]) -> dict[tuple[int, str], list[float]]:
    values: dict[tuple[int, str], list[float]] = {}
    for run in runs:
        for metric, value in run.metrics.items():
            if value is not None:
                values.setdefault((run.config, metric), []).append(value)
    return values


def _confirmation(
    metric: str,
    ratio: Ratio,
    p: float | None,
    candidate: Candidate,
    margin: float,
    default_median: float,
    pick_median: float,
) -> Confirmation:
    pairs = sum(len(g) for g in candidate.logs[metric].values())
    return Confirmation(
        metric,
        ratio.value,
        ratio.low,
        ratio.high,
        p,
        pairs,
        verdict(ratio, p, margin),
        default_median,
        pick_median,
    )
