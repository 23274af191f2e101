"""Which runtime runs a command, told by its files; what its settings are, and how they are written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heapwright.allocators.memory_manager import find_memory_manager
from heapwright.allocators.runtime_settings import runtime_problems
from heapwright.allocators.runtimes import find_heap_owner, find_runtimes, shipped_runtimes
from heapwright.allocators.space import Space, build_space
from heapwright.allocators.space_file import load_space_file
from heapwright.allocators.space_spec import Context, SpaceFile
from heapwright.errors import UsageError
from tests import needs

OPTIONS = """
[runtime]
name = "toy"
title = "Toy"
env = "TOY_OPTIONS"
pair = "--{key}={value}"
join = " "
names = ["toy"]
libraries = ['libtoy\\.so.*']
version = ['toy-(\\d+)']

[[param]]
key = "semi-space"
low = 1
high = 64
accepts = [1, 1024]
explain = "e"

[[param]]
key = "collector"
type = "enum"
pair = "-XX:+{value}"
values = ["UseSerial", "UseParallel"]
explain = "e"

[[param]]
key = "late"
low = 1
high = 2
requires = { since = "9" }
explain = "e"
"""


def toy(folder: Path) -> SpaceFile:
    path = folder / "toy.toml"
    path.write_text(OPTIONS)
    return load_space_file(path)


@pytest.fixture(scope="module")
def options_space(tmp_path_factory: pytest.TempPathFactory) -> Space:
    return build_space(toy(tmp_path_factory.mktemp("toy")), Context("10"))


def names(*command: str, env: dict[str, str] | None = None) -> list[str]:
    return [one.name for one in find_runtimes(command, env=env)]


def test_a_python_and_what_starts_it(tmp_path: Path) -> None:
    python = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else needs.command("python3")
    (found,) = find_runtimes([python, "report.py"])
    said = subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"Python {found.version}.")
    assert "malloc" in [p.key for p in found.space(threads=True).params]
    script = tmp_path / "script"
    script.write_text(f"#!{python} -u\n")
    script.chmod(0o755)
    (tmp_path / "python3").symlink_to(python)
    on_path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    by_env = tmp_path / "by_env"
    by_env.write_text("#!/usr/bin/env -S A=1 python3 -u\n")
    by_env.chmod(0o755)
    for command in ([str(script)], [str(by_env)], ["env", "-u", "B", "A=1", "python3", "x"], ["python3"], ["script"]):
        assert names(*command, env=on_path) == ["cpython"], command


def test_a_newer_python_takes_each_value() -> None:
    pyenv = sorted(Path.home().glob(".pyenv/versions/3.1[3-9]*/bin/python3.1[3-9]"))
    python = next(map(str, pyenv), "") or shutil.which("python3.13")  # a shim of pyenv may start nothing
    if not python:
        needs.machine_cannot("run CPython 3.13 or newer: none is installed")
    (found,) = find_runtimes([python, "x.py"])
    (malloc,) = found.space(threads=True).params
    assert (found.name, set(malloc.levels)) == ("cpython", {"malloc", "mimalloc"})
    for value in (*malloc.levels, "mallok"):  # Python refuses an unknown value
        env = {**os.environ, "PYTHONMALLOC": value}
        done = subprocess.run([str(found.program), "-c", "1"], env=env, capture_output=True, check=False)
        assert (done.returncode == 0) == (value != "mallok"), value


@pytest.mark.parametrize(
    ("command", "words", "wanted"),
    [
        ("ruby", ["--version"], {"heap_growth_factor", "malloc_limit", "oldmalloc_limit"}),
        ("node", ["--version"], {"max-semi-space-size", "max-old-space-size", "uv_threadpool_size"}),
        ("java", ["-version"], {"collector", "max_heap", "thread_stack", "MaxHeapFreeRatio"}),
    ],
)
def test_other_runtimes_are_found_with_version_and_settings(command: str, words: list[str], wanted: set[str]) -> None:
    (found,) = find_runtimes([needs.command(command), "x"])
    done = subprocess.run([command, *words], capture_output=True, text=True, check=True)
    assert found.version in done.stdout + done.stderr
    assert found.version.count(".") >= 1
    space = found.space(threads=True)
    assert wanted <= {p.key for p in space.params}
    assert not wanted & {key for key, _ in space.skipped}
    assert "uv_threadpool_size" not in {p.key for p in found.space(threads=False).params}


def test_each_setting_of_a_runtime_is_one_that_it_takes() -> None:
    (found,) = find_runtimes([needs.command("java")])
    space = found.space(threads=True)
    for param in space.params:
        for level in {param.levels[0], param.levels[-1]}:
            base = {**os.environ, "JAVA_TOOL_OPTIONS": "-Dx=y"}
            env = space.environment({param.key: level}, base)
            assert env["JAVA_TOOL_OPTIONS"].startswith("-Dx=y -X")
            done = subprocess.run(
                ["java", "-version"], env={**base, **env}, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, (env, done.stdout + done.stderr)
    (found,) = find_runtimes([needs.command("node")])
    space = found.space(threads=True)
    env = space.environment({p.key: p.levels[0] for p in space.params}, {"NODE_OPTIONS": "--no-warnings"})
    assert env["NODE_OPTIONS"].split()[0] == "--no-warnings"
    words = ["node", "-p", "v8.getHeapStatistics().heap_size_limit"]
    plain, limited = (
        int(subprocess.run(words, env={**os.environ, **more}, capture_output=True, text=True, check=True).stdout)
        for more in ({}, env)
    )
    assert limited < plain


def test_the_runtime_of_go_is_found() -> None:
    go = "/usr/local/go/bin/go" if os.access("/usr/local/go/bin/go", os.X_OK) else needs.command("go")
    (found,) = find_runtimes([go, "version"])  # the tool is a Go program itself
    said = subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout
    assert (found.name, f"go{found.version} " in said) == ("go", True)
    space = found.space(threads=True)
    assert {"gogc", "gomemlimit"} <= {p.key for p in space.params}
    base = {"GODEBUG": "gctrace=1,madvdontneed=1"}
    env = space.environment({"gogc": "50", "madvdontneed": "0"}, base)
    assert env == {"GOGC": "50", "GODEBUG": "gctrace=1,madvdontneed=0"}


def test_the_runtime_of_openmp_is_found(tmp_path: Path) -> None:
    source = tmp_path / "sum.c"
    source.write_text("#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }\n")
    built = [needs.command("gcc"), "-fopenmp", str(source), "-o", str(tmp_path / "sum")]
    subprocess.run(built, check=True)
    (found,) = find_runtimes([str(tmp_path / "sum")])
    assert found.name == "openmp"
    assert [p.key for p in found.space(threads=True).params] == ["stacksize", "wait_policy"]
    assert found.space(threads=False).params == ()


# Name of the program, texts in it, a library that it needs, its runtime, settings and their variables.
BY_EVIDENCE: list[tuple[str, str, str, str, dict[str, str], dict[str, str]]] = [
    ("app", "OCAMLRUNPARAM caml_startup", "", "ocaml", {"o": "40", "s": "65536"}, {"OCAMLRUNPARAM": "b,o=40,s=65536"}),
    ("R", "", "R", "r", {"gc_mem_grow": "0"}, {"R_GC_MEM_GROW": "0"}),
    ("R", "R_GC_MEM_GROW", "", "r", {"vsize": "4194304"}, {"R_VSIZE": "4194304"}),
    ("app", "", "gc", "bdwgc", {"free_space_divisor": "8"}, {"GC_FREE_SPACE_DIVISOR": "8"}),
    ("beam.smp", "erts_alloc eheap_alloc", "", "erlang", {"Mulmbcs": "512", "fullsweep_after": "4", "Mea": "min"},
     {"ERL_FLAGS": "+Mulmbcs512 +Meamin", "ERL_FULLSWEEP_AFTER": "4"}),
    ("pypy3", "", "pypy3.9-c", "pypy", {"nursery": "1048576"}, {"PYPY_GC_NURSERY": "1048576"}),
    ("app", "MONO_GC_PARAMS nursery-size", "", "mono", {"nursery-size": "1048576", "major": "marksweep"},
     {"MONO_GC_PARAMS": "nursery-size=1048576,major=marksweep"}),
    ("php8.2", "USE_ZEND_ALLOC_HUGE_PAGES", "", "php", {}, {}),
    ("app", "GHCRTS Link with -rtsopts", "", "haskell", {"A": "8388608", "collector": "c"}, {"GHCRTS": "-A8388608 -c"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "texts", "library", "runtime", "settings", "env"), BY_EVIDENCE)
def test_runtimes_by_their_texts_or_libraries(
    tmp_path: Path, name: str, texts: str, library: str, runtime: str, settings: dict[str, str], env: dict[str, str]
) -> None:
    """Of programs that hold the evidence of a runtime."""
    source, program = tmp_path / "start.c", tmp_path / name
    source.write_text(
        f'const char* volatile texts = "{texts}";\n'
        "int Rf_initialize_R(void) { return 1; }\nint main(void) { return texts == 0; }\n"
    )
    words = [needs.command("gcc"), "-rdynamic", "-o", str(program), str(source)]
    if library:
        (tmp_path / "library.c").write_text("int start(void) { return 0; }\n")
        shared = tmp_path / f"lib{library}.so"
        subprocess.run([words[0], "-shared", "-o", str(shared), str(tmp_path / "library.c"),
                        f"-Wl,-soname,lib{library}.so{'.1' if library == 'gc' else ''}"], check=True)  # fmt: skip
        words += ["-Wl,--no-as-needed", str(shared)]
    subprocess.run(words, check=True)
    (found,) = find_runtimes([str(program)])
    assert found.name == runtime
    assert found.space(threads=True).environment(settings, {"OCAMLRUNPARAM": "b"}).items() >= env.items()
    owner, manager = find_heap_owner(program), find_memory_manager(str(program))
    managed = runtime if found.spec.heap and not found.spec.library else ""
    assert (owner.name if owner else "") == managed
    assert (manager.runtime if manager else "") == managed


@pytest.mark.parametrize(
    ("name", "variable", "before", "settings", "after"),
    [
        ("erlang", "ERL_FLAGS", "+hms 1024 +sbwtdcpu none", {"hms": "4096"}, "+hms 1024 +sbwtdcpu none +hms4096"),
        ("erlang", "ERL_FLAGS", "+sbwt long -pa x", {"sbwt": "none"}, "+sbwt long -pa x +sbwtnone"),
        ("haskell", "GHCRTS", "-Fd0.5 -F3", {"F": "1.5"}, "-Fd0.5 -F3 -F1.5"),
    ],
)
def test_a_value_behind_its_key_comes_last(
    name: str, variable: str, before: str, settings: dict[str, str], after: str
) -> None:
    """Of two values the later one holds; a user's words cannot be told apart, so all stay."""
    (file,) = [file for file in shipped_runtimes() if file.allocator.name == name]
    space = build_space(file, Context())
    assert space.environment(settings, {variable: before}) == {variable: after}
    assert space.environment(settings, {variable: after}) == {variable: after}
    assert runtime_problems({variable: before}) == []


def test_huge_pages_of_php_are_searched_where_they_are_not_usual() -> None:
    (php,) = [file for file in shipped_runtimes() if file.allocator.name == "php"]
    for thp, searched in (("madvise", ["huge_pages"]), ("always", []), ("never", [])):
        assert [p.key for p in build_space(php, Context("8.2", thp=thp)).params] == searched


def test_erlang_takes_each_setting() -> None:
    erl = shutil.which("erl") or needs.machine_cannot("run Erlang: it is not installed")
    (file,) = [file for file in shipped_runtimes() if file.allocator.name == "erlang"]
    space = build_space(file, Context())
    for number in (0, -1):
        env = space.environment({p.key: p.levels[number] for p in space.params if p.key != "Mea"}, {})
        shown = 'io:format("~p ~p", [erlang:system_info(fullsweep_after), erlang:system_info(min_heap_size)]), halt().'
        done = subprocess.run([erl, "-noshell", "-eval", shown], env={**os.environ, **env}, capture_output=True,
                              text=True, timeout=60, check=False)  # fmt: skip
        full, least = re.findall(r"\d+", done.stdout)
        assert full == env["ERL_FULLSWEEP_AFTER"], done
        assert int(least) >= int(space.params[[p.key for p in space.params].index("hms")].levels[number])


def test_a_library_that_the_program_loads_later_is_found() -> None:
    """As Python loads Arrow; its file does not name it."""
    loaded = ["libc.so.6", "libarrow.so.2600"]
    arrow = find_runtimes([sys.executable], loaded=loaded)[-1]
    assert (arrow.name, arrow.title, arrow.program) == ("arrow", "Apache Arrow 26", Path(sys.executable))
    space = arrow.space(threads=True)
    assert space.environment({"default_memory_pool": "system"}, {}) == {"ARROW_DEFAULT_MEMORY_POOL": "system"}
    assert "arrow" not in names(sys.executable)
    assert "ruby" not in {found.name for found in find_runtimes(["sort"], loaded=["libruby-3.1.so"])}


def test_a_language_comes_before_a_library(tmp_path: Path) -> None:
    source = tmp_path / "ruby.c"
    source.write_text(
        "#include <omp.h>\nint ruby_run_node(void) { return 1; }\n"
        'int main(void) { return ruby_run_node() + "RUBY_GC_HEAP_GROWTH_FACTOR"[omp_get_max_threads()]; }\n'
    )
    built = [needs.command("gcc"), "-fopenmp", "-rdynamic", str(source), "-o", str(tmp_path / "ruby")]
    subprocess.run(built, check=True)
    assert names(str(tmp_path / "ruby")) == ["ruby", "openmp"]


def test_a_shim_is_followed(tmp_path: Path) -> None:
    python = os.path.realpath(needs.command("/usr/bin/python3"))
    tool = tmp_path / "pyenv"
    tool.write_text(f'#!/bin/sh\n[ "$1 $2" = "which python3" ] && echo {python}\n')
    shim = tmp_path / "shims/python3"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nprogram="${{0##*/}}"\nexec "{tool}" exec "$program" "$@"\n')
    for path in (tool, shim):
        path.chmod(0o755)
    (found,) = find_runtimes([str(shim), "x.py"])
    assert str(found.program) == python


def test_a_name_alone_is_no_evidence_of_a_runtime(program: Callable[..., Path], tmp_path: Path) -> None:
    for name in ("python3", "ruby", "node", "java"):  # the name alone is no evidence
        shutil.copy(program("mapping_calls"), tmp_path / name)
    python = os.path.realpath(needs.command("/usr/bin/python3"))
    shutil.copy(python, tmp_path / "other")  # and evidence in a program of another name is none either
    (tmp_path / "loop").write_text(f"#!{tmp_path}/loop\n")
    (tmp_path / "loop").chmod(0o755)
    for command in ("python3", "ruby", "node", "java", "other", "loop", "missing"):
        assert names(str(tmp_path / command)) == [], command
    for command in ("sh", "perl", ""):
        assert names(command) == [], command
    assert names() == []


def test_a_setting_of_another_version_is_told_and_not_searched() -> None:
    (file,) = [file for file in shipped_runtimes() if file.allocator.name == "cpython"]
    old, new = (build_space(file, Context(version)) for version in ("3.11", "3.13"))
    assert [p.levels for p in old.params] == [("malloc",)]
    assert ("malloc=mimalloc", "needs version 3.13, here is 3.11") in old.skipped
    assert [p.levels for p in new.params] == [("malloc", "mimalloc")]


def test_bad_values_are_told() -> None:
    python = needs.command("/usr/bin/python3")
    assert runtime_problems({"PYTHONMALLOC": "malloc", "PYTHONPATH": "x", "PYTHONMALLOCSTATS": "1"}, python) == []
    (line,) = runtime_problems({"PYTHONMALLOC": "mallok"}, python)
    assert "does not know 'mallok'; did you mean malloc?" in line
    (line,) = runtime_problems({"PYTHONMALOC": "malloc"})
    assert line == "no CPython reads PYTHONMALOC; did you mean PYTHONMALLOC?"
    assert runtime_problems({"PYTHONMALLOC": "mallok"}, "sh") == []
    for factor, trouble in (("1.7", ""), ("abc", "takes a number here"), ("0.5", "takes 1 to 1000000")):
        said = runtime_problems({"RUBY_GC_HEAP_GROWTH_FACTOR": factor})
        assert said == ([f"RUBY_GC_HEAP_GROWTH_FACTOR={factor}: Ruby {trouble}"] if trouble else [])
    (line,) = runtime_problems({"JAVA_TOOL_OPTIONS": "-XX:+UseSerialGc -XX:+UseStringDeduplication"})
    assert "does not know -XX:+UseSerialGc; did you mean -XX:+UseSerialGC?" in line
    assert runtime_problems({"JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC -Xlog:gc -XX:+UseZGC"}) == []


@pytest.mark.parametrize("shipped", shipped_runtimes(), ids=lambda file: file.allocator.name)
def test_shipped_files(shipped: SpaceFile) -> None:
    assert shipped.runtime is not None
    assert shipped.runtime.source.startswith("https://")
    for spec in shipped.param:
        assert not spec.replayable, spec.key
        assert spec.explain.endswith("."), spec.key


@given(
    st.lists(st.sampled_from(["--a", "-XX:+Other", "'x  y'", "--semi-space=3", "-XX:+UseSerial", ""])),
    st.sampled_from([None, "1", "64"]),
    st.sampled_from([None, "UseSerial", "UseParallel"]),
)
def test_the_users_options_stay(
    options_space: Space, before: list[str], semi: str | None, collector: str | None
) -> None:
    settings = {k: v for k, v in (("semi-space", semi), ("collector", collector)) if v is not None}
    base = {"TOY_OPTIONS": " ".join(before)} if before else {}
    env = options_space.environment(settings, base)
    if not settings:
        assert env == {}
        return
    words = env["TOY_OPTIONS"].split(" ")
    ours = [f"--semi-space={semi}"] * (semi is not None) + [f"-XX:+{collector}"] * (collector is not None)
    assert words[-len(ours) :] == ours
    replaced = {"--semi-space=3"} if semi else set()
    replaced |= {"-XX:+UseSerial"} if collector else set()
    wanted = [w for text in before for w in text.split() if w not in replaced]
    assert [w for w in words[: -len(ours)] if w] == wanted
    assert options_space.environment(settings, env) == env
    if not replaced & set(before):
        assert env["TOY_OPTIONS"].startswith(base.get("TOY_OPTIONS", ""))  # also the spaces within quotes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('libraries = ', 'names = ["x"]\n#'), "a file name is not evidence"),
        (("'toy-(\\d+)'", "'toy'"), "must have one group"),
        (('names = ["toy"]', 'names = ["("]'), "is not a regular expression"),
        (('name = "toy"', 'name = "to.y"'), "lower-case"),
        (("[runtime]", '[runtime]\nheap = "x"'), "give both"),
        (("[runtime]", '[allocator]\nname = "x"\n[runtime]'), "an allocator or a runtime, not both"),
        (('values = ["UseSerial"', 'values_since = { b = "1" }\nvalues = ["a"'), "not among its values"),
    ],
)  # fmt: skip
def test_contradictions_are_told(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    text = OPTIONS.replace('names = ["toy"]\n', "") if change[0] == "libraries = " else OPTIONS
    assert change[0] in text
    path = tmp_path / "bad.toml"
    path.write_text(text.replace(*change))
    with pytest.raises(UsageError, match=message):
        load_space_file(path)


def test_without_a_version_only_what_every_version_has(tmp_path: Path) -> None:
    from heapwright.allocators.runtimes import Runtime

    space = Runtime(toy(tmp_path), "", Path("/toy")).space(threads=True)
    assert [p.key for p in space.params] == ["semi-space", "collector"]
    assert space.skipped == (("late", "the version is unknown, so it may not have this setting"),)
