"""Tests a claim after its study: whether the program is still the same build, and whether the gain still holds."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests import needs

from .conftest import Heapwright

PARAMS = ("--params", "mmap_threshold,mmap_max,trim_threshold,top_pad,mxfast", "--budget", "16", "--pairs", "8:12")
# In the short form test_tune.py removes settings; here that takes half of the runs.
TUNE = ("tune", "--allocators", "glibc", *PARAMS, *["--no-minify"][: needs.repeats(0, 1)], "--study", "s.study")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, program: Callable[..., Path]) -> Heapwright:
    """A directory with ./prog and a study that claims a gain for it, made by the installed command."""
    heapwright = Heapwright(tmp_path_factory.mktemp("verify"))
    shutil.copy(program("large_blocks", "-DROUNDS=3"), heapwright.folder / "prog")
    done = heapwright(*TUNE, "--json", "t.json", "--exit-code", "--", "./prog")
    assert done.status == 0, done.err
    heapwright.forked = True
    return heapwright


@pytest.fixture
def there(tuned: Heapwright, tmp_path: Path) -> Heapwright:
    """A copy of that directory for a test to change. The study names the original, so `--` names the program."""
    for name in ("s.study", "prog", "s.html"):
        shutil.copy2(tuned.folder / name, tmp_path)
    return Heapwright(tmp_path, forked=True)


@pytest.mark.longer
def test_a_planted_gain_is_found_and_confirmed(tuned: Heapwright) -> None:
    found = json.loads((tuned.folder / "t.json").read_text())
    pick = found["picks"]["time"]
    cpu = pick["confirmed"]["cpu_s"]
    assert cpu["verdict"] == "better"
    assert cpu["ratio"] <= cpu["high"] < 0.8
    assert pick["claim"].startswith("CPU time ")
    # The printed setting has the claimed effect: it reduces page faults, which do not depend on the
    # machine's load.
    (tuned.folder / "settings").write_text(tuned("apply", "s.study", "--pick", "time").out)
    for words in (["./prog"], ["sh", "-c", ". ./settings; exec ./prog"]):
        assert tuned("measure", "--json", f"{len(words)}.json", "--", *words).status == 0
    plain, set_ = (json.loads((tuned.folder / f"{n}.json").read_text())["runs"][0]["minor_faults"] for n in (1, 3))
    assert set_ < 0.5 * plain
    assert (tuned.folder / "s.html").stat().st_size > 10_000


@pytest.mark.long
def test_a_gain_holds_and_is_lost_on_another_program(tuned: Heapwright) -> None:
    done = tuned("verify", "s.study", "--json", "v.json", "--junit", "v.xml")
    assert done.status == 0, done.err
    assert done.out.startswith("The gain holds: ")
    found: dict[str, Any] = json.loads((tuned.folder / "v.json").read_text())
    claimed = json.loads((tuned.folder / "t.json").read_text())
    assert (found["verdict"], found["study"], found["notes"]) == ("holds", "s.study", [])
    assert found["now"]["cpu_s"]["verdict"] == "better"
    assert found["now"]["cpu_s"]["high"] < 1
    assert found["then"]["cpu_s"]["ratio"] == claimed["picks"][found["pick"]]["confirmed"]["cpu_s"]["ratio"]
    assert found["pairs"] >= 8
    suite = ElementTree.parse(tuned.folder / "v.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "0", "0")
    assert {case.get("name") for case in suite} == {"peak resident memory", "CPU time"}

    done = tuned("verify", "s.study", "--junit", "lost.xml", "--", "perl", "-e", "$x += $_ for 1..300000")
    assert done.status == 3, done.err
    assert done.out.startswith("The gain no longer holds: CPU time is not ")
    suite = ElementTree.parse(tuned.folder / "lost.xml").getroot()
    assert suite.get("failures") == "1"
    assert suite.find("testcase/failure") is not None


def test_a_rebuilt_program_is_named_by_each_verb_and_tuned_anew(there: Heapwright) -> None:
    quiet = there("apply", "s.study")
    assert "has changed" not in quiet.err
    assert "has changed" not in there("run", "s.study", "--", "./prog").err
    shutil.copy("/bin/true", there.folder / "prog")
    done = there("run", "s.study", "--", "./prog")
    assert "warning: the program has changed since the study was made (" in done.err
    assert "heapwright verify s.study" in done.err
    assert done.err.count("\n") == 1


def test_a_command_that_fails_by_itself_is_an_error_of_junit(there: Heapwright) -> None:
    done = there("verify", "s.study", "--junit", "bad.xml", "--", "false")
    assert done.status == 1
    suite = ElementTree.parse(there.folder / "bad.xml").getroot()
    assert (suite.get("errors"), suite.get("failures")) == ("1", "0")
    error = suite.find("testcase/error")
    assert error is not None
    assert "the command fails by itself" in str(error.get("message"))


def test_a_command_runs_as_without_heapwright(there: Heapwright) -> None:
    """Python ignores SIGPIPE and SIGXFSZ; the program must not inherit that. A script needs no line with #!."""
    done = there("run", "s.study", "--", "grep", "SigIgn", "/proc/self/status")
    plain = subprocess.run(["grep", "SigIgn", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    assert done.out == plain
    (there.folder / "script").write_text("echo $MALLOC_ARENA_MAX$1\n")
    (there.folder / "script").chmod(0o755)
    assert there("run", "s.study", "--", "./script", "x").out == "x\n"


def test_another_build_of_an_allocator_is_named_and_tuned_anew(heapwright: Heapwright) -> None:
    """The reference of a study with one allocator is this allocator at its defaults, so `run` always loads it."""
    rows = {a["name"]: a for a in json.loads(heapwright("allocators", "--json", "-").out)["allocators"]}
    library = heapwright.folder / "libmine.so"
    shutil.copy(rows["exgen"]["path"], library)
    (heapwright.folder / "mine.toml").write_text(
        f"""
        [allocator]
        name = "mine"
        preload = "{library}"
        env = "HEAPWRIGHT_{{KEY}}"
        [[param]]
        key = "keep"
        explain = "bytes of free memory"
        type = "int"
        low = 65536
        high = 1073741824
        default = "built in"
        """
    )
    tune = (
        "tune",
        "--space",
        "mine.toml",
        "--budget",
        "2",
        "--pairs",
        "6:6",
        "--study",
        "s.study",
        "--",
        "perl",
        "-e1",
    )
    assert heapwright(*tune).status == 0
    assert heapwright("run", "s.study", "--", "perl", "-e1").err == ""
    shutil.copy(rows["reaper"]["path"], library)
    done = heapwright("run", "s.study", "--", "perl", "-e1")
    assert f"warning: the allocator has changed since the study was made ({library} was rebuilt" in done.err
    done = heapwright(*tune)
    assert "a new study begins, the old one is kept as s.1.study" in done.err
    assert heapwright("run", "s.study", "--", "perl", "-e1").err == ""


@pytest.mark.long
def test_the_same_command_on_another_build_begins_a_new_study(tuned: Heapwright) -> None:
    folder = tuned.folder
    same = tuned(*TUNE, "--json", "again.json", "--", "./prog")
    assert "from an earlier session" in same.err
    shutil.copy(folder / "prog", folder / "prog.kept")
    try:
        shutil.copy("/bin/true", folder / "prog")
        for words in (["apply", "s.study"], ["report", "s.study", "-o", "r.html"]):
            done = tuned(*words)
            assert done.status == 0
            assert "warning: the program has changed since the study was made (" in done.err
            assert f"{folder}/prog was rebuilt" in done.err
        going_on = tuned(*TUNE, "--same-program", "--", "./prog")
        assert (going_on.status, "has changed" in going_on.err) == (0, False)
        done = tuned(*TUNE, "--json", "other.json", "--exit-code", "--", "./prog")
        assert "a new study begins, the old one is kept as s.1.study" in done.err
        assert "from an earlier session" not in done.err
        assert done.status == 3, "no gain in /bin/true"
        new, old = (json.loads((folder / name).read_text()) for name in ("other.json", "t.json"))
        assert new["program"]["build_id"] != old["program"]["build_id"]
        assert new["claim"] != old["claim"]
        assert (folder / "s.1.html").exists()
        assert "was rebuilt" not in tuned("apply", "s.study").err
        shutil.copy(folder / "prog.kept", folder / "prog")
        assert tuned("verify", "s.1.study").status == 0
    finally:
        (folder / "prog.kept").replace(folder / "prog")
        for name in ("s.study", "s.html"):
            if (folder / name.replace("s.", "s.1.")).exists():
                (folder / name.replace("s.", "s.1.")).replace(folder / name)


def test_studies_that_cannot_be_verified_give_one_line(tuned: Heapwright) -> None:
    nothing = tuned("tune", "--space", "n.toml", "--study", "n.study", "--", "true")
    assert nothing.status == 2
    (tuned.folder / "n.toml").write_text(
        '[allocator]\nname = "n"\n[[param]]\nkey = "k"\nenv = "NOBODY"\ntype = "bool"\nexplain = "Nothing."\n'
    )
    short = ("--budget", "1", "--pairs", "6:6", "--no-minify", "--proxy", "none")
    assert tuned("tune", "--space", "n.toml", *short, "--study", "n.study", "-q", "--", "true").status == 0
    for words, status, said in (
        (["verify", "n.study"], 1, "claims no gain, so there is nothing to verify"),
        (["verify", "none.study"], 2, "no such study"),
        (["verify", "s.study", "--max-time", "soon"], 2, "is not a time above 0"),
        (["verify", "s.study", "--max-time", "0"], 2, "is not a time above 0"),
        (["verify", "s.study", "--keep", "200"], 2, "percentage from 0 to 100"),
        (["verify", "s.study", "--", "./nowhere"], 2, "command not found"),
    ):
        done = tuned(*words)
        assert (done.status, done.err.count("\n")) == (status, 1), (words, done.err)
        assert said in done.err


def test_a_build_with_the_setting_linked_in_is_refused(heapwright: Heapwright) -> None:
    """Blocks of 16 bytes take twice as much memory in glibc's malloc, so the study surely picks exgen."""
    needs.command("gcc")
    (heapwright.folder / "p.c").write_text(
        "#include <stdlib.h>\nint main(void) { void** last = 0; for (int i = 0; i < 300000; i++)"
        " { void** p = malloc(16); *p = last; last = p; } return !last; }\n"
    )
    compiler = ["gcc", "-O1", "p.c", "-o"]
    subprocess.run([*compiler, "prog"], cwd=heapwright.folder, check=True)
    words = ("--allocators", "glibc,exgen", "--proxy", "none", "--budget", "2", "--pairs", "6:6", "--no-minify")
    done = heapwright("tune", *words, "--minimize", "peak_rss", "--study", "s.study", "-q", "--", "./prog")
    assert done.status == 0, done.err
    assert heapwright("link", "--study", "s.study", "--", *compiler, "linked").status == 0
    done = heapwright("verify", "s.study", "--", "./linked")
    assert (done.status, done.out) == (2, "")
    said = "heapwright: this build has exgen linked in already (verify the build without it)\n"
    assert done.err == said
    assert heapwright("verify", "s.study", "--max-time", "0.2s", "--", "./prog").status in (0, 4)


@pytest.mark.long
def test_a_program_that_fails_is_no_verdict(tuned: Heapwright) -> None:
    done = tuned("verify", "s.study", "--", "false")
    assert done.status == 1
    assert "the command fails by itself, with nothing changed: exit status 1" in done.err.splitlines()[-1]


def test_time_that_is_too_short_leaves_it_undecided(tuned: Heapwright) -> None:
    done = tuned("verify", "s.study", "--max-time", "0.2s", "--json", "-")
    assert done.status == 4, done.out
    assert json.loads(done.out)["verdict"] == "undecided"
    assert "the program runs in" not in done.err


def test_a_study_that_was_copied_says_where_its_program_runs(tuned: Heapwright, there: Heapwright) -> None:
    done = there("verify", "s.study", "--max-time", "0.2s")
    assert f"heapwright: the program runs in {tuned.folder}, as in the study" in done.err
