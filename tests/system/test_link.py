"""Tests `heapwright inspect` and `heapwright link` with the compilers and linkers of this machine."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs
from tests.conftest import PROGRAMS, ROOT

from .conftest import Heapwright, environment

PLAIN = (
    "#include <string>\n#include <vector>\n"
    "int main(){std::vector<std::string> v(999,std::string(99,'x'));return v.empty();}\n"
)
CREW = "#include <thread>\n#include <string>\nint main(){std::thread([]{std::string s(99,'x');}).join();}\n"
VERDICTS = {"plain": ("exgen", "single"), "crew": ("reaper", "multi")}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both sources and their objects, made by g++."""
    needs.command("g++")
    folder = tmp_path_factory.mktemp("objects")
    for name, text in (("plain", PLAIN), ("crew", CREW)):
        (folder / f"{name}.cpp").write_text(text)
        subprocess.run(["g++", "-c", f"{name}.cpp"], cwd=folder, check=True)
    return folder


@pytest.fixture(autouse=True)
def sources(heapwright: Heapwright, objects: Path) -> None:
    """Both sources and their objects: to compile them takes longer than to link them."""
    for path in objects.iterdir():
        shutil.copy(path, heapwright.folder)


def run(folder: Path, *words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=folder, env={**environment(), **variables}, capture_output=True, text=True, check=False, timeout=120
    )


def judged(heapwright: Heapwright, name: str) -> dict[str, object]:
    found = json.loads(heapwright("inspect", "--json", "-", name).out)
    assert isinstance(found, dict)
    return found


def works_with(heapwright: Heapwright, program: str, allocator: str) -> None:
    """Checks that the program runs, and that this allocator is in it, because it prints its statistics."""
    done = run(heapwright.folder, f"./{program}", EXGEN_OPTIONS="stats=1", REAPER_OPTIONS="stats=1")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"{allocator}: "), done.stderr


LINKS = [
    [],
    ["-fuse-ld=bfd"],
    ["-fuse-ld=gold"],
    ["-fuse-ld=lld"],
    ["-fuse-ld=mold"],
    ["-no-pie"],
    ["-static"],
    ["-static-pie"],
    ["-flto", "-O2"],
    ["-Wl,--gc-sections", "-ffunction-sections", "-s"],
]


# clang++ links as g++ does: the short form has it once, with link-time optimization, where its
# objects differ.
COMPILERS = [
    needs.long_unless(compiler == "g++" or "-flto" in options, compiler, options)
    for compiler in ("g++", "clang++")
    for options in LINKS
]


@pytest.mark.parametrize(("compiler", "options"), COMPILERS, ids=lambda x: x if isinstance(x, str) else " ".join(x))
@pytest.mark.few(2)
def test_the_verdict_of_inspect_chooses_the_allocator(
    heapwright: Heapwright, objects: Path, compiler: str, options: list[str]
) -> None:
    """Compiles again only if the options are of the compiler, not of the linker alone."""
    needs.command(compiler, *[f"ld.{word.partition('=')[2]}" for word in options if word.startswith("-fuse-ld=")])
    compiles = compiler != "g++" or any(word.startswith(("-f", "-O")) and "-fuse" not in word for word in options)
    inputs = {name: f"{name}.cpp" if compiles else str(objects / f"{name}.o") for name in VERDICTS}
    if run(heapwright.folder, compiler, *options, inputs["plain"], "-o", "x").returncode:
        needs.machine_cannot(f"link with {compiler} {' '.join(options)}")
    for name, (allocator, verdict) in VERDICTS.items():
        done = heapwright("link", "--", compiler, *options, inputs[name], "-o", name)
        assert done.status == 0, done.err
        assert f"heapwright: {name}: {allocator} " in done.err
        works_with(heapwright, name, allocator)
        found = judged(heapwright, name)
        assert found["verdict"] == verdict
        assert isinstance(found["linked"], dict)
        assert found["linked"]["allocator"] == allocator


def test_the_same_link_makes_the_same_program(heapwright: Heapwright) -> None:
    """Also with a json.py in the folder, which once broke the build."""
    (heapwright.folder / "json.py").write_text("raise SystemExit('the wrong json')\n")
    made = []
    for _ in range(2):
        assert heapwright("link", "--", "g++", "crew.o", "-o", "crew").status == 0
        made.append((heapwright.folder / "crew").read_bytes())
    assert made[0] == made[1]


def test_options_choose_the_shared_library_the_name_and_the_hardened_build(heapwright: Heapwright) -> None:
    done = heapwright("link", "--shared", "--allocator", "reaper", "--", "g++", "plain.o", "-o", "plain")
    assert "reaper" in done.err
    works_with(heapwright, "plain", "reaper")
    assert "libreaper.so" in run(heapwright.folder, "readelf", "-d", "plain").stdout
    assert heapwright("link", "--secure", "--", "g++", "plain.o", "-o", "plain").status == 0
    works_with(heapwright, "plain", "exgen-secure")
    assert heapwright("link", "--secure", "--allocator", "reaper", "--", "g++", "plain.o", "-o", "plain").status == 0
    works_with(heapwright, "plain", "reaper-secure")


@pytest.mark.parametrize("soname", [[], ["-Wl,-soname,libother.so"]], ids=["no soname", "another soname"])
def test_a_library_by_its_path(heapwright: Heapwright, program: Callable[..., Path], soname: list[str]) -> None:
    """Without a soname, the linker writes the path of the library into the program."""
    library = heapwright.folder / "libother.so"
    shutil.copy(program("bump_malloc", "-shared", "-fPIC", *soname), library)
    done = heapwright("link", "--allocator", str(library), "--", "g++", "plain.o", "-o", "plain")
    assert done.status == 0
    assert "libother.so linked in, shared" in done.err
    loads = run(heapwright.folder, "ldd", "plain").stdout
    assert str(library) in loads
    assert run(heapwright.folder, "./plain").returncode == 0


def test_options_are_built_in_and_the_variable_wins(heapwright: Heapwright) -> None:
    for more in ([], ["--shared"]):
        assert heapwright("link", *more, "--options", "stats=1", "--", "g++", "plain.o", "-o", "plain").status == 0
        assert run(heapwright.folder, "./plain").stderr.startswith("exgen: ")
        assert run(heapwright.folder, "./plain", EXGEN_OPTIONS="stats=0").stderr == ""
        assert "with stats=1" in heapwright("inspect", "plain").out


def test_the_result_of_a_study_chooses_the_allocator(heapwright: Heapwright) -> None:
    """For every outcome of the study, `link` links the allocator that `apply` prints."""
    assert run(heapwright.folder, "g++", "plain.o", "-o", "plain").returncode == 0
    words = ["tune", "--allocators", "exgen", "--budget", "2", "--pairs", "6:6", "--no-minify", "--study", "s.study"]
    words += ["--json", "-", "--", "./plain"]
    assert heapwright(*words).status == 0
    config = json.loads(heapwright("apply", "s.study", "--format", "json").out)
    done = heapwright("link", "--study", "s.study", "--", "g++", "plain.o", "-o", "plain")
    assert done.status == 0, done.err
    found = judged(heapwright, "plain")["linked"]
    assert isinstance(found, dict)
    if config["allocator"] == "exgen":
        works_with(heapwright, "plain", "exgen")
        assert found["options"] == config["env"].get("EXGEN_OPTIONS", "")
    else:
        assert found["allocator"] == "none"
    assert "s.study" in found["why"]


@pytest.mark.long
def test_a_study_of_several_allocators_that_proves_nothing_leaves_the_plain_link(heapwright: Heapwright) -> None:
    """The default of such a study is the malloc that the program has."""
    assert run(heapwright.folder, "g++", "plain.o", "-o", "plain").returncode == 0
    words = ["tune", "--allocators", "exgen,reaper", "--proxy", "none", "--budget", "1", "--pairs", "6:6"]
    words += ["--minimize", "peak_heap"]
    assert heapwright(*words, "--study", "s.study", "--", "./plain").status == 0
    done = heapwright("link", "--study", "s.study", "--", "g++", "plain.o", "-o", "plain")
    assert done.status == 0, done.err
    found = judged(heapwright, "plain")["linked"]
    assert isinstance(found, dict)
    assert found["allocator"] == "none"
    assert "nothing is proven better" in found["why"]


def test_commands_that_link_no_program_run_unchanged(heapwright: Heapwright) -> None:
    (heapwright.folder / "p.cpp").write_text("int p() { return 0; }\n")
    for words in (["-c", "p.cpp"], ["-E", "p.cpp"], ["-shared", "-fPIC", "p.cpp", "-o", "libp.so"]):
        plain = run(heapwright.folder, "g++", *words)
        done = heapwright("link", "--", "g++", *words)
        assert (done.status, done.out, done.err) == (plain.returncode, plain.stdout, plain.stderr)
    assert "linked" not in judged(heapwright, "libp.so")
    assert heapwright("link", "--", "g++", "p.o", "-r", "-o", "r.o").err == ""
    assert heapwright("link", "--", "g++", "-print-prog-name=ld").out == run(ROOT, "g++", "-print-prog-name=ld").stdout
    assert heapwright("link", "--", "ar", "rcs", "lib.a", "p.o").status == 0


def test_failures_are_the_compilers_own(heapwright: Heapwright) -> None:
    (heapwright.folder / "bad.cpp").write_text("int f();int main(){return f();}")
    done = heapwright("link", "--", "g++", "bad.cpp", "-o", "bad")
    plain = run(heapwright.folder, "g++", "bad.cpp", "-o", "bad")
    assert done.status == plain.returncode == 1
    assert done.err.count("undefined reference") == plain.stderr.count("undefined reference") == 1
    assert "heapwright" not in done.err
    assert heapwright("link", "--", "g++", "missing.o", "-o", "x").status == 1
    missing = heapwright("link", "--", "no-such-compiler", "x.o")
    assert (missing.status, missing.err.count("\n")) == (2, 1)


def test_other_ways_to_name_compiler_and_linker(heapwright: Heapwright) -> None:
    """Tries a linker by path, a user's folder with another ld, the linker itself, and compiler launchers."""
    folder = heapwright.folder
    real = shutil.which("ld.bfd") or shutil.which("ld") or ""
    (folder / "mine").mkdir()
    (folder / "mine/ld").write_text(f'#!/bin/sh\ntouch "{folder}/mine/called"\nexec {real} "$@"\n')
    (folder / "mine/ld").chmod(0o755)
    needs.command("ccache", "clang++", "tcc")
    ways = [["g++", f"-B{folder}/mine/"], ["ccache", "g++"], ["clang++", f"--ld-path={real}"]]
    for words in ways:
        done = heapwright("link", "--", *words, "plain.o", "-o", "plain")
        assert done.status == 0, done.err
        works_with(heapwright, "plain", "exgen")
    assert (folder / "mine/called").exists()
    asked = run(folder, "gcc", "-###", "plain.o", "-lstdc++", "-o", "plain").stderr.splitlines()
    line = next(line for line in asked if "/collect2" in line)
    words = [word for word in shlex.split(line) if "plugin" not in word]
    words = [word for word in words if not word.startswith("-fresolution")]
    done = heapwright("link", "--", "ld", *words[1:])
    assert done.status == 0, done.err
    works_with(heapwright, "plain", "exgen")
    (folder / "a.c").write_text("int main(void){return 0;}")
    done = heapwright("link", "--", "tcc", "a.c", "-o", "a")
    assert (done.status, done.err.count("\n")) == (0, 1)
    assert "did not call heapwright's link step" in done.err


def test_a_link_by_a_response_file_gets_an_allocator(heapwright: Heapwright) -> None:
    (heapwright.folder / "words").write_text("plain.o -o plain -Wl,--as-needed,-O1")
    assert heapwright("link", "--", "g++", "@words").status == 0
    works_with(heapwright, "plain", "exgen")


@pytest.mark.parametrize(
    ("words", "source", "says"),
    [
        (["-Wl,--exclude-libs,ALL"], PLAIN, "malloc is hidden from libraries"),
        (["-fsanitize=address"], PLAIN, "defines its own malloc"),
        (
            [],
            '#include <cstdlib>\nextern "C" void* malloc(size_t){return nullptr;}\n' + PLAIN,
            "defines its own malloc",
        ),
    ],
    ids=["hidden", "sanitizer", "own"],
)
def test_a_program_that_cannot_have_an_allocator_gets_the_plain_link(
    heapwright: Heapwright, words: list[str], source: str, says: str
) -> None:
    (heapwright.folder / "a.cpp").write_text(source)
    compiled = run(heapwright.folder, "g++", *words, "-c", "a.cpp").returncode == 0
    if not compiled or run(heapwright.folder, "g++", *words, "a.o", "-o", "plain").returncode:
        needs.machine_cannot(f"link with g++ {' '.join(words)}")
    done = heapwright("link", "--", "g++", *words, "a.o", "-o", "a")
    assert done.status == 0
    assert done.err.count("\n") == 1
    assert done.err.startswith("heapwright: warning: ")
    assert says in done.err
    assert "linked" not in judged(heapwright, "a")


@pytest.mark.parametrize("how", [[], ["-static"]])
def test_a_program_for_musl_gets_the_plain_link(heapwright: Heapwright, how: list[str]) -> None:
    (heapwright.folder / "a.c").write_text("#include <stdlib.h>\nint main(void){return malloc(3) == 0;}")
    done = heapwright("link", "--", needs.command("musl-gcc"), *how, "a.c", "-o", "a")
    assert done.status == 0
    assert done.err == (
        "heapwright: warning: linked without an allocator of heapwright: a: its C library is not glibc, and libexgen.a"
        " is for glibc (for musl, name an archive of 'make platforms' in the link, see docs/platforms.md)\n"
    )


def test_a_program_for_another_machine_gets_the_plain_link(heapwright: Heapwright) -> None:
    (heapwright.folder / "a.c").write_text("int main(void){return 0;}")
    done = heapwright("link", "--", "gcc", *needs.gcc_for_32_bits(), "a.c", "-o", "a")
    assert done.status == 0
    assert "heapwright has no allocator for 386" in done.err
    assert run(heapwright.folder, "./a").returncode == 0


def test_a_mistake_of_ours_does_not_break_the_build(heapwright: Heapwright) -> None:
    """The link step itself fails, here because it cannot read its request."""
    folder = Path(heapwright("link", "--print", "libdir").out.strip()).parent / "ld"
    python = heapwright.path.parent / "python"
    variables = {"HEAPWRIGHT_LINK_PYTHON": str(python), "HEAPWRIGHT_LINK_REQUEST": '{"nonsense": 1}'}
    done = run(heapwright.folder, "g++", f"-B{folder}", "plain.o", "-o", "plain", **variables)
    assert done.returncode == 0
    assert "please report it" in done.stderr
    assert done.stderr.count("\n") == 1
    assert run(heapwright.folder, "./plain").returncode == 0


def test_a_threaded_plugin_under_exgen(heapwright: Heapwright) -> None:
    """With --no-plugins the verdict is one thread, but a plug-in starts threads: wrong, but safe."""
    folder = heapwright.folder
    plugin = ["-shared", "-fPIC", "-O1", str(PROGRAMS / "link_plugin.cpp"), "-o", "plugin.so", "-pthread"]
    assert run(folder, "g++", *plugin).returncode == 0
    host = ["gcc", "-O1", str(PROGRAMS / "link_host.c"), "-o", "host"]
    assert run(folder, *host).returncode == 0
    right = run(folder, "./host", "./plugin.so")
    assert right.returncode == 0, right.stderr
    for more in ([], ["--shared"], ["--secure"]):
        done = heapwright("link", "--no-plugins", *more, "--", *host)
        assert "exgen" in done.err
        for _ in range(5):
            got = run(folder, "./host", "./plugin.so")
            assert (got.returncode, got.stdout, got.stderr) == (0, right.stdout, "")


def test_a_project_with_a_makefile_is_linked(heapwright: Heapwright) -> None:
    shutil.copytree(PROGRAMS / "link_make", heapwright.folder / "project")
    done = run(heapwright.folder, "make", "-C", "project", "check", f"CC={heapwright.path} link -- gcc")
    assert done.returncode == 0, done.stderr
    assert "words: exgen" in done.stderr
    assert "squares: reaper" in done.stderr


CMAKE = [
    needs.long("Unix Makefiles", ["-DWITH_HEAPWRIGHT=ON"]),
    ("Ninja", ["-DWITH_HEAPWRIGHT=ON", "-DHEAPWRIGHT_ARGUMENTS=OPTIONS;stats=0"]),
    ("Unix Makefiles", ["-DWITH_HEAPWRIGHT=ON", "-DHEAPWRIGHT_ARGUMENTS=ALLOCATOR;reaper;SHARED"]),
    ("Ninja", []),
]


@pytest.mark.parametrize(
    ("generator", "options"), CMAKE, ids=lambda value: " ".join([value] if isinstance(value, str) else value[1:])
)
@pytest.mark.few(1)
def test_a_project_with_cmake_is_linked(heapwright: Heapwright, generator: str, options: list[str]) -> None:
    """Builds C, C++, Fortran and OpenMP by find_package(heapwright) from the wheel, or by the linker launcher."""
    needs.command("cmake", "gfortran", *(["ninja"] if generator == "Ninja" else []))
    folder, project = heapwright.folder, PROGRAMS / "link_cmake"
    place = heapwright("link", "--print", "cmake-dir").out.strip()
    launcher = [] if options else [f"-DCMAKE_{lang}_LINKER_LAUNCHER={heapwright.path};link;--" for lang in ("C", "CXX")]
    words = ["-G", generator, "-S", str(project), "-B", "b", f"-Dheapwright_ROOT={place}", *options, *launcher]
    made = run(folder, "cmake", *words, PATH=f"{heapwright.path.parent}:{os.environ['PATH']}")
    assert made.returncode == 0, made.stderr
    built = run(folder, "cmake", "--build", "b")
    assert built.returncode == 0, built.stdout + built.stderr
    tested = run(folder, "ctest", "--test-dir", "b", "--output-on-failure")
    assert tested.returncode == 0, tested.stdout
    named = next((a for a in ("exgen", "reaper") if a in "".join(options)), None)
    for name, allocator in {"table": "exgen", "shapes": "exgen", "crew": "reaper"}.items():
        works_with(heapwright, f"b/{name}", named or allocator)
    for name, allocator in {"sums": "reaper", "waves": "exgen"}.items():  # OpenMP and Fortran
        if options or name == "sums":
            works_with(heapwright, f"b/{name}", named or allocator)


def test_pkg_config_names_the_libraries(heapwright: Heapwright) -> None:
    needs.command("pkg-config")
    place = heapwright("link", "--print", "pkgconfig-dir").out.strip()
    for name in ("exgen", "exgen-secure", "reaper", "reaper-secure"):
        for query in ("--libs", "--variable=shared"):
            done = run(heapwright.folder, "pkg-config", query, "--cflags", name, PKG_CONFIG_PATH=place)
            if query != "--libs":
                done = run(heapwright.folder, "pkg-config", query, name, PKG_CONFIG_PATH=place)
            words = done.stdout.split()
            (heapwright.folder / "a.c").write_text("#include <stdlib.h>\nint main(void){free(malloc(9));return 0;}")
            assert run(heapwright.folder, "gcc", "a.c", *words, "-o", "a").returncode == 0
            works_with(heapwright, "a", name)


@pytest.mark.parametrize("layout", [needs.long("lib"), "lib/x86_64-linux-gnu"])
def test_an_installed_tree_can_be_moved(heapwright: Heapwright, layout: str) -> None:
    """After `cmake --install` and a move of the tree, find_package and pkg-config still find the libraries."""
    build = ROOT / "build/native"
    needs.command("pkg-config")
    if not (build / "native/allocator/libexgen.a").is_file():
        needs.not_built("build/native (make native)")
    folder = heapwright.folder
    tree = folder / "first"
    made = run(folder, "cmake", "-S", str(ROOT), "-B", "b", f"-DCMAKE_INSTALL_LIBDIR={layout}")
    assert made.returncode == 0, made.stderr
    # Copy the libraries rather than build them: this tests only the install rules.
    (folder / "b/native/allocator").mkdir(parents=True, exist_ok=True)
    for library in (build / "native/allocator").glob("lib*"):
        shutil.copy(library, folder / "b/native/allocator")
    done = run(folder, "cmake", "--install", "b", "--component", "allocators", "--prefix", str(tree))
    assert done.returncode == 0, done.stderr
    tree.rename(folder / "moved")
    place = folder / "moved" / layout
    (folder / "c").mkdir()
    (folder / "c/CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(p CXX)\nfind_package(heapwright 0.1 REQUIRED)\n"
        "add_executable(plain ../plain.cpp)\nheapwright_link_malloc(plain ALLOCATOR exgen)\n"
    )
    made = run(folder, "cmake", "-S", "c", "-B", "c/b", f"-DCMAKE_PREFIX_PATH={folder}/moved")
    assert made.returncode == 0, made.stderr
    assert run(folder, "cmake", "--build", "c/b").returncode == 0
    works_with(heapwright, "c/b/plain", "exgen")
    words = run(
        folder, "pkg-config", "--cflags", "--libs", "reaper", PKG_CONFIG_PATH=str(place / "pkgconfig")
    ).stdout.split()
    header = folder / "h.cpp"
    header.write_text("#include <reaper.h>\nint main(){reaper_free(reaper_malloc(9));}")
    assert run(folder, "g++", str(header), *words, "-o", "h").returncode == 0
    works_with(heapwright, "h", "reaper")


def test_inspect_asks_the_compiler_what_it_would_link(heapwright: Heapwright) -> None:
    for name, (_, verdict) in VERDICTS.items():
        found = json.loads(heapwright("inspect", "--json", "-", "--", "g++", f"{name}.o", "-lm", "-o", "x").out)
        assert (found["file"], found["verdict"]) == ("x", verdict)
        assert set(found["evidence"][0]) >= {"symbol", "from", "via"}
    assert "compile first" in heapwright("inspect", "--", "g++", "plain.cpp").err


def test_programs_of_this_machine_are_judged_correctly(heapwright: Heapwright, program: Callable[..., Path]) -> None:
    """A few that are everywhere; the whole table: docs/results/inspect.md."""
    assert judged(heapwright, "/bin/cat")["verdict"] == "single"
    assert judged(heapwright, shutil.which("sort") or "")["verdict"] == "multi"
    assert judged(heapwright, str(program("massif_threads")))["verdict"] == "multi"
