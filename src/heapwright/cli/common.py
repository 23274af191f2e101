"""Defines the options that several verbs share, reads the command to run, and writes JSON output."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright import SCHEMA_VERSION
from heapwright.cli.containers import allocators_inside, opened_container
from heapwright.cli.output_files import json_file, naming_stdout
from heapwright.cli.recordings import tell_of_replay
from heapwright.errors import HeapwrightError, UsageError
from heapwright.files import scratch_folder, write_whole
from heapwright.terminal_text import say

if TYPE_CHECKING:
    from heapwright.allocators.registry import Allocator
    from heapwright.interleaving.runner import Machines
    from heapwright.measure.container import Container
    from heapwright.measure.prefix import Prefix
    from heapwright.report.progress import SilentProgress
    from heapwright.study.store import Store
    from heapwright.workload.model import Input, Workload
    from heapwright.workload.stdin import CapturedStdin


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every verb that prints results."""
    parser.add_argument(
        "--json", type=json_file, metavar="FILE", help="write the result as one JSON object; '-' writes to stdout"
    )
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="print neither progress nor the result; --json FILE and other files still get the result",
    )


def add_workload_option(parser: argparse.ArgumentParser, inputs: str = "") -> None:
    """Add the option of every verb that runs a command.

    Args:
        parser: the parser of the verb.
        inputs: the default of `--input`, for its help ('all'). If empty, the verb has no such option.
    """
    parser.add_argument("--workload", type=Path, metavar="FILE", help="a workload file (TOML) instead of a command")
    if inputs:
        parser.add_argument("--input", metavar="NAME", help=f"the input of the workload to run (default: {inputs})")


def add_study_option(parser: argparse.ArgumentParser) -> None:
    """Add the option of every verb that makes or continues a study."""
    parser.add_argument(
        "--study", type=Path, metavar="FILE", help="the study's file (default: a name made from the command)"
    )


def add_pick_option(parser: argparse.ArgumentParser) -> None:
    """Add the option of every verb that uses the result of a study."""
    parser.add_argument(
        "--pick",
        choices=("memory", "time", "balanced"),
        help="the pick of the study (default: the one that its claim names)",
    )


def add_command_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every verb that judges runs: standard input, statuses of success, prefix."""
    parser.add_argument(
        "--stdin",
        metavar="FILE|-|none",
        help="standard input of every run: a file; '-' for heapwright's own, read to its end without a time limit;"
        " none for no input (default: heapwright's own if it is a pipe or a file)",
    )
    parser.add_argument(
        "--success", type=_statuses, metavar="N,M", help="exit statuses that count as success (default 0)"
    )
    parser.add_argument(
        "--prefix",
        type=_prefix,
        metavar="TIME|TEXT",
        help="measure only the beginning of each run: end it after a time (30s), or once it has printed a text",
    )


def add_cluster_option(parser: argparse.ArgumentParser) -> None:
    """Add the option of every verb whose runs other machines can make."""
    parser.add_argument(
        "--cluster",
        metavar="WHERE",
        help="run on a Dask cluster: the address of its scheduler (tcp://head:8786), or a TOML file (docs/cluster.md)",
    )


@contextmanager
def open_machines(
    args: argparse.Namespace,
    workload: Workload,
    allocators: Sequence[Allocator],
    progress: SilentProgress,
    store: Store | None = None,
) -> Iterator[Machines]:
    """Open the machines that make the runs: the cluster of `--cluster`, the files of a plan, or this machine.

    Args:
        args: the command line; `args.machines`, if set, makes the machines (`plan`).
        workload: what to run.
        allocators: the allocators that runs need.
        progress: where notes go.
        store: the study, if there is one.

    Raises:
        HeapwrightError: no machine can be used, or the study was made on machines of another kind.
    """
    if getattr(args, "machines", None) is not None:
        yield args.machines(workload, allocators, progress.note, store)
        return
    if args.cluster:
        from heapwright.cluster.opening import cluster

        worker = getattr(args, "worker", None) or ""
        with cluster(
            args.cluster, workload, allocators, progress.note, store, show=progress.machines, worker=worker
        ) as machines:
            yield machines
        return
    from heapwright.interleaving.runner import LocalMachine
    from heapwright.measure.host import describe_host, differences

    kind = ((store.meta.cluster if store else None) or {}).get("kind")
    other = differences(kind, describe_host()) if kind else []
    if other:
        raise HeapwrightError(
            f"the study was measured on machines of another kind ({other[0]})", "give the same --cluster"
        )
    yield LocalMachine()


def seconds(text: str) -> float:
    """Parse a number of seconds above 0 (an argparse type)."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds above 0")
    return value


def positive(text: str) -> int:
    """Parse a whole number of at least 1 (an argparse type)."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 1")
    return int(text)


def allocator_names(text: str) -> str:
    """Check that a text names an allocator (an argparse type)."""
    if not text.replace(",", "").strip():
        raise argparse.ArgumentTypeError("it names no allocator, such as jemalloc")
    return text


def _statuses(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) < 256 for part in parts):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of exit statuses from 0 to 255, such as 0,1")
    return tuple(dict.fromkeys(map(int, parts)))


def _prefix(text: str) -> Prefix:
    from heapwright.measure.prefix import Prefix
    from heapwright.study.options import parse_budget

    if not text:
        raise argparse.ArgumentTypeError("the prefix is empty: give a time (30s), or a text that the command prints")
    try:
        count, length = parse_budget(text)
    except UsageError:
        if re.fullmatch(r"[\d.]+(ns|us|ms|s|sec|m|min|h|d)([\d.].*)?", text):
            raise argparse.ArgumentTypeError(
                f"'{text}' is not a time that can end a run: give one above 0, such as 0.5s, 90s or 30m"
            ) from None
        return Prefix(output=text)
    return Prefix(output=text) if count else Prefix(seconds=length)


def chosen_allocators(
    text: str | None,
    repeats: bool = False,
    embedded: Allocator | None = None,
    container: Container | None = None,
) -> list[Allocator]:
    """Return the named allocators, or all that are installed, here or in a container's image.

    Two names of the same library and environment count as one.

    Args:
        text: names or paths, separated by commas; None or empty for all.
        repeats: whether a name that is given twice counts twice.
        embedded: the allocator that is linked into the program, which its name then refers to.
        container: where the program runs; None for this machine.

    Raises:
        UsageError: a name is unknown, or its library is not on this machine.
    """
    from heapwright.allocators.in_image import check_parts, image_allocator
    from heapwright.allocators.registry import OURS, find_allocators, get_allocator

    inside = allocators_inside(container) if container is not None else None
    here = find_allocators() if inside is None else {}
    own = {embedded.name: embedded} if embedded is not None and text else {}
    names = [n.strip() for n in text.split(",") if n.strip()] if text else list(here if inside is None else inside)
    if container is not None and inside is not None and any(n in OURS and n not in inside for n in names):
        check_parts(container.image.platform, container.image.libraries)
    found: dict[tuple[str, ...], Allocator] = {}
    for number, name in enumerate(names):
        allocator = own.get(name) or (get_allocator(name, here) if inside is None else image_allocator(name, inside))
        again = [str(number)] if repeats and text else []
        again += [name] if allocator.embedded else []
        found.setdefault((allocator.preload, *map(str, sorted(allocator.env.items())), *again), allocator)
    if not found:
        raise UsageError("no allocator to compare", "name some, for example --allocators glibc,jemalloc")
    return list(found.values())


def need_command(args: argparse.Namespace) -> list[str]:
    """Return the words after `--`.

    Raises:
        UsageError: there are none.
    """
    if not args.command or not args.command[0]:
        raise UsageError("there is no command to run", "put it after --, for example: -- ./prog args")
    words: list[str] = args.command
    return words


def read_workload(args: argparse.Namespace) -> Workload:
    """Read the workload: the command after `--`, or the file of `--workload`.

    Raises:
        UsageError: neither or both are given, or the workload cannot be run.
    """
    workload = _read_workload(args)
    for option, tool, value in (("instructions", "callgrind", "callgrind"), ("massif", "Massif", "valgrind")):
        if getattr(args, option, None) != value:
            continue
        if workload.file.server is not None:
            why = f"a server cannot run under {tool}, because no load runs there"
            raise UsageError(why, f"leave out --{option}")
        if workload.file.prefix is not None:
            raise UsageError(f"{tool} sees only whole runs, not a prefix", f"leave out --{option} or --prefix")
    return workload


def _read_workload(args: argparse.Namespace) -> Workload:
    from heapwright.workload.model import from_command, load_workload, whole_only, with_prefix

    if args.workload is None:
        if getattr(args, "input", None) is not None:
            raise UsageError("--input needs a workload file", "add --workload FILE")
        success, prefix = getattr(args, "success", None) or (0,), getattr(args, "prefix", None)
        words = tell_of_replay(need_command(args))
        return from_command(words, success=success, prefix=prefix, container=opened_container(args))
    if args.command:
        raise UsageError("a command and --workload cannot both be given", "leave out one of them")
    for option in ("stdin", "success"):
        if getattr(args, option, None) is not None:
            raise UsageError(f"--{option} applies only to a command after --", f"set {option} = … in the workload file")
    workload = load_workload(args.workload, opened_container(args))
    prefix = getattr(args, "prefix", None)
    if prefix is None:
        return workload
    if why := whole_only(workload.file):
        raise UsageError(f"--prefix cannot be used: {why}", "leave it out")
    return with_prefix(workload, prefix)


@contextmanager
def open_workload(args: argparse.Namespace, keep: Path | None = None, before: str = "") -> Iterator[Workload]:
    """Read the workload (see `read_workload`) and give every run its standard input.

    It sets `args.stdin` to the value of --stdin that names the same input again; '-' if the copy is temporary. It sets
    `args.waited_s` to the seconds that reading the input took.

    Args:
        args: the command line.
        keep: the folder where a copy of heapwright's standard input stays for later sessions. It stays if the verb
            sets `args.stdin_needed` or does not fail. None: the copy is deleted at the end.
        before: the file that a command reads if there is no --stdin and heapwright has no input; empty for none.

    Raises:
        UsageError: the workload cannot be run, or the standard input does not exist.
        HeapwrightError: heapwright's standard input does not end, or cannot be copied.
    """
    from heapwright.workload.model import with_stdin

    workload = read_workload(args)
    args.waited_s, args.stdin_needed = 0.0, False
    if args.workload is not None or args.stdin == "none":
        yield workload
        return
    with ExitStack() as stack:
        here = Path.cwd() if getattr(args, "cluster", None) else None  # a folder that other machines see
        began = time.monotonic()
        taken = read_stdin(args, lambda: keep or stack.enter_context(scratch_folder(here)), kept=keep is not None)
        args.waited_s = time.monotonic() - began
        stdin = str(taken.path) if taken else before
        args.stdin = "-" if taken and taken.copied and keep is None else stdin or None
        try:
            yield with_stdin(workload, stdin)
        except HeapwrightError:
            if taken and taken.made and not args.stdin_needed:
                taken.path.unlink(missing_ok=True)
            raise


def read_stdin(args: argparse.Namespace, folder: Callable[[], Path], kept: bool = False) -> CapturedStdin | None:
    """Return the standard input that `--stdin` names, or heapwright's own; None if there is none.

    Args:
        args: the command line.
        folder: returns the folder for a copy. It is called only for a copy.
        kept: whether the copy stays; the message to the user then names it.

    Raises:
        UsageError: there is no such file.
        HeapwrightError: heapwright's standard input does not end, or cannot be copied.
    """
    from heapwright.workload.stdin import capture_own_stdin, capture_stdin_file

    if args.stdin == "none":
        return None
    if args.stdin not in (None, "-"):
        return capture_stdin_file(args.stdin, folder)
    taken = capture_own_stdin(folder, wait=args.stdin == "-")
    if taken and not args.quiet:
        say(taken.sentence + (f", kept as {taken.path.name}" if kept and taken.copied else ""))
    return taken


def with_stdin_named(words: Sequence[str], args: argparse.Namespace) -> list[str]:
    """Return a heapwright command line with the standard input that `open_workload` read, to repeat it."""
    if args.stdin is None or "--" not in words:
        return list(words)
    at = words.index("--")
    own = [
        word
        for before, word in zip(["", *words], words[:at], strict=False)
        if before != "--stdin" and word.partition("=")[0] != "--stdin"
    ]
    return [*own, "--stdin", args.stdin, *words[at:]]


def read_inputs(args: argparse.Namespace, workload: Workload) -> tuple[Input, ...]:
    """Return the input of `--input`, or all inputs.

    Raises:
        UsageError: there is no input of that name.
    """
    return workload.inputs if args.input is None else (workload.input(args.input),)


def refuse_uncompared(workload: Workload, metrics: Sequence[str]) -> None:
    """Refuse a metric that cannot be compared between runs that end after a fixed time.

    Such a metric grows with the work that a run has done by then.

    Raises:
        UsageError: one of the metrics cannot be compared.
    """
    from heapwright.metrics import METRICS

    prefix = workload.file.prefix
    for metric in metrics:
        if prefix is not None and not prefix.compares(metric):
            raise UsageError(
                f"{METRICS[metric].label} of {prefix.shown()} cannot be compared: runs do different amounts of work"
                " in that time",
                "compare a memory metric, or end runs at a text that the command prints (--prefix TEXT)",
            )


def refuse_unreached(workload: Workload, allocator: Allocator) -> None:
    """Refuse an allocator whose settings cannot reach the program, as far as the program's file shows.

    Raises:
        HeapwrightError: they cannot; the hint says what to do instead.
    """
    from heapwright.allocators.embedded import embedded_obstacle, find_embedded
    from heapwright.allocators.preload_obstacles import find_obstacle

    program = workload.program(workload.inputs[0])
    obstacle = None if allocator.embedded else find_obstacle(program, allocator.name, allocator.preload)
    if obstacle is not None and obstacle.certain:
        raise HeapwrightError(obstacle.why, obstacle.instead)
    embedded = find_embedded(program)
    why = embedded_obstacle(embedded, allocator, program) if embedded is not None else ""
    if embedded is not None and why:
        raise HeapwrightError(why, f"use the allocator that it has: --allocator {embedded.name}")


def write_json(where: str, value: dict[str, Any]) -> None:
    """Write one JSON object to a file, whole or not at all, or to stdout for '-'."""
    write_text(where, json.dumps({"schema_version": SCHEMA_VERSION, **value}, indent=1, allow_nan=False) + "\n")


def write_text(where: str | Path, text: str) -> None:
    """Write a text to a file, whole or not at all, or to stdout for '-'."""
    if str(where) == "-":
        with naming_stdout():
            sys.stdout.write(text)
        return
    write_whole(Path(where), text)


def writes_stdout(args: argparse.Namespace) -> bool:
    """Whether an option writes its result to stdout, so that no table belongs there.

    Raises:
        UsageError: more than one does.
    """
    options = [name for name in ("json", "csv", "markdown", "latex") if str(getattr(args, name, None)) == "-"]
    if len(options) > 1:
        raise UsageError(f"--{options[0]} and --{options[1]} both write to stdout", "name a file for one of them")
    return bool(options)
