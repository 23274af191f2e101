"""`heapwright doctor`: checks what works on this machine, and says how to get what is missing."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable
from typing import Any

from heapwright.cli.common import add_output_options, write_json
from heapwright.terminal_text import console, counted, visible

_EPILOG = """\
examples:
  heapwright doctor
  heapwright doctor -- python3 report.py
"""

# tool → its purpose, and how to install it on Debian and Ubuntu
_TOOLS = {
    "valgrind": ("--instructions=callgrind", "sudo apt-get install -y valgrind"),
    "perf": ("profiles beyond what heapwright measures", "sudo apt-get install -y linux-perf"),
}

_METERS = {
    "notify": "sees every mapping call, by seccomp user notification: one stop a call",
    "ptrace": "sees every mapping call, too; --massif emulation and kernel need it",
    "poll": "reads memory every 10 ms and stops nothing; sees no mapping calls; works everywhere",
}

# Key of the probe → name of the check, detail if the meter gives none, consequence of a failure
_PROBES = {
    "instructions": (
        "hardware counters",
        "instructions are counted",
        "without them the metric instructions is n/a; --instructions=callgrind counts them, slowly",
    ),
    "rapl": ("energy (RAPL)", "readable", "without it the metric energy is n/a"),
    "smaps_rollup": (
        "proportional memory",
        "/proc/PID/smaps_rollup is readable",
        "without it, a page that several processes share counts once for each process; needs Linux 4.14",
    ),
    "cgroup": (
        "memory cgroup",
        "readable; measured where a command has one of its own",
        "without it the peak of the cgroup is n/a",
    ),
}


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "doctor",
        help="check what works on this machine",
        description="Lists what works on this machine. For each missing part it says what"
        " does not work without it, and how to"
        " get it. With a command, it also says which runtime the command has; the command is not run.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_output_options(parser)
    parser.set_defaults(run=run, takes_command="optional")


def run(args: argparse.Namespace) -> int:
    """Run the verb; status 1 if no back end of the meter works, or if there is no such program."""
    from heapwright.allocators.user_settings import environment_problems
    from heapwright.measure.host import describe_host
    from heapwright.measure.meter import probe

    probed, host = probe(), describe_host()
    checks: list[dict[str, Any]] = []

    def check(name: str, works: bool, detail: str, remedy: str = "") -> None:
        checks.append({"name": name, "works": works, "detail": detail, "remedy": remedy or None})

    for name, what in _METERS.items():
        found = probed.get(name, {})
        check(f"meter: {name}", bool(found.get("works")), found.get("why") or what)
    for key, (name, detail, remedy) in _PROBES.items():
        found = probed.get(key, {})
        check(name, bool(found.get("works")), found.get("why") or detail, remedy)
    _check_huge_pages(check)
    for name, (what, how) in _TOOLS.items():
        path = shutil.which(name)
        check(f"tool: {name}", path is not None, path or f"missing; needed for {what}", how)
    _check_allocators(check, host["libc"])
    runtimes = _check_runtimes(args.command, check) if args.command else None
    governor = host["governor"]
    steady = governor in (None, "performance")
    check(
        "CPU frequency",
        steady,
        f"governor {governor or 'n/a'}",
        "times vary less with the 'performance' governor: sudo cpupower frequency-set -g performance",
    )
    problems = environment_problems(os.environ, program=args.command[0] if args.command else None)
    for trouble in problems:
        check("setting", False, trouble)
    if not problems:
        check("settings in the environment", True, "all malloc settings are understood")
    if args.json:
        write_json(args.json, {"host": host, "checks": checks, "runtimes": runtimes})
    if not args.quiet and args.json != "-":
        _print(host, checks)
    meters = [c["works"] for c in checks if c["name"].startswith("meter")]
    missing = any(c["name"] == "runtime" and not c["works"] for c in checks)
    return 0 if any(meters) and not missing else 1


def _check_allocators(check: Callable[..., None], libc: str | None) -> None:
    """Check the system's malloc, the allocators that are installed, and those that could be.

    Args:
        check: adds a check.
        libc: name and version of the C library, or None if it is not glibc.
    """
    from heapwright.allocators.peers import known_peers
    from heapwright.allocators.registry import find_allocators

    check("glibc malloc", libc is not None, str(libc or "this system's C library is not glibc"))
    found = {allocator.name: allocator for allocator in find_allocators().values()}
    for allocator in found.values():
        count = len(allocator.space(threads=True).params)
        ours = ", comes with heapwright" if allocator.bundled else ""
        check(f"allocator: {allocator.name}", True, f"{allocator.version}{ours}, {counted(count, 'setting')} to search")
    for spec in known_peers():
        if spec.name not in found:
            check(f"allocator: {spec.name}", False, "not on this machine", spec.how_to_get)


def _check_huge_pages(check: Callable[..., None]) -> None:
    """Say whether huge pages are cold.

    Args:
        check: adds a line: name, whether it works, detail, remedy.
    """
    from heapwright.allocators.huge_pages import has_huge_page_pool, thp_state
    from heapwright.measure.cold_pages import measure_cold_pages

    state = thp_state()
    pool = "; the system has a pool of huge pages, which resident memory does not count" if has_huge_page_pool() else ""
    if state not in ("always", "madvise"):
        check("huge pages", True, f"not used: transparent huge pages are {state or 'n/a'}{pool}")
        return
    found = measure_cold_pages()
    if found is None:
        check("huge pages", True, f"{state}, but the kernel gave this process none{pool}")
        return
    times = (
        f"a first touch takes {1e3 * found['first_touch_s']:.2g} ms, the next {1e3 * found['again_s']:.2g} ms (medians;"
        f" {found['slow_pages']} of {found['pages']} first touches took more than 1 ms)"
    )
    check(
        "huge pages",
        not found["cold"],
        f"{state}, {'cold' if found['cold'] else 'warm'}: {times}{pool}",
        "the host of this virtual machine adds memory at its first touch, so huge pages look slower than they are:"
        " measure again after the memory has been used once, for example by a run that fills it",
    )


def _check_runtimes(command: list[str], check: Callable[..., None]) -> list[dict[str, Any]]:
    """Say which runtimes a command has, from its files.

    Args:
        command: its words.
        check: adds a line: name, whether it works, detail.

    Returns:
        The runtimes as in JSON; None stands for an unknown value.
    """
    from heapwright.allocators.runtimes import find_executable, find_runtimes

    if find_executable(command, os.environ) is None:
        check("runtime", False, f"there is no program {command[0]}")
        return []
    rows = []
    for runtime in find_runtimes(command):
        space = runtime.space(threads=True)
        searched = [p.key for p in space.params]
        skipped = "".join(f"; {key} is not searched: {why}" for key, why in space.skipped)
        text = f"{runtime.title} ({runtime.program}), settings to search: {', '.join(searched) or 'none'}{skipped}"
        check(f"runtime: {runtime.name}", True, text)
        rows.append(
            {
                "name": runtime.name,
                "title": runtime.spec.title,
                "version": runtime.version or None,
                "program": str(runtime.program),
                "searched": searched,
                "not_searched": dict(space.skipped),
            }
        )
    if not rows:
        check("runtime", True, "none that its file shows; 'heapwright tune' also looks at the program that it starts")
    return rows


def _print(host: dict[str, Any], checks: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from heapwright.metrics import show_bytes

    out = console()
    memory = show_bytes(host["memory_bytes"]) if host["memory_bytes"] else "n/a"
    out.print(
        f"{host['cpu']}, {counted(host['cores'], 'core')}, {memory}; {host['os']}, Linux {host['kernel']},"
        f" {host['libc']}; THP {host['thp'] or 'n/a'}, ASLR {host['aslr'] or 'n/a'},"
        f" vm.max_map_count {host['max_map_count'] or 'n/a'}"
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column()
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in checks:
        remedy = f"; {row['remedy']}" if row["remedy"] and not row["works"] else ""
        mark = Text("yes", "green") if row["works"] else Text("no", "yellow")
        table.add_row(mark, row["name"], visible(f"{row['detail']}{remedy}"))
    out.print(table)
