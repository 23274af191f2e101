"""Tests the formats of `apply` for containers, supervisord and Lmod by their real readers, and their libraries."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped] # mkdocs brings it

from heapwright.allocators.registry import library_folder
from heapwright.cli.main import build_parser
from heapwright.errors import HeapwrightError
from heapwright.files import file_sha256
from heapwright.interleaving.configuration import Config
from heapwright.platforms import INSIDE, host_platform
from heapwright.report.apply import FORMATS, render_config
from tests import needs

from .test_apply import CLAIM, HOSTILE, environment, hostile, sh

EXGEN = library_folder() / "libexgen.so"
PRELOADED = Config(2, "exgen", {"purge": "1"}, {"LD_PRELOAD": str(EXGEN), "EXGEN_OPTIONS": "purge=1"})
COPY = f'COPY ["heapwright-kit/{host_platform()}/lib/libexgen.so", "/opt/heapwright/lib/libexgen.so"]'


def expanded(text: str) -> str:
    """Expand as Compose and Kubernetes do: $$ is one $, and nothing else may be left to expand."""
    assert not re.search(r"(?<!\$)(\$\$)*\$(?!\$)", text), text
    return text.replace("$$", "$")


def test_the_command_line_offers_every_format() -> None:
    parser = build_parser()
    for fmt in FORMATS:
        assert parser.parse_args(["apply", "s.study", "--format", fmt]).fmt == fmt


@pytest.mark.parametrize("value", HOSTILE)
def test_compose_reads_the_very_value(value: str) -> None:
    found = yaml.safe_load(render_config(hostile(value), "compose", [], CLAIM))
    (service,) = found["services"].values()
    assert expanded(service["environment"]["TOY"]) == value
    assert "volumes" not in service


@pytest.mark.parametrize("value", HOSTILE)
def test_kubernetes_reads_the_very_value(value: str) -> None:
    found = yaml.safe_load(render_config(hostile(value), "kubernetes", [], CLAIM))["spec"]["template"]["spec"]
    (container,) = found["containers"]
    assert {each["name"]: expanded(each["value"]) for each in container["env"]}["TOY"] == value
    assert "initContainers" not in found


def test_a_library_of_another_platform_comes_from_the_kit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As of a musl program, which was measured on this machine."""
    library = tmp_path / "x86_64-musl/lib/libexgen.so"
    library.parent.mkdir(parents=True)
    library.touch()
    (tmp_path / "x86_64-musl/heapwright-meter").touch()
    monkeypatch.setenv("HEAPWRIGHT_PLATFORMS", str(tmp_path))
    text = render_config(Config(2, "exgen", {}, {"LD_PRELOAD": str(library)}), "docker", [], CLAIM)
    assert 'COPY ["heapwright-kit/x86_64-musl/lib/libexgen.so", "/opt/heapwright/lib/libexgen.so"]' in text
    assert "of the kit ('heapwright kit --platform x86_64-musl'), sha256" in text
    assert "beside the Dockerfile" not in text


@pytest.mark.parametrize("value", ["\x7f\x85", "\u2028\ufeff", "\U0001f600", "\x01\x1b[0m"])
def test_yaml_holds_any_character(value: str) -> None:
    found = yaml.safe_load(render_config(hostile(value), "compose", [], CLAIM))
    assert found["services"]["app"]["environment"]["TOY"] == value


@needs.with_command("lua5.4")
@pytest.mark.parametrize("value", HOSTILE)
def test_lmod_sets_the_very_value(value: str, tmp_path: Path) -> None:
    module = tmp_path / "module.lua"
    module.write_text(render_config(hostile(value), "lmod", ["perl"], CLAIM) + "\n")
    script = (
        "function whatis() end function setenv(k, v) io.write(k, '=', v, '\\0') end "
        "prepend_path = setenv; dofile(arg[1])"
    )
    (tmp_path / "lmod.lua").write_text(script)
    done = subprocess.run(["lua5.4", tmp_path / "lmod.lua", module], check=True, capture_output=True)
    assert environment(done.stdout)["TOY"] == value


@pytest.mark.parametrize("fmt", ["supervisord", "lmod"])
def test_a_setting_of_this_machine_says_what_another_needs(fmt: str) -> None:
    found = render_config(PRELOADED, fmt, ["perl"], CLAIM)
    copy = f"On another machine, copy {EXGEN} (sha256 {file_sha256(EXGEN)}) and change its path below\n"
    assert copy in found
    assert "kit" not in found.replace(copy, "")


@needs.with_command("supervisord")
@pytest.mark.parametrize("value", [*HOSTILE, "a ; b"])
def test_supervisord_reads_the_very_value_or_it_is_refused(value: str, tmp_path: Path) -> None:
    refused = value in ('it\'s "quoted"', "first\nsecond", "a ; b")
    config = Config(2, "toy", {"key": value}, {"TOY": value, "OTHER": "a,b"})
    if refused:
        with pytest.raises(HeapwrightError, match="supervisord cannot read the value"):
            render_config(config, "supervisord", [], CLAIM)
        return
    file = tmp_path / "supervisord.conf"
    text = render_config(config, "supervisord", [], CLAIM)
    file.write_text(f"[supervisord]\n{text}\ncommand=/bin/true\n".replace("NAME", "name"))
    script = (
        "import sys\nfrom supervisor.options import ServerOptions\no = ServerOptions()\n"
        "o.realize(['-n', '-c', sys.argv[1]]); e = o.process_group_configs[0].process_configs[0].environment\n"
        "sys.stdout.write(''.join(f'{k}={v}\\0' for k, v in e.items()))"
    )
    done = subprocess.run(["/usr/bin/python3", "-c", script, file], capture_output=True, cwd=tmp_path, check=True)
    assert environment(done.stdout) == {"TOY": value, "OTHER": "a,b"}


@pytest.mark.parametrize("value", HOSTILE)
def test_an_entry_point_sets_the_very_value_and_starts_the_command(value: str, tmp_path: Path) -> None:
    script = tmp_path / "entry"
    script.write_text(render_config(hostile(value), "entrypoint", [], CLAIM) + "\n")
    script.chmod(0o755)
    done = subprocess.run([script, "env", "-0"], env={"PATH": os.environ["PATH"]}, check=True, capture_output=True)
    assert environment(done.stdout)["TOY"] == value


def test_texts_for_images_name_the_library_in_the_kit() -> None:
    digest = hashlib.sha256(EXGEN.read_bytes()).hexdigest()
    for fmt in ("docker", "compose", "kubernetes", "entrypoint"):
        text = render_config(PRELOADED, fmt, [], CLAIM)
        assert f"{INSIDE}/lib/libexgen.so" in text, fmt
        assert f"heapwright-kit/{host_platform()}/lib/libexgen.so" in text, fmt
        assert digest in text, fmt
        assert str(library_folder()) not in text, fmt
    for fmt in ("supervisord", "lmod"):  # they run on this machine
        text = render_config(PRELOADED, fmt, [], CLAIM)
        assert str(EXGEN) in text, fmt
        assert digest in text, fmt


def test_a_dockerfile_copies_the_library() -> None:
    lines = render_config(PRELOADED, "docker", [], CLAIM).splitlines()
    assert COPY in lines
    assert lines.index('ENV LD_PRELOAD="/opt/heapwright/lib/libexgen.so"') > lines.index(COPY)


def test_a_pod_gets_the_library_by_an_init_container() -> None:
    pod = yaml.safe_load(render_config(PRELOADED, "kubernetes", [], CLAIM))["spec"]["template"]["spec"]
    (init,), (container,) = pod["initContainers"], pod["containers"]
    assert init["command"] == ["cp", "/opt/heapwright/lib/libexgen.so", "/heapwright"]
    (volume,) = pod["volumes"]
    assert [m["name"] for m in (*init["volumeMounts"], *container["volumeMounts"])] == [volume["name"]] * 2
    assert container["volumeMounts"][0]["mountPath"] == "/opt/heapwright/lib"
    assert init["image"].startswith("heapwright-kit:")


def test_a_library_of_the_system_is_copied_from_here(tmp_path: Path) -> None:
    plain = tmp_path / "libmy.so"
    plain.write_bytes(b"library")
    text = render_config(Config(2, "my", {}, {"LD_PRELOAD": f"{plain}:libother.so"}), "docker", [], CLAIM)
    assert 'COPY ["libmy.so", "/opt/heapwright/lib/libmy.so"]' in text
    assert 'ENV LD_PRELOAD="/opt/heapwright/lib/libmy.so:libother.so"' in text
    assert file_sha256(plain) in text
    patch = render_config(Config(2, "my", {}, {"LD_PRELOAD": str(plain)}), "kubernetes", [], CLAIM)
    (init,) = yaml.safe_load(patch)["spec"]["template"]["spec"]["initContainers"]
    assert init["image"].startswith("heapwright-library:"), "the kit does not have it"
    assert f"an image with the library, here called {init['image']}" in patch


def test_json_lists_the_libraries() -> None:
    (library,) = json.loads(render_config(PRELOADED, "json", [], CLAIM))["libraries"]
    assert library["in_kit"]
    assert library["inside"] == "/opt/heapwright/lib/libexgen.so"
    assert library["sha256"] == file_sha256(EXGEN)


def test_the_entry_point_preloads_beside_what_is_preloaded() -> None:
    script = render_config(PRELOADED, "entrypoint", [], CLAIM).replace('exec "$@"', "") + '\nprintf %s "$LD_PRELOAD"'
    script = script.replace("export LD_PRELOAD", "")
    assert sh(script, Path("/")) == b"/opt/heapwright/lib/libexgen.so"
