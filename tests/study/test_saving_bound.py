"""Tests the upper bounds of the possible gain and their sentences, on made-up numbers and on a stored study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.interleaving.configuration import Config
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.records import StoredRun
from heapwright.measure.memory_parts import Breakdown, MemoryParts
from heapwright.study.saving_bound import (
    ALIGNED_S,
    CALL_S,
    LAYOUT,
    PEAK_JITTER_BYTES,
    DefaultMeasurements,
    RecordedCounts,
    cpu_bound,
    memory_bound,
    saving_bound,
    where_text,
)
from heapwright.study.store import open_writable_study
from heapwright.study.study_bound import bound_of_inputs, bound_of_study, recorded_counts_of, unless_refuted
from heapwright.study.view import Confirmation, Reference, SavingBound

MIB = 1 << 20
PROGRAM = "/usr/bin/prog"


def default(**changes: Any) -> DefaultMeasurements:
    """100 MiB at the peak, 90 of them anonymous; half a second of CPU time."""
    parts = MemoryParts(program=6 * MIB, files=3 * MIB, stacks=1 * MIB, heap=80 * MIB, other=10 * MIB)
    made = DefaultMeasurements(100 * MIB, parts, 0.5, 0.1, 1, 1, PROGRAM, 1.0, (PROGRAM,))
    return replace(made, **changes)


def heap(live: float, **changes: Any) -> RecordedCounts:
    """A recording of blocks that were all resident."""
    made: dict[str, Any] = {"events": 1e6, "asked_bytes": 1e8, "live_bytes": live * MIB, "untouched_bytes": 0.0}
    return RecordedCounts(**{**made, "executable": PROGRAM, **changes})


def memory(seen: DefaultMeasurements, recording: RecordedCounts | None = None) -> float:
    """The bound in MiB of the peak, without what equal runs differ by."""
    bound = memory_bound(seen, recording)
    assert bound is not None
    return (bound * seen.peak - PEAK_JITTER_BYTES - seen.spread) / MIB


def said(seen: DefaultMeasurements, recording: RecordedCounts | None = None) -> str:
    """The sentence."""
    known = saving_bound([(seen, recording)])
    assert known is not None
    return known.sentence


def test_without_a_recording_all_anonymous_memory_may_be_saved() -> None:
    assert memory(default()) == pytest.approx(90)


def test_growth_after_the_last_reading_counts_as_mallocs() -> None:
    assert memory(default(peak=120 * MIB)) == pytest.approx(110)


def test_blocks_that_are_live_at_the_peak_stay() -> None:
    # File pages may have come after the blocks were freed, so they do not lower the bound.
    assert memory(default(), heap(70)) == pytest.approx(100 - 6 - 1 - 70)
    assert memory(default(), heap(70, untouched_bytes=60.0 * MIB)) == pytest.approx(100 - 6 - 1 - 10)


def test_blocks_that_were_never_resident_bound_nothing() -> None:
    assert memory(default(), heap(500)) == pytest.approx(90)
    assert memory(default(), heap(500, untouched_bytes=409.5 * MIB)) == pytest.approx(100 - 6 - 1 - 90.5)


def test_memory_that_no_recorded_block_explains_is_not_mallocs() -> None:
    runtime = default(parts=MemoryParts(6 * MIB, 3 * MIB, 1 * MIB, 2 * MIB, 88 * MIB))
    assert memory(runtime, heap(4)) == pytest.approx(2 + 1.125 * 4)
    assert memory(runtime, heap(4, glibc=False)) == pytest.approx(89), "another malloc maps its heap"
    assert memory(replace(runtime, processes=2, busiest_share=0.8), heap(4)) == pytest.approx(2 + 1.125 * 4 + 20)


def test_a_recording_of_another_process_bounds_no_memory() -> None:
    assert memory(default(), heap(70, executable="/bin/sh")) == pytest.approx(90)
    assert memory(default(), heap(70, alike=2)) == pytest.approx(90), "another process of this program may have it"
    known = saving_bound([(default(), heap(70, executable="/bin/sh"))])
    assert known is not None
    assert (known.live_bytes, known.recorded_share) == (None, 0.0)


def test_equal_runs_that_differ_widen_the_bound() -> None:
    assert memory_bound(default(spread=5 * MIB), None) == pytest.approx((95 * MIB + PEAK_JITTER_BYTES) / (100 * MIB))


def test_cpu_time_counts_the_system_the_calls_and_the_bytes_of_all_processes() -> None:
    few, many = cpu_bound(default(), heap(1, events=1e5)), cpu_bound(default(), heap(1, events=1e5 + 1e6))
    assert few is not None
    assert many is not None
    assert few > 0.1 / 0.5, "system time alone"
    assert many - few == pytest.approx(1e6 * CALL_S / 0.5)
    part = cpu_bound(default(), heap(1, events=1e5, asked_bytes=0.0, share=0.5))
    assert part == pytest.approx(cpu_bound(default(), heap(1, events=2e5, asked_bytes=0.0)))


def test_another_placement_moves_only_the_memory_of_malloc() -> None:
    """As in LuaJIT, which maps its heap itself. A setting for the whole process turns off its huge pages, too."""
    parts = MemoryParts(program=0, files=0, stacks=0, heap=MIB // 2, other=90 * MIB)
    seen = default(peak=parts.total, parts=parts, sys_s=0.0)
    counts = heap(0.01, events=14, asked_bytes=0.0)
    assert cpu_bound(seen, counts) == pytest.approx(LAYOUT[0][1], abs=1e-4)
    assert cpu_bound(replace(seen, huge=80 * MIB), counts) == pytest.approx(LAYOUT[-1][1], abs=1e-4)
    # A recording of another malloc says nothing about the rest.
    others = heap(0.01, events=14, asked_bytes=0.0, glibc=False)
    assert cpu_bound(seen, others) == pytest.approx(LAYOUT[-1][1], abs=1e-4)


def test_without_a_recording_cpu_time_is_not_known() -> None:
    assert cpu_bound(default(), None) is None
    assert "the possible saving of CPU time is unknown" in said(default())


def test_a_bound_of_nearly_all_is_left_out() -> None:
    """'At most 100% of peak memory can be saved' says nothing."""
    small = default(peak=3 * MIB, parts=MemoryParts(0, 0, 0, 3 * MIB, 0))
    assert said(small) == "The possible saving is unknown until this program's allocations are recorded."
    assert said(small, heap(0.01, events=1e5, asked_bytes=0.0)).endswith("% of CPU time can be saved.")
    assert "peak memory" not in said(small, heap(0.01, events=1e5, asked_bytes=0.0))
    assert said(replace(small, threads=4), heap(0.01)).startswith("The saving of CPU time has no upper bound, because")
    assert said(replace(small, sys_s=0.5), heap(0.01)) == ""


def test_threads_that_call_malloc_often_may_wait_most_of_the_time() -> None:
    assert cpu_bound(default(threads=4), heap(70)) == 1.0
    assert said(default(threads=4), heap(70)) == (
        "If the program uses its blocks in full, at most 23% of peak memory can be saved; the saving of CPU time has no"
        " upper bound, because 4 threads call malloc 2 M times a second."
    )
    rare = cpu_bound(default(threads=4), heap(70, events=1e3))
    assert rare is not None
    assert rare < 1.0


def test_threads_that_do_not_call_malloc_are_not_said_to() -> None:
    """As in Octave, whose OpenBLAS starts threads of its own. They may spin while the first one is in malloc."""
    seen = default(threads=3, sys_s=0.01)
    counts = heap(70, events=1e5, threads=1)
    one, alone = cpu_bound(seen, counts), cpu_bound(default(sys_s=0.01), counts)
    assert one is not None
    assert alone is not None
    assert alone < one < 0.95
    assert "threads call malloc" not in said(seen, counts)
    assert "because 2 threads call malloc 2 M times" in said(seen, heap(70, threads=2))
    assert "because 3 threads call malloc 2 M times" in said(seen, heap(70, threads=9))


def test_threads_that_hardly_call_malloc_make_no_thread_wait() -> None:
    """Regression: one thread of Open MPI makes all calls, but 'no upper bound, because 3 threads call malloc'."""
    seen = default(threads=3, cpu_s=1.0, sys_s=0.01)
    counts = heap(70, events=1_000_580, threads=3, thread_calls=[1e6, 523, 57])
    bound = cpu_bound(seen, counts)
    assert bound is not None
    assert bound < 0.95
    assert "threads call malloc" not in said(seen, counts)
    # The calls of all threads but one decide, not those of each.
    shared = heap(70, events=1.06e6, threads=3, thread_calls=[1e6, 3e4, 3e4])
    assert "because 2 threads call malloc 1.06 M times a second" in said(seen, shared)
    pair = heap(70, events=1.6e6, threads=3, thread_calls=[8e5, 8e5, 57])
    assert "because 2 threads call malloc 1.6 M times a second" in said(seen, pair)


def test_the_reason_for_no_bound_is_that_of_an_input_without_one() -> None:
    """Regression: with several inputs the counts were always those of the input with the largest peak."""
    quiet, busy = default(peak=200 * MIB, threads=2), default(threads=4)
    few, many = heap(70, events=10, threads=2), heap(70, threads=4, thread_calls=[4e5, 3e5, 2e5, 1e5])
    for inputs in ([(quiet, few), (busy, many)], [(busy, many), (quiet, few)]):
        known = saving_bound(inputs)
        assert known is not None
        assert "because 4 threads call malloc 2 M times a second" in known.sentence


def test_many_aligned_allocations_leave_no_bound_on_cpu_time() -> None:
    """Regression: 'at most 72% of CPU time can be saved' of a program that saved 82%: glibc searches long."""
    seen, counts = default(cpu_s=1.0, sys_s=0.01), heap(70, events=1e5)
    plain = cpu_bound(seen, counts)
    assert plain is not None
    assert plain < 0.95
    many = msgspec.structs.replace(counts, aligned=4e4)
    assert cpu_bound(seen, many) == 1.0
    assert said(seen, many).endswith(
        "; the saving of CPU time has no upper bound, because the program allocates 40 k aligned blocks a second, and"
        " malloc may search long for each."
    )
    few = cpu_bound(seen, msgspec.structs.replace(counts, aligned=100))
    assert few == pytest.approx(plain + 100 * ALIGNED_S)
    part = msgspec.structs.replace(counts, aligned=501, share=0.5)
    assert cpu_bound(seen, part) == 1.0, "the other processes may make as many"


SIZES = st.floats(0, 1e10)


@given(st.builds(MemoryParts, SIZES, SIZES, SIZES, SIZES, SIZES), SIZES, SIZES, SIZES, st.booleans())
def test_a_bound_is_a_share_and_a_recording_never_raises_it(
    parts: MemoryParts, unread: float, live: float, untouched: float, glibc: bool
) -> None:
    seen = default(peak=parts.total + unread, parts=parts)
    bare = memory_bound(seen, None)
    bound = memory_bound(seen, heap(live / MIB, untouched_bytes=untouched, glibc=glibc))
    if seen.peak <= 0:
        assert bound is None
        return
    assert bare is not None
    assert bound is not None
    assert 0 <= bound <= bare * (1 + 1e-12)
    assert bare <= 1


def test_the_sentence_has_both_bounds() -> None:
    text = said(default(cpu_s=5.0), heap(70))
    assert text.startswith("If the program uses its blocks in full, at most 23% of peak memory and at most ")
    assert text.endswith("% of CPU time can be saved.")


def test_the_assumption_of_used_blocks_is_stated_only_where_the_bound_needs_it() -> None:
    """A recording cannot see which part of a recycled block the program uses."""
    unused = heap(70, used=False)
    assert memory(default(), unused) == memory(default()), "all of malloc's memory may be saved"
    assert said(default(), unused).startswith("At most 90% of peak memory")
    assert said(default(), heap(0)).startswith("At most 80% of peak memory"), "no block is live"
    almost = default(parts=MemoryParts(6 * MIB, 3 * MIB, 1 * MIB, 90 * MIB, 0))
    assert said(almost, heap(91.7)).startswith(
        "If the program uses its blocks in full, at most 1% of this program's peak memory can be saved: malloc can save"
    )
    assert cpu_bound(default(), unused) == cpu_bound(default(), heap(70))


def test_less_than_one_per_cent_is_said_so() -> None:
    pages = default(parts=MemoryParts(2 * MIB, 97 * MIB, 1 * MIB, 0, 0), sys_s=0.0, peak=100 * MIB)
    assert said(pages).startswith("Malloc holds less than 1% of this program's peak memory, and ")


def test_memory_that_may_be_a_runtimes_gives_no_bound() -> None:
    java = default(parts=MemoryParts(6 * MIB, 3 * MIB, 1 * MIB, 2 * MIB, 88 * MIB), cpu_s=5.0)
    assert said(java) == "The possible saving is unknown until this program's allocations are recorded."
    assert said(java, heap(4)).startswith("At most 7% of peak memory and at most "), "the recording knows malloc's part"
    late = said(replace(java, peak=200 * MIB), heap(4))
    assert late.startswith("At most ")
    assert late.endswith("% of CPU time can be saved; malloc's part of this program's peak memory is unknown.")
    assert said(default()).startswith("At most 90% of peak memory can be saved; "), "most of it is the C library's heap"


def test_malloc_that_holds_little_is_not_worth_a_search() -> None:
    pages = default(parts=MemoryParts(2 * MIB, 96 * MIB, 1 * MIB, MIB / 2, MIB / 2), sys_s=0.0)
    assert said(pages).startswith(
        "Malloc holds at most 1% of this program's peak memory, and 96% is pages of files:"
        " malloc can save almost no memory; "
    )
    assert memory(pages) == pytest.approx(1)
    quiet = replace(pages, parts=MemoryParts(2 * MIB, 97 * MIB, 1 * MIB, 0, 0), cpu_s=100.0)
    assert "malloc can save almost no memory; at most 5% of CPU time can be saved." in said(
        quiet, heap(0, events=10, asked_bytes=10.0)
    )


def test_the_busiest_program_is_named_where_it_is_not_the_command() -> None:
    seen = default(processes=3, busiest="/usr/lib/gcc/cc1plus", busiest_share=0.98)
    assert "(the largest process, cc1plus, has 98% of the memory)" in said(seen)
    assert "largest process" not in said(default())


def test_the_share_of_one_process_is_not_said_to_be_its_programs() -> None:
    """Regression: '22% of its memory is mpi's', although the four processes of mpi held 89%."""
    text = said(default(processes=5, busiest="/opt/mpi", busiest_share=0.22))
    assert "(the largest process, mpi, has 22% of the memory)" in text
    assert "mpi's" not in text


def test_a_program_too_short_to_be_read_is_said_to_be_so() -> None:
    short = default(parts=None, busiest="")
    assert saving_bound([(short, None)]) is None
    assert said(short, heap(1)).startswith("The program ended before its memory could be read")


def test_of_several_inputs_the_largest_bound_counts_and_all_must_be_known() -> None:
    small = default(peak=10 * MIB, parts=MemoryParts(MIB, 0, 0, 9 * MIB, 0))
    both = saving_bound([(default(), heap(85)), (small, heap(0))])
    assert both is not None
    assert both.memory_bound == memory_bound(small, heap(0))
    unread = saving_bound([(default(), heap(85)), (replace(small, parts=None), heap(1))])
    assert unread is not None
    assert unread.memory_bound is None
    unrecorded = saving_bound([(default(), heap(85)), (small, None)])
    assert unrecorded is not None
    assert unrecorded.cpu_bound is None


def test_inputs_that_are_not_recorded_do_not_hide_the_bounds_of_the_others() -> None:
    seen, held_out = default(cpu_s=5.0), default(peak=200 * MIB)
    both = bound_of_inputs({"a": (seen, heap(70)), "b": (held_out, None)})
    assert both is not None
    assert (both.memory_bound, both.cpu_bound) == (memory_bound(seen, heap(70)), cpu_bound(seen, heap(70)))
    assert both.scope == "On the recorded input a"
    assert both.sentence.startswith(
        "On the recorded input a: if the program uses its blocks in full, at most 23% of peak memory and at most "
    )
    for whole in ({"a": (seen, heap(70))}, {"a": (seen, None), "b": (held_out, None)}):
        known = bound_of_inputs(whole)
        assert known is not None
        assert known == saving_bound(list(whole.values()))


def test_a_bound_that_says_nothing_is_left_out() -> None:
    busy = heap(70, events=1e7)
    assert cpu_bound(default(), busy) == 0.95
    assert said(default(), busy) == ("If the program uses its blocks in full, at most 23% of peak memory can be saved.")
    unread = default(parts=None, busiest="")
    assert said(unread, busy).endswith("so the possible saving of memory is unknown.")
    java = default(parts=MemoryParts(6 * MIB, 3 * MIB, 1 * MIB, 2 * MIB, 88 * MIB), peak=200 * MIB)
    assert said(java, heap(4, events=1e7)) == "Malloc's part of this program's peak memory is unknown."
    pages = default(parts=MemoryParts(2 * MIB, 96 * MIB, 1 * MIB, MIB / 2, MIB / 2))
    assert said(pages, busy).endswith("almost no memory; the saving of CPU time has no upper bound.")


def test_kinds_of_memory_are_named_largest_first() -> None:
    known = saving_bound([(default(), None)])
    assert isinstance(known, SavingBound)
    assert where_text(known) == (
        "C library's heap 80%, other anonymous memory 10%, program and libraries 6%, other files 3%, main stacks 1%"
    )


def test_a_recording_of_an_older_version_is_none() -> None:
    assert recorded_counts_of({"events": 5, "share": 1.0}, served=True) is None
    assert recorded_counts_of(None, served=True) is None
    kept = {"heap": {"events": 5, "asked_bytes": 6, "live_bytes": 7, "untouched_bytes": 0, "glibc": True}}
    found = recorded_counts_of({**kept, "executable": PROGRAM, "share": 0.5}, served=False)
    assert found is not None
    assert (found.glibc, found.share, found.executable) == (False, 0.5, PROGRAM)


def test_paths_are_compared_after_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "python3.11").touch()
    (tmp_path / "python3").symlink_to(tmp_path / "python3.11")
    known = saving_bound([(default(own=(str(tmp_path / "python3"),), busiest=str(tmp_path / "python3.11")), None)])
    assert known is not None
    assert known.busiest == ""


def test_a_confirmed_saving_above_the_bound_withdraws_it() -> None:
    bound = saving_bound([(default(), heap(70))])
    assert bound is not None
    assert bound.memory_bound == pytest.approx(0.23, abs=0.01)

    def confirmed(metric: str, high: float) -> Reference:
        row = Confirmation(metric, high - 0.01, high - 0.02, high, 0.001, 15, "better", 1.0, high)
        return Reference("jemalloc", Config(2, "jemalloc", {}, {}), {metric: row}, "")

    assert unless_refuted(bound, [confirmed("peak_rss_bytes", 0.78)]) is bound
    refuted = unless_refuted(bound, [confirmed("peak_rss_bytes", 0.78), confirmed("peak_rss_bytes", 0.53)])
    assert (refuted.memory_bound, refuted.cpu_bound) == (None, bound.cpu_bound)
    assert refuted.sentence == (
        "The confirmed saving exceeds the bound before the search (at most 23% of peak memory): that bound is wrong."
    )
    assert unless_refuted(bound, [confirmed("cpu_s", 0.01)]).cpu_bound is None

    full = default(parts=MemoryParts(7 * MIB, 1 * MIB, 1 * MIB, 91 * MIB, 0))
    almost = saving_bound([(full, heap(91.5))])
    assert almost is not None
    none = unless_refuted(almost, [confirmed("peak_rss_bytes", 0.5)])
    assert none.sentence == (
        "The confirmed saving exceeds the bound before the search (less than 1% of peak memory): that bound is wrong."
    )
    assert not none.used_blocks


@pytest.mark.parametrize("ratio", [0.3, 0.95])
def test_an_allocator_that_saves_more_shows_that_blocks_are_not_used_in_full(tmp_path: Path, ratio: float) -> None:
    """Otherwise the bound of a program that leaves most of its blocks untouched would be far too low."""
    parts = MemoryParts(6 * MIB, 3 * MIB, 1 * MIB, 80 * MIB, 10 * MIB)
    read = {"parts": msgspec.to_builtins(Breakdown(parts, parts, 1, PROGRAM, 100.0 * MIB)), "threads": 1}
    counts = msgspec.to_builtins(heap(70))
    with open_writable_study(tmp_path / "s.study") as store:
        ids = [store.config(name, {}, {"LD_PRELOAD": name}).id for name in ("default", "tbbmalloc")]
        store.update(spaces={"glibc": {}}, recorded={"default": {"heap": counts, "executable": PROGRAM}})
        for phase, block, config, peak in (
            (Phase.CALIBRATE, 0, ids[0], 1.0),
            *((Phase.ALLOCATORS, block, *run) for block in (0, 1) for run in ((ids[0], 1.0), (ids[1], ratio))),
        ):
            metrics: dict[str, float | None] = {"peak_rss_bytes": peak * 100 * MIB, "cpu_s": 1.0, "sys_s": 0.1}
            store.add_run(StoredRun(phase, block, "default", config, 0.1, "", "", metrics, read), "2026-01-01T00:00:00")
        bound = bound_of_study(store)
    assert bound is not None
    assert bound.memory_bound == pytest.approx(0.9 if ratio < 0.77 else 0.23, abs=0.01)
    assert bound.used_blocks == (ratio >= 0.77)


UNTIL = "until this program's allocations are recorded"
NEVER = "because this program's allocations cannot be recorded"


@pytest.mark.parametrize(("reach", "reason"), [("all", UNTIL), ("glibc", NEVER), ("embedded", NEVER)])
def test_no_recording_is_promised_of_a_program_that_cannot_be_recorded(tmp_path: Path, reach: str, reason: str) -> None:
    """Regression: of static programs the sentence said 'until this program's allocations are recorded'."""
    parts = MemoryParts(0, 0, 0, 90 * MIB, 10 * MIB)
    read = {"parts": msgspec.to_builtins(Breakdown(parts, parts, 1, PROGRAM, 100.0 * MIB)), "threads": 1}
    metrics: dict[str, float | None] = {"peak_rss_bytes": 100.0 * MIB, "cpu_s": 1.0, "sys_s": 0.1}
    with open_writable_study(tmp_path / "s.study") as store:
        config = store.config("default", {}, {}).id
        store.update(spaces={"glibc": {}}, managed={"runtime": "", "reach": reach, "sentence": ""})
        run = StoredRun(Phase.CALIBRATE, 0, "default", config, 0.1, "", "", metrics, read)
        store.add_run(run, "2026-01-01T00:00:00")
        bound = bound_of_study(store)
    assert bound is not None
    assert bound.sentence.replace(",", "").startswith(f"The possible saving is unknown {reason}")
