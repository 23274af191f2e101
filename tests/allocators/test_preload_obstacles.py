"""Tests the obstacles that a program's file shows for its malloc: every obstacle is found, and no false one."""

from __future__ import annotations

import shutil
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from heapwright.allocators.glibc_tunables import find_loader
from heapwright.allocators.preload_obstacles import find_obstacle, has_allocator
from heapwright.allocators.program_file import read_program
from tests import needs
from tests.conftest import PROGRAMS

Program = Callable[..., Path]
JEMALLOC = "/usr/lib/libjemalloc.so.2"  # need not be there: only the program is looked at
BARE = ("-nostdlib", "-static")


@pytest.fixture
def dynamic(program: Program) -> str:
    return str(program("mapping_calls"))


@pytest.fixture
def own(tmp_path: Path) -> Callable[..., str]:
    """Builds a program that defines malloc itself."""
    cc = needs.command("gcc")

    def build(name: str = "own", *options: str, more: str = "") -> str:
        (tmp_path / "more.c").write_text(more)
        sources = [PROGRAMS / "mapping_calls.c", PROGRAMS / "bump_malloc.c", tmp_path / "more.c"]
        subprocess.run([cc, "-O1", *options, "-o", tmp_path / name, *sources], check=True)
        return str(tmp_path / name)

    return build


def texts(program: str) -> list[str]:
    """For the recorder, glibc's settings and a preloaded library: the obstacle in words, or ''."""
    found = [find_obstacle(program), find_obstacle(program, "glibc"), find_obstacle(program, "jemalloc", JEMALLOC)]
    return [str(obstacle or "") for obstacle in found]


def reasons(program: str) -> set[str]:
    """The reasons of the same three."""
    found = [find_obstacle(program), find_obstacle(program, "glibc"), find_obstacle(program, "jemalloc", JEMALLOC)]
    return {obstacle.reason if obstacle else "" for obstacle in found}


# programs that can be reached


def test_settings_reach_a_dynamic_program(dynamic: str, program: Program) -> None:
    assert texts(dynamic) == ["", "", ""]
    assert texts(str(program("mapping_calls", "-no-pie"))) == ["", "", ""]
    assert texts(str(program("mapping_calls", "-s"))) == ["", "", ""]


def test_a_program_that_takes_the_address_of_malloc_does_not_define_it(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(
        "#include <stdlib.h>\nvoid* (*volatile p)(size_t) = malloc;\nint main(){return !p(1);}\n"
    )
    subprocess.run([needs.command("gcc"), "-no-pie", "-fno-pie", "-o", tmp_path / "a", tmp_path / "a.c"], check=True)
    assert texts(str(tmp_path / "a")) == ["", "", ""]


def test_a_malloc_that_may_pass_its_calls_on_is_left_to_the_run(program: Program, own: Callable[..., str]) -> None:
    wrapper = str(program("malloc_wrapper", "-fno-builtin"))
    for name, preload in (("", ""), ("glibc", ""), ("jemalloc", JEMALLOC)):
        barrier = find_obstacle(wrapper, name, preload)
        assert barrier is not None
        assert not barrier.certain
    uses = '#include <dlfcn.h>\nvoid *f(void) { return dlsym(0, "free"); }\n'
    for program_with_malloc in (own(), own("uses", more=uses), own("debug", "-g", more=uses + "/* malloc */")):
        barrier = find_obstacle(program_with_malloc)
        assert barrier is not None
        assert barrier.certain, program_with_malloc


def test_settings_reach_python_shells_and_perl() -> None:
    """Python has arenas of its own, and asks malloc for them and for all large objects."""
    for name in (sys.executable, "sh", "perl", "cat"):
        assert texts(name) == ["", "", ""], name


def test_an_unreadable_program_is_left_to_the_run(tmp_path: Path, dynamic: str) -> None:
    (tmp_path / "text").write_text("no program")
    (tmp_path / "short").write_bytes(Path(dynamic).read_bytes()[:200])
    (tmp_path / "empty").write_text("#!")
    for name in ("text", "short", "empty"):
        (tmp_path / name).chmod(0o755)
        assert texts(str(tmp_path / name)) == ["", "", ""], name
    assert texts(str(tmp_path / "none")) == texts("no-such-program") == texts("") == ["", "", ""]


def test_damaged_headers_are_no_traceback(tmp_path: Path, dynamic: str) -> None:
    content = Path(dynamic).read_bytes()
    broken = tmp_path / "broken"
    for at in range(16, 64):
        broken.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
        broken.chmod(0o755)
        texts(str(broken))


# linked statically


def test_a_static_program_with_glibc_reads_its_tunables(program: Program) -> None:
    static = str(program("mapping_calls", "-static"))
    assert texts(static) == [
        "mapping_calls-static cannot be recorded: it is linked statically (link it dynamically)",
        "",
        "jemalloc cannot be loaded into mapping_calls-static: it is linked statically"
        " (link it dynamically, or with 'heapwright link')",
    ]
    assert find_loader(static) is None


def test_static_programs_may_start_others(program: Program) -> None:
    for options in (BARE, (*BARE, "-DGO")):
        obstacle = find_obstacle(str(program("exit_only", *options)), "glibc")
        assert obstacle is not None
        assert not obstacle.certain


def test_a_static_program_without_glibc(program: Program) -> None:
    assert reasons(str(program("exit_only", *BARE))) == {"it is linked statically"}


def test_settings_do_not_reach_a_go_program(program: Program) -> None:
    go = str(program("exit_only", *BARE, "-DGO"))
    assert reasons(go) == {"it is a Go program, which does not use malloc"}
    assert "GOMEMLIMIT" in texts(go)[1]


def test_the_loader_itself_is_no_static_program(dynamic: str) -> None:
    loader = find_loader(dynamic)
    assert loader
    assert texts(loader) == ["", "", ""]


# a malloc of its own


@pytest.mark.parametrize("options", [(), ("-no-pie",), ("-s",)])
def test_settings_do_not_reach_a_program_with_its_own_malloc(options: tuple[str, ...], own: Callable[..., str]) -> None:
    path = own("own", *options)
    assert texts(path) == [
        "own cannot be recorded: it has a malloc of its own (link it with the C library's malloc to record it)",
        "glibc's settings do not reach own: it has a malloc of its own"
        " (link it without that malloc, or describe its settings in a file: 'tune --space FILE')",
        "jemalloc cannot be loaded into own: it has a malloc of its own"
        " (link it without that malloc, or describe its settings in a file: 'tune --space FILE')",
    ]
    obstacle = find_obstacle(path)
    assert obstacle is not None
    assert obstacle.certain


def test_a_malloc_in_the_program_is_known_by_its_texts(own: Callable[..., str]) -> None:
    """jemalloc linked in is known by its texts, also where names are stripped: its settings reach the program."""
    path = own("own", "-s", more='const char* volatile said = "<jemalloc>: Invalid conf pair";\n')
    assert texts(path)[1] == (
        "glibc's settings do not reach own: it has a malloc of its own (jemalloc)"
        " (the malloc it has can be used: --allocator jemalloc)"
    )
    assert texts(path)[2] == ""
    assert has_allocator(path, "jemalloc")
    assert not has_allocator(path, "glibc")


def test_a_name_that_ends_in_malloc_is_another(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text(
        "#include <stdlib.h>\nvoid* xmalloc(size_t n) { return malloc(n); }\nint main(){return !xmalloc(1);}\n"
    )
    subprocess.run([needs.command("gcc"), "-rdynamic", "-o", tmp_path / "x", tmp_path / "x.c"], check=True)
    assert texts(str(tmp_path / "x")) == ["", "", ""]


def test_a_shell_with_its_own_malloc_starts_others(own: Callable[..., str]) -> None:
    """As bash is built by default."""
    obstacle = find_obstacle(own("bash"))
    assert obstacle is not None
    assert not obstacle.certain


def test_settings_of_the_users_own_file_are_the_programs_business(own: Callable[..., str], program: Program) -> None:
    assert find_obstacle(own(), "my pool") is None
    assert find_obstacle(str(program("exit_only", *BARE)), "my pool") is None


# linked by heapwright


@pytest.fixture
def linked(tmp_path: Path) -> Callable[..., str]:
    """Links a program with an allocator of ours."""
    heapwright = Path(sys.executable).parent / "heapwright"

    def build(*options: str) -> str:
        words = ["link", *options, "--", needs.command("gcc"), "-o", str(tmp_path / "linked")]
        subprocess.run([heapwright, *words, PROGRAMS / "mapping_calls.c"], check=True, capture_output=True)
        return str(tmp_path / "linked")

    return build


def test_exgen_linked_in(linked: Callable[..., str]) -> None:
    path = linked("--allocator", "exgen")
    assert texts(path) == [
        "linked cannot be recorded: exgen is linked into it (link it without 'heapwright link' to record it)",
        "glibc's settings do not reach linked: exgen is linked into it"
        " (use the allocator that it has: --allocator exgen)",
        "jemalloc cannot be loaded into linked: exgen is linked into it"
        " (use the allocator that it has: --allocator exgen)",
    ]
    assert find_obstacle(path, "exgen", "/libexgen.so") is None
    assert find_obstacle(path, "exgen-secure", "/libexgen-secure.so") is None
    assert find_obstacle(path, "reaper", "/libreaper.so") is not None
    assert has_allocator(path, "exgen")


def test_a_shared_library_linked_in_gives_way_to_a_preloaded_one(linked: Callable[..., str]) -> None:
    path = linked("--allocator", "exgen", "--shared")
    assert [bool(text) for text in texts(path)] == [False, True, False]


def test_a_note_that_only_says_that_nothing_was_linked(linked: Callable[..., str]) -> None:
    assert texts(linked("--allocator", "none")) == ["", "", ""]


# settings that the loader ignores


def test_settings_do_not_reach_a_set_user_id_program(
    dynamic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shutil.copy(dynamic, tmp_path / "suid"))
    path.chmod(0o755 | stat.S_ISUID)
    assert texts(str(path)) == ["", "", ""], "with its owner's own rights nothing changes"
    monkeypatch.setattr("heapwright.allocators.program_file.os.getuid", lambda: path.stat().st_uid + 1)
    assert reasons(str(path)) == {"it runs set-user-ID, so its loader ignores the environment"}


def test_settings_do_not_reach_a_set_group_id_program(
    dynamic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shutil.copy(dynamic, tmp_path / "sgid"))
    path.chmod(0o755 | stat.S_ISGID)
    monkeypatch.setattr("heapwright.allocators.program_file.os.getgid", lambda: path.stat().st_gid + 1)
    assert reasons(str(path)) == {"it runs set-group-ID, so its loader ignores the environment"}


def test_settings_do_not_reach_a_program_with_file_capabilities(dynamic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heapwright.allocators.program_file.os.getuid", lambda: 1000)
    assert texts(dynamic) == ["", "", ""]
    monkeypatch.setattr(
        "heapwright.allocators.program_file.os.getxattr",
        lambda _path, name: b"x" if name == "security.capability" else b"",
    )
    assert reasons(dynamic) == {"it runs with file capabilities, so its loader ignores the environment"}


# other machines and C libraries


def test_a_program_for_another_machine(dynamic: str, tmp_path: Path) -> None:
    content = bytearray(Path(dynamic).read_bytes())
    other = 183 if struct.unpack_from("<H", content, 18)[0] == 62 else 62
    struct.pack_into("<H", content, 18, other)
    (tmp_path / "foreign").write_bytes(content)
    (tmp_path / "foreign").chmod(0o755)
    recorder, glibc, library = texts(str(tmp_path / "foreign"))
    name = {183: "aarch64", 62: "x86-64"}[other]
    assert recorder == (
        f"foreign cannot be recorded: it is a program for another machine ({name}) (use heapwright on that machine)"
    )
    assert glibc == "", "that machine's glibc reads the same variables"
    assert "another machine" in library


def test_settings_of_glibc_do_not_reach_a_musl_program(tmp_path: Path) -> None:
    loader = "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"
    subprocess.run([needs.command("gcc"), loader, "-o", tmp_path / "m", PROGRAMS / "mapping_calls.c"], check=True)
    assert reasons(str(tmp_path / "m")) == {"its C library is musl"}
    certain = [find_obstacle(str(tmp_path / "m"), *words) for words in ((), ("glibc",), ("jemalloc", JEMALLOC))]
    assert [b is not None and b.certain for b in certain] == [True, False, True], "its loader refuses our libraries"


# scripts


def test_a_script_is_its_interpreter(own: Callable[..., str], tmp_path: Path) -> None:
    interpreter = own("interpreter")
    script, second = tmp_path / "script", tmp_path / "second"
    script.write_text(f"#!{interpreter} -u\n")
    second.write_text(f"#! {script}\n")
    for path in (script, second):
        path.chmod(0o755)
        assert texts(str(path))[0] == (
            f"{path.name} cannot be recorded: its interpreter {interpreter} has a malloc of its own"
            " (link it with the C library's malloc to record it)"
        )


def test_a_script_that_asks_env(own: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own("interpreter")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for number, line in enumerate(("#!/usr/bin/env interpreter", "#!/usr/bin/env -S A=1 interpreter -u")):
        path = tmp_path / f"script{number}"
        path.write_text(f"{line}\n")
        path.chmod(0o755)
        found = read_program(str(path))
        assert found is not None
        assert (found.path, found.script, found.own_malloc) == (tmp_path / "interpreter", True, True)


def test_scripts_that_run_in_circles(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(f"#!{tmp_path}/a\n")
    (tmp_path / "a").chmod(0o755)
    assert texts(str(tmp_path / "a")) == ["", "", ""]
