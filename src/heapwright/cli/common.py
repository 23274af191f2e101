"""What several verbs share: options, JSON output, reading the command."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright import SCHEMA_VERSION
from heapwright.errors import HeapwrightError, UsageError
from heapwright.files import write_whole
from heapwright.terminal_text import say, warn

if TYPE_CHECKING:
    from heapwright.allocators.registry import Allocator
    from heapwright.experiment.runner import Machines
    from heapwright.measure.meter import MeterOptions
    from heapwright.measure.prefix import Prefix
    from heapwright.report.progress import Silent
    from heapwright.study.store import Store
    from heapwright.workload.model import Input, Workload
    from heapwright.workload.stdin import Taken


def add_measuring_options(parser: argparse.ArgumentParser) -> None:
    """Options of every verb that measures."""
    group = parser.add_argument_group("how to measure")
    group.add_argument(
        "--meter",
        choices=("auto", "notify", "ptrace", "poll"),
        help="back end of the meter (default: the best that works here; see 'heapwright doctor')",
    )
    group.add_argument(
        "--massif-compat",
        action="store_true",
        default=None,
        help="also compute what Massif --pages-as-heap=yes would report (slower)",
    )
    group.add_argument(
        "--instructions",
        choices=("perf", "callgrind"),
        help="how to count instructions; callgrind runs the command once more for each run, 10-20x slower",
    )
    group.add_argument("--timeout", type=seconds, metavar="S", help="seconds a run may take")


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Options of every verb that prints results."""
    parser.add_argument("--json", metavar="FILE", help="write one JSON object; '-' is stdout")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress and no table")


def add_workload_option(parser: argparse.ArgumentParser, inputs: str = "") -> None:
    """The option of every verb that runs a command.

    Args:
        inputs: what is run where `--input` is not given, for its help; empty: the verb has no such option.
    """
    parser.add_argument("--workload", type=Path, metavar="FILE", help="a workload.toml in place of a command")
    if inputs:
        parser.add_argument("--input", metavar="NAME", help=f"which input of the workload (default: {inputs})")


def add_command_options(parser: argparse.ArgumentParser) -> None:
    """The options of every verb that judges runs of a command: what it reads, and when it has succeeded."""
    parser.add_argument(
        "--stdin",
        metavar="FILE|-|none",
        help="a file that every run reads as standard input; '-': heapwright's own, however long it takes to come;"
        " none: nothing (default: heapwright's own where it is a pipe or a file)",
    )
    parser.add_argument(
        "--success", type=_statuses, metavar="N,M", help="exit statuses that count as success (default 0)"
    )
    parser.add_argument(
        "--prefix",
        type=_prefix,
        metavar="TIME|TEXT",
        help="measure only the beginning of each run: end it after a time (30s), or when it has printed a text",
    )


def add_cluster_option(parser: argparse.ArgumentParser) -> None:
    """The option of every verb whose runs other machines can make."""
    parser.add_argument(
        "--cluster",
        metavar="WHERE",
        help="run on a Dask cluster: its scheduler's address (tcp://head:8786), or a TOML file (docs/cluster.md)",
    )


@contextmanager
def open_machines(
    args: argparse.Namespace,
    workload: Workload,
    allocators: Sequence[Allocator],
    progress: Silent,
    store: Store | None = None,
) -> Iterator[Machines]:
    """Where runs are to be made: the cluster of `--cluster`, a plan's files, or here.

    Raises:
        HeapwrightError: nothing there can be used; or the study was made on machines of another kind.
    """
    if getattr(args, "machines", None) is not None:
        yield args.machines(workload, allocators, progress.note, store)
        return
    if args.cluster:
        from heapwright.cluster.opening import cluster

        with cluster(args.cluster, workload, allocators, progress.note, store, show=progress.machines) as machines:
            yield machines
        return
    from heapwright.experiment.runner import LocalMachine
    from heapwright.measure.host import describe_host, differences

    kind = ((store.meta.cluster if store else None) or {}).get("kind")
    other = differences(kind, describe_host()) if kind else []
    if other:
        raise HeapwrightError(f"the study was measured on machines of another kind ({other[0]})", "give --cluster too")
    yield LocalMachine()


def seconds(text: str) -> float:
    """An argparse type: seconds above 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds above 0")
    return value


def positive(text: str) -> int:
    """An argparse type: a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1")
    return int(text)


def _statuses(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) < 256 for part in parts):
        raise argparse.ArgumentTypeError(f"'{text}' is not exit statuses from 0 to 255, such as 0,1")
    return tuple(dict.fromkeys(map(int, parts)))


def _prefix(text: str) -> Prefix:
    from heapwright.measure.prefix import Prefix
    from heapwright.study.options import parse_budget

    if not text:
        raise argparse.ArgumentTypeError("it is empty: give a time (30s), or a text that the command prints")
    try:
        count, length = parse_budget(text)
    except UsageError:
        return Prefix(output=text)
    return Prefix(output=text) if count else Prefix(seconds=length)


def chosen_allocators(text: str | None, repeats: bool = False, embedded: Allocator | None = None) -> list[Allocator]:
    """The allocators named, or all found; names that mean the same library and environment once.

    Args:
        repeats: a name given twice is kept twice.
        embedded: the allocator that is linked into the program: its name means that one.

    Raises:
        UsageError: not known, or not on this machine.
    """
    from heapwright.allocators.registry import find_allocators, get_allocator

    own = {embedded.name: embedded} if embedded is not None and text else {}
    names = [n.strip() for n in text.split(",") if n.strip()] if text else list(find_allocators())
    found: dict[tuple[str, ...], Allocator] = {}
    for number, name in enumerate(names):
        allocator = own.get(name) or get_allocator(name)
        again = [str(number)] if repeats and text else []
        again += [name] if allocator.embedded else []
        found.setdefault((allocator.preload, *map(str, sorted(allocator.env.items())), *again), allocator)
    if not found:
        raise UsageError("there is no allocator to compare", "for example --allocators glibc,jemalloc")
    return list(found.values())


def need_command(args: argparse.Namespace) -> list[str]:
    """The words after `--`.

    Raises:
        UsageError: there are none.
    """
    if not args.command or not args.command[0]:
        raise UsageError("there is no command to run", "put it after --, for example: -- ./prog args")
    words: list[str] = args.command
    return words


def read_workload(args: argparse.Namespace) -> Workload:
    """What to run: the command after `--`, or the file of `--workload`.

    Raises:
        UsageError: neither, both, or one that cannot be run.
    """
    workload = _read_workload(args)
    if getattr(args, "instructions", None) == "callgrind":
        if workload.file.server is not None:
            why = "a server cannot be run under callgrind: nothing loads it there"
            raise UsageError(why, "leave --instructions out")
        if workload.file.prefix is not None:
            raise UsageError("callgrind counts whole runs: it knows no prefix", "leave --instructions out")
    return workload


def _read_workload(args: argparse.Namespace) -> Workload:
    from heapwright.workload.model import from_command, load_workload, whole_only, with_prefix

    if args.workload is None:
        if getattr(args, "input", None) is not None:
            raise UsageError("--input names an input of a workload file", "give the file: --workload FILE")
        success, prefix = getattr(args, "success", None) or (0,), getattr(args, "prefix", None)
        return from_command(need_command(args), success=success, prefix=prefix)
    if args.command:
        raise UsageError("a command and --workload cannot both be given", "leave one out")
    for option in ("stdin", "success"):
        if getattr(args, option, None) is not None:
            raise UsageError(f"--{option} is for a command after --", f"a workload file says it itself: {option} = …")
    workload = load_workload(args.workload)
    prefix = getattr(args, "prefix", None)
    if prefix is None:
        return workload
    if why := whole_only(workload.file):
        raise UsageError(f"--prefix cannot be given: {why}", "leave it out")
    return with_prefix(workload, prefix)


@contextmanager
def open_workload(args: argparse.Namespace, keep: Path | None = None, before: str = "") -> Iterator[Workload]:
    """What to run, as `read_workload` says, with the standard input that every run is given.

    Afterwards `args.stdin` is how the same command line names that input again ('-' where the copy goes), and
    `args.waited_s` how many seconds it took to come.

    Args:
        keep: the folder where a copy of our own standard input stays for later sessions, if the verb sets
            `args.stdin_needed` or does not fail; None: the copy goes at the end.
        before: the file that a command reads where nobody says otherwise and we have no input; empty for none.

    Raises:
        UsageError: nothing that can be run, or no such standard input.
        HeapwrightError: our own standard input does not end, or cannot be copied.
    """
    from tempfile import TemporaryDirectory

    from heapwright.workload.model import with_stdin

    workload = read_workload(args)
    args.waited_s, args.stdin_needed = 0.0, False
    if args.workload is not None or args.stdin == "none":
        yield workload
        return
    with ExitStack() as stack:
        here = Path.cwd() if getattr(args, "cluster", None) else None  # a folder that other machines see
        folder = keep or Path(stack.enter_context(TemporaryDirectory(prefix="heapwright-", dir=here)))
        began = time.monotonic()
        taken = read_stdin(args, folder, kept=keep is not None)
        args.waited_s = time.monotonic() - began
        stdin = str(taken.path) if taken else before
        args.stdin = "-" if taken and taken.copied and keep is None else stdin or None
        try:
            yield with_stdin(workload, stdin)
        except HeapwrightError:
            if taken and taken.made and not args.stdin_needed:
                taken.path.unlink(missing_ok=True)
            raise


def read_stdin(args: argparse.Namespace, folder: Path, kept: bool = False) -> Taken | None:
    """The standard input that `--stdin` names, or our own; None where there is none.

    Args:
        folder: where a copy goes.
        kept: the copy stays, and people are told so.

    Raises:
        UsageError: no such file.
        HeapwrightError: our own standard input does not end, or cannot be copied.
    """
    from heapwright.workload.stdin import take_named, take_own

    if args.stdin == "none":
        return None
    if args.stdin not in (None, "-"):
        return take_named(args.stdin, folder)
    taken = take_own(folder, wait=args.stdin == "-")
    if taken and not args.quiet:
        say(taken.sentence + (f", kept as {taken.path.name}" if kept and taken.copied else ""))
    return taken


def with_stdin_named(words: Sequence[str], args: argparse.Namespace) -> list[str]:
    """A command line of ours that names the standard input which `open_workload` has read, so that it works again."""
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
    """The input of `--input`, or all.

    Raises:
        UsageError: there is none of that name.
    """
    return workload.inputs if args.input is None else (workload.input(args.input),)


def refuse_uncompared(workload: Workload, metrics: Sequence[str]) -> None:
    """Fails where runs end after a time and a metric grows with the work that is done by then.

    Raises:
        UsageError: it does.
    """
    from heapwright.metrics import METRICS

    prefix = workload.file.prefix
    for metric in metrics:
        if prefix is not None and not prefix.compares(metric):
            raise UsageError(
                f"{METRICS[metric].label} of {prefix.shown()} says nothing: runs do more or less in it",
                "compare memory, or end runs at a text that the command prints",
            )


def refuse_unreached(workload: Workload, allocator: Allocator) -> None:
    """Fails where a look at the program shows that the allocator's settings cannot reach it.

    Raises:
        HeapwrightError: they cannot; the hint says what to do instead.
    """
    from heapwright.allocators.embedded import find_embedded, why_not
    from heapwright.allocators.reach import find_barrier

    program = workload.program(workload.inputs[0])
    barrier = None if allocator.embedded else find_barrier(program, allocator.name, allocator.preload)
    if barrier is not None and barrier.certain:
        raise HeapwrightError(barrier.why, barrier.instead)
    embedded = find_embedded(program)
    why = why_not(embedded, allocator, program) if embedded is not None else ""
    if embedded is not None and why:
        raise HeapwrightError(why, f"the allocator it has can be used: --allocator {embedded.name}")


def warn_of_settings(
    workload: Workload | None = None, allocators: list[Allocator] | None = None, env: Mapping[str, str] | None = None
) -> None:
    """Says on stderr which settings of malloc in the environment will not take effect as they stand.

    Args:
        workload: what is run; its own environment and that of its inputs count too.
        allocators: those that will run; default: all found here.
        env: what is set for the command besides.
    """
    import os

    from heapwright.allocators.embedded import find_embedded
    from heapwright.allocators.user_settings import environment_troubles

    embedded = find_embedded(workload.program(workload.inputs[0])) if workload else None
    if embedded is not None:
        allocators = [embedded]
    own = dict(workload.file.env) if workload else {}
    inputs = [dict(i.env) for i in workload.inputs] if workload else []
    program = workload.program() if workload else None
    lines = [
        x
        for more in inputs or [{}]
        for x in environment_troubles({**os.environ, **own, **more, **(env or {})}, allocators, program)
    ]
    for line in dict.fromkeys(lines):
        warn(line)


def warn_of_changes(study: Path) -> None:
    """Says on stderr, in one line, that the program has changed since a study was made."""
    from heapwright.study.program import changed_sentence, program_of
    from heapwright.study.store import read_study, study_errors
    from heapwright.workload.program import program_changes

    with read_study(study) as store, study_errors(study):
        identity = program_of(store)
        changes = program_changes(identity) if identity else []
    if changes:
        warn(f"{changed_sentence(changes)}; 'heapwright verify {study}' tells whether its gain still holds")


def meter_options(args: argparse.Namespace, timeout: float = 0.0) -> MeterOptions:
    """The measuring options as given; `timeout` where none was."""
    from heapwright.measure.meter import MeterOptions

    return MeterOptions(
        backend=args.meter or "auto",
        massif=bool(args.massif_compat),
        timeout=args.timeout or timeout,
        callgrind=args.instructions == "callgrind",
    )


def write_json(where: str, value: dict[str, Any]) -> None:
    """Writes one JSON object, to stdout for '-'; a file is whole or not there."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **value}, indent=1, allow_nan=False) + "\n"
    if where == "-":
        sys.stdout.write(text)
        return
    write_whole(Path(where), text)
