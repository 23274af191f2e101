"""The log ratios that fresh pairs must stay below for the gain of a study to hold.

Every objective has a threshold on its log ratio, and every requirement its bound:

    an objective with a claimed gain     half of the gain must remain (`keep`), if the gain is large enough to matter
    any other objective                  its cost in the study, plus at most half of the claimed gain
    a requirement of the study           its bound

A study of recordings predicted its gain. It is proven if memory is lower by more than the equivalence margin (time, if
no lower memory was predicted), whatever its share of the prediction: the recording has no memory or time besides
malloc's. Any other objective may cost half of the predicted gain of memory, and `PREDICTED_LOSS` in any case.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from heapwright.metrics import METRICS
from heapwright.study.policy import gain_matters
from heapwright.study.view import Confirmation

KEEP = 0.5  # share of the claimed gain that must remain
PREDICTED_LOSS = 0.02  # of another objective, where a gain was only predicted


def thresholds(
    then: Mapping[str, Confirmation], objectives: Sequence[str], keep: float, limits: Mapping[str, float] | None = None
) -> dict[str, float]:
    """The log ratio that each objective must stay below for the gain to hold.

    Args:
        then: the study's confirmation of each objective.
        objectives: metric keys.
        keep: share of the claimed gain that must remain, from 0 to 1.
        limits: objective → the log ratio that the user allows.
    """
    better = [then[m] for m in objectives if m in then and then[m].verdict == "better"]
    large = [c for c in better if gain_matters(c)]
    gains = {c.metric: math.log(c.ratio) for c in large or better}
    largest = max((-gain for gain in gains.values()), default=0.0)
    found = {}
    for metric in objectives:
        if metric in gains:
            found[metric] = keep * gains[metric]
        elif metric in then:
            found[metric] = max(math.log(then[metric].high), 0.0) + (1 - keep) * largest
    return {metric: min(bound, (limits or {}).get(metric, math.inf)) for metric, bound in found.items()}


def predicted_thresholds(
    then: Mapping[str, Confirmation],
    objectives: Sequence[str],
    margin: float,
    keep: float,
    limits: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """The log ratio that each objective must stay below for a predicted gain to be proven.

    Args:
        then: the prediction of each objective.
        objectives: metric keys.
        margin: equivalence margin, as a share.
        keep: share of the predicted gain that must remain, from 0 to 1.
        limits: objective → the log ratio that the user allows.
    """
    better = {m: math.log(then[m].ratio) for m in objectives if m in then and then[m].verdict == "better"}
    gains = {m: gain for m, gain in better.items() if METRICS[m].kind == "memory"} or better
    largest = max((-gain for m, gain in gains.items() if METRICS[m].kind == "memory"), default=0.0)
    loss = max(math.log1p(PREDICTED_LOSS), (1 - KEEP) * largest)
    found = {m: min(math.log1p(-margin), keep * gains[m]) if m in gains else loss for m in objectives if m in then}
    return {metric: min(bound, (limits or {}).get(metric, math.inf)) for metric, bound in found.items()}
