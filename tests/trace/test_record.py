"""The recorder sees every call as the program made it, in whatever corner of its life."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from heapwright.allocators.registry import find_allocators
from heapwright.trace.record import program_name
from tests import needs
from tests.processes import PACE
from tests.trace.recording import Event, Trace, dump, ends_of_huge_pages, heapwright_record, record_told, recorded

PLAIN = ("-fno-builtin",)  # or the compiler takes away what we want to see


@pytest.fixture
def cases(program: Callable[..., Path]) -> Path:
    return program("record_cases", *PLAIN)


def only(traces: list[Trace]) -> Trace:
    assert len(traces) == 1
    assert traces[0].told["lost_events"] == 0
    return traces[0]


CALLS = [
    "malloc 40001",
    "calloc 40002",
    "realloc 40001 40003",
    "malloc 40004",
    "free 40004",
    "usable_size 40002",
    "realloc 40003 40006",
    "free 40006",
    "free 40002",
    "malloc 40005",
    "free 40005",
]


def test_a_trace_has_every_call_and_no_other(cases: Path, tmp_path: Path) -> None:
    assert only(recorded(tmp_path, cases, "calls")).calls() == CALLS


def test_aligned_allocations_are_recorded(cases: Path, tmp_path: Path) -> None:
    sizes = ["40001 64", "40002 128", "40192 256", "40004 4096", "40960 4096"]
    frees = [f"free {size.split()[0]}" for size in reversed(sizes)]
    assert only(recorded(tmp_path, cases, "aligned")).calls() == [*(f"aligned {size}" for size in sizes), *frees]


def test_threads_with_their_beginning_and_end(cases: Path, tmp_path: Path) -> None:
    expected = ["0: thread_start"]
    for thread in (1, 2):
        own = ["thread_start", "malloc 40001", "malloc 40002", "free 40001", "thread_end"]
        expected += [*(f"{thread}: {line}" for line in own), "0: free 40002"]
    assert only(recorded(tmp_path, cases, "threads")).calls(thread=True) == expected


def test_creations_of_threads_are_recorded(cases: Path, tmp_path: Path) -> None:
    """What libc allocates for a new thread is no call of the program: a replay creates a thread there."""
    trace = only(recorded(tmp_path, cases, "threads"))
    assert [(e.thread, *e.values) for e in trace.events if e.kind == "spawn"] == [(0, 1), (0, 2)]
    assert trace.count("calloc") == 0


def test_calls_of_a_thread_after_its_end_are_recorded(cases: Path, tmp_path: Path) -> None:
    """A key's destructor runs up to four times; ours has ended the thread before the last of them."""
    calls = only(recorded(tmp_path, cases, "destructors")).calls(thread=True)
    assert [line.split(": ")[1] for line in calls if "thread" not in line] == [
        *("malloc 40001", "free 40001", "malloc 40010", "free 40010", "malloc 40011", "free 40011"),
        *("malloc 40012", "free 40012", "malloc 40013", "free 40013"),
    ]
    assert calls.index("1: thread_end") > calls.index("1: malloc 40012")


def test_fork_gives_two_traces(cases: Path, tmp_path: Path) -> None:
    traces = recorded(tmp_path, cases, "forks")
    parent, child = sorted(traces, key=lambda t: t.count("fork"), reverse=True)
    assert parent.calls() == ["malloc 40001", "free 40001"]
    assert child.calls() == ["malloc 40002", "free 40002"]
    assert [e.values for e in parent.events if e.kind == "fork"] == [(child.told["pid"],)]
    assert child.told["parent"] == parent.told["pid"]
    assert child.told["lost_events"] == 0
    assert "from before fork()" in str(child.told["warning"])
    assert not parent.told["cut_short"]
    assert not child.told["cut_short"]


def test_exec_gives_a_trace_each(cases: Path, tmp_path: Path) -> None:
    """vfork and exec in a child, then exec in the same process."""
    traces = recorded(tmp_path, cases, "execs")
    assert sorted(t.calls() for t in traces) == sorted([CALLS, CALLS, ["malloc 40009", "free 40009"]])
    assert len({t.told["pid"] for t in traces}) == 2
    assert not any(t.told["cut_short"] for t in traces)


def test_a_program_has_the_name_under_which_it_was_started(cases: Path, tmp_path: Path) -> None:
    """On Debian redis-server is a link to redis-check-rdb. The identity of the file stays."""
    (tmp_path / "server").symlink_to(cases)
    told = record_told(tmp_path, "./server", "forks")
    assert {(p["name"], Path(p["executable"]).name) for p in told} == {("server", cases.name)}
    done = heapwright_record("-o", "t.hwt", "--force", "--", "./server", "forks", folder=tmp_path)
    assert b"t.hwt: server, " in done.stderr + done.stdout
    assert program_name("/usr/bin/dash", "-sh") == program_name("/usr/bin/dash", "sh: a title") == "dash"
    assert program_name("/usr/bin/dash", "") == "dash"
    assert program_name("/usr/sbin/nginx", "nginx: master process nginx -c /etc/n.conf") == "nginx"


def test_all_processes_but_the_busiest_are_in_one_folder(tmp_path: Path) -> None:
    """One command leaves a trace and a folder, however many processes it starts; --force replaces both."""
    told = record_told(tmp_path, "sh", "-c", "perl -e 'my @a = (1) x 5000'; ls / >/dev/null; sort /dev/null; true")
    assert told[0]["trace"] == "t.hwt"
    assert told[0]["executable"].endswith("perl")
    others = {p["trace"] for p in told[1:]}
    assert len(others) == len(told) - 1 >= 3
    assert others == {f"t.processes/{path.name}" for path in (tmp_path / "t.processes").iterdir()}
    assert {path.name for path in tmp_path.iterdir()} == {"t.hwt", "t.processes", "told.json"}
    assert all(dump(tmp_path / name) for name in others)
    (tmp_path / "t.processes" / "mine").touch()
    done = heapwright_record("-o", "t.hwt", "--", "perl", "-e", "1", folder=tmp_path)
    assert (done.returncode, done.stderr) == (2, b"heapwright: t.hwt exists already (--force overwrites it)\n")
    (tmp_path / "t.hwt").unlink()
    done = heapwright_record("-o", "t.hwt", "--", "perl", "-e", "1", folder=tmp_path)
    assert (done.returncode, done.stderr) == (2, b"heapwright: t.processes exists already (--force overwrites it)\n")
    done = heapwright_record("--force", "-o", "t.hwt", "--", "perl", "-e", "1", folder=tmp_path)
    assert done.returncode == 0
    assert [path.name for path in (tmp_path / "t.processes").iterdir()] == ["mine"], "stale traces are gone, no more"


def test_one_line_says_where_the_traces_of_other_processes_are(tmp_path: Path) -> None:
    done = heapwright_record("-o", "t.hwt", "--", "sh", "-c", "ls / >/dev/null; true", folder=tmp_path)
    lines = done.stderr.decode().splitlines()
    assert re.fullmatch(r"heapwright: t\.processes: 1 other process, [\d,]+ events in all", lines[-1]), lines
    assert all(re.search(r"peak live [\d.]*[1-9][\d.]* (B|KiB|MiB),", line) for line in lines[:-1]), lines


@pytest.mark.parametrize("options", [(), ("--sample", "4", "--max-cost", "0")])
def test_a_process_that_held_far_more_memory_than_the_busiest_is_named(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    """A server may start a compiler that makes more calls than the server, and holds little."""
    many, large = "my $x; $x = [$_] for 1..30000", "my $x = 'y' x 3e7"
    done = heapwright_record(*options, "-o", "t.hwt", "--", "sh", "-c", f'perl -e "{many}"; perl -e "{large}"; true'
                             .replace("$", "\\$"), folder=tmp_path)  # fmt: skip
    assert re.search(
        rb"warning: t\.hwt is of perl, which made the most calls but held [\d.]+ [KM]iB at most; perl held [\d.]+ MiB:"
        rb" to tune that program, use t\.processes/\d+\.hwt\n",
        done.stderr,
    ), done.stderr
    done = heapwright_record(*options, "-o", "u.hwt", "--", "sh", "-c", "ls / >/dev/null; true", folder=tmp_path)
    assert b"made the most calls" not in done.stderr


@pytest.mark.parametrize(("stdin", "read"), [("-", b"ours"), ("none", b""), ("in.txt", b"a file's")])
def test_a_recorded_command_reads_the_input_of_stdin(stdin: str, read: bytes, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"a file's")
    done = heapwright_record(
        "-q", "-o", "t.hwt", "--stdin", stdin, "--", "perl", "-pe", "1", folder=tmp_path, stdin=b"ours"
    )
    assert (done.returncode, done.stdout) == (0, read)


def test_children_can_be_left_out(cases: Path, tmp_path: Path) -> None:
    assert only(recorded(tmp_path, cases, "forks", options=("--no-children",))).count("fork") == 1
    traces = recorded(tmp_path, cases, "execs", options=("--no-children",))
    assert len({t.told["pid"] for t in traces}) == 1


def test_a_signal_handler_allocates(cases: Path, tmp_path: Path) -> None:
    calls = only(recorded(tmp_path, cases, "signals")).calls()
    assert calls == ["malloc 40001", "malloc 40002", "free 40001", "free 40002"]


def test_allocations_in_signal_handlers_are_all_recorded(
    cases: Path, program: Callable[..., Path], tmp_path: Path
) -> None:
    """The handler interrupts everything, even the recorder; the trace is complete and valid."""
    library = program("bump_malloc", "-shared", "-fPIC", *PLAIN)
    trace = only(recorded(tmp_path, cases, "storm", options=("--allocator", str(library))))
    made = [event for event in trace.events if event.kind == "malloc"]
    own = sum(event.values[1] == 16 for event in made)
    handled = sum(event.values[1] == 40002 for event in made)
    assert own == trace.count("realloc")
    assert own > 10_000 / PACE
    assert handled > 0
    live = {event.values[0] for event in made if event.values[1] == 16}
    assert sum(event.kind == "free" and event.values[0] in live for event in trace.events) == own


def test_calls_of_a_library_that_is_loaded_twice_are_recorded(
    cases: Path, program: Callable[..., Path], tmp_path: Path
) -> None:
    library = program("record_library", "-shared", "-fPIC", *PLAIN)
    once = ["malloc 40001", "malloc 40002", "free 40002", "free 40001"]
    assert only(recorded(tmp_path, cases, "library", library)).calls() == once * 2


def test_a_library_brings_the_runtime_of_cpp(cases: Path, program: Callable[..., Path], tmp_path: Path) -> None:
    """The recorder looks for operator new late. The loader then frees a block of the program, and malloc reuses it."""
    library = program("record_late_runtime", "-shared", "-fPIC", *PLAIN)
    once = ["malloc 40001", "free 40001", "malloc 40002", "free 40002"]
    assert only(recorded(tmp_path, cases, "library", library)).calls() == once * 2


def test_the_first_malloc_may_come_from_gettext(cases: Path, tmp_path: Path) -> None:
    # The search for optional functions fails there. dlerror translates its message under gettext's lock.
    done = heapwright_record("-q", "-o", "t.hwt", "--", str(cases), "translated", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, b"/elsewhere\n")


def test_before_constructors_and_after_main(cases: Path, tmp_path: Path) -> None:
    assert only(recorded(tmp_path, cases, "early")).calls() == ["malloc 40001", "realloc 40001 40002", "free 40002"]


def test_marks_of_phases_are_recorded(cases: Path, tmp_path: Path) -> None:
    trace, child = recorded(tmp_path, cases, "phases")
    readings = ("untouched", "heap", "files", "resident")
    assert [event.kind for event in child.events if event.kind not in readings] == ["thread_start", "phase"]
    marks = [e for e in trace.events if e.kind == "phase" or (len(e.values) > 1 and e.values[1] == 40001)]
    assert [(e.kind, e.values[0]) for e in marks] == [("phase", 0), ("malloc", 0), ("phase", 1), ("phase", 0)]


def test_a_program_with_marks_needs_no_recorder(program: Callable[..., Path]) -> None:
    import subprocess

    for options in ((), ("-no-pie", "-fno-pie")):
        subprocess.run([program("record_cases", *PLAIN, *options), "phases"], check=True)


def test_how_much_of_large_blocks_was_used(cases: Path, tmp_path: Path) -> None:
    events = only(recorded(tmp_path, cases, "large")).events
    slack = 3 * 4096 + ends_of_huge_pages()
    (freed,) = [e for e in events if e.kind == "free" and len(e.values) > 1]
    assert abs(freed.values[1] - (32 << 20)) <= slack
    (live,) = [e for e in events if e.kind == "touched"]
    assert abs(live.values[1] - (8 << 20)) <= slack


@pytest.mark.parametrize("options", [(), ("--sample", "1")])
def test_how_much_of_a_block_in_reused_memory_was_used(options: tuple[str, ...], cases: Path, tmp_path: Path) -> None:
    """Its pages are resident, used or not: the block before it has filled them."""
    trace = only(recorded(tmp_path, cases, "reused", options=options))
    touched = [e.values[1] for e in trace.events if e.kind == "free" and len(e.values) > 1]
    assert len(touched) == 2
    assert touched[0] >= 100 << 10
    assert (25 << 10) <= touched[1] <= (36 << 10)


FILLING_NEW = """#include <cstdlib>
#include <cstring>
#include <new>
void* operator new(std::size_t bytes) {
  char* block = static_cast<char*>(std::malloc(bytes + 64));
  std::memset(block, 7, bytes + 64);
  return block + 64;
}
void operator delete(void* block) noexcept { std::free(static_cast<char*>(block) - 64); }
void operator delete(void* block, std::size_t) noexcept { std::free(static_cast<char*>(block) - 64); }
"""
CHECKS_NEW = """#include <cstddef>
int main() {
  for (int round = 0; round < 100; round++) {
    char* block = new char[100000];
    for (int at = 0; at < 100000; at++) if (block[at] != 7) return 1;
    delete[] block;
  }
}
"""


@pytest.mark.parametrize("options", [(), ("--sample", "1")])
def test_what_an_operator_new_has_written_stays(options: tuple[str, ...], tmp_path: Path) -> None:
    """The recorder gives pages of new blocks back to the kernel. It sees a block of such an operator as new, too."""
    (tmp_path / "new.cpp").write_text(FILLING_NEW)
    (tmp_path / "checks.cpp").write_text(CHECKS_NEW)
    build = ["g++", "-O1", "-fno-builtin"]
    subprocess.run([*build, "-shared", "-fPIC", "-o", tmp_path / "libnew.so", tmp_path / "new.cpp"], check=True)
    program = tmp_path / "checks"
    link = ["-Wl,--no-as-needed", str(tmp_path / "libnew.so")]
    subprocess.run([*build, "-o", program, tmp_path / "checks.cpp", *link], check=True)
    subprocess.run([program], check=True)
    assert only(recorded(tmp_path, program, options=options)).count("malloc") > 0


def test_closing_all_files_does_not_stop_it(cases: Path, tmp_path: Path) -> None:
    """And the program's own files, which may get the recorder's old number, stay as they are."""
    (tmp_path / "own").touch()
    trace = only(recorded(tmp_path, cases, "closes", tmp_path / "own"))
    assert trace.count("malloc") >= 50_001
    assert (tmp_path / "own").stat().st_size == 0


def _operators(trace: Trace) -> None:
    assert trace.calls() == [
        *("malloc 40001", "free 40001", "malloc 40002", "free_sized 40002", "malloc 40003", "free 40003"),
        *("aligned 40064 64", "free 40064", "malloc 40005", "free_sized 40005"),
    ]


def test_operators_over_the_c_library(program: Callable[..., Path], tmp_path: Path) -> None:
    _operators(only(recorded(tmp_path, program("record_new", *PLAIN), "fail")))


OTHERS = [name for name in find_allocators() if name != "glibc"]


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.few(4)
def test_operators_over_an_allocator_that_has_its_own(name: str, program: Callable[..., Path], tmp_path: Path) -> None:
    trace = only(recorded(tmp_path, program("record_new", *PLAIN), options=("--allocator", name)))
    _operators(trace)


def test_threads_free_each_others_memory(program: Callable[..., Path], tmp_path: Path) -> None:
    trace = only(recorded(tmp_path, program("record_remote"), "4", "5000"))
    makes: dict[int, int] = {}
    remote = 0
    for event in trace.events:
        if event.kind == "malloc":
            makes[event.values[0]] = event.thread
        elif event.kind == "free":
            remote += makes[event.values[0]] != event.thread
    assert trace.count("malloc") == trace.count("free") == 20_000
    assert remote > 0


@pytest.mark.parametrize("name", [n for n in find_allocators() if n in ("glibc", "jemalloc", "mimalloc", "reaper")])
@pytest.mark.few(2)
def test_a_million_events_of_threads_are_never_inverted(
    name: str, program: Callable[..., Path], tmp_path: Path
) -> None:
    """An event whose object is not made yet, or made already, would be lost."""
    (told,) = record_told(tmp_path, program("record_remote"), "4", "125000", options=("--allocator", name))
    assert told["events"] > 1_000_000
    assert told["lost_events"] == 0


def test_the_processors_clock_is_not_needed(cases: Path, tmp_path: Path) -> None:
    env = {"HEAPWRIGHT_RECORD_CLOCK": "monotonic"}
    trace = only(recorded(tmp_path, cases, "threads", env=env))
    assert trace.calls() == ["malloc 40001", "malloc 40002", "free 40001", "free 40002"] * 2
    assert trace.events == sorted(trace.events, key=lambda event: event.time)
    assert isinstance(trace.events[0], Event)


def test_a_library_that_is_no_malloc_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fake.so").write_text("no library")
    done = heapwright_record("-o", "t.hwt", "--allocator", "./fake.so", "--", "perl", "-e", "1", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(b"heapwright: fake.so is not loaded: malloc is bound to ")
    assert not (tmp_path / "t.hwt").exists()


def test_a_forked_child_in_another_root_says_that_it_is_not_recorded(tmp_path: Path) -> None:
    needs.root("change the root folder")
    code = (
        "import os\n"
        f"os.chroot({str(tmp_path)!r})\n"
        "if os.fork() == 0:\n"
        "    more = [bytes(700 + i % 100) for i in range(20000)]\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    for options in ((), ("--sample", "8")):
        done = heapwright_record(
            "-q", "-o", "t.hwt", "--force", *options, "--", sys.executable, "-c", code, folder=tmp_path
        )
        assert done.returncode == 0
        assert done.stderr.decode().count("nothing is recorded of this process: its file cannot be made") == 1


def test_a_program_whose_first_allocation_is_in_newlocale_ends(program: Callable[..., Path], tmp_path: Path) -> None:
    """newlocale allocates under a lock of the C library; a call of dlerror by the recorder would release it."""
    first = program("first_in_newlocale", *PLAIN)
    for options in ((), ("--sample", "8")):
        done = heapwright_record("-q", "-o", "t.hwt", "--force", *options, "--", first, folder=tmp_path)
        assert done.returncode == 0, done.stderr.decode()
