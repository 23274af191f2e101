"""Describes the basis of a prediction, in words and in JSON: recordings, reference and usual error."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from heapwright.metrics import show_bytes, show_count
from heapwright.study.usual_error import INTERVAL_PAGE, error_sentence, half_width, usual_errors
from heapwright.study.view import StudyView
from heapwright.terminal_text import counted
from heapwright.trace.recordings import Recording, Recordings


def recordings_json(recordings: Recordings, metrics: Sequence[str] = ()) -> dict[str, Any]:
    """Return the keys that JSON has for recordings: the files, the reference, the usual error.

    Args:
        recordings: the recordings.
        metrics: see `usual_error.usual_errors`.
    """
    return {
        "traces": [{"input": name, **_recording_json(r)} for name, r in recordings.inputs.items()],
        "recorded_on": {"reference": recordings.reference, "why": recordings.reference_why},
        "usual_error": {
            "sentence": error_sentence(recordings, metrics),
            "rows": [dataclasses.asdict(row) for row in usual_errors(recordings, metrics)],
            "half_width": math.expm1(half_width(recordings, "peak_rss_bytes")),
            "half_width_same_malloc": math.expm1(half_width(recordings, "peak_rss_bytes", same_malloc=True)),
            "half_width_page": INTERVAL_PAGE,
        },
    }


def _recording_json(recording: Recording) -> dict[str, Any]:
    """Return the facts of a recording without its readings over time."""
    facts = dataclasses.asdict(dataclasses.replace(recording, memory=None))
    del facts["memory"]
    return {**facts, "mean_resident_bytes": recording.memory.mean_bytes if recording.memory else None}


def recording_text(name: str, recording: Recording) -> str:
    """'monday.hwt: a sample of 1 object in 64, 812,345 calls, 4 threads, 81.3 MiB live at the peak, held out'."""
    kind = f"a sample of 1 object in {recording.rate}" if recording.kind == "sample" else f"a {recording.kind}"
    parts = [
        kind + (" trace" if recording.kind == "complete" else ""),
        f"{show_count(recording.events)} calls",
        f"{counted(recording.threads, 'thread')}",
        f"{show_bytes(recording.peak_live_bytes)} live at the peak",
        *([f"{show_bytes(recording.peak_resident_bytes)} resident"] if recording.peak_resident_bytes else []),
        *(["held out"] if recording.held_out else []),
    ]
    return f"{name}: {', '.join(parts)}"


def recordings_lines(view: StudyView) -> list[str]:
    """Return the lines about the recordings of a study: each of them, the reference, settings left out."""
    if view.recordings is None:
        return []
    return [
        *(recording_text(name, r) for name, r in view.recordings.inputs.items()),
        view.recordings.reference_why,
        *(
            f"{allocator}: {', '.join(keys)} not searched, because a replay does not show the effect"
            for allocator, keys in view.hidden.items()
        ),
    ]
