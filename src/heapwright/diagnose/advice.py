"""Decides the first sentence of a diagnosis and its steps, the cheapest first.

`advise` is a pure function of figures. It never promises more than the figures bound: free memory is the most that
another malloc can give back, because that malloc also keeps some for itself.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from heapwright.allocators.runtimes import runtime_named
from heapwright.allocators.space_spec import RuntimeSpec
from heapwright.diagnose.environment import TUNABLES
from heapwright.metrics import show_bytes

MIB = 1 << 20
# Below this much private memory, mallocs differ by little more than their own fixed costs.
SMALL_BYTES = 16 * MIB
# Free memory below this share of resident memory is what every malloc keeps to work with.
FREE_SHARE = 0.10
# A part with at least this share of resident memory is named as most of it.
MAJOR_SHARE = 0.50
# Live blocks of malloc from this share on may be largely buffers that a collector has not freed yet.
BUFFER_SHARE = 0.25
# glibc puts 8 bytes before each block and rounds the sum up to a multiple of 16, from 32 on. So rounding adds about 8
# bytes to evenly distributed sizes. It adds 16 at most, as blocks below 8 bytes take 8 under any malloc. A malloc that
# only rounds up to multiples of 16 saves either 16 bytes of a block or nothing.
HEADER_BYTES, MEAN_ROUNDING_BYTES, MAX_ROUNDING_BYTES = 8, 8, 16
# Arenas of threads that share a program's memory waste free pages from this number on.
MANY_ARENAS = 4


class AdviceFigures(NamedTuple):
    """The figures that the decision needs: bytes in memory, as sums over the processes.

    Attributes:
        allocator: the name of the malloc, 'glibc 2.36'; 'unknown' if it is not known; several are joined by commas.
        resident: all memory of the processes.
        files: program, libraries and mapped files.
        private: all other memory: heap, stacks and mappings of the program's own.
        known: whether the malloc's free memory could be read; of several processes, that of one of them.
        live: live blocks of malloc.
        blocks: number of live blocks in glibc's arenas; 0 if it is not known.
        block_bytes: the part of `live` in these blocks, with their headers and padding.
        free: free memory that malloc keeps.
        free_cached: the part of `free` in glibc's caches of threads, where these can be read.
        free_pages: the part of `free` in whole pages.
        trimmable: the part of `free_pages` that glibc's malloc_trim(0) gives back.
        trimmable_in_python: the part of `trimmable` in processes that run Python code.
        top: the part of `free_pages` at the ends of glibc's heaps, which trimming at free() reaches.
        arenas: number of glibc's arenas.
        in_arenas: the part of `free` in arenas of threads, without the main arena.
        runtime: the name of a runtime with arenas of its own ('CPython 3.11'), or empty.
        runtime_resident: memory of the runtime's arenas.
        runtime_free: free memory in the runtime's arenas.
        managed: the runtime that takes its heap from the kernel itself ('go', 'openjdk', 'node' …), or empty.
        managed_resident: private memory that is neither malloc's nor in the arenas of `runtime`; of several processes
            only of those with the runtime `managed`, or if that is empty, of those whose malloc can be read.
        unread: private memory of the processes whose malloc cannot be read.
        unread_mallocs: the names of these mallocs.
        own_figures: the command that asks the program itself for malloc's figures, or empty.
        settings: the processes' values of the variables that hold several settings; None where they differ.
        jemalloc_variable: the variable that their jemalloc reads.
        linked_in: the malloc of ours that is linked into all of the programs, or empty.
        static: whether all of the programs are linked statically, so that no malloc can be preloaded into them.
        private_mallocs: libraries with a malloc that only they use: '_duckdb.so (jemalloc)'.
    """

    allocator: str
    resident: int
    files: int
    private: int
    known: bool
    live: int = 0
    blocks: int = 0
    block_bytes: int = 0
    free: int = 0
    free_cached: int = 0
    free_pages: int = 0
    trimmable: int = 0
    trimmable_in_python: int = 0
    top: int = 0
    arenas: int = 0
    in_arenas: int = 0
    runtime: str = ""
    runtime_resident: int = 0
    runtime_free: int = 0
    managed: str = ""
    managed_resident: int = 0
    unread: int = 0
    unread_mallocs: str = ""
    own_figures: str = ""
    settings: Mapping[str, str | None] = MappingProxyType({})
    jemalloc_variable: str = "MALLOC_CONF"
    linked_in: str = ""
    static: bool = False
    private_mallocs: tuple[str, ...] = ()


class Advice(NamedTuple):
    """The result of a diagnosis in words.

    Attributes:
        kind: 'free', 'headers', 'runtime', 'program', 'files', 'small' or 'unknown'.
        sentence: the finding, with the first step if there is one.
        steps: what to do, the cheapest step first; empty if nothing helps.
    """

    kind: str
    sentence: str
    steps: tuple[str, ...] = ()


_TUNE = "`heapwright tune` with a load, or `heapwright compare`, which tries other mallocs"
# In a statically linked program.
_TUNE_SETTINGS = "`heapwright tune` with a load, which searches the settings"
_LINK = "a build with `heapwright link`, which links exgen or reaper in"
_NO_PRELOAD = "the program is linked statically, so no malloc can be preloaded"
# A debugger can end a system call that the program waits in with an error, and so the program. In a
# thread of Go code, gdb expects an expression of Go.
_TRIM = (
    "malloc_trim(0) at idle times (to try it on an instance that may fail:"
    " gdb -p PID -batch -ex 'set language c' -ex 'call (int)malloc_trim(0)')"
)
_TRIM_IN_PYTHON = "malloc_trim(0) at idle times (in Python: ctypes.CDLL(None).malloc_trim(0))"
# The variable of glibc, its name in GLIBC_TUNABLES, the value, and the effect.
_THRESHOLD = (
    *("MALLOC_TRIM_THRESHOLD_", "glibc.malloc.trim_threshold", "131072"),
    "which makes free() trim the top of the heap",
)
_TCACHE_COUNT, _TCACHE_USUAL = "glibc.malloc.tcache_count", 7
_ARENAS = "MALLOC_ARENA_MAX", "glibc.malloc.arena_max", "2", "which lets threads share arenas"
_AT_EXIT = "which prints them at exit"
# How to ask a malloc for its own figures, which cannot be read from outside, and a setting that can
# help if they show free pages. Those of jemalloc are parts of one variable.
_ASK = {
    "jemalloc": ("stats_print:true", "dirty_decay_ms:0"),
    "mimalloc": ("MIMALLOC_SHOW_STATS=1", "MIMALLOC_PURGE_DELAY=0"),
    "tcmalloc": ("MALLOCSTATS=1", "TCMALLOC_RELEASE_RATE=10"),
}
# The free memory in redis's own figures of jemalloc.
_OF_REDIS = (
    "where allocator_resident − allocator_active is free pages, and allocator_active − allocator_allocated is free"
    " memory on pages with live blocks"
)

# Buffers of runtimes with a heap of their own whose memory is of malloc, and how to learn how much of it is in use.
_BUFFERS = {
    "openjdk": ("direct buffers", "`jcmd PID GC.run`, which collects them, and then diagnose again"),
    "node": ("Buffers", "arrayBuffers of process.memoryUsage() in the program, which is their size"),
}


def advise(found: AdviceFigures) -> Advice:
    """Return the first sentence of a diagnosis and the steps that fit it."""
    of = f"Of {show_bytes(found.resident)} resident"
    if found.private < SMALL_BYTES:
        return Advice(
            "small", f"{of}, only {show_bytes(found.private)} is private memory: no malloc can save more than that"
        )
    free, spare = found.free, found.runtime_free
    outside_most = found.managed_resident >= MAJOR_SHARE * found.resident
    managed_most = found.managed and outside_most
    much_free = found.known and free >= FREE_SHARE * found.resident and free >= spare
    if much_free and not (managed_most and found.managed_resident > free):
        return _free(found, of)
    if spare >= FREE_SHARE * found.resident:
        return Advice(
            "runtime",
            f"{of}, {show_bytes(spare)} is free memory in the arenas of {found.runtime}, which malloc does not manage;"
            f" start with {_python_malloc(found)}",
            (f"{_python_malloc(found)}: {_tune(found)}",),
        )
    if found.files >= MAJOR_SHARE * found.resident:
        files = f"{of}, {show_bytes(found.files)} is the program, its libraries and files: no malloc will help there"
        if found.known and free >= FREE_SHARE * found.private:
            steps = _free_steps(found)
            rest = f"of the other {show_bytes(found.private)}, {show_bytes(free)} is free memory that malloc keeps"
            return Advice("files", f"{files}; {rest}; start with {steps[0]}", tuple(steps))
        return Advice("files", files)
    if managed_most:
        return _managed(found, of, much_free)
    if not found.known or found.unread >= FREE_SHARE * found.resident:
        return _unknown(found, of)
    if found.runtime_resident >= MAJOR_SHARE * found.resident:
        return Advice(
            "runtime",
            f"{of}, {show_bytes(found.runtime_resident)} is in the arenas of {found.runtime}, and only"
            f" {show_bytes(spare)} of that is free: no malloc will help, unless the runtime uses it"
            " (PYTHONMALLOC=malloc)",
            (f"{_python_malloc(found)}: {_tune(found)}",),
        )
    if _has_private(found):
        step = _private_step(found)
        return Advice(
            "unknown",
            f"{of}, {show_bytes(found.managed_resident)} is outside of the program's malloc, and a library has a"
            f" malloc of its own: {', '.join(found.private_mallocs)}. How much of this memory is free does not show"
            f" from outside, and no preloaded malloc serves that library; start with {step}",
            (step,),
        )
    if outside_most:
        return Advice(
            "program",
            f"{of}, {show_bytes(found.managed_resident)} is outside of malloc, in mappings that the program or its"
            " language runtime makes itself: no malloc will help, but their own settings may",
        )
    held = 1 - (free + spare) / found.resident
    if (count := _raised_tcache_count(found)) and not found.free_cached:
        step = _smaller_caches(found)
        return Advice(
            "unknown",
            f"{of}, the program and the thread caches of glibc hold {_percent(held)}: with tcache_count={count} the"
            f" caches may be large, but their blocks count as live; start with {step}",
            (step, _tune(found)),
        )
    if (HEADER_BYTES + MEAN_ROUNDING_BYTES) * found.blocks >= FREE_SHARE * found.resident:
        return _headers(found, of)
    sentence = f"The program itself holds {_percent(held)} of {show_bytes(found.resident)}: no malloc will help"
    if found.managed in _BUFFERS and found.live >= BUFFER_SHARE * found.resident:
        buffers, step = _BUFFERS[found.managed]
        return Advice(
            "program",
            f"{sentence}; {show_bytes(found.live)} of it are live blocks of malloc, and those of {buffers} that are no"
            f" longer used stay live until {_owner(found.managed).title} collects them; start with {step}",
            (step,),
        )
    return Advice("program", sentence)


def _raised_tcache_count(found: AdviceFigures) -> str:
    """Return the number of blocks that glibc's thread caches hold of each size if it was raised, or empty."""
    for setting in (found.settings.get(TUNABLES) or "").split(":"):
        name, _, value = setting.partition("=")
        if "glibc" in found.allocator and name == _TCACHE_COUNT and value.isdecimal() and int(value) > _TCACHE_USUAL:
            return value
    return ""


def _tune(found: AdviceFigures) -> str:
    """Return the step that tries other mallocs or settings.

    No malloc can be preloaded into a program that has one of ours linked in, or that is linked statically.
    """
    if found.linked_in:
        build = "a dynamically linked build" if found.static else "a build"
        return f"{build} without {found.linked_in} linked in: there {_TUNE}"
    if not found.static:
        return _TUNE
    if found.managed:
        return f"{_TUNE_SETTINGS} of {_owner(found.managed).title}"
    searched = [name for name in ("glibc", *_ASK) if name in found.allocator]
    return ", or ".join([*(f"{_TUNE_SETTINGS} of {' and '.join(searched)}" for _ in searched[:1]), _LINK])


def _python_malloc(found: AdviceFigures) -> str:
    """Return the setting by which CPython takes all memory from malloc."""
    return f"PYTHONMALLOC=malloc {'with another malloc linked in' if found.static else 'under another malloc'}"


def _owner(name: str) -> RuntimeSpec:
    """Return the runtime that takes its heap from the kernel itself."""
    owner = runtime_named(name)
    assert owner is not None
    return owner


def _managed(found: AdviceFigures, of: str, much_free: bool) -> Advice:
    """Advice where most memory is in a heap that a runtime manages without malloc."""
    owner = _owner(found.managed)
    setting = owner.limit
    outside = f"{show_bytes(found.managed_resident)} is outside of malloc, most of it in the heap of {owner.title}"
    if much_free:
        free = f"{show_bytes(found.free)} is free memory that malloc keeps"
        return Advice("runtime", f"{of}, {outside}, and {free}; start with {setting}", (setting, *_free_steps(found)))
    return Advice("runtime", f"{of}, {outside}: no malloc will help; start with {setting}", (setting,))


def _free_steps(found: AdviceFigures) -> list[str]:
    """Return the steps for memory that malloc keeps free, the cheapest first."""
    glibc = "glibc" in found.allocator
    steps = []
    if glibc and found.free_cached >= MAJOR_SHARE * found.free:
        steps.append(_smaller_caches(found))
    # What malloc_trim gives back is known, and needs no restart. What fewer arenas save depends on
    # the load.
    if glibc and found.trimmable >= MAJOR_SHARE * found.free:
        trim_now = _TRIM_IN_PYTHON if found.trimmable_in_python >= MAJOR_SHARE * found.trimmable else _TRIM
        steps.append(_of_glibc(found, *_THRESHOLD) if found.top >= MAJOR_SHARE * found.free else trim_now)
    if glibc and found.arenas >= MANY_ARENAS and found.in_arenas >= MAJOR_SHARE * found.free:
        steps.append(_of_glibc(found, *_ARENAS))
    steps.append(_tune(found))
    if found.unread >= FREE_SHARE * found.resident:
        steps += _how_to_ask(found)
    if _has_private(found):
        steps.append(_private_step(found))
    return steps


def _has_private(found: AdviceFigures) -> bool:
    """Whether a malloc that only a library uses may hold much memory, as far as no runtime accounts for it."""
    much = found.managed_resident >= FREE_SHARE * found.resident
    return bool(found.private_mallocs) and much and found.known and not found.managed


def _private_step(found: AdviceFigures) -> str:
    """Return the step for a malloc that only a library uses."""
    libraries = ", ".join(found.private_mallocs)
    return f"the library's own settings, which heapwright tune searches where it knows them: {libraries}"


def _smaller_caches(found: AdviceFigures) -> str:
    """Return the step for free memory in glibc's caches of threads."""
    if _raised_tcache_count(found):
        return f"{_added(found, TUNABLES, f'{_TCACHE_COUNT}={_TCACHE_USUAL}', ':', '=')}, a smaller limit"
    return f"{_added(found, TUNABLES, f'{_TCACHE_COUNT}=0', ':', '=')}, which turns the caches of threads off"


def _of_glibc(found: AdviceFigures, variable: str, tunable: str, value: str, effect: str) -> str:
    """Return a setting of glibc. In GLIBC_TUNABLES, where that has it already: it precedes the variable."""
    tunables = found.settings.get(TUNABLES, "")
    if tunables is None or f"{tunable}=" in tunables:
        return f"{_added(found, TUNABLES, f'{tunable}={value}', ':', '=')}, {effect}"
    return f"{variable}={value}, {effect}"


def _added(found: AdviceFigures, variable: str, setting: str, join: str, pair: str) -> str:
    """Return a variable with a setting added to those that the processes have in it, which it would replace otherwise.

    Args:
        found: the figures.
        variable: its name.
        setting: the setting, in the variable's notation.
        join: the sign between two settings.
        pair: the sign between the name of a setting and its value.
    """
    kept = found.settings.get(variable, "")
    if kept is None:
        return f"{setting} added to {variable}"
    name = setting.partition(pair)[0]
    others = [one for one in kept.split(join) if one and one.partition(pair)[0] != name]
    return f"{variable}={shlex.quote(join.join([*others, setting]))}"


def _free(found: AdviceFigures, of: str) -> Advice:
    """Advice on memory that malloc keeps free."""
    glibc = "glibc" in found.allocator
    steps = _free_steps(found)
    trim = ""
    if glibc and found.trimmable >= MIB:
        trim = f"malloc_trim gives back {show_bytes(found.trimmable)}, "
    elif glibc:
        where = "on pages with live blocks"
        if found.free_cached >= MAJOR_SHARE * found.free:
            where = "in caches of threads"
        elif found.top >= MAJOR_SHARE * found.free:
            where = "at the ends of the arenas' heaps"
        elif found.free_pages >= MAJOR_SHARE * found.free:
            where = "in whole pages"
        trim = f"most of it lies {where}, where malloc_trim does not reach it; "
    other = (
        f"{_NO_PRELOAD}, but a setting or another malloc that is linked in"
        if found.static
        else "another malloc or setting"
    )
    bound_text = f"{other} may give back up to {show_bytes(found.free)}"
    sentence = (
        f"{of}, {show_bytes(found.free)} is free memory that malloc keeps: {trim}{bound_text}; start with {steps[0]}"
    )
    return Advice("free", sentence, tuple(steps))


def _headers(found: AdviceFigures, of: str) -> Advice:
    """Advice on small blocks, of which headers are a large part. The requested sizes do not show from outside.

    The blocks of a statically linked program are not counted.
    """
    step = _tune(found)
    return Advice(
        "headers",
        f"{of}, {show_bytes(found.block_bytes)} is live blocks, {found.blocks:,} of"
        f" {found.block_bytes / found.blocks:.0f} bytes on average: glibc's headers take"
        f" {show_bytes(HEADER_BYTES * found.blocks)} of that, and its rounding of sizes takes up to"
        f" {show_bytes(MAX_ROUNDING_BYTES * found.blocks)} more; another malloc may save a part of both; start with"
        f" {step}",
        (step,),
    )


def _how_to_ask(found: AdviceFigures) -> list[str]:
    """Return how to ask each malloc that cannot be read for its own figures, and the setting that can help."""
    names = found.unread_mallocs or found.allocator
    several = found.known or "," in names  # then 'its own' names none of them
    steps = []
    for family, (how, setting) in _ASK.items():
        if family not in names:
            continue
        if family == "jemalloc":
            how, setting = (_added(found, found.jemalloc_variable, one, ",", ":") for one in (how, setting))
        how = f"{how}, {_AT_EXIT}"
        if found.own_figures and family == "jemalloc":
            how = f"`{found.own_figures}`, {_OF_REDIS}"
        steps += [f"{f'the figures of {family}' if several else 'its own figures'}: {how}"]
        steps += [f"{setting}, if they show free pages"]
    return steps


def _unknown(found: AdviceFigures, of: str) -> Advice:
    """Advice where malloc's free memory cannot be read from outside."""
    name = found.unread_mallocs or found.allocator
    steps = [*_how_to_ask(found), _tune(found)]
    silent = f"{name} {'do' if ',' in name else 'does'} not show from outside how much of it is free"
    if found.known:  # of other processes
        private = f"{show_bytes(found.unread)} is private memory of processes with another malloc"
    else:
        private = f"{show_bytes(found.private)} is private memory"
    what = "its malloc is unknown" if name == "unknown" else silent
    return Advice("unknown", f"{of}, {private}, but {what}; start with {steps[0]}", tuple(steps))


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"
