"""Verdicts: the ways threads begin, what proves nothing, what cannot be known; the evidence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from heapwright.errors import HeapwrightError
from heapwright.link.judge import Judgement, demangled_name, inspect_files, reason
from tests import needs

from .conftest import Build, run

SINGLE = "single", ""
WAYS = {
    "pthread": ("#include <pthread.h>\nint main(){return pthread_create(0,0,0,0);}", "multi", "pthread_create"),
    "c11": ("#include <threads.h>\nint main(){thrd_t t;return thrd_create(&t,0,0);}", "multi", "thrd_create"),
    "aio": ("#include <aio.h>\nint main(){struct aiocb a;return aio_read(&a);}", "multi", "aio_read"),
    "timer": ("#include <time.h>\nint main(){timer_t t;return timer_create(0,0,&t);}", "unknown", "timer_create"),
    "dlopen": ("#include <dlfcn.h>\nint main(){return dlopen(0,0)!=0;}", "unknown", "dlopen"),
    "names": (
        "#define _GNU_SOURCE\n#include <netdb.h>\nint main(){return getaddrinfo_a(0,0,0,0);}",
        "multi",
        "getaddrinfo_a",
    ),
    "clone": ("#define _GNU_SOURCE\n#include <sched.h>\nint main(){return clone(0,0,0,0);}", "unknown", "clone"),
    "dlsym": ("#include <dlfcn.h>\nint main(){return !dlsym(0, \"pthread_create\");}", "unknown", "dlsym"),
    "nothing": ("#include <stdio.h>\nint main(){puts(\"x\");return 0;}", *SINGLE),
    "mutex": ("#include <pthread.h>\npthread_mutex_t m;int main(){return pthread_mutex_lock(&m);}", *SINGLE),
    "own clone": ("int clone(int x){return x;}\nint main(){return clone(0);}", *SINGLE),
    "named": ("extern int nowhere(void);\nint main(){return nowhere();}", "unknown", "nowhere"),
}  # fmt: skip
CXX_WAYS = {
    "thread": ("#include <thread>\nint main(){std::thread([]{}).join();}", "multi"),
    "jthread": ("#include <thread>\nint main(){std::jthread([]{});}", "multi"),
    "async": ("#include <future>\nint main(){return std::async([]{return 0;}).get();}", "multi"),
    "vector": ("#include <vector>\nint main(){return std::vector<int>(9).empty();}", "single"),
    "stream": ("#include <iostream>\nint main(){std::cout << 1;}", "single"),
    "lock": ("#include <mutex>\nstd::mutex m;int main(){std::lock_guard l(m);}", "single"),
    "identity": ("#include <thread>\nint main(){return std::this_thread::get_id()==std::thread::id();}", "single"),
}


def one(*paths: Path, plugins: bool = True) -> Judgement:
    found = inspect_files(list(paths), plugins)
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("name", WAYS)
def test_each_way_of_c_to_start_a_thread_is_judged(compile_: Build, name: str) -> None:
    source, verdict, symbol = WAYS[name]
    found = one(compile_("a.c", source))
    assert found.verdict == verdict
    if symbol:
        assert symbol in [e.symbol for e in found.evidence]
        assert found.evidence[0].origin.endswith("a.o")


@pytest.mark.parametrize("name", CXX_WAYS)
@pytest.mark.parametrize("options", [["-O2"], ["-O0", "-ffunction-sections"], ["-O2", "-flto"]], ids=" ".join)
@pytest.mark.few(3)
def test_each_way_of_cpp_to_start_a_thread_is_judged(compile_: Build, name: str, options: list[str]) -> None:
    """libstdc++'s own reference to pthread_create proves nothing; std::thread's way to it does."""
    source, verdict = CXX_WAYS[name]
    found = one(compile_("a.cpp", source, "-std=c++20", *options))
    assert found.verdict == verdict, reason(found)


@pytest.mark.parametrize("name", CXX_WAYS)
@pytest.mark.few(1)
def test_linked_programs_are_judged_alike(compile_: Build, tmp_path: Path, name: str) -> None:
    source, verdict = CXX_WAYS[name]
    made = compile_("a.cpp", source, "-std=c++20", "-O2")
    for options in ([], ["-s"], ["-static"], ["-no-pie"], ["-static-pie"]):
        run("g++", *options, made, "-o", tmp_path / "prog")
        # In a static program the C library's own use of dlopen looks like the program's.
        plugins = not options or "static" not in options[0]
        assert one(tmp_path / "prog", plugins=plugins).verdict == verdict, options
    run("g++", "-static", "-s", made, "-o", tmp_path / "prog")
    assert one(tmp_path / "prog").verdict == "unknown"


def test_a_parallel_region_of_openmp_starts_threads(compile_: Build) -> None:
    source = "int main(){int s=0;\n#pragma omp parallel\n s++;\nreturn 0;}"
    assert one(compile_("a.c", source, "-fopenmp")).evidence[0].symbol.startswith("GOMP_parallel")
    assert one(compile_("b.c", source)).verdict == "single"


UNREACHED = "#include <pthread.h>\nvoid spawn(void){pthread_t t;pthread_create(&t,0,0,0);}\nint main(){return 0;}"


def test_a_function_that_is_not_reached_proves_nothing(compile_: Build) -> None:
    assert one(compile_("a.c", UNREACHED, "-ffunction-sections")).verdict == "single"
    assert one(compile_("b.c", UNREACHED)).verdict == "multi"  # one section: calls in it leave no trace
    called = UNREACHED.replace("return 0", "spawn();return 0")
    assert one(compile_("c.c", called, "-ffunction-sections")).verdict == "multi"


@pytest.mark.parametrize(
    "way",
    [
        "void (*table[])(void)={spawn};int main(){table[0]();return 0;}",
        "__attribute__((constructor)) void early(void){spawn();}\nint main(){return 0;}",
        "__attribute__((destructor)) void late(void){spawn();}\nint main(){return 0;}",
        '__attribute__((section("plan"))) void (*first)(void)=spawn;\nextern void (*__start_plan[])(void);'
        "int main(){__start_plan[0]();return 0;}",
    ],
    ids=["table", "constructor", "destructor", "named section"],
)
def test_a_function_that_is_reached_indirectly_counts(compile_: Build, way: str) -> None:
    source = UNREACHED.split("int main")[0] + way
    assert one(compile_("a.c", source, "-ffunction-sections", "-fdata-sections")).verdict == "multi"


def test_virtual_functions_are_reached_through_their_table(compile_: Build) -> None:
    source = """#include <thread>
    struct A { virtual ~A() = default; virtual void f() {} };
    struct B : A { void f() override { std::thread([]{}).join(); } };
    A* make(bool b) { return b ? new B : new A; }
    int main(int argc, char**) { make(argc > 1)->f(); }"""
    assert one(compile_("a.cpp", source, "-ffunction-sections", "-O0")).verdict == "multi"


def test_archives_give_only_members_that_are_asked_for(compile_: Build, archive: Build) -> None:
    quiet = compile_("quiet.c", "int quiet(void){return 0;}")
    loud = compile_("loud.c", "#include <pthread.h>\nint loud(void){pthread_t t;return pthread_create(&t,0,0,0);}")
    for flags in ("rcs", "rcsT"):
        both = archive(f"lib{flags}.a", quiet, loud, flags=flags)
        asks = compile_("asks.c", "int quiet(void);int main(){return quiet();}")
        assert one(asks, both).verdict == "single"
        found = one(compile_("wants.c", "int loud(void);int main(){return loud();}"), both)
        assert found.verdict == "multi"
        assert found.evidence[0].origin == f"{both}(loud.o)"
        assert found.evidence[0].via.startswith(str(asks.with_name("wants.o")))
        assert one(both).verdict == "multi"  # by itself: everything in it


def test_groups_are_gone_through_until_nothing_is_missing(compile_: Build, archive: Build) -> None:
    first = archive(
        "liba.a",
        compile_("a1.c", "int b1(void);int a1(void){return b1();}"),
        compile_("a2.c", UNREACHED.split("int main")[0]),
    )
    second = archive("libb.a", compile_("b1.c", "void spawn(void);int b1(void){spawn();return 0;}"))
    main = compile_("m.c", "int a1(void);int main(){return a1();}")
    assert one(main, first, second).verdict == "multi"


def test_an_unknown_library_makes_it_unknown(compile_: Build, library: Build, tmp_path: Path) -> None:
    made = compile_("l.c", UNREACHED.split("int main")[0] + "int quiet(void){return 0;}", "-fPIC")
    shared = library("libl.so", made)
    main = compile_("m.c", "int quiet(void);int main(){return quiet();}")
    found = one(main, shared)
    assert found.verdict == "unknown"
    assert found.evidence[0].symbol == "pthread_create"
    assert found.evidence[0].origin == "libl.so"
    run("gcc", main, shared, f"-Wl,-rpath,{tmp_path}", "-o", tmp_path / "prog")
    linked = one(tmp_path / "prog")
    assert linked.verdict == "unknown"
    assert linked.evidence[0].via == f"{tmp_path}/prog > libl.so"
    shared.unlink()
    assert one(tmp_path / "prog").evidence[0].effect == "missing"


def test_known_libraries_are_judged_by_function(compile_: Build, tmp_path: Path) -> None:
    zstd = next(Path("/usr/lib").glob("*/libzstd.so.1"), None)
    if zstd is None:
        needs.missing("libzstd1")
    for call, verdict in (("ZSTD_isError(1)", "single"), ("ZSTD_CCtx_setParameter(0,0,0)", "unknown")):
        name = call.split("(")[0]
        main = compile_("m.c", f"int {name}();int main(){{return {call};}}", "-std=gnu11")
        run("gcc", main, zstd, "-o", tmp_path / "prog")
        assert one(main, zstd).verdict == one(tmp_path / "prog").verdict == verdict


@pytest.mark.parametrize("way", ["dlopen", "dlsym"])
def test_no_plugins_makes_an_unknown_program_single(compile_: Build, tmp_path: Path, way: str) -> None:
    main = compile_("a.c", WAYS[way][0])
    run("gcc", main, "-o", tmp_path / "prog")
    for path in (main, tmp_path / "prog"):
        assert one(path).verdict == "unknown"
        assert one(path, plugins=False).verdict == "single"


def test_programs_are_judged_each_and_objects_together(compile_: Build) -> None:
    a, b = compile_("a.c", "int f(void);int main(){return f();}"), compile_("b.c", "int f(void){return 0;}")
    found = inspect_files([Path("/bin/ls"), a, b, Path("/bin/cat")])
    assert [one.file for one in found] == [f"{a}, {b}", "/bin/ls", "/bin/cat"]
    assert {one.verdict for one in found} == {"single"}


def test_objects_of_another_machine_are_judged_alone(compile_: Build) -> None:
    source = "extern int puts(const char*);\nextern int pthread_create();\n"
    small = compile_("a.c", source + "int main(void){return pthread_create();}", "-std=gnu11", *needs.gcc_for_32_bits())
    assert one(small).verdict == "multi"
    with pytest.raises(HeapwrightError, match=r"x86-64 \(64 bits\), the objects before it for 386 \(32 bits\)"):
        one(small, compile_("b.c", "int x;"))


def test_cpp_names_are_demangled() -> None:
    start = "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE"
    assert demangled_name(start) == "std::thread::_M_start_thread"
    assert demangled_name("_ZN5boost6thread21start_thread_noexceptEv") == "boost::thread::start_thread_noexcept"
    assert demangled_name("pthread_create") == "pthread_create"
    assert demangled_name("_Znwm") == "operator new"
    assert demangled_name("_ZN12_GLOBAL__N_11fEv") == "(anonymous namespace)::f"
    assert demangled_name("_ZnonsenseX") == "_ZnonsenseX"


def test_names_stay_mangled_without_the_demangler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cxxfilt", None)
    assert demangled_name("_Znwm") == "_Znwm"


@pytest.mark.parametrize(("way", "verdict"), [("nothing", "single"), ("pthread", "multi"), ("dlopen", "unknown")])
def test_the_c_library_of_a_musl_program_is_its_loader(way: str, verdict: str, tmp_path: Path) -> None:
    (tmp_path / "p.c").write_text(WAYS[way][0])
    run(needs.command("musl-gcc"), tmp_path / "p.c", "-o", tmp_path / "p")
    (found,) = inspect_files([tmp_path / "p"])
    assert found.verdict == verdict
    assert not any(one.effect == "missing" for one in found.evidence)
