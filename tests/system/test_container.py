"""Tests --container with podman on a glibc and a musl image without Python, and its errors with stand-ins of podman."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from heapwright.cli.main import main
from heapwright.measure.container import find_runtime, open_container
from heapwright.platforms import find_platform, host_platform
from heapwright.workload.model import from_command
from heapwright.workload.program import identify_program, program_changes
from tests import containers, needs

GLIBC, MUSL = "heapwright-test-glibc", "heapwright-test-musl"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("images")
    before = dict(os.environ)
    with (Path(tempfile.gettempdir()) / "heapwright-test-images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process of the tests may be using images of these names
        os.environ["XDG_CACHE_HOME"] = str(folder)
        containers.use_podman(folder)
        containers.make_glibc_image(GLIBC, folder)
        containers.make_musl_image(MUSL, folder)
        find_runtime.cache_clear()
        yield
        for name in (GLIBC, MUSL, "heapwright-test-shell"):
            subprocess.run(["podman", "rmi", "--force", name], capture_output=True)
    os.environ.clear()
    os.environ.update(before)
    find_runtime.cache_clear()


def digest_of(image: str) -> str:
    words = ["podman", "image", "inspect", "--format", "{{.Digest}}", image]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


# real containers


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("image", [GLIBC, MUSL])
@pytest.mark.few(1)
def test_measure_runs_in_the_image(image: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "in"
    file.write_text("its input\n")
    words = ["measure", "-n", "2", "--container", image, "--json", str(tmp_path / "run.json"), "-q"]
    assert main([*words, "--env", "TOY=a b", "--stdin", str(file), "--", "work", "10", "read", "7"]) == 7
    assert capfd.readouterr().out.endswith(" a b\nits input\n")
    found = json.loads((tmp_path / "run.json").read_text())
    assert found["host"]["image"] == image
    assert found["host"]["image_digest"] == digest_of(image)
    assert found["host"]["image_libc"].startswith("musl" if image == MUSL else "glibc 2.")
    first, second = found["runs"]
    assert first["output_sha256"] == second["output_sha256"]
    assert first["peak_rss_bytes"] > 200_000
    assert subprocess.run(["podman", "ps", "-aq"], capture_output=True, check=True).stdout == b""


@pytest.mark.usefixtures("images")
@pytest.mark.long
def test_this_machines_environment_does_not_reach_the_image(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOY", "leaked")
    assert main(["measure", "--container", GLIBC, "-q", "--", "work", "1"]) == 0
    assert "leaked" not in capfd.readouterr().out


@pytest.mark.usefixtures("images")
def test_arguments_reach_the_runtime(capfd: pytest.CaptureFixture[str]) -> None:
    args = "--read-only --env 'TOY=from args'"
    assert main(["measure", "--container", GLIBC, f"--container-args={args}", "-q", "--", "work", "1"]) == 0
    assert capfd.readouterr().out.endswith("from args\n")


@pytest.mark.usefixtures("images")
def test_compare_loads_the_kits_allocators(tmp_path: Path) -> None:
    words = ["compare", "-n", "2", "--container", GLIBC, "--allocators", "glibc,exgen", "-q"]
    assert main([*words, "--json", str(tmp_path / "c.json"), "--", "work", "100"]) == 0
    found = json.loads((tmp_path / "c.json").read_text())
    assert found["host"]["image_digest"] == digest_of(GLIBC)
    assert found["reference"] == "glibc"
    assert {name: row["failure"] for name, row in found["allocators"].items()} == {"glibc": None, "exgen": None}
    assert found["allocators"]["exgen"]["path"] == "/opt/heapwright/lib/libexgen.so"


@pytest.mark.usefixtures("images")
def test_compare_in_a_musl_image_says_what_loads_no_allocator(capfd: pytest.CaptureFixture[str]) -> None:
    """musl ignores a library that it cannot load, and a static program ignores all of them."""
    words = ["compare", "-n", "1", "--container", MUSL, "--allocators", "musl,/lib/none.so", "--"]
    assert main([*words, "work", "1"]) == 1
    assert "the program's loader in the image does not load none.so" in capfd.readouterr().out
    assert main([*words, "busybox", "true"]) == 0
    first = capfd.readouterr().err.splitlines()[0]
    assert "'busybox' in the image is a script, or linked statically" in first


@pytest.mark.usefixtures("images")
def test_record_writes_a_trace(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "work.hwt"
    assert main(["record", "--container", GLIBC, "-o", str(trace), "--", "work", "10"]) == 0
    assert re.search(r": work, 20,0\d\d events, 1 thread", capfd.readouterr().err)


@pytest.mark.usefixtures("images")
@pytest.mark.long
def test_landscape_sweeps_in_the_image(tmp_path: Path) -> None:
    words = [
        "landscape",
        "--container",
        GLIBC,
        "--param",
        "top_pad",
        "--range",
        "top_pad=64K:256K",
        "-n",
        "1",
        "--study",
    ]
    path = tmp_path / "l.landscape"
    assert main([*words, str(path), "-q", "--json", str(tmp_path / "l.json"), "--", "work", "20"]) == 0
    assert json.loads((tmp_path / "l.json").read_text())["host"]["image"] == GLIBC


@pytest.mark.usefixtures("images")
@pytest.mark.longer
def test_tune_in_an_image_ends_with_a_setting_that_takes_effect_there(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "s.study"
    words = ["tune", "--container", GLIBC, "--allocators", "exgen", "--budget", "2", "--pairs", "6", "--no-minify"]
    words += ["--study", str(study), *["--search-only"][: needs.repeats(0, 1)]]  # each run starts a container
    assert main([*words, "--json", str(tmp_path / "s.json"), "-q", "--", "work", "100"]) == 0
    found = json.loads((tmp_path / "s.json").read_text())
    assert found["host"]["image_digest"] == digest_of(GLIBC)
    assert found["program"]["image_digest"] == digest_of(GLIBC)
    capfd.readouterr()
    assert main(["apply", str(study), "--format", "docker"]) in (0, 3)
    text = capfd.readouterr().out
    copy = f'COPY ["heapwright-kit/{host_platform()}/lib/libexgen.so", "/opt/heapwright/lib/libexgen.so"]'
    assert copy in text
    assert main(["apply", str(study), "--check"]) == 0
    assert "takes effect in the image" in capfd.readouterr().out
    musl = find_platform(open_container(MUSL).image.platform) is not None  # then its kit has an exgen of its own
    assert main(["apply", str(study), "--check", "--container", MUSL]) == (0 if musl else 1)
    assert f"{'takes' if musl else 'does not take'} effect in the image" in capfd.readouterr().out
    assert main([*words, "-q", "--", "work", "100"]) == 0, "it resumes"


@pytest.mark.usefixtures("images")
def test_tune_in_a_musl_image_ends_with_a_setting_that_a_dockerfile_applies(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    platform = open_container(MUSL).image.platform
    if find_platform(platform) is None:
        needs.not_built(f"{platform} (make platforms)")
    study, result = str(tmp_path / "s.study"), tmp_path / "s.json"
    words = ["tune", "--container", MUSL, "--budget", "4", "--pairs", "6", "--study", study, "--json", str(result)]
    assert main([*words, "-q", "--", "work", "20"]) == 0
    found = json.loads(result.read_text())
    assert found["host"]["image_libc"] == "musl"
    shown = [*found["picks"].values(), *found["front"]]
    assert {one["allocator"] for one in shown} <= {"default", "exgen", "reaper"}
    assert found["references"] == {}, "the usual advice is about glibc, and jemalloc is not in the image"
    assert "glibc was not searched: the image has musl" in " ".join(found["warnings"])
    assert re.match(r"With (exgen|reaper)", found["claim"]), "musl's malloc is far slower at this program"
    capfd.readouterr()
    assert main(["apply", study, "--check"]) == 0
    capfd.readouterr()
    assert main(["apply", study, "--format", "docker"]) == 0
    text = capfd.readouterr().out
    assert "GLIBC_TUNABLES" not in text
    assert main(["kit", "-q", "-o", str(tmp_path / "kit.tar"), "--platform", platform]) == 0
    subprocess.run(["tar", "-xf", "kit.tar"], cwd=tmp_path, check=True)
    (tmp_path / "Dockerfile").write_text(f"FROM {MUSL}\n{text}")
    name = "heapwright-test-tuned"
    try:
        build = ["podman", "build", "-q", "--pull=never", "-t", name, str(tmp_path)]
        done = subprocess.run(build, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        libraries = set(re.findall(r"/opt/heapwright/lib/(lib\w+\.so)", text))
        assert libraries
        assert libraries <= set(re.findall(r"/opt/heapwright/lib/(lib\w+\.so)", maps_of_a_container(name)))
    finally:
        subprocess.run(["podman", "rmi", "--force", name], capture_output=True)


def maps_of_a_container(image: str) -> str:
    """/proc/PID/maps of the program of a container of this image, which reads its input meanwhile."""
    name = "heapwright-test-maps"
    words = ["podman", "run", "--rm", "--interactive", "--name", name, image, "work", "1", "read"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"x" * 8192)  # it prints a whole buffer, so it has started
        process.stdin.flush()
        process.stdout.read(1)
        inspect = ["podman", "inspect", "--format", "{{.State.Pid}}", name]
        pid = subprocess.run(inspect, capture_output=True, text=True, check=True).stdout.strip()
        maps = Path(f"/proc/{pid}/maps").read_text()
        process.communicate()
    return maps


@pytest.mark.usefixtures("images")
def test_glibc_is_not_in_a_musl_image(capfd: pytest.CaptureFixture[str]) -> None:
    said = one_line(["tune", "--container", MUSL, "--allocators", "glibc", "--", "work"], capfd)
    assert "the image has musl, not glibc" in said


@pytest.mark.usefixtures("images")
def test_another_image_of_the_name_is_another_program(tmp_path: Path) -> None:
    name = "heapwright-test-other"
    containers.make_glibc_image(name, tmp_path)
    try:
        then = identify_program(from_command(["work"], container=open_container(name)))
        assert (then.image, then.image_digest) == (name, digest_of(name))
        assert program_changes(then) == []
        containers.make_glibc_image(name, tmp_path, containers.SOURCE.replace("64 + i", "65 + i"))
        (phrase,) = program_changes(then)
        assert phrase.startswith(f"the image {name} was rebuilt (")
    finally:
        subprocess.run(["podman", "rmi", "--force", name], capture_output=True)
    assert program_changes(then) == [f"the image {name} is missing"]


@pytest.mark.usefixtures("images")
def test_a_server_runs_in_a_container_and_its_load_here(tmp_path: Path) -> None:
    serve = 'trap "exit 0" TERM; i=0; while [ $i -lt 600 ]; do busybox sleep 0.1; i=$((i+1)); done'
    (tmp_path / "w.toml").write_text(
        f"command = ['busybox', 'sh', '-c', '''{serve}''']\n"
        "[server]\nready = ['sleep', '1']\nload = ['true']\nidle = 1\n"
    )
    words = ["measure", "--container", GLIBC, "--workload", str(tmp_path / "w.toml"), "-q", "--json"]
    assert main([*words, str(tmp_path / "m.json")]) == 0
    (run,) = json.loads((tmp_path / "m.json").read_text())["runs"]
    assert run["exit_code"] == 0
    assert run["idle_rss_bytes"] > 0


# errors


def one_line(words: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    assert main(words) != 0
    lines = capfd.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.usefixtures("images")
def test_an_unknown_image_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    said = one_line(["measure", "--container", "heapwright-none", "--", "work"], capfd)
    assert "there is no image heapwright-none on this machine" in said


@pytest.mark.usefixtures("images")
def test_a_command_that_the_image_lacks_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    said = one_line(["measure", "--container", GLIBC, "--", "no-such-program"], capfd)
    assert said == "heapwright: command not found: no-such-program"


@pytest.mark.usefixtures("images")
def test_runs_that_fail_in_the_image_are_counted(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "--container", GLIBC, "-q", "--", "sh", "-c", "echo why >&2; exit 3"]) == 3
    assert capfd.readouterr().err == "why\nheapwright: warning: the run ended with exit status 3\n"


@pytest.mark.usefixtures("images")
def test_a_read_only_file_system_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["sh", "-c", "echo x > /new"]
    (tmp_path / "w.toml").write_text(f"command = {words}\n")
    said = one_line(
        ["compare", "--container", GLIBC, "--container-args=--read-only", "-q", "--allocators", "glibc", "--", *words],
        capfd,
    )
    assert "Read-only file system" in said


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for stand-ins of podman and docker, which alone is on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    find_runtime.cache_clear()
    yield tmp_path
    find_runtime.cache_clear()


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_no_runtime_is_one_line(stand_in: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert stand_in.is_dir()
    said = one_line(["measure", "--container", "x", "--", "work"], capfd)
    assert "there is no container runtime" in said


def test_a_runtime_without_its_daemon_is_one_line(stand_in: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script(stand_in / "docker", "echo Client:; echo 'Cannot connect to the daemon' >&2; exit 1")
    said = one_line(["measure", "--container", "x", "--", "work"], capfd)
    assert "docker does not work: Cannot connect to the daemon" in said


def test_an_image_of_another_machine_is_one_line(stand_in: Path, capfd: pytest.CaptureFixture[str]) -> None:
    answer = json.dumps([{"Id": "1", "Architecture": "s390x", "Os": "linux"}])
    script(stand_in / "podman", f"[ $1 = image ] && echo '{answer}'; exit 0")
    said = one_line(["measure", "--container", "x", "--", "work"], capfd)
    assert "the image x is for linux/s390x" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["measure", "--container-args=--x", "--", "work"], "--container-args needs an image"),
        (["compare", "--container", "x", "--cluster", "tcp://h:1", "--", "work"], "--cluster cannot be given"),
        (["measure", "--container", "x", "--instructions", "callgrind", "--", "work"], "callgrind"),
    ],
)
def test_options_that_exclude_each_other(words: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert said in one_line(words, capfd)
