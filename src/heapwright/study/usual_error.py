"""States the error that predictions by replays have had, by the kind of the recording and the program's threads.

The tables are `USUAL`, of whole distributions of errors, and `HALF_WIDTHS`, from which the interval of a prediction is
made. Their figures are those of the pages in docs/results that they name; tests/study/test_usual_error.py compares
them.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from heapwright.interleaving.stats import Ratio
from heapwright.metrics import METRICS
from heapwright.trace.program_memory import ProgramMemory
from heapwright.trace.recordings import RecordingKind, Recordings

# Rank correlation of changes of CPU time, and their number: those above noise, and all.
CPU_RANK, CPU_CHANGES = 0.571, 83
CPU_RANK_OF_ALL, CPU_CHANGES_OF_ALL = 0.373, 882
CPU_RANK_PAGE = "docs/results/fidelity.md"


@dataclass(frozen=True)
class UsualError:
    """The error of one kind of prediction in the published measurements.

    Attributes:
        kind: the kind of the recording.
        threads: whether the programs have more than one thread.
        metric: key of the metric; empty for resident memory of all kinds together.
        median: median of the absolute errors, in per cent; for complete traces that of the worst program.
        high: their 95th percentile, in per cent; None if the page has `within` in its place.
        within: share of the cases that are within 5%; None if the page has `high`.
        against: the figures that the prediction was compared with.
        page: the page that has the figures.
    """

    kind: RecordingKind
    threads: bool
    metric: str
    median: float
    high: float | None
    within: tuple[int, int] | None
    against: str
    page: str

    def phrase(self) -> str:
        """'peak resident memory up to 1.5% (median) and 5.7% (95th percentile)'."""
        what = METRICS[self.metric].label if self.metric else "memory"
        if self.within is not None:
            return f"{what} {self.median:g}% (median), {self.within[0]} of {self.within[1]} cases within 5%"
        upper = "up to " if self.kind == "complete" else ""
        return f"{what} {upper}{self.median:g}% (median) and {self.high:g}% (95th percentile)"


_FIDELITY, _SAMPLE, _SYNTH = (f"docs/results/{name}.md" for name in ("fidelity", "sample", "synth"))
_PROGRAM, _RECORDING = "the program", "the replay of the whole recording"

USUAL: tuple[UsualError, ...] = (
    UsualError("complete", False, "peak_rss_bytes", 1.5, 5.7, None, _PROGRAM, _FIDELITY),
    UsualError("complete", False, "mean_rss_bytes", 2.8, 8.3, None, _PROGRAM, _FIDELITY),
    UsualError("complete", True, "peak_rss_bytes", 3.0, 8.1, None, _PROGRAM, _FIDELITY),
    UsualError("complete", True, "mean_rss_bytes", 2.5, 10.0, None, _PROGRAM, _FIDELITY),
    UsualError("sample", False, "", 0.7, 5.1, None, _RECORDING, _SAMPLE),
    UsualError("sample", True, "", 8.8, 16.6, None, _RECORDING, _SAMPLE),
    UsualError("model", False, "peak_rss_bytes", 0.6, None, (91, 96), _RECORDING, _SYNTH),
    UsualError("model", True, "peak_rss_bytes", 1.8, None, (19, 24), _RECORDING, _SYNTH),
)
_NAMES: dict[RecordingKind, str] = {"complete": "complete traces", "sample": "samples", "model": "models"}


# Half of the interval of a predicted change of resident memory, in per cent of the program's
# memory: the largest error of any program that was compared (tools/prediction_errors.py). Services
# are few (one to eight a row), so 95% is nominal: of programs with several threads, the largest
# error of the other programs covered 124 of 128 changes of complete recordings and 106 of 112 of
# samples. Keys: the kind of the recording; whether the program has several threads or is one of
# several processes; whether the change is by settings of the malloc that it was recorded on, and
# not by another malloc.
HALF_WIDTHS: dict[tuple[RecordingKind, bool, bool], float] = {
    ("complete", False, True): 13,
    ("complete", False, False): 13,
    ("complete", True, True): 14,
    ("complete", True, False): 23,
    ("sample", False, True): 15,
    ("sample", False, False): 15,
    ("sample", True, True): 14,
    ("sample", True, False): 32,
    ("model", False, True): 15,
    ("model", False, False): 15,
    ("model", True, True): 14,
    ("model", True, False): 32,
}
INTERVAL_PAGE = "docs/results/predictions.md"
MAX_MISFIT = 0.15  # if the replay on the recorded malloc misses the recording by more, it predicts nothing
_TELLING_MISFIT = 0.03
_LITTLE_BYTES = 1 << 20  # at the peak; mallocs' own tables and pages differ by some 100 KiB

MEASURED_RATE = 64  # docs/results/sample.md measures samples of 1 object in so many


def usual_errors(recordings: Recordings, metrics: Collection[str] = ()) -> list[UsualError]:
    """Returns the rows of `USUAL` that apply to these recordings.

    Args:
        recordings: the recordings.
        metrics: the metrics that the rows should be about; rows of others are left out if any is.
    """
    rows = [row for row in USUAL if row.kind in recordings.kinds and row.threads == recordings.threads]
    other = {r.kind for r in rows if r.metric in metrics}
    return [row for row in rows if row.kind not in other or row.metric in metrics]


def error_sentence(recordings: Recordings, metrics: Collection[str] = ()) -> str:
    """Returns the usual error of these predictions, in one sentence for each kind of recording.

    Args:
        recordings: the recordings.
        metrics: see `usual_errors`.
    """
    threads = "several threads" if recordings.threads else "one thread"
    sentences = []
    for kind in recordings.kinds:
        rows = [row for row in usual_errors(recordings, metrics) if row.kind == kind]
        errors = "; ".join(row.phrase() for row in rows)
        sentences.append(
            f"Usual error of replays of {_NAMES[kind]} of programs with {threads}, against {rows[0].against}:"
            f" {errors} ({rows[0].page})."
        )
    thinnest = max((r.rate for r in recordings.inputs.values() if r.kind == "sample"), default=0)
    if thinnest > MEASURED_RATE:
        sentences.append(
            f"That was measured with samples of 1 object in {MEASURED_RATE}; of 1 in {thinnest:,} expect larger errors"
            " (record --max-cost 0 keeps the rate)."
        )
    return " ".join(sentences)


def half_width(recordings: Recordings, metric: str, same_malloc: bool = False) -> float:
    """Returns half of the interval of a predicted change, as a log ratio; 0 for metrics without one.

    It is the error of such predictions, and on top of it the misfit of these recordings.

    Args:
        recordings: the recordings.
        metric: key of the metric.
        same_malloc: whether the change is by settings of the malloc that the program was recorded on.
    """
    if metric not in ProgramMemory().by_metric():
        return 0.0
    several = recordings.threads or any(r.forked for r in recordings.inputs.values())
    usual = max(HALF_WIDTHS[kind, several, same_malloc] for kind in recordings.kinds)
    return math.log1p(usual / 100) + math.log1p(recordings.misfit)


def prediction_interval(recordings: Recordings, metric: str, ratio: Ratio, allocator: str) -> Ratio:
    """Returns a ratio of replays with the interval of the program's ratio: wider by the error of predictions.

    Args:
        recordings: the recordings.
        metric: key of the metric.
        ratio: of replays, with the interval of their noise; NaN if that is not known.
        allocator: name of the allocator whose change it is.
    """
    half = half_width(recordings, metric, allocator == recordings.reference)
    low, high = (ratio.value if half and math.isnan(end) else end for end in (ratio.low, ratio.high))
    return Ratio(ratio.value, low * math.exp(-half), high * math.exp(half))


def misfit_sentence(recordings: Recordings) -> str:
    """Returns a sentence about recordings that their own replay misses; empty if none is missed by much."""
    worst = recordings.misfit
    if worst < _TELLING_MISFIT:
        return ""
    name = next(name for name, r in recordings.inputs.items() if r.misfit == worst)
    then = "so it predicts nothing" if worst > MAX_MISFIT else "and the intervals are wider by that"
    return (
        f"On the recorded malloc, the replay of {name} misses the memory that was measured in the recording by"
        f" {100 * worst:.0f}% of the program's peak, {then}."
    )


def memory_sentence(recordings: Recordings) -> str:
    """Returns sentences about recordings with little memory, or without the whole memory of the program, if any."""
    show = METRICS["peak_rss_bytes"].show
    small = [
        f"{name}: the recorded process has about {show(r.peak_live_bytes)} allocated at its peak"
        for name, r in recordings.inputs.items()
        if r.peak_live_bytes < _LITTLE_BYTES
    ]
    little = (
        f"{'; '.join(small)}, so a malloc can change little of its memory. If the program uses more, record the"
        " process that does."
        if small
        else ""
    )
    forked = [name for name, r in recordings.inputs.items() if r.forked]
    one_of_several = (
        f"The prediction is for the process of {', '.join(forked)} alone, which was forked: memory of its parent"
        " counts as constant, and the memory of all processes together changes by another share."
        if forked
        else ""
    )
    lacking = [name for name in recordings.inputs if name not in recordings.program_memory]
    if not lacking:
        return " ".join(filter(None, [little, one_of_several]))
    every = len(lacking) == len(recordings.inputs)
    lacks = "no recording contains" if every else f"{', '.join(lacking)} does not contain"
    replays_only = (
        f"Changes of memory are those of the replay, because {lacks} how much memory the program has besides malloc's;"
        " the program's memory changes by a smaller share."
    )
    return " ".join(filter(None, [little, replays_only, one_of_several]))


def time_sentence() -> str:
    """Returns sentences about the times of a replay."""
    return (
        "CPU and wall time are those of the replay: calls of malloc and free and the memory they touch, without the"
        " program's own work. So the program's time changes by a smaller share. The order of these changes agrees with"
        f" the program's in part: rank correlation {CPU_RANK:.2f} for the {CPU_CHANGES} changes above noise,"
        f" {CPU_RANK_OF_ALL:.2f} for all {CPU_CHANGES_OF_ALL} ({CPU_RANK_PAGE})."
    )
