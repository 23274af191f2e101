"""Drops settings that have no effect: a setting returns to unset if its removal shows no cost.

A search returns every setting of a good point, useful or not. Two comparisons find the useful ones:

1. Each setting is removed alone. Settings whose removal is not shown (one-sided 98%) to cost more than the margin in
   any objective are dropped together.
2. The smaller configuration is compared with the whole one. The comparison ends when the smaller one is shown to cost
   something (one-sided 95% over all objectives), or is likely (80%) to keep two thirds of each gain that the
   search saw. If twenty rounds or the time do not make it clear, the estimate decides. If it costs too much, settings
   return, the most valuable first.

The first test is stricter because it is made for every setting in every objective. It has little power: by itself it
would drop real gains of a noisy program, and a pick without settings is no pick. So the second comparison asks for
evidence of the opposite. The confirmation judges the result, so a wrong drop makes the claim smaller, never false.

With little time, each setting is tried in fewer rounds, down to one. Then a cost counts as shown if it exceeds the
margin by one standard error, taken from the noise of the default. The second comparison has at least three rounds.
With less time than that all settings stay, and the study says so.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence

from heapwright.interleaving.blocks import Blocks
from heapwright.interleaving.candidates import Candidate, gather
from heapwright.interleaving.configuration import Config
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.stats import harm_proven, mean_is_below
from heapwright.search.pareto import LOSS_WEIGHT
from heapwright.study.options import MIN_GAIN, MINIFY_MAX_ROUNDS, MINIFY_MIN_ROUNDS, MINIFY_ROUNDS
from heapwright.study.view import PickName
from heapwright.workload.model import Input

# One-sided confidence that a removal costs something: that of one setting, and of several together.
_SINGLE_CONFIDENCE = 0.98
_JOINT_CONFIDENCE = 0.95
_CONFIDENCE = 0.8  # one-sided, that the removal of several settings keeps the gain
# The removal may cost this part of an objective's own gain or, because a loss weighs more than a
# gain (`LOSS_WEIGHT`), a smaller part of the largest gain.
_MAX_LOST_SHARE = 1 / 3


def minify(
    config: Config,
    *,
    phase: str,
    blocks: Blocks,
    make_config: Callable[[dict[str, str]], Config],
    inputs: Sequence[Input],
    objectives: Sequence[str],
    margin: float,
    noise: Sequence[float],
    gains: Sequence[float],
    bounded: Sequence[str] = (),
) -> tuple[Config, bool]:
    """Find the smallest configuration that the data do not show to be worse than `config`.

    Args:
        config: a configuration that the search found.
        phase: the phase under which the runs are stored.
        blocks: measures; the present limit of its budget bounds the runs.
        make_config: makes a configuration from settings.
        inputs: the inputs to run.
        objectives: metric keys.
        margin: equivalence margin, as a share (0.005 is 0.5%).
        noise: by objective, the standard deviation of one log ratio of the default to itself.
        gains: by objective, the log ratio of the default to `config` in the search; at least 0.
        bounded: further metrics that must not grow.

    Returns:
        The configuration, and whether there was time to try each setting.
    """
    if not config.settings:
        return config, True
    settings = dict(config.settings)
    removals = {key: make_config({k: v for k, v in settings.items() if k != key}) for key in settings}
    # The user's own environment may set a value already: a removal that changes no variable needs
    # no measurement.
    variants = {key: smaller for key, smaller in removals.items() if smaller.id != config.id}
    rounds = MINIFY_ROUNDS
    while rounds > 1 and blocks.budget.over(seconds_for(config, blocks, inputs, rounds)):
        rounds -= 1
    if blocks.budget.over(seconds_for(config, blocks, inputs, rounds)):
        return config, False
    runs = len(variants) + 1 + 2 * len(variants)  # each removal and the whole; then a whole and a part per attempt
    blocks.phase(phase, runs * rounds * len(inputs))
    first = blocks.first_block(phase, [config])
    measured = _measure(phase, first, rounds, config, list(variants.values()), blocks, inputs)
    few = noise if rounds < MINIFY_MIN_ROUNDS else ()
    harm = {key: _removal_cost(measured.get(v.id), objectives, bounded, margin, few) for key, v in variants.items()}
    kept = {key for key, (proven, _) in harm.items() if proven}
    by_value = sorted((key for key in variants if key not in kept), key=lambda key: -harm[key][1])
    for attempt in range(1, len(by_value) + 1):
        smaller = make_config({k: v for k, v in settings.items() if k in kept})
        if blocks.budget.over(2 * MINIFY_MIN_ROUNDS * len(inputs) * blocks.typical.seconds):
            return config, False
        at, done, keeps_gain = first + MINIFY_ROUNDS + (attempt - 1) * MINIFY_MAX_ROUNDS, 0, None
        step = max(rounds, MINIFY_MIN_ROUNDS)
        while keeps_gain is None and done < MINIFY_MAX_ROUNDS:
            done += min(step, MINIFY_MAX_ROUNDS - done)
            measured = _measure(phase, at, done, config, [smaller], blocks, inputs)
            keeps_gain = _keeps_gain(measured.get(smaller.id), objectives, bounded, margin, gains)
            step = MINIFY_MIN_ROUNDS
            if blocks.budget.over(2 * step * len(inputs) * blocks.typical.seconds):
                break
        if keeps_gain is None:
            keeps_gain = _keeps_gain(measured.get(smaller.id), objectives, bounded, margin, gains, by_estimate=True)
        if keeps_gain:
            return smaller, True
        kept.add(by_value[attempt - 1])
    return config, True


def minify_each(
    picks: Mapping[PickName, Config],
    *,
    blocks: Blocks,
    make_config: Callable[[str, dict[str, str]], Config],
    inputs: Sequence[Input],
    objectives: Sequence[str],
    margin: float,
    noise: Sequence[float],
    gains: Mapping[int, Sequence[float]],
    bounded: Sequence[str] = (),
) -> tuple[dict[PickName, Config], list[PickName]]:
    """Minify each pick. A pick has an even share of the stage's time, or the time that it needs if that is more.

    Args:
        picks: configurations by the name of the pick.
        blocks: measures; the present limit of its budget bounds the runs.
        make_config: makes a configuration from an allocator's name and settings.
        inputs: the inputs to run.
        objectives: metric keys.
        margin: equivalence margin, as a share.
        noise: see `minify`.
        gains: configuration's number → see `minify`.
        bounded: see `minify`.

    Returns:
        The smaller configurations by pick, and the picks that there was no time to minify.
    """
    budget = blocks.budget
    done: dict[int, tuple[Config, bool]] = {}
    open_ = len({config.id for config in picks.values()})
    for name, config in picks.items():
        if config.id in done:
            continue
        share_s = max((budget.limit_s - budget.spent_s) / open_, seconds_for(config, blocks, inputs))
        open_ -= 1
        with budget.limited_to(share_s):
            done[config.id] = minify(
                config,
                phase=Phase.minify(name),
                blocks=blocks,
                make_config=functools.partial(make_config, config.allocator),
                inputs=inputs,
                objectives=objectives,
                margin=margin,
                noise=noise,
                gains=gains[config.id],
                bounded=bounded,
            )
    smaller = {name: done[config.id][0] for name, config in picks.items()}
    return smaller, [name for name, config in picks.items() if not done[config.id][1]]


def seconds_for(config: Config, blocks: Blocks, inputs: Sequence[Input], rounds: int = 1) -> float:
    """The time to minify a configuration.

    Args:
        config: the configuration.
        blocks: knows the typical seconds of a run.
        inputs: the inputs to run.
        rounds: how often each removal is measured.

    Returns:
        Seconds to try each removal and one smaller configuration.
    """
    if not config.settings:
        return 0.0
    runs = rounds * (len(config.settings) + 1) + 2 * max(rounds, MINIFY_MIN_ROUNDS)
    return runs * len(inputs) * blocks.typical.seconds


def _measure(
    phase: str, first: int, rounds: int, config: Config, others: list[Config], blocks: Blocks, inputs: Sequence[Input]
) -> dict[int, Candidate]:
    """Measure other configurations beside the whole one, round by round, until the stage has no time left."""
    group, done = [config, *others], min(rounds, MINIFY_MIN_ROUNDS)
    runs = blocks.measure_all(phase, first, [group] * done, inputs)
    while done < rounds and not blocks.budget.over(len(group) * len(inputs) * blocks.typical.seconds):
        further = min(blocks.runner.slots, rounds - done)
        runs += blocks.measure_all(phase, first + done, [group] * further, inputs)
        done += further
    return gather(runs, {c.id: c for c in [config, *others]}, config.id)


def _removal_cost(
    candidate: Candidate | None,
    objectives: Sequence[str],
    bounded: Sequence[str],
    margin: float,
    noise: Sequence[float] = (),
) -> tuple[bool, float]:
    """Whether a removal is shown to cost something, and its estimated cost in the worst objective.

    Args:
        candidate: the configuration without the setting, against the whole one.
        objectives: metric keys.
        bounded: further metrics.
        margin: equivalence margin, as a share.
        noise: see `minify`; if given, it replaces the spread, which too few rounds cannot show.
    """
    if candidate is None or (costs := candidate.costs(objectives)) is None:
        return True, float("inf")
    if noise:
        shown = (c - n / candidate.runs**0.5 > math.log1p(margin) for c, n in zip(costs, noise, strict=True))
        return any(shown), max(costs)
    logs = _by_input(candidate, [*objectives, *bounded])
    each = 1 - (1 - _SINGLE_CONFIDENCE) / len(logs)
    return any(harm_proven(x, margin, each) for x in logs.values()), max(costs)


def _keeps_gain(
    candidate: Candidate | None,
    objectives: Sequence[str],
    bounded: Sequence[str],
    margin: float,
    gains: Sequence[float],
    by_estimate: bool = False,
) -> bool | None:
    """Whether a smaller configuration keeps the gain of the whole one; None if the data do not tell.

    Args:
        candidate: the smaller configuration, against the whole one.
        objectives: metric keys.
        bounded: further metrics.
        margin: equivalence margin, as a share.
        gains: see `minify`.
        by_estimate: whether the mean decides, however uncertain it is.
    """
    if candidate is None or candidate.costs(objectives) is None:
        return False
    logs = _by_input(candidate, [*objectives, *bounded])
    each = 1 - (1 - _JOINT_CONFIDENCE) / len(logs)
    if any(harm_proven(x, margin, each) for x in logs.values()):
        return False
    little = max(math.log1p(margin), math.log1p(MIN_GAIN))
    allowed = dict.fromkeys(logs, little)
    for objective, gain in zip(objectives, gains, strict=True):
        allowed[objective] = max(little, _MAX_LOST_SHARE * max(gain, max(gains) / LOSS_WEIGHT))
    if by_estimate:
        return all((candidate.cost(metric) or 0.0) < allowed[metric] for metric in logs)
    return True if all(mean_is_below(x, allowed[m], _CONFIDENCE) for m, x in logs.items()) else None


def _by_input(candidate: Candidate, metrics: Sequence[str]) -> dict[str, list[list[float]]]:
    """Return the log ratios of a candidate: metric → those of each input."""
    return {m: list(candidate.logs[m].values()) for m in metrics if m in candidate.logs}
