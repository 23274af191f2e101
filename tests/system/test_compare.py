"""Tests `compare`: allocators side by side, and the row that each failure gives."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from heapwright.metrics import NUMERIC
from tests import needs
from tests.conftest import PROGRAMS

from .conftest import Heapwright

WORDS = ["compare", "-n", "4", "--timeout", "5"]


@pytest.fixture(scope="module")
def bump(program: Callable[..., Path]) -> str:
    return str(program("bump_malloc", "-shared", "-fPIC"))


def test_each_allocator_has_a_row_in_every_format(
    heapwright: Heapwright, program: Callable[..., Path], bump: str
) -> None:
    exports = ["--json", "c.json", "--csv", "c.csv", "--markdown", "c.md", "--latex", "c.tex", "--plot", "c.svg"]
    done = heapwright(*WORDS, "--allocators", f"glibc,{bump}", *exports, "--", str(program("mapping_calls")))
    assert done.status == 0, done.err
    found = json.loads((heapwright.folder / "c.json").read_text())
    assert found["reference"] == "glibc"
    assert found["meter"] in ("notify", "ptrace", "poll")
    reference, other = found["allocators"].values()
    assert len(reference["runs"]) == len(other["runs"]) == 4
    assert reference["ratio"]["cpu_s"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    # bump_malloc never frees: about 60 MB rather than 10.
    assert other["ratio"]["peak_rss_bytes"]["low"] > 3
    assert other["summary"].keys() == other["ratio"].keys() == set(NUMERIC), "null where a value cannot be had"
    assert other["summary"]["p99_ms"] is other["ratio"]["p99_ms"] is None
    for ratio in filter(None, other["ratio"].values()):
        assert ratio["low"] <= ratio["value"] <= ratio["high"]
    rows = list(csv.DictReader((heapwright.folder / "c.csv").open()))
    assert [r["allocator"] for r in rows].count("glibc") == 4
    assert {r["round"] for r in rows} == {"1", "2", "3", "4"}
    text = (heapwright.folder / "c.md").read_text()
    assert "| glibc |" in text
    assert f"heapwright compare -n 4 --allocators glibc,{bump} --timeout 5 -- " in text
    tex = (heapwright.folder / "c.tex").read_text()
    assert tex.startswith(f"% heapwright compare -n 4 --allocators glibc,{bump} --timeout 5 -- ")
    assert r"\toprule" in tex
    assert (heapwright.folder / "c.svg").read_text().startswith("<?xml")
    assert done.out.splitlines()[1].startswith("glibc ")


def test_a_musl_program_takes_libraries_for_musl_alone(heapwright: Heapwright) -> None:
    prog, library = heapwright.folder / "prog", heapwright.folder / "libbump.so"
    compiler = needs.command("musl-gcc")
    subprocess.run([compiler, "-o", prog, PROGRAMS / "mapping_calls.c"], check=True)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, PROGRAMS / "bump_malloc.c"], check=True)
    done = heapwright(*WORDS, "--allocators", f"glibc,{library},exgen", "--json", "c.json", "--", str(prog))
    assert done.status == 0, done.err
    found = json.loads((heapwright.folder / "c.json").read_text())
    rows = found["allocators"]
    assert (found["reference"], rows["default"]["malloc"]) == ("default", "musl")
    assert {name: len(row["runs"]) for name, row in rows.items()} == {
        "default": 4,
        "glibc": 0,
        "libbump.so": 4,
        "exgen": 0,
    }
    assert "glibc's settings do not reach prog: its C library is musl" in done.out
    assert "exgen cannot be loaded into prog: its C library is musl" in done.out


def test_an_allocator_named_twice_is_compared_with_itself(heapwright: Heapwright) -> None:
    done = heapwright("compare", "-n", "2", "--allocators", "glibc,glibc,exgen", "--json", "c.json", "--", "true")
    assert done.status == 0, done.err
    found = json.loads((heapwright.folder / "c.json").read_text())["allocators"]
    assert {name: len(row["runs"]) for name, row in found.items()} == {"glibc": 2, "glibc-2": 2, "exgen": 2}
    assert found["glibc-2"]["ratio"]["peak_rss_bytes"]["value"] == pytest.approx(1, abs=0.2)
    assert found["glibc-2"]["env"] == found["glibc"]["env"]


def test_the_legend_of_a_narrow_table_is_not_as_narrow(heapwright: Heapwright) -> None:
    done = heapwright("compare", "-n", "1", "--allocators", "glibc,exgen", "--metrics", "wall", "--", "true")
    head, _, _, *legend = done.out.splitlines()
    assert len(head) < 30
    assert 40 < max(map(len, legend)) <= 60
    assert " ".join(legend).startswith(
        "1 round; glibc: medians; others: ratios to it, below 1 is less (one round has no interval);"
    )


@pytest.mark.long
def test_proportional_memory_is_compared_if_asked_for(
    heapwright: Heapwright, program: Callable[..., Path], bump: str
) -> None:
    words = ["compare", "-n", "2", "--allocators", f"glibc,{bump}", "--json", "-"]
    tree = ["--", str(program("behaviours")), "share", "1", "0", "0"]
    for metrics, there in (("peak_pss,peak_rss", True), ("peak_rss", False)):
        found = json.loads(heapwright(*words, "--metrics", metrics, *tree).out)["allocators"]
        for allocator in found.values():
            peaks = [run["peak_pss_bytes"] for run in allocator["runs"]]
            assert all(64 << 20 <= peak <= 72 << 20 for peak in peaks) if there else peaks == [None, None]


@pytest.mark.parametrize(("mood", "failure"), [("crash", "killed by SIGABRT"), ("hang", "timed out after 1 s")])
def test_a_broken_allocator_does_not_stop_the_others(
    mood: str, failure: str, heapwright: Heapwright, program: Callable[..., Path], bump: str
) -> None:
    same = heapwright.folder / "libsame.so"
    same.symlink_to(bump)
    words = [*WORDS, "--timeout", "1", "--json", "-", "--allocators", f"glibc,{bump},{same}"]
    # Only the first of the two libraries sees the variable: the second is loaded without it.
    done = heapwright(*words, "--", str(program("moody")), env={"BUMP": mood})
    found = json.loads(done.out)["allocators"]
    assert found["glibc"]["failure"] is None
    assert len(found["glibc"]["runs"]) == 4
    broken = [a for name, a in found.items() if name != "glibc"]
    assert {a["failure"] for a in broken} == {failure}
    assert all(a["runs"] == [] for a in broken)
    assert done.status == 1  # only the reference could be measured


def test_an_allocator_that_was_not_loaded_is_reported(
    heapwright: Heapwright, program: Callable[..., Path], bump: str
) -> None:
    done = heapwright(*WORDS, "--allocators", f"glibc,{bump}", "--", str(program("moody", "-static")))
    assert done.status == 1
    assert "not loaded: the program is statically linked" in done.out
    done = heapwright(*WORDS, "-q", "--allocators", f"glibc,{bump}", "--", str(program("moody", "-static")))
    assert done.status == 1
    assert "not loaded: the program is statically linked" in done.err


def test_an_allocator_that_only_the_shell_loads_has_no_figures(
    heapwright: Heapwright, program: Callable[..., Path], bump: str
) -> None:
    """Regression: the rows looked like measurements, because the shell that starts the static program loads it."""
    words = [*WORDS, "--json", "c.json", "--allocators", f"glibc,{bump}"]
    static = program("holders", "-static")
    done = heapwright(*words, "--", "sh", "-c", f"{static}; true")
    assert done.status == 1, "only the reference was measured"
    reference, other = json.loads((heapwright.folder / "c.json").read_text())["allocators"].values()
    assert reference["failure"] is None
    assert other["runs"] == []
    assert not any(other["ratio"].values())
    assert other["failure"].startswith(f"not loaded into {static.name}, which the command starts")
    assert other["failure"].endswith("it is linked statically")
    done = heapwright(*words, "--", "sh", "-c", f"{program('holders')}; true")
    assert done.status == 0, done.err


def test_a_program_that_is_started_without_its_environment_has_no_figures(
    heapwright: Heapwright, program: Callable[..., Path], bump: str
) -> None:
    """Regression: the rows were those of the default, with narrow intervals, because no allocator was loaded."""
    words = [*WORDS, "--json", "c.json", "--allocators", f"glibc,{bump}"]
    done = heapwright(*words, "--", "env", "-i", str(program("holders")))
    assert done.status == 1, "only the reference was measured"
    _, other = json.loads((heapwright.folder / "c.json").read_text())["allocators"].values()
    why = "the command does not pass its environment on to it"
    assert other["failure"].startswith(f"not loaded into {program('holders').name}, which the command starts")
    assert why in other["failure"]


@pytest.mark.parametrize("others", ["", ",glibc"])
def test_a_comparison_without_a_reference_fails(
    others: str, heapwright: Heapwright, program: Callable[..., Path], bump: str
) -> None:
    done = heapwright(*WORDS, "--allocators", f"{bump}{others}", "--", str(program("moody", "-static")))
    assert "not loaded: the program is statically linked" in done.out
    assert done.status == 1


def test_glibc_is_glibc_also_where_a_program_is_linked_to_another(
    heapwright: Heapwright, linked: str, bump: str
) -> None:
    words = [*WORDS, "--json", "-", "--allocators", f"glibc,{bump}", "--", linked]
    found = json.loads(heapwright(*words).out)["allocators"]
    assert found["glibc"]["summary"]["peak_rss_bytes"]["max"] < 20 << 20  # the other malloc never frees: about 60 MB
    (other,) = [a for name, a in found.items() if name != "glibc"]
    assert other["ratio"]["peak_rss_bytes"]["low"] > 3


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory, bump: str) -> str:
    """A program that is linked to another malloc than glibc's, as Debian's redis-server is to jemalloc."""
    path = tmp_path_factory.mktemp("linked") / "linked"
    source = Path(__file__).parents[1] / "programs/mapping_calls.c"
    subprocess.run(
        [needs.command("gcc"), "-O1", "-o", path, source, bump, f"-Wl,-rpath,{Path(bump).parent}"], check=True
    )
    return str(path)


def test_the_reference_is_the_program_as_it_is(heapwright: Heapwright, linked: str, bump: str) -> None:
    done = heapwright("compare", "-n", "2", "--json", "c.json", "--markdown", "c.md", "--", linked)
    assert done.status == 0, done.err
    found = json.loads((heapwright.folder / "c.json").read_text())
    assert found["reference"] == "default"
    assert list(found["allocators"])[:2] == ["default", "glibc"]
    default, glibc = found["allocators"]["default"], found["allocators"]["glibc"]
    assert (default["malloc"], default["path"], default["env"]) == (Path(bump).name, bump, {})
    assert default["ratio"]["peak_rss_bytes"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert default["summary"]["peak_rss_bytes"]["min"] > 40 << 20, "the program's own malloc never gives back"
    assert glibc["ratio"]["peak_rss_bytes"]["high"] < 0.5
    assert glibc["failure"] is None
    assert "malloc" not in glibc
    for text in (done.out, (heapwright.folder / "c.md").read_text()):
        assert f"default ({Path(bump).name})" in text
        assert "; default: medians; others: ratios to it with 95% intervals" in " ".join(text.split())


def test_the_first_name_is_the_reference(heapwright: Heapwright, linked: str, bump: str) -> None:
    done = heapwright("compare", "-n", "1", "--allocators", "glibc,exgen", "--json", "-", "--", linked)
    found = json.loads(done.out)
    assert (found["reference"], list(found["allocators"])) == ("glibc", ["glibc", "exgen"])
    note = f"The program has a malloc of its own ({Path(bump).name}), and no row is the program as it is: leave out"
    assert any(text.startswith(note) for text in found["warnings"])
    found = json.loads(
        heapwright("compare", "-n", "1", "--allocators", f"glibc,{bump}", "--json", "-", "--", linked).out
    )
    assert found["warnings"] == []


def test_helpers_of_a_script_do_not_hide_the_programs_malloc(heapwright: Heapwright, linked: str, bump: str) -> None:
    script = heapwright.folder / "entry.sh"
    script.write_text(f"#!/bin/sh\nenv | grep PATH | tr a b >/dev/null\nexec {linked}\n")
    script.chmod(0o755)
    done = heapwright("compare", "-n", "1", "--json", "c.json", "--", str(script))
    found = json.loads((heapwright.folder / "c.json").read_text())["allocators"]
    assert found["default"]["malloc"] == Path(bump).name, done.err
    assert found["glibc"]["summary"]["peak_rss_bytes"]["max"] < 20 << 20, "glibc is preloaded"


def test_a_program_that_needs_its_malloc_is_told_so(heapwright: Heapwright, bump: str) -> None:
    source = heapwright.folder / "needs.c"
    source.write_text("""
        #include <stdlib.h>
        #include <string.h>
        int main(void) {
          const char* preloaded = getenv("LD_PRELOAD");
          free(malloc(9));
          return preloaded != NULL && strstr(preloaded, "libc") != NULL;
        }
        """)
    own = heapwright.folder / "needs"
    subprocess.run([needs.command("gcc"), "-o", own, source, bump, f"-Wl,-rpath,{Path(bump).parent}"], check=True)
    done = heapwright("compare", "-n", "1", "--allocators", "glibc,exgen", "--", str(own))
    assert done.status == 1
    assert "the command fails under glibc, the reference: exit status 1" in done.err
    assert f"it works with its own malloc ({Path(bump).name}): leave out --allocators" in done.err


def test_a_program_with_glibc_has_no_row_of_its_own(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    found = json.loads(heapwright("compare", "-n", "1", "--json", "-", "--", str(program("mapping_calls"))).out)
    assert found["reference"] == "glibc"
    assert "default" not in found["allocators"]


def test_a_program_whose_malloc_cannot_be_replaced_is_refused(heapwright: Heapwright) -> None:
    """The unchanged program still gets a row; every other allocator gets the reason why it has none."""
    sources = [Path(__file__).parents[1] / f"programs/{name}.c" for name in ("mapping_calls", "bump_malloc")]
    subprocess.run([needs.command("gcc"), "-O1", "-o", heapwright.folder / "own", *sources], check=True)
    done = heapwright("compare", "-n", "1", "--json", "c.json", "--", "./own")
    assert done.status == 1
    found = json.loads((heapwright.folder / "c.json").read_text())["allocators"]
    assert (found["default"]["malloc"], found["default"]["failure"]) == ("its own malloc", None)
    failures = {a["failure"] for name, a in found.items() if name != "default"}
    assert failures == {"not loaded: the program defines its own malloc"}
    assert "default (its own malloc)" in done.out


def test_one_round_has_a_ratio_and_no_interval(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    words = ["compare", "-n", "1", "--allocators", "glibc,exgen", "--json", "c.json", "--markdown", "c.md"]
    done = heapwright(*words, "--plot", "c.svg", "--", str(program("mapping_calls")))
    assert done.status == 0, done.err
    ratio = json.loads((heapwright.folder / "c.json").read_text())["allocators"]["exgen"]["ratio"]["peak_rss_bytes"]
    assert ratio["value"] > 0
    assert (ratio["low"], ratio["high"]) == (None, None)
    for text in (done.out, (heapwright.folder / "c.md").read_text()):
        assert f"{ratio['value']:.3f}" in text
        assert "n/a" not in text.partition("1 round")[0]
        assert "one round has no interval" in " ".join(text.split())


def test_a_table_in_a_log_is_as_wide_as_it_must_be(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    metrics = ["wall", "cpu", "peak_rss", "mean_rss", "minor_faults", "major_faults"]
    words = ["compare", "-n", "2", "--allocators", "glibc,exgen", "--metrics", ",".join(metrics)]
    done = heapwright(*words, "--", str(program("mapping_calls")))
    head, glibc, exgen, *_ = done.out.splitlines()
    assert head.split() == ["allocator", *metrics]
    assert exgen.count("[") == exgen.count("]") == exgen.count(", ") >= 5
    assert "\u2026" not in head + glibc + exgen
    assert len(exgen.rstrip()) > 80


def test_progress_says_how_far_a_comparison_is(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    """Progress counts warm-ups separately, and does not count further runs of allocators that failed in them."""
    words = ["compare", "-n", "3", "--allocators", "glibc,exgen,reaper"]
    err = heapwright(*words, "--", str(program("mapping_calls"))).err
    assert re.search(r"^heapwright: warming up: 3 runs, ", err, re.M), err
    assert re.search(r"^heapwright: comparing: 9 runs, ", err, re.M), err


def test_an_allocator_compared_with_itself(heapwright: Heapwright, program: Callable[..., Path], bump: str) -> None:
    other = heapwright.folder / "copy.so"
    other.write_bytes(Path(bump).read_bytes())
    words = ["compare", "-n", "8", "--json", "-", "--allocators", f"{bump},{other}", "--", str(program("moody"))]
    found = json.loads(heapwright(*words).out)["allocators"]
    ratio = found["copy.so"]["ratio"]["peak_heap_bytes"]
    assert ratio["low"] <= 1 <= ratio["high"]
    assert ratio["value"] == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--allocators", "glibc,./no.so"], "no such allocator library: ./no.so"),
        (["--allocators", "glibcc"], "unknown allocator 'glibcc' (did you mean 'glibc'?)"),
        (
            ["--plot", "c.gif"],
            "--plot c.gif: unknown picture format '.gif' (use a name that ends in .svg, .png or .pdf)",
        ),
        (["--metrics", "cpuu"], "unknown metric 'cpuu' (did you mean 'cpu'?)"),
    ],
)
def test_bad_input_is_refused_in_one_line(words: list[str], message: str, heapwright: Heapwright) -> None:
    done = heapwright("compare", *words, "--", "true")
    assert (done.status, done.out, done.err) == (2, "", f"heapwright: {message}\n")


def test_the_loaders_lines_in_a_sandbox_are_no_output(heapwright: Heapwright) -> None:
    """In a read-only sandbox the loader writes the bindings that it is asked for to the program's stdout."""
    bwrap = needs.command("bwrap")
    command = [bwrap, "--ro-bind", "/", "/", "sort", "/etc/passwd"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        needs.machine_cannot("make a sandbox")
    words = ("compare", "-n", "2", "--allocators", "glibc,exgen", "--timeout", "9", "--json", "-")
    done = heapwright(*words, "--", *command)
    assert done.status == 0, done.err
    assert json.loads(done.out)["warnings"] == []


def test_a_reference_that_fails_in_a_late_round_keeps_the_results(heapwright: Heapwright) -> None:
    """The program fails from its fourteenth run on, unless an allocator is preloaded."""
    script = '#!/bin/sh\necho >> runs\n[ "$(wc -l < runs)" -lt 14 ] || [ -n "${LD_PRELOAD-}" ]\n'
    (heapwright.folder / "prog").write_text(script)
    (heapwright.folder / "prog").chmod(0o755)
    words = ["compare", "-n", "30", "--allocators", "glibc,exgen", "--json", "c.json", "--csv", "c.csv"]
    done = heapwright(*words, "--", "./prog")
    assert done.status == 1
    why = "the command succeeded at first and failed when repeated under glibc, the reference: exit status 1"
    assert done.err.splitlines()[-1].startswith(f"heapwright: {why}")
    assert "An error ended the comparison early" in done.out.replace("\n", " ")
    found = json.loads((heapwright.folder / "c.json").read_text())
    assert (found["error"], found["interrupted"]) == (why, False)
    assert found["allocators"]["exgen"]["ratio"]["wall_s"]
    rows = list(csv.DictReader((heapwright.folder / "c.csv").open()))
    assert {row["allocator"] for row in rows} == {"glibc", "exgen"}
