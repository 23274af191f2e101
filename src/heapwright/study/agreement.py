"""Judges whether replays rank settings as the program does."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heapwright.interleaving.candidates import Candidate, Program
from heapwright.interleaving.records import StoredRun
from heapwright.interleaving.resolution import resolution
from heapwright.interleaving.stats import mean_ranks
from heapwright.metrics import METRICS, REPLAYABLE
from heapwright.study.replayed_share import values_of_one_process
from heapwright.study.view import Agreement
from heapwright.terminal_text import counted
from heapwright.units import percent

MIN_RANK = 0.6  # replays are not used if Spearman's correlation is below this
FAITHFUL_ERROR = 0.03  # a replay is called faithful if its memory is at most so far from the program's
_MIN_PAIRS = 5
_MIN_SHOWN_PAIRS = 10  # Fisher's bound is too narrow for fewer: by chance 1 in 120 orders of five settings is perfect
_MIN_RELIABILITY = 0.3


def program_values(calibrated: Sequence[StoredRun]) -> Program:
    """The median of the default's runs, by input and metric, for the metrics that a replay measures."""
    values: dict[tuple[str, str], list[float]] = {}
    for run in [r for r in calibrated if r.block > 0] or calibrated:  # the first run of an input warms the caches
        for metric in REPLAYABLE:
            value = run.metrics.get(metric)
            if value:
                values.setdefault((run.input, metric), []).append(value)
    return {key: statistics.median(found) for key, found in values.items()}


def replayed_program(calibrated: Sequence[StoredRun], recorded: Mapping[str, Mapping[str, Any]]) -> Program:
    """The program's values under the default, for the process that is replayed.

    Args:
        calibrated: runs of the default.
        recorded: facts about each recording, by input.
    """
    return values_of_one_process(program_values(calibrated), recorded, calibrated)


@dataclass(frozen=True)
class Check:
    """The agreement of replays and program, by objective."""

    by_objective: list[Agreement]

    @property
    def fails(self) -> str:
        """Why the search must not rely on replays, or empty."""
        return "; ".join(
            f"replays rank {METRICS[a.metric].label} in another order than the program"
            + f" (rank correlation {a.rank:+.2f}".replace("-", "−")
            + f" over {counted(len(a.pairs), 'setting')})"
            for a in self.by_objective
            if a.verdict == "fails" and a.rank is not None
        )


def anchored(predicted: Mapping[int, Candidate], program: Mapping[int, Candidate]) -> dict[int, Candidate]:
    """Shift predictions so that each allocator at its defaults has the cost measured on the program.

    Args:
        predicted: predictions of replays, by configuration.
        program: measurements on the program, by configuration.
    """
    anchors = {c.config.allocator: (c, program[id_]) for id_, c in predicted.items() if is_anchor(c) and id_ in program}
    return {
        id_: _moved(c, *anchors[c.config.allocator]) if c.config.allocator in anchors else c
        for id_, c in predicted.items()
    }


def is_anchor(candidate: Candidate) -> bool:
    """Whether the candidate is an allocator at its defaults."""
    return not candidate.config.settings and not candidate.failure


def _moved(candidate: Candidate, predicted: Candidate, program: Candidate) -> Candidate:
    moved = Candidate(candidate.config, candidate.failure, candidate.runs)
    for metric, groups in candidate.logs.items():
        moved.logs[metric] = {}
        for input_, logs in groups.items():
            replayed, measured = predicted.logs.get(metric, {}).get(input_), program.logs.get(metric, {}).get(input_)
            shift = statistics.fmean(measured) - statistics.fmean(replayed) if replayed and measured else 0.0
            moved.logs[metric][input_] = [log + shift for log in logs]
    return moved


@dataclass(frozen=True)
class AnchorError:
    """The error of a replay of one allocator at its defaults.

    Attributes:
        allocator: its name. metric: the key of the metric.
        error: predicted value / measured value - 1.
        beyond_chance: whether it is above `FAITHFUL_ERROR` and the noise of the program's runs together.
    """

    allocator: str
    metric: str
    error: float
    beyond_chance: bool


def anchor_errors(
    predicted: Mapping[int, Candidate],
    program: Mapping[int, Candidate],
    objectives: Sequence[str],
    noise: Mapping[str, float],
) -> list[AnchorError]:
    """Compare predictions with the program for allocators at their defaults, in the memory that is minimised.

    Args:
        predicted: predictions of replays, by configuration, not `anchored`.
        program: measurements on the program, by configuration.
        objectives: metric keys.
        noise: standard deviation of one log ratio of the program, by objective.
    """
    found = []
    for id_, replayed in predicted.items():
        measured = program.get(id_)
        if measured is None or measured.failure or not is_anchor(replayed):
            continue
        for metric in (m for m in objectives if METRICS[m].kind == "memory"):
            expected, true = replayed.cost(metric), measured.cost(metric)
            if expected is not None and true is not None:
                chance = 2 * noise.get(metric, 0.0) / max(1, measured.runs) ** 0.5
                error = math.expm1(expected - true)
                found.append(
                    AnchorError(
                        replayed.config.allocator, metric, error, abs(expected - true) > FAITHFUL_ERROR + chance
                    )
                )
    return found


def errors_sentence(errors: Sequence[AnchorError]) -> str:
    """Say how far replays are from the program; empty if nothing was compared."""
    if not errors:
        return ""
    worst = max(errors, key=lambda one: abs(one.error))
    where = f"{METRICS[worst.metric].label} {percent(1 + worst.error)} under {worst.allocator}"
    if not any(error.beyond_chance for error in errors):
        return (
            f"Replays under each allocator at its defaults are within {FAITHFUL_ERROR:.0%} of the program, or within"
            f" noise (largest difference: {where})."
        )
    return (
        "Replays of this program are not faithful: their memory differs from the program's by more than"
        f" {FAITHFUL_ERROR:.0%} (largest difference: {where}). The search shifts their predictions to the measured"
        " values, and goes on to check their order on the program."
    )


def check(
    program: Mapping[int, Candidate],
    predicted: Mapping[int, Candidate],
    objectives: Sequence[str],
    noise: Mapping[str, float],
) -> Check:
    """Compare the configurations that both replays and program measured, except allocators at their defaults.

    `anchored` has made the two equal for allocators at their defaults.

    Args:
        program: measurements on the program, by configuration.
        predicted: predictions of replays, by configuration.
        objectives: metric keys.
        noise: standard deviation of one log ratio of the program, by objective, from the calibration. If the runs show
            a larger one, that counts.
    """
    both = [
        (program[id_], predicted[id_])
        for id_ in predicted
        if id_ in program
        and not is_anchor(program[id_])
        and program[id_].costs(objectives) is not None
        and predicted[id_].costs(objectives) is not None
    ]
    return Check([_agreement(m, both, noise.get(m, 0.0)) for m in objectives])


def _agreement(metric: str, both: Sequence[tuple[Candidate, Candidate]], noise: float) -> Agreement:
    """Spearman's rank correlation, corrected for the noise of the program's measurements.

    Two measurements of one quantity correlate by at most the square root of their reliability, which is the share of
    their variance that is not noise (Spearman, The Proof and Measurement of Association between Two Things, 1904). If
    hardly any variance is signal, and the replays show no differences either, there is nothing to rank. A verdict for
    or against the replays needs the whole 95% bound on its side; otherwise the replays are not refuted, no more. For
    the replays speaks only the rank as measured, of at least `_MIN_SHOWN_PAIRS` settings: a correction for much noise
    makes a thin rank large.
    """
    pairs = [(p.cost(metric) or 0.0, f.cost(metric) or 0.0) for p, f in both]
    if len(pairs) < _MIN_PAIRS:
        return Agreement(metric, pairs, None, "few")
    values = [v for p, _ in both for group in p.values.get(metric, {}).values() for v in group]
    page = resolution(metric, [statistics.median(values)]) if values else 0.0  # runs of the program may not vary at all
    variance = max(noise**2, page**2, _variance_within([p for p, _ in both], metric))
    error = statistics.fmean(variance / max(1, p.runs) for p, _ in both)
    spread = statistics.pvariance([p for p, _ in pairs])
    reliability = max(0.0, 1 - error / spread) if spread else 0.0
    replay_spread = statistics.pvariance([f for _, f in pairs])
    if reliability < _MIN_RELIABILITY and replay_spread <= 4 * max(error, 0.005**2):
        return Agreement(metric, pairs, None, "flat")
    ranks = [mean_ranks(side).tolist() for side in zip(*pairs, strict=True)]
    rank = statistics.correlation(*ranks) if spread and replay_spread else 0.0
    corrected = rank / max(reliability, _MIN_RELIABILITY) ** 0.5
    holds = len(pairs) >= _MIN_SHOWN_PAIRS and _bounds(rank, len(pairs))[0] >= MIN_RANK
    fails = _bounds(corrected, len(pairs))[1] < MIN_RANK
    return Agreement(metric, pairs, rank, "holds" if holds else "fails" if fails else "unclear")


def _bounds(rank: float, pairs: int) -> tuple[float, float]:
    """The one-sided 95% bounds of a rank correlation: Fisher's z, with Fieller's factor for ranks (1957)."""
    z, error = math.atanh(max(-0.999, min(0.999, rank))), 1.645 * 1.03 / (pairs - 3) ** 0.5
    return math.tanh(z - error), math.tanh(z + error)


def _variance_within(candidates: Sequence[Candidate], metric: str) -> float:
    """The variance of a log ratio within one configuration, pooled over configurations with several runs."""
    groups = [g for c in candidates for g in c.logs.get(metric, {}).values() if len(g) > 1]
    free = sum(len(g) - 1 for g in groups)
    return sum(statistics.variance(g) * (len(g) - 1) for g in groups) / free if free else 0.0
