"""Checks whether a program makes the same calls under another malloc, before anything is searched on replays.

A replay makes the calls of one recording under every malloc. The calls of some programs depend on the malloc: they ask
for the usable size of their blocks, collect garbage by it, or fill all of a block. Other programs make other calls in
every run. A replay represents neither kind. So the program is recorded once more, under another malloc, and the two
recordings are compared:

    recording ──► another malloc ──► same within LIMIT ───────────────────────────► replays may be used
                                     └─ else: own malloc again ──► differs less ──► calls depend on the malloc: refused
                                                                   └─ as much ────► calls vary: refused if too much

Only counts of calls and bytes are compared. They do not depend on the load of the machine, as times do.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from heapwright.allocators.in_image import image_allocators
from heapwright.allocators.registry import Allocator, find_allocators
from heapwright.errors import HeapwrightError
from heapwright.metrics import METRICS, show_count
from heapwright.tuning import proxy
from heapwright.tuning.session import Session
from heapwright.tuning.takeover_check import take_over
from heapwright.workload.execute import Executor
from heapwright.workload.model import Input, Workload

# Recordings of one program with one thread differed by at most 0.12% (docs/trust-a-replay.md). So
# 1% is far above chance, and a third of the error that a faithful replay may have. With threads,
# chance decides which blocks are live at the same time: there the peaks of live bytes differed by
# 1.2%.
LIMIT, LIMIT_OF_THREADS = 0.01, 0.05
MAX_VARIATION = 0.05  # a program whose runs differ by more is not searched on one of its courses
# Differences of a few blocks do not count in small programs: a buffer of the C library, a name in
# the environment.
_SLACK = {"live_bytes": 64 << 10, "asked_bytes": 64 << 10, "calls": 100}
# The first of these that the program can run on. Those in C come first, because libstdc++ calls
# malloc once itself.
_OTHERS = ("exgen", "reaper", "mimalloc2", "jemalloc", "tcmalloc")


@dataclass(frozen=True)
class CallsComparison:
    """Whether recordings of a program have the same calls.

    Attributes:
        why: why replays must not be used, or empty.
        sentence: the comparison for people; empty if there was none.
        faithful: whether the calls are the same; None if it is not known.
    """

    why: str = ""
    sentence: str = ""
    faithful: bool | None = None


def check_calls(
    session: Session,
    workload: Workload,
    executor: Executor,
    recorded: Mapping[str, Mapping[str, Any]],
    runtime_setting: str = "",
) -> CallsComparison:
    """Record each input under another malloc, and compare. Stored recordings answer at once.

    Args:
        session: the study's session; its budget is charged.
        workload: the program and its inputs.
        executor: runs the program.
        recorded: facts about the recording of each input (`proxy.record_inputs`).
        runtime_setting: settings of a runtime in the workload's environment, KEY=VALUE; empty for the program as it is.
    """
    verdicts = []
    for input_ in workload.train:
        first = _call_counts(recorded[input_.name])
        other = _other_malloc(session, recorded[input_.name]) if first else None
        if first is None or other is None:
            continue
        if session.budget.over(session.run_s):
            verdicts.append(
                CallsComparison("", "There was no time to compare the program's calls with those under another malloc.")
            )
            break
        second = _recorded_again(session, workload, executor, input_, other, runtime_setting)
        if second is None:
            verdicts.append(
                CallsComparison("", f"It could not be recorded under {other.name}, so its calls were not compared.")
            )
            continue
        limit = LIMIT_OF_THREADS if recorded[input_.name].get("threads", 1) > 1 else LIMIT
        # A load may last a fixed time, and a prefix does: then the number of calls depends on the speed of the run.
        prefix = workload.file.prefix
        by_size = workload.file.server is not None or (prefix is not None and prefix.seconds > 0)
        found = compare_calls(first, second, by_size)
        if found.share <= limit:
            same = f"Recorded under {other.name}, the program makes the same calls (within {found.share:.2%})."
            verdicts.append(CallsComparison("", same, True))
            continue
        third = _recorded_again(session, workload, executor, input_, None, runtime_setting)
        if third is None:
            verdicts.append(CallsComparison(f"it makes other calls: {found.phrase(f'under {other.name}')}", "", False))
        else:
            verdicts.append(judge_calls(first, second, third, other.name, by_size, limit))
        if verdicts[-1].why:
            break
    worst = sorted(verdicts, key=lambda one: (not one.why, {False: 0, None: 1, True: 2}[one.faithful]))
    return worst[0] if worst else CallsComparison()


@dataclass(frozen=True)
class Difference:
    """The largest relative difference of two recordings.

    Attributes:
        share: of the larger of the two counts.
        count: which one differs: live_bytes, asked_bytes or calls.
        one, other: the two.
    """

    share: float
    count: str
    one: float
    other: float

    def phrase(self, where: str) -> str:
        """'it has 26.5 MiB of live blocks at its peak, and 32.1 MiB under exgen'."""
        what, show = {
            "live_bytes": ("of live blocks at its peak", METRICS["peak_rss_bytes"].show),
            "asked_bytes": ("requested in all", METRICS["peak_rss_bytes"].show),
            "calls": ("calls of malloc and free", show_count),
        }[self.count]
        return f"{show(self.one)} {what}, and {show(self.other)} {where} ({self.share:.1%} apart)"


def compare_calls(one: Mapping[str, float], other: Mapping[str, float], by_size: bool = False) -> Difference:
    """Return the largest relative difference of two recordings.

    Args:
        one: calls, asked_bytes and live_bytes of a recording.
        other: those of another recording.
        by_size: compare only the bytes of live blocks at the peak.
    """
    found = [Difference(0.0, "live_bytes", one["live_bytes"], other["live_bytes"])]
    for count, slack in _SLACK.items():
        apart = abs(one[count] - other[count])
        if apart > slack and (count == "live_bytes" or not by_size):
            found.append(Difference(apart / max(one[count], other[count]), count, one[count], other[count]))
    return max(found, key=lambda difference: difference.share)


def judge_calls(
    first: Mapping[str, float],
    other: Mapping[str, float],
    again: Mapping[str, float],
    name: str,
    by_size: bool = False,
    limit: float = LIMIT,
) -> CallsComparison:
    """Judge a program whose recordings under two mallocs differ.

    Args:
        first: counts of the recording that would be replayed.
        other: of that under the other malloc.
        again: of a second recording under the program's own malloc.
        name: of the other malloc.
        by_size: see `compare_calls`.
        limit: the largest difference that counts as the same calls.
    """
    chance = compare_calls(first, again, by_size)
    nearest = min((compare_calls(own, other, by_size) for own in (first, again)), key=lambda found: found.share)
    if nearest.share > max(limit, 2 * chance.share):
        why = (
            f"its calls depend on the malloc: {nearest.phrase(f'under {name}')}, but two runs under its own differ less"
        )
        return CallsComparison(f"{why} ({chance.share:.1%})", "", False)
    found = max(chance, nearest, key=lambda found: found.share)
    where = "in another run" if found is chance else f"under {name}"
    varies = f"it makes other calls in every run: {found.phrase(where)}"
    if found.share > MAX_VARIATION:
        return CallsComparison(varies, "", False)
    return CallsComparison("", f"Replays are not exact, because {varies}.", False)


def _other_malloc(session: Session, facts: Mapping[str, Any]) -> Allocator | None:
    """The first malloc of `_OTHERS` that the program can run on, other than the recorded one; None if there is none."""
    container = session.workload.container
    if container is None:
        found = find_allocators()
    else:
        found = image_allocators(container.image.platform, container.image.libraries, container.image.libc_version)
    own = Path(str(facts.get("allocator", ""))).name
    for name in _OTHERS:
        allocator = found.get(name)
        if allocator is None or (allocator.path and Path(allocator.path).name == own):
            continue
        able, _ = take_over(
            session.store, session.executor, allocator, session.config_cache.base, session.workload, session.budget
        )
        if able is not None:
            return able
    return None


def _recorded_again(
    session: Session,
    workload: Workload,
    executor: Executor,
    input_: Input,
    allocator: Allocator | None,
    runtime_setting: str,
) -> dict[str, float] | None:
    """Counts of one more recording, or None if it failed. The study keeps them, not the trace."""
    store = session.store
    key = "/".join([allocator.name if allocator else "", runtime_setting, input_.name])
    every: dict[str, Any] = dict(store.meta.recorded_again)
    if key in every:
        session.budget.recall(float(every[key]["charged_s"]))
    else:
        store.traces.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".again-", dir=store.traces) as folder:
            try:
                facts = proxy.record_input(workload, executor, input_, Path(folder) / "again.hwt", allocator)
            except HeapwrightError as error:
                facts = {"failure": error.message}
        every[key] = {k: facts[k] for k in ("made", "failure") if k in facts} | {"charged_s": session.budget.charge()}
        store.update(recorded_again=every)
    return _call_counts(every[key])


def _call_counts(facts: Mapping[str, Any]) -> dict[str, float] | None:
    """The counts that are compared; None if there was no recording, or an older version made it."""
    made = facts.get("made")
    return None if made is None else msgspec.convert(made, dict[str, float])
