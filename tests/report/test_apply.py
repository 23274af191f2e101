"""Tests the formats of `apply` with their real readers (sh, bash, JSON) or by their rules (systemd, Docker)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.cli.main import main
from heapwright.errors import HeapwrightError
from heapwright.interleaving.configuration import Config
from heapwright.interleaving.stats import Verdict
from heapwright.report.apply import FORMATS, docker_quote, render_config, systemd_quote
from tests import needs

from . import views
from .views import config

HOSTILE = [
    "plain",
    "",
    "two words",
    'it\'s "quoted"',
    "$HOME `id` $(id) ${PATH}",
    "back\\slash \\n \\",
    "*?[a]~!#;&|<>()",
    "percent %n 100%",
    "first\nsecond",
    "\ttab and größe",
    "-n -e --",
]
CLAIM = "CPU time 17.2% lower [15.9, 18.4];\n95% intervals $(touch pwned)"
TUNED = config(2, top_pad="65536", mmap_max="0")


def hostile(value: str) -> Config:
    return Config(2, "toy", {"key": value}, {"TOY": value, "MALLOC_CONF": f"a:{value}"})


def environment(output: bytes) -> dict[str, str]:
    """Parse the output of `env -0`."""
    return dict(item.split("=", 1) for item in output.decode().split("\0") if item)


def sh(script: str, folder: Path, **env: str) -> bytes:
    base = {"PATH": os.environ["PATH"], **env}
    return subprocess.run(
        ["/bin/sh", "-eu", "-c", script], cwd=folder, env=base, check=True, capture_output=True
    ).stdout


# env


@pytest.mark.parametrize("value", HOSTILE)
def test_a_shell_reads_the_very_value(value: str, tmp_path: Path) -> None:
    (tmp_path / "settings").write_text(render_config(hostile(value), "env", [], CLAIM) + "\n")
    found = environment(sh('eval "$(cat settings)"; env -0', tmp_path))
    assert (found["TOY"], found["MALLOC_CONF"]) == (value, f"a:{value}")
    assert [p.name for p in tmp_path.iterdir()] == ["settings"], "something in it was run"


def test_a_comment_says_that_another_preload_is_replaced() -> None:
    says = "This replaces an LD_PRELOAD that is set"
    assert says in render_config(Config(1, "mine", {}, {"LD_PRELOAD": "/lib/mine.so"}), "env", [], CLAIM)
    assert says not in render_config(hostile("x"), "env", [], CLAIM)


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30))
def test_any_value_survives_a_shell(value: str) -> None:
    found = environment(sh(render_config(hostile(value), "env", [], CLAIM) + "\nenv -0", Path("/")))
    assert found["TOY"] == value


# shell


def test_a_wrapper_without_a_command_asks_for_one(tmp_path: Path) -> None:
    """A study of recordings does not know the program's command."""
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(render_config(hostile("a"), "shell", [], CLAIM) + "\n")
    done = subprocess.run(["/bin/sh", str(wrapper)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"usage: {wrapper} COMMAND ARGS...\n")
    done = subprocess.run(
        ["/bin/sh", str(wrapper), "sh", "-c", 'echo "$TOY"'], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "a\n", "")


def wrapper(folder: Path, chosen: Config, command: list[str], cwd: str = "") -> Path:
    path = folder / "wrapper"
    path.write_text(render_config(chosen, "shell", command, CLAIM, cwd) + "\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("value", HOSTILE)
def test_the_wrapper_sets_the_very_value(value: str, tmp_path: Path) -> None:
    path = wrapper(tmp_path, hostile(value), [])
    out = subprocess.run([path, "env", "-0"], env={"PATH": os.environ["PATH"]}, check=True, capture_output=True).stdout
    found = environment(out)
    assert (found["TOY"], found["MALLOC_CONF"]) == (value, f"a:{value}")


@pytest.mark.parametrize("words", [["printf", "%s|", word, "last"] for word in HOSTILE])
def test_without_arguments_the_wrapper_runs_the_tuned_command(words: list[str], tmp_path: Path) -> None:
    path = wrapper(tmp_path, TUNED, words)
    out = subprocess.run([path], check=True, capture_output=True, cwd=tmp_path).stdout.decode()
    assert out == f"{words[2]}|last|"
    assert [p.name for p in tmp_path.iterdir()] == ["wrapper"]


@pytest.mark.parametrize("name", ["plain", "a b", "it's $HOME", "-n", 'line\nbreak "x"'])
def test_without_arguments_the_wrapper_works_from_any_directory(name: str, tmp_path: Path) -> None:
    """The script enters the directory of the tuned command, but runs any other command where it is called."""
    tuned_in = tmp_path / name
    tuned_in.mkdir()
    (tuned_in / "prog").write_text('#!/bin/sh\ncat "$1"\n')
    (tuned_in / "prog").chmod(0o755)
    (tuned_in / "data").write_text("the data\n")
    path = wrapper(tmp_path, TUNED, ["./prog", "data"], str(tuned_in))
    assert subprocess.run([path], check=True, capture_output=True, cwd="/").stdout == b"the data\n"
    assert subprocess.run([path, "pwd"], check=True, capture_output=True, cwd="/").stdout == b"/\n"
    assert sh(path.read_text(), tuned_in) == b"the data\n"


def test_the_wrapper_does_without_the_directory(tmp_path: Path) -> None:
    """If the directory is missing, as in a container, an absolute command still runs."""
    path = wrapper(tmp_path, TUNED, ["printf", "%s", "here"], str(tmp_path / "gone"))
    assert subprocess.run([path], check=True, capture_output=True, cwd="/").stdout == b"here"


def test_the_wrapper_passes_words_and_status_on(tmp_path: Path) -> None:
    path = wrapper(tmp_path, TUNED, ["false"])
    done = subprocess.run([path, "sh", "-c", 'printf "%s|" "$@"; exit 7', "sh", "a b", "", "$x"], capture_output=True)
    assert (done.returncode, done.stdout) == (7, b"a b||$x|")


OWN = {"MYCFG": "it's $1", "a.b": "x y", "GLIBC_TUNABLES": "glibc.rtld.nns=5"}
NAMES = "MYCFG", "GLIBC_TUNABLES", "a.b"
SHOW = [sys.executable, "-c", f"import os; print(*(os.environ.get(n, '') for n in {NAMES}), sep='|', end='')"]


def test_without_arguments_the_wrapper_sets_the_workloads_variables(tmp_path: Path) -> None:
    """The settings are added to them. Another command gets the settings alone."""
    path = tmp_path / "wrapper"
    path.write_text(render_config(TUNED, "shell", SHOW, CLAIM, own=OWN) + "\n")
    path.chmod(0o755)
    ours, env = "glibc.malloc.top_pad=65536:glibc.malloc.mmap_max=0", {"PATH": os.environ["PATH"]}
    out = subprocess.run([path], env=env, capture_output=True, text=True, check=True).stdout
    assert out == f"it's $1|glibc.rtld.nns=5:{ours}|x y"
    out = subprocess.run([path, *SHOW], env=env, capture_output=True, text=True, check=True).stdout
    assert out == f"|{ours}|"


def test_other_settings_in_the_same_variable_stay(tmp_path: Path) -> None:
    path = wrapper(tmp_path, TUNED, ["printenv", "GLIBC_TUNABLES"])
    ours = "glibc.malloc.top_pad=65536:glibc.malloc.mmap_max=0"
    for own, expected in (("glibc.rtld.nns=5", f"glibc.rtld.nns=5:{ours}"), ("", ours)):
        env = {"PATH": os.environ["PATH"], "GLIBC_TUNABLES": own}
        assert subprocess.run([path], env=env, capture_output=True, text=True, check=True).stdout == expected + "\n"


# slurm


@needs.with_command("bash")
@pytest.mark.parametrize("value", HOSTILE)
def test_a_batch_script_exports_and_starts(value: str, tmp_path: Path) -> None:
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\n[ "$1" = --export=ALL ] || exit 9\nshift\nexec "$@"\n')
    srun.chmod(0o755)
    script = render_config(hostile(value), "slurm", ["printf", "%s|%s", "a b", value], CLAIM)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    out = subprocess.run(["bash", "-c", script], env=env, capture_output=True, check=True).stdout.decode()
    assert out == f"a b|{value}"
    lines = script.splitlines()
    assert lines[0] == "#!/bin/bash"
    assert lines[1].startswith("#SBATCH "), "Slurm reads its lines only before the first command"


@needs.with_command("bash")
def test_a_batch_script_works_from_any_directory(tmp_path: Path) -> None:
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    srun.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for cwd, seen in ((tmp_path, tmp_path), (tmp_path / "gone", Path("/"))):
        script = render_config(TUNED, "slurm", ["pwd"], CLAIM, str(cwd))
        out = subprocess.run(["bash", "-c", script], env=env, capture_output=True, check=True, cwd="/").stdout.decode()
        assert out == f"{seen}\n"


@needs.with_command("bash")
def test_a_batch_script_sets_the_workloads_variables(tmp_path: Path) -> None:
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    srun.chmod(0o755)
    script = render_config(TUNED, "slurm", SHOW, CLAIM, own=OWN)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    out = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, check=True).stdout
    assert out == "it's $1|glibc.malloc.top_pad=65536:glibc.malloc.mmap_max=0|x y"


@needs.with_command("bash")
@pytest.mark.parametrize("launcher", ["srun", "/usr/bin/mpirun", "env A=1 srun", "time -v numactl -N 0 mpirun"])
def test_a_batch_script_starts_a_launcher_once(launcher: str) -> None:
    """Regression: `srun mpirun -n 2 job` starts the whole job once for each task of the allocation."""
    script = render_config(TUNED, "slurm", [*launcher.split(), "-n", "2", "./job"], CLAIM)
    assert script.splitlines()[-1] == f"{launcher} -n 2 ./job"
    behind = render_config(TUNED, "slurm", ["time", "./job", "srun"], CLAIM)
    assert behind.splitlines()[-1] == "srun --export=ALL time ./job srun"
    assert "#SBATCH --export=ALL" in script


# systemd


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("VAR1=word1 word2", '"VAR1=word1 word2"'),  # systemd.exec(5), Environment=
        ("VAR3=$word 5 6", '"VAR3=$word 5 6"'),  # "$" has no special meaning there
        ('ONE=o"ne', '"ONE=o\\"ne"'),
        ("A=back\\slash", '"A=back\\\\slash"'),
        ("A=100%", '"A=100%%"'),  # systemd.unit(5), specifiers
        ("A=two\nlines", '"A=two\\nlines"'),
        ("A=a\rExecStart=/bin/evil", '"A=a\\x0dExecStart=/bin/evil"'),  # a carriage return ends a line there, too
    ],
)
def test_values_are_quoted_for_systemd(text: str, expected: str) -> None:
    assert systemd_quote(text) == expected


def systemd_unquote(text: str) -> str:
    """systemd.syntax(7): C-style escapes within double quotes, then specifiers."""
    assert re.fullmatch(r'"(?:[^"\\\x00-\x1f\x7f]|\\(?:["\\n]|x[0-9a-f]{2}))*"', text), text
    escape = re.compile(r"\\(x[0-9a-f]{2}|.)")
    value = escape.sub(
        lambda m: "\n" if m[1] == "n" else m[1] if len(m[1]) == 1 else chr(int(m[1][1:], 16)), text[1:-1]
    )
    assert "%" not in value.replace("%%", "")
    return value.replace("%%", "%")


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40))
def test_any_value_survives_systemds_rules(value: str) -> None:
    assert systemd_unquote(systemd_quote(value)) == value


def test_a_drop_in_for_a_service() -> None:
    lines = render_config(TUNED, "systemd", [], CLAIM).splitlines()
    body = [line for line in lines if not line.startswith("#")]
    assert body == ["[Service]", 'Environment="GLIBC_TUNABLES=glibc.malloc.top_pad=65536:glibc.malloc.mmap_max=0"']


@needs.with_command("systemd-analyze")
def test_systemd_itself_accepts_it(tmp_path: Path) -> None:
    unit = tmp_path / "toy.service"
    unit.write_text(render_config(hostile('it\'s 100% "$HOME"'), "systemd", [], CLAIM) + "\nExecStart=/bin/true\n")
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert "Environment" not in done.stderr


# docker


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("John Doe", '"John Doe"'),  # Dockerfile reference, ENV
        ("a$b", '"a\\$b"'),  # escaped: no variable of the build is put in
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("100%", '"100%"'),
    ],
)
def test_values_are_quoted_for_docker(text: str, expected: str) -> None:
    assert docker_quote(text) == expected


def test_a_dockerfile_cannot_hold_a_line_break() -> None:
    with pytest.raises(HeapwrightError, match="a Dockerfile cannot hold a value with a line break"):
        render_config(hostile("a\nRUN rm -rf /"), "docker", [], CLAIM)


def test_a_dockerfile_line() -> None:
    lines = render_config(TUNED, "docker", [], CLAIM).splitlines()
    assert lines[0].startswith("# heapwright ")
    assert lines[1:] == ['ENV GLIBC_TUNABLES="glibc.malloc.top_pad=65536:glibc.malloc.mmap_max=0"']


# json, and all of them


@pytest.mark.parametrize("value", HOSTILE)
def test_json_reads_back(value: str) -> None:
    found = json.loads(render_config(hostile(value), "json", [], CLAIM))
    assert found["schema_version"] == 1
    assert found["settings"] == {"key": value}
    assert found["env"]["TOY"] == value
    assert found["claim"] == CLAIM


@pytest.mark.parametrize("fmt", sorted(set(FORMATS) - {"json"}))
def test_the_claim_stays_in_one_comment(fmt: str) -> None:
    lines = render_config(TUNED, fmt, ["true"], CLAIM).splitlines()
    (said,) = [line for line in lines if "17.2%" in line]
    assert said.startswith("-- heapwright " if fmt == "lmod" else "# heapwright ")
    assert said.endswith("$(touch pwned)")


@pytest.mark.parametrize("fmt", sorted(FORMATS))
def test_without_a_proven_gain_no_setting_is_printed(fmt: str, tmp_path: Path) -> None:
    text = render_config(Config(1, "glibc", {}, {}), fmt, ["true"], "No proven improvement: keep the default.")
    assert "keep the default" in text
    assert "GLIBC_TUNABLES" not in text
    if fmt in ("env", "systemd", "docker", "compose", "kubernetes", "supervisord"):
        assert all(line.startswith("#") for line in text.splitlines())
    elif fmt in ("shell", "entrypoint"):
        sh(text, tmp_path)
    elif fmt == "json":
        assert json.loads(text)["env"] == {}


# the exit status


@pytest.mark.parametrize("fmt", ["env", "json"])
@pytest.mark.parametrize(
    ("verdicts", "words", "status", "said"),
    [
        (("better", "same"), [], 0, ""),
        (("better", "worse"), ["--pick", "memory"], 0, ""),
        (("unproven", "same"), [], 3, "no gain is proven for s.study: the output keeps the default"),
        (("unproven", "same"), ["--pick", "memory"], 3, "no gain is proven for the memory pick of s.study, whose"),
    ],
)
def test_the_status_says_whether_a_gain_is_proven(
    fmt: str,
    verdicts: tuple[Verdict, Verdict],
    words: list[str],
    status: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    at = views.evaluation(1, views.config(2, mxfast="0"), 0.9, 1.0)
    found = (views.confirmation("peak_rss_bytes", 0.9, verdicts[0]), views.confirmation("cpu_s", 1.1, verdicts[1]))
    made = views.view(picks={"memory": views.pick("memory", at, *found)}, phase="done")
    monkeypatch.setattr("heapwright.study.load.load_view", lambda _: made)
    monkeypatch.setattr("heapwright.cli.apply.warn_of_changes", lambda _: None)
    assert main(["apply", "s.study", "--format", fmt, *words]) == status
    out, err = capsys.readouterr()
    assert err.startswith(f"heapwright: {said}" if said else "")
    assert err.count("\n") == (1 if said else 0)
    ships = status == 0 or bool(words)
    assert ("glibc.malloc.mxfast=0" in out) == ships


def test_requirements_that_were_not_confirmed_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = views.with_requirements()
    monkeypatch.setattr("heapwright.study.load.load_view", lambda _: made)
    monkeypatch.setattr("heapwright.cli.apply.warn_of_changes", lambda _: None)
    assert main(["apply", "s.study", "--pick", "memory"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "heapwright: warning: requirement not met: p99 <= 1.05x (measured: +9.0% to +12.0%)",
        "heapwright: warning: requirement not known: load_errors <= 0 (measured: not measured)",
    ]
