"""Tests the kit: its archive, and its shell front under two shells, read again by heapwright."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import heapwright.kit.pack
from heapwright.cli.main import build_parser, main
from heapwright.kit.pack import kit_files
from heapwright.metrics import NUMERIC
from heapwright.platforms import PLATFORMS, host_platform
from tests import needs
from tests.processes import wait_for

HOST = host_platform()
SHELLS = [["dash"], ["busybox", "sh"]]
FRONT = Path(heapwright.kit.pack.__file__).with_name("hw")
Hw = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kit of this machine, unpacked."""
    folder = tmp_path_factory.mktemp("kit")
    assert main(["kit", "-q", "-o", str(folder / "kit.tar.gz")]) == 0
    with tarfile.open(folder / "kit.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "heapwright-kit"


@pytest.fixture(params=SHELLS, ids=" ".join)
def hw(kit: Path, request: pytest.FixtureRequest, tmp_path: Path) -> Hw:
    """Runs the front of the kit under a shell, without heapwright's environment."""
    if shutil.which(request.param[0]) is None:
        needs.missing({"dash": "dash", "busybox": "busybox-static"}[request.param[0]])

    def run(*words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        base = {"PATH": os.environ["PATH"], **env}
        return subprocess.run(
            [*request.param, kit / "hw", *words], env=base, text=True, capture_output=True, cwd=tmp_path
        )

    return run


# the archive


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tar.zst"])
@pytest.mark.few(1)
def test_the_same_files_give_the_same_bytes(suffix: str, tmp_path: Path) -> None:
    if suffix == ".tar.zst" and shutil.which("zstd") is None:
        needs.missing("zstd")
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    for path in (first, second):
        assert main(["kit", "-q", "-o", str(path)]) == 0
    assert first.read_bytes() == second.read_bytes()


def test_names_are_sorted_and_times_fixed(tmp_path: Path) -> None:
    assert main(["kit", "-q", "-o", str(tmp_path / "kit.tar")]) == 0
    with tarfile.open(tmp_path / "kit.tar") as archive:
        entries = archive.getmembers()
    assert [e.name for e in entries] == sorted(e.name for e in entries)
    assert {(e.mtime, e.uid, e.gid, e.uname) for e in entries} == {(0, 0, 0, "")}
    assert {e.name.removeprefix("heapwright-kit/") for e in entries} >= {
        "hw", "README.md", "SHA256SUMS", f"{HOST}/heapwright-meter", f"{HOST}/heapwright-replay",
        f"{HOST}/heapwright-trace", f"{HOST}/lib/libexgen.so", f"{HOST}/lib/libreaper-secure.so",
        f"{HOST}/lib/libheapwright-record.so", f"{HOST}/lib/libheapwright-sample.so",
    }  # fmt: skip


def test_the_checksums_hold(kit: Path) -> None:
    done = subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=kit, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    named = {line.split("  ", 1)[1] for line in (kit / "SHA256SUMS").read_text().splitlines()}
    assert named == {str(p.relative_to(kit)) for p in kit.rglob("*") if p.is_file()} - {"SHA256SUMS"}
    (kit / "README.md").chmod(0o644)
    assert "@" not in (kit / "README.md").read_text()


def test_programs_of_the_kit_need_only_libc(kit: Path) -> None:
    programs, libraries = [*(kit / HOST).glob("heapwright-*")], [*(kit / HOST / "lib").glob("*.so")]
    assert programs
    assert libraries
    for path in programs + libraries:
        said = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
        needed = set(re.findall(r"\(NEEDED\).*\[(.+?)\]", said))
        assert not {name for name in needed if not re.match(r"(libc|libm|ld-[-\w]+|libpthread|libdl|librt)\.", name)}, (
            path
        )


def test_a_platform_that_is_not_built_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("heapwright.platforms.NATIVE", tmp_path)
    monkeypatch.setattr("heapwright.platforms.__file__", str(tmp_path / "a/b/c"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "d/e"))
    other = next(name for name in PLATFORMS if name != HOST)
    assert main(["kit", "-o", str(tmp_path / "kit.tar"), "--platform", other]) == 1
    assert f"the platform {other} is not built" in capsys.readouterr().err
    assert not (tmp_path / "kit.tar").exists()


def test_other_platforms_come_from_their_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kit: Path) -> None:
    other = next(name for name in PLATFORMS if name != HOST)
    shutil.copytree(kit / HOST, tmp_path / other)
    monkeypatch.setenv("HEAPWRIGHT_PLATFORMS", str(tmp_path))
    assert {name.split("/")[0] for name in kit_files([HOST, other])} >= {HOST, other}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--platform", "sparc-glibc"], "unknown platform 'sparc-glibc'"),
        (["-o", "kit.zip"], "'kit.zip' is not the name of a kit"),
    ],
)
def test_wrong_arguments_are_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kit", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_that_is_missing_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["kit", "-o", str(tmp_path / "none/kit.tar")]) == 2
    assert "there is no directory" in capsys.readouterr().err


# the front


@needs.with_command("shellcheck")
def test_shellcheck_accepts_the_script_of_the_kit(kit: Path) -> None:
    done = subprocess.run(["shellcheck", "--shell=sh", kit / "hw"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_measure_writes_what_heapwright_writes(hw: Hw, tmp_path: Path) -> None:
    words = ["sh", "-c", 'printf "%s\n" "$@"; exit 3', "sh", 'a "b" \\', "two\nlines", "größe", "-n"]
    done = hw("measure", "-n", "3", "--json", "run.json", "--", *words)
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith('a "b" \\\ntwo\nlines\ngröße\n-n\n')
    found = json.loads((tmp_path / "run.json").read_text())
    assert main(["measure", "-q", "-n", "3", "--json", str(tmp_path / "own.json"), "--", *words]) == 3
    own = json.loads((tmp_path / "own.json").read_text())
    assert list(found) == list(own)
    assert [list(run) for run in found["runs"]] == [list(run) for run in own["runs"]]
    assert set(found["summary"]) == set(NUMERIC)
    assert found["command"] == own["command"]
    assert [run["output_sha256"] for run in found["runs"]] == [run["output_sha256"] for run in own["runs"]]
    same = (
        "cpu",
        "cores",
        "memory_bytes",
        "machine",
        "kernel",
        "libc",
        "page_bytes",
        "thp",
        "aslr",
        "max_map_count",
        "os",
    )
    assert {key: found["host"][key] for key in same} == {key: own["host"][key] for key in same}
    for metric, summary in found["summary"].items():
        values = sorted(run[metric] for run in found["runs"] if run[metric] is not None)
        assert (summary is None) == (not values)
        if values:
            assert [summary["min"], summary["median"], summary["max"]] == pytest.approx(values)
            assert summary["mad"] == pytest.approx(sorted(abs(v - values[1]) for v in values)[1])


def test_measure_sets_variables_and_reads_input(hw: Hw, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("input\n")
    done = hw("measure", "--quiet", "--stdin", "in", "--env", "TOY=a b", "--", "sh", "-c", 'cat; echo "$TOY"')
    assert (done.returncode, done.stdout) == (0, "input\na b\n")
    assert "peak_rss MiB" in hw("measure", "--", "true").stdout


@pytest.mark.parametrize("awk", ["gawk", "mawk", "busybox"])
def test_any_awk_writes_the_same_words(hw: Hw, tmp_path: Path, awk: str) -> None:
    found = shutil.which(awk)
    if found is None:
        needs.missing({"busybox": "busybox-static"}.get(awk, awk))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/awk").symlink_to(found)
    words = ["true", r"\d+", "a\\\\b", 'say "no"', "tab\t", "two\nlines", "größe"]
    words += [
        "\udcff\udc80",
        "a\udce4b",
        "€ 𝄞",
        "\udced\udca0\udc80",
        "\udce2\udc82",
        "\udcc0\udcaf",
        "\udcf4\udc90\udc80\udc80",
    ]
    done = hw("measure", "--json", "-", "--", *words, PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert json.loads(done.stdout)["command"] == words, "bytes that are no text are surrogates"


def test_the_command_has_the_users_variables(hw: Hw, tmp_path: Path) -> None:
    """A shell exports an assignment to a variable that came from the environment."""
    names = set(re.findall(r"(?<![A-Za-z_$])([a-z_]+)=", FRONT.read_text()))
    given = {name: "the user's" for name in names if not name.startswith("hw_")} | {"LC_ALL": "C.UTF-8"}
    (tmp_path / "set.env").write_text("MALLOC_ARENA_MAX=1\n")
    for words in (["measure", "-q", "--"], ["record", "-o", "raw", "--"], ["run", "--setting", "set.env", "--"]):
        done = hw(*words, "env", **given)
        seen = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
        assert given.items() <= seen.items(), done.stderr
        assert "LC_ALL" not in hw(*words, "env").stdout
    assert "LC_ALL=C.UTF-8\n" in hw("measure", "-q", "--env", "LC_ALL=C.UTF-8", "--", "env").stdout


def test_measure_passes_a_signal_on(hw: Hw, tmp_path: Path) -> None:
    assert hw("measure", "--", "sh", "-c", "kill -SEGV $$").returncode == 139
    assert hw("measure", "--timeout", "1s", "--json", "late.json", "--", "sleep", "60").returncode == 143
    late = json.loads((tmp_path / "late.json").read_text())
    assert (late["runs"][0]["failure"], set(late["summary"].values())) == ("timed out", {None})


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_leaves_no_folder(shell: list[str], number: signal.Signals, kit: Path, tmp_path: Path) -> None:
    """A terminal that is closed sends SIGHUP to the whole group."""
    if shutil.which(shell[0]) is None:
        needs.missing({"dash": "dash", "busybox": "busybox-static"}[shell[0]])
    (tmp_path / "tmp").mkdir()
    words = [*shell, str(kit / "hw"), "measure", "--", "sh", "-c", "echo > up; exec sleep 60"]
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path / "tmp")}
    with subprocess.Popen(words, env=env, cwd=tmp_path, start_new_session=True, stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: (tmp_path / "up").exists())
        assert list((tmp_path / "tmp").iterdir())
        os.killpg(process.pid, number)
        assert process.wait() == 128 + number
    assert not list((tmp_path / "tmp").iterdir())


@needs.with_command("perl")
def test_heapwright_reads_what_record_writes(hw: Hw, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = hw("record", "-o", "raw", "--", "perl", "-e", 'my %h; $h{$_} = "x$_" for 1..20000; exit 5')
    assert done.returncode == 5, done.stderr
    (raw,) = (tmp_path / "raw").glob("*.raw")
    assert main(["info", str(raw), "--json", "-", "-q"]) == 0
    events = json.loads(capfd.readouterr().out)["events"]
    assert events > 40000
    assert main(["replay", str(raw), "--json", "-", "-q"]) == 0
    assert 40000 < json.loads(capfd.readouterr().out)["events"] <= events


@needs.with_command("perl")
def test_record_takes_a_sample(hw: Hw, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--sample", "16", "--max-size", "8M", "--for", "1h"]
    assert hw("record", "-o", "raw", *words, "--", "perl", "-e", "my %h; $h{$_} = 1 for 1..20000").returncode == 0
    (raw,) = (tmp_path / "raw").glob("*.raw")
    assert main(["record", "--recover", str(raw.parent), "-o", str(tmp_path / "t.hwt")]) == 0
    assert "a sample of 1 in 16" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["--max-size", "64m"], "MAX_SIZE", 64 << 20),
        (["--max-size", "1G"], "MAX_SIZE", 1 << 30),
        (["--max-size", "8192k"], "MAX_SIZE", 8 << 20),
        (["--after", "5m"], "AFTER", 300),
        (["--for", "1.5h"], "FOR", 5400),
        (["--for", "0500ms"], "FOR", 0.5),
        (["--for", "2min"], "FOR", 120),
        (["--for", "08"], "FOR", 8),
        (["--sample", "16"], "SAMPLE", 16),
    ],
)
def test_record_reads_sizes_and_times_as_heapwright_does(hw: Hw, words: list[str], name: str, value: float) -> None:
    done = hw("record", "-o", "raw", *words, "--", "printenv", f"HEAPWRIGHT_RECORD_{name}")
    assert float(done.stdout) == value, done.stderr
    args = build_parser().parse_args(["record", *words])
    assert getattr(args, {"MAX_SIZE": "max_size", "FOR": "for_"}.get(name, name.lower())) == value


def test_a_kit_that_ld_preload_cannot_name_is_one_line(kit: Path, tmp_path: Path) -> None:
    """The loader would skip its libraries, and the recording would be empty."""
    (tmp_path / "My Kit").symlink_to(kit)
    script = tmp_path / "My Kit/hw"
    (tmp_path / "setting").write_text("export LD_PRELOAD=/not/here/libexgen.so\n")
    for words in (["record", "-o", "raw"], ["run", "--setting", "setting"]):
        done = subprocess.run([script, *words, "--", "true"], text=True, capture_output=True, cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith(f"hw: LD_PRELOAD cannot name {script.parent}/")
        assert len(done.stderr.splitlines()) == 1


def test_run_sets_what_apply_printed(hw: Hw, kit: Path, tmp_path: Path) -> None:
    (tmp_path / "setting").write_text("export GLIBC_TUNABLES=glibc.malloc.top_pad=65536\nexport TOY='a \"b\"'\n")
    done = hw("run", "--setting", "setting", "--", "printenv", "TOY", "GLIBC_TUNABLES")
    assert done.stdout == 'a "b"\nglibc.malloc.top_pad=65536\n'
    (tmp_path / "setting").write_text("export LD_PRELOAD=/not/here/libexgen.so\n")
    done = hw("run", "--setting", "setting", "--", "/bin/cat", "/proc/self/maps")
    assert f"{kit}/{HOST}/lib/libexgen.so" in done.stdout


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ([], 2, "usage: hw"),
        (["sing"], 2, "unknown verb 'sing'"),
        (["measure", "--"], 2, "no command"),
        (["measure", "-n", "two", "--", "true"], 2, "'two' is not a whole number"),
        (["measure", "-n", "5m", "--", "true"], 2, "'5m' is not a whole number"),
        (["measure", "-n", "0", "--", "true"], 2, "'0' is not a whole number of at least 1"),
        (["measure", "--timeout", "5x", "--", "true"], 2, "'5x' is not a time above 0"),
        (["record", "-o", "raw", "--max-size", "64", "--", "true"], 2, "'64' is not a size of at least 4M"),
        (["record", "-o", "raw", "--for", "0.0s", "--", "true"], 2, "'0.0s' is not a time above 0"),
        (["record", "-o", "raw", "--", "nosuch"], 127, "hw: command not found: nosuch"),
        (["run", "--setting", "/etc/os-release", "--", "nosuch"], 127, "hw: command not found: nosuch"),
        (["measure", "--loud", "--", "true"], 2, "unknown option '--loud'"),
        (["measure", "--env", "x", "--", "true"], 2, "'x' is not NAME=VALUE"),
        (["measure", "--json", "/none/x.json", "--", "true"], 1, "cannot write /none/x.json"),
        (["measure", "--", "/none/prog"], 127, "/none/prog"),
        (["record", "--", "true"], 2, "-o DIR"),
        (["record", "-o", "/proc/none", "--", "true"], 1, "cannot write into /proc/none"),
        (["run", "--", "true"], 2, "--setting FILE"),
        (["run", "--setting", "none", "--", "true"], 2, "--setting none cannot be read"),
    ],
)
def test_bad_input_is_one_line(hw: Hw, words: list[str], status: int, said: str) -> None:
    done = hw(*words)
    assert done.returncode == status, done.stderr
    assert said in done.stderr
    assert "usage" in said or len(done.stderr.splitlines()) == 1


def test_a_missing_platform_and_library_are_one_line(hw: Hw, tmp_path: Path) -> None:
    done = hw("measure", "--", "true", HW_PLATFORM="riscv64-musl")
    assert (done.returncode, done.stderr) == (1, "hw: this kit has no files for the platform riscv64-musl\n")
    (tmp_path / "setting").write_text("export LD_PRELOAD=/not/here/libmy.so\n")
    done = hw("run", "--setting", "setting", "--", "true")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    done = hw("measure", "--", "true", TMPDIR="/proc/none")
    assert (done.returncode, done.stderr) == (1, "hw: cannot write into /proc/none: set TMPDIR\n")
