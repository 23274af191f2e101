"""`heapwright diagnose`: tells where a running process's memory is, and whether another malloc can give some back."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright.cli.common import add_output_options, seconds, write_json
from heapwright.cli.output_files import output_file
from heapwright.errors import HeapwrightError, UsageError
from heapwright.measure.process_tree import descendants, is_alive, sum_over_mappings
from heapwright.metrics import show_bytes
from heapwright.terminal_text import console, counted, warn

if TYPE_CHECKING:
    from heapwright.diagnose.diagnosis import Diagnosis
    from heapwright.diagnose.target import Target

_MAX_IDS = 6  # in a line; the table has them all
_SHARE_OF_LIMIT = 0.9  # of a cgroup's memory limit; from here on a warning names it
_SHARE_OF_CHILDREN = 0.1  # child processes below this share of the resident memory need no warning

_EPILOG = """\
examples:
  heapwright diagnose 4711
  heapwright diagnose redis-server            # a program that one process runs
  heapwright diagnose web.service --watch 10  # a systemd unit, every 10 seconds
  heapwright diagnose 3f2a9c81d0b7            # a container, by its id or name
  heapwright diagnose 4711 --json - | jq .heap.releasable_bytes

It only reads: nothing is stopped, injected or changed. It needs the rights of a debugger: root
(CAP_SYS_PTRACE), or the same user where kernel.yama.ptrace_scope is 0. docs/diagnose.md explains each figure.
"""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "diagnose",
        help="show where a running process's memory is",
        description="Shows where the resident memory of a running process is: live and free memory of malloc, stacks,"
        " files, a runtime's own arenas. The first sentence says whether another malloc or setting can give memory"
        " back, and with which step to start. The process goes on undisturbed.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="PID|NAME",
        help="a process id; the name of a container, of a systemd unit, or the name or path of a program that one"
        " process runs;"
        " several are added together",
    )
    parser.add_argument(
        "--watch",
        nargs="?",
        type=seconds,
        const=5.0,
        metavar="SECONDS",
        help="repeat until the process ends or Ctrl-C (default: every 5 seconds)",
    )
    parser.add_argument("--html", type=output_file, metavar="FILE", help="also write a page with pictures")
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    from heapwright.diagnose.target import find_target

    if not args.targets:
        if not args.watch:
            raise UsageError("no process is named", "name it: heapwright diagnose PID|NAME")
        taken = f"--watch took {args.watch:g} as its seconds, and no process is named"
        raise UsageError(taken, "name it first: heapwright diagnose PID|NAME --watch")
    targets = {name: find_target(name) for name in dict.fromkeys(args.targets)}
    if len(targets) > 1:
        targets = _that_exist(targets)
    pids = sorted({pid for target in targets.values() for pid in target.pids})
    groups = [name for name, target in targets.items() if target.is_group]
    fixed = {pid for target in targets.values() if not target.is_group for pid in target.pids}
    whole, each = _read(pids)
    ids = [str(one.json["pid"]) for one in each]
    label = ", ".join(dict.fromkeys(target.label for target in targets.values()))
    if len(pids) > 1 and all(name.isdecimal() for name in targets):
        more = f" and {len(ids) - _MAX_IDS} more" if len(ids) > _MAX_IDS else ""
        label = f"process{'es' if len(ids) > 1 else ''} {', '.join(ids[:_MAX_IDS])}{more}"
    if gone := [pid for pid in pids if str(pid) not in ids and not Path(f"/proc/{pid}").exists()]:
        warn(f"{counted(len(gone), 'process', 'processes')} ended before they were read: left out of the sum")
    if not groups and not args.quiet:
        _warn_of_children(pids, whole)  # first: the workers of a server may hold nearly all memory
    _show(args, whole, each, label)
    if not args.quiet:
        _warn_of_limit(pids)
    with contextlib.suppress(KeyboardInterrupt):
        while args.watch:
            time.sleep(args.watch)
            pids = sorted({pid for pid in fixed | _members(groups) if is_alive(pid)})
            if not pids:
                break
            try:
                whole, each = _read(pids)
            except HeapwrightError:
                if any(map(is_alive, pids)):
                    raise
                break  # the last process ended while it was read
            _show(args, whole, each, label)
    return 0


def _that_exist(targets: dict[str, Target]) -> dict[str, Target]:
    """Warn of processes that do not exist, and leave them out, unless none would be left."""
    ended = [name for name, target in targets.items() if not any(Path(f"/proc/{pid}").exists() for pid in target.pids)]
    if len(ended) == len(targets):
        return targets
    for name in ended:
        warn(f"there is no process {name} (any more); it is left out")
    return {name: target for name, target in targets.items() if name not in ended}


def _warn_of_children(pids: list[int], whole: Diagnosis) -> None:
    """Warn if other processes descend from these and hold much memory: workers of a server, for example."""
    sizes: dict[int, int] = {}
    for pid in set(descendants(pids)) - {os.getpid()}:
        with contextlib.suppress(OSError):  # it may have ended, or belong to another user
            sizes[pid] = sum_over_mappings(pid, "Pss") or 0
    if sum(sizes.values()) < _SHARE_OF_CHILDREN * whole.figures.resident:
        return
    count = counted(len(sizes), "child process", "child processes")
    verb = "holds" if len(sizes) == 1 else "hold"
    if len(pids) + len(sizes) <= _MAX_IDS:
        how = f"heapwright diagnose {' '.join(map(str, sorted([*pids, *sizes])))}"
    else:
        how = "name their systemd unit or container, or give all ids"
    warn(f"{count} {verb} {show_bytes(sum(sizes.values()))}, which is not counted here; with them: {how}")


def _warn_of_limit(pids: list[int]) -> None:
    """Warn of the memory cgroup of these processes that is nearest to its limit, if it is near."""
    from heapwright.diagnose.limit import memory_limit
    from heapwright.diagnose.target import read_cgroups

    cgroups = {read_cgroups(pid) for pid in pids}
    mountinfo = Path("/proc/self/mountinfo").read_text(errors="replace")
    limits = [limit for text in cgroups if (limit := memory_limit(text, mountinfo)) is not None]
    found = max(limits, key=lambda limit: limit.share, default=None)
    if found is not None and found.share >= _SHARE_OF_LIMIT:
        warn(
            f"the memory cgroup {found.cgroup} has {show_bytes(found.used)} of at most {show_bytes(found.limit)}"
            f" ({100 * found.share:.0f}%), without inactive page cache: at its limit the kernel ends a process"
        )


def _members(groups: list[str]) -> set[int]:
    """Return the processes that containers and units have now; a group that has ended has none."""
    from heapwright.diagnose.target import find_target

    found: set[int] = set()
    for name in groups:
        with contextlib.suppress(HeapwrightError):
            found.update(find_target(name).pids)
    return found


def _read(pids: list[int]) -> tuple[Diagnosis, list[Diagnosis]]:
    """Diagnose the processes: as a whole, and each one.

    Of several processes, those that end meanwhile are left out.

    Raises:
        HeapwrightError: a process cannot be read.
    """
    from heapwright.diagnose.diagnosis import diagnose, sum_processes

    each = []
    for pid in pids:
        try:
            each.append(diagnose(pid))
        except HeapwrightError as error:
            if len(pids) == 1 or (pid == pids[-1] and not each):
                raise
            if Path(f"/proc/{pid}").exists():
                warn(f"{error.message}; it is left out of the sum")
    return (each[0] if len(each) == 1 else sum_processes(each)), each


def _show(args: argparse.Namespace, whole: Diagnosis, each: list[Diagnosis], label: str) -> None:
    """Print and write one diagnosis."""
    several = each if len(each) > 1 else []
    if args.json:
        processes = {"processes": [one.json for one in several]} if several else {}
        write_json(args.json, {**whole.json, **processes})
    if args.html:
        from heapwright.report.diagnosis_html import write_page

        write_page(whole, several, label, args.html)
    if not args.quiet and args.json != "-":
        from heapwright.report.diagnosis import show_diagnosis

        out = console()
        if args.watch:
            out.print(time.strftime("\n%H:%M:%S"), style="dim")
        show_diagnosis(whole, label, out, several)
