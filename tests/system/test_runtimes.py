"""Settings beside malloc's in one study: those of the program's runtime, and those of --add-space."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs

from .conftest import Heapwright
from .test_tune import MOODS, result, rows

SCRIPT = "rows = [{'id': i, 'name': str(i)} for i in range(20000)]\nprint(len(rows))\n"
SHORT = ["--budget", "8", "--pairs", "6:6", "--no-minify", "--study", "s.study", "--json", "-"]


def test_the_runtime_of_a_python_script_is_searched(heapwright: Heapwright) -> None:
    (heapwright.folder / "script.py").write_text(SCRIPT)
    python = needs.command("/usr/bin/python3")
    heapwright.report = True
    words = ["tune", "--allocators", "glibc,exgen", *SHORT, "--budget", "4", "--", python, "script.py"]
    done = heapwright(*words)
    found = result(done)
    runtime = found["runtime"]
    assert (runtime["name"], runtime["program"]) == ("cpython", python)
    assert runtime["version"].startswith("3.")
    assert found["runtimes"] == [runtime]
    assert "malloc" in runtime["searched"]
    assert f"CPython {runtime['version']} runs this program: its settings are searched too (malloc)." in done.err
    assert {"name": "runtimes", "runs": 4}.items() <= next(
        s for s in found["stages"] if s["name"] == "runtimes"
    ).items()
    study = heapwright.folder / "s.study"
    tried = rows(study, "SELECT DISTINCT allocator, env FROM run JOIN config ON config.id = run.config")
    under_malloc = {name for name, env in tried if json.loads(env).get("PYTHONMALLOC") == "malloc"}
    assert "glibc" in under_malloc
    replayed = rows(study, "SELECT settings FROM run JOIN config ON config.id = run.config WHERE phase = 'replay'")
    assert not any("cpython" in settings for (settings,) in replayed), "a replay does not show this setting"
    assert runtime["sentence"] in (heapwright.folder / "s.html").read_text().replace("&#39;", "'")
    assert result(heapwright(*words))["runtime"] == runtime


def test_a_space_of_the_user_beside_the_allocators(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    (heapwright.folder / "moods.toml").write_text(MOODS.replace('"hang", ', ""))
    path = str(program("moody"))
    words = ["--add-space", "moods.toml", "--allocators", "glibc,exgen", "--minimize", "peak_rss"]
    found = result(heapwright("tune", *words, *SHORT, "--", path))
    assert found["runtime"] is None
    pick = found["picks"]["memory"]
    assert pick["settings"]["moods.mood"] == "lean"
    assert pick["env"]["MOOD"] == "lean"
    assert pick["confirmed"]["peak_rss_bytes"]["verdict"] == "better"
    assert "MOOD=lean" in heapwright("apply", "s.study").out
    assert heapwright("run", "s.study", "--", "sh", "-c", "echo $MOOD").out == "lean\n"


def test_spaces_that_contradict_other_options_are_refused(heapwright: Heapwright) -> None:
    (heapwright.folder / "moods.toml").write_text(MOODS)
    (heapwright.folder / "copy.toml").write_text(MOODS)
    (heapwright.folder / "glibc.toml").write_text(MOODS.replace('"moods"', '"glibc"'))
    for words, message in (
        (["--add-space", "moods.toml", "--space", "moods.toml"], "--add-space cannot be given with --space"),
        (["--add-space", "moods.toml", "--no-runtime"], "--add-space cannot be given with --no-runtime"),
        (["--add-space", "moods.toml", "--add-space", "copy.toml"], "have the name 'moods'"),
        (["--add-space", "glibc.toml", "--allocators", "glibc"], "an allocator of this study has the name 'glibc'"),
        (["--add-space", "missing.toml"], "cannot read missing.toml"),
    ):
        done = heapwright("tune", *words, "--", "true")
        assert (done.status, done.out) == (2, ""), words
        assert message in done.err


def test_a_program_named_python3_is_not_python(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    shutil.copy(program("moody"), heapwright.folder / "python3")
    found = json.loads(heapwright("doctor", "--json", "-", "--", "./python3", "x.py").out)
    assert found["runtimes"] == []
    (one,) = json.loads(heapwright("doctor", "--json", "-", "--", "/usr/bin/python3").out)["runtimes"]
    assert (one["name"], one["searched"][0]) == ("cpython", "malloc")
    assert not (heapwright.folder / "x.py").exists()


RUBY = "rows = (0...20_000).map { |i| [i.to_s, i.to_s * 3] }\nputs rows.to_h.size\n"
NODE = "const rows = Array.from({length: 20000}, (_, i) => ({id: i}));\nconsole.log(JSON.stringify(rows).length);\n"
JAVA = """public class Rows {
    public static void main(String[] words) {
        var rows = new java.util.HashMap<String, byte[]>();
        for (int i = 0; i < 20000; i++) rows.put("n" + i, new byte[200]);
        System.out.println(rows.size());
    }
}
"""
CSHARP = """public class Rows {
    public static void Main() {
        var rows = new System.Collections.Generic.Dictionary<string, byte[]>();
        for (int i = 0; i < 20000; i++) rows["n" + i] = new byte[200];
        System.Console.WriteLine(rows.Count);
    }
}
"""
GO = "package rows\n\nvar rows = []string{\n" + '"a" ,\n' * 4000 + "}\n"


PROGRAMS = {
    "ruby": (["ruby", "rows.rb"], RUBY, ["malloc_limit"]),
    "node": (["node", "rows.js"], NODE, ["max-semi-space-size"]),
    "openjdk": (["java", "-cp", ".", "Rows"], JAVA, ["collector"]),
    "dotnet": (["dotnet", "Rows.dll"], CSHARP, ["gcConcurrent", "GCRetainVM"]),
    "go": (["gofmt", "rows.go"], GO, ["gogc", "madvdontneed"]),
}


def test_a_go_program_when_one_allocator_is_named(heapwright: Heapwright) -> None:
    """The allocator cannot reach it, but the settings of Go are searched all the same, unless --no-runtime."""
    go = needs.command("gofmt")
    (heapwright.folder / "rows.go").write_text(GO)
    words = ["tune", "--allocators", "glibc", *SHORT]
    refused = heapwright(*words, "--study", "refused.study", "--no-runtime", "--", go, "rows.go")
    assert refused.status == 1
    assert "does not use malloc" in refused.err
    found = result(heapwright(*words, "--params", "go.gogc", "--", go, "rows.go"))
    assert found["runtime"]["searched"] == ["gogc"]
    assert "Nothing is proven" not in found["claim"]


@pytest.mark.parametrize("name", ["ruby", needs.long("node"), needs.long("openjdk"), "dotnet", needs.long("go")])
@pytest.mark.long
def test_both_halves_of_each_runtime(heapwright: Heapwright, name: str) -> None:
    command, source, keys = PROGRAMS[name]
    file = {"openjdk": "Rows.java", "dotnet": "Rows.cs"}.get(name, command[-1])
    program = needs.dotnet() if name == "dotnet" else needs.command(command[0])
    (heapwright.folder / file).write_text(source)
    compilers = {".java": ["javac", file], ".cs": ["mcs", "-out:Rows.dll", file]}
    if compiler := compilers.get(Path(file).suffix):
        needs.command(compiler[0])
        subprocess.run(compiler, cwd=heapwright.folder, check=True)
    if name == "dotnet":
        config = {"runtimeOptions": {"framework": {"name": "Microsoft.NETCore.App", "version": "8.0.0"}}}
        (heapwright.folder / "Rows.runtimeconfig.json").write_text(json.dumps(config))
    malloc = [] if name == "go" else ["tcache_count"]  # a Go program has no malloc
    allocators = ["--allocators", "glibc"] if malloc else []
    words = [*allocators, "--params", ",".join([*malloc, *(f"{name}.{key}" for key in keys)])]
    words += ["--budget", "8", "--pairs", "6:6", "--margin", "5", "--study", "s.study", "--json", "-"]
    done = heapwright("tune", *words, "--", program, *command[1:])
    found = result(done)
    runtime = found["runtime"]
    assert (runtime["name"], runtime["searched"]) == (name, keys)
    assert f"{runtime['title']} {runtime['version']} runs this program: its settings are searched too" in done.err
    assert found["claim"]
    assert "Nothing is proven" not in found["claim"]
    stages = {stage["name"]: stage["runs"] for stage in found["stages"]}
    assert stages["runtimes"] >= 2
    if found["picks"]:
        assert stages["confirm"] >= 12
    study = heapwright.folder / "s.study"
    tried = rows(study, "SELECT DISTINCT settings FROM run JOIN config ON config.id = run.config WHERE failure = ''")
    settings = [json.loads(text) for (text,) in tried]
    assert any(f"{name}.{key}" in one for one in settings for key in keys)
    assert bool(malloc) == any("tcache_count" in one for one in settings)
