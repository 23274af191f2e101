"""`heapwright verify`: checks with fresh runs whether the gain of a study still holds."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright.cli.common import (
    add_command_options,
    add_output_options,
    add_pick_option,
    open_workload,
    read_stdin,
    refuse_uncompared,
    seconds,
    write_json,
)
from heapwright.cli.containers import add_container_option, opened_container
from heapwright.cli.durations import duration, percentage
from heapwright.cli.measuring_options import refuse_unmeasured
from heapwright.cli.output_files import output_file
from heapwright.errors import INTERRUPTED, NO_GAIN, UNDECIDED, HeapwrightError, UsageError
from heapwright.files import scratch_folder, write_whole
from heapwright.terminal_text import console, say, visible

if TYPE_CHECKING:
    from heapwright.allocators.space_spec import SpaceFile
    from heapwright.interleaving.configuration import Config
    from heapwright.study.verifications import Question
    from heapwright.study.view import Pick, StudyView
    from heapwright.tuning.verification import Verification
    from heapwright.workload.model import Workload
    from heapwright.workload.program import ProgramIdentity

_EPILOG = """\
examples:
  heapwright verify solver.study
  heapwright verify solver.study --max-time 5m --junit verify.xml -- ./solver big.cnf
  heapwright verify redis.study --workload redis.toml --json -
  heapwright verify recorded.study -- ./service --config prod.toml    # a study of tune --trace

A command after -- reads heapwright's own standard input if that is a pipe or a file, otherwise the study's; it has the
study's statuses of success. Options override this.

Exit status: 0 the gain holds, 3 it no longer holds, 4 undecided within the time, 1 failure, 2 wrong usage. After Ctrl-C
it is 130, and the pairs so far are judged.
"""

_STATUS = {"holds": 0, "lost": NO_GAIN, "undecided": UNDECIDED}


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "verify",
        help="check with fresh pairs whether a study's gain still holds",
        description="Runs the default and the settings of a study in fresh interleaved pairs, until it is clear whether"
        " the gain still holds. Use it after a new build of the program, on another"
        " machine or with another base image.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("study", type=Path, metavar="STUDY", help="the study's file, which 'tune' writes")
    parser.add_argument(
        "--workload", type=Path, metavar="FILE", help="a workload file (TOML) instead of the study's command"
    )
    add_command_options(parser)
    add_container_option(parser)
    add_pick_option(parser)
    parser.add_argument(
        "--max-time",
        type=duration,
        default=600.0,
        metavar="TIME",
        help="begin no run after this time (90s, 10m; default 10m), however few pairs there are",
    )
    parser.add_argument(
        "--keep",
        type=percentage("from 0 to 100", lambda value: 0 <= value <= 100),
        metavar="PCT",
        help="share of the gain that must remain, in per cent (default 50; for a predicted gain: any gain beyond the"
        " margin)",
    )
    parser.add_argument("--timeout", type=seconds, metavar="S", help="maximum seconds of a run")
    parser.add_argument(
        "--junit", type=output_file, metavar="FILE", help="write the result as JUnit XML, for a CI service"
    )
    add_output_options(parser)
    parser.set_defaults(run=run, takes_command=True)


def run(args: argparse.Namespace) -> int:
    """Run the verb; the exit status is the verdict."""
    try:
        return _verify(args)
    except HeapwrightError as error:
        if args.junit:
            write_whole(args.junit, _junit_error(args.study, error))
        raise


def _verify(args: argparse.Namespace) -> int:
    from heapwright.study.choose import pick_to_verify
    from heapwright.study.load import view_of
    from heapwright.study.local_environment import all_spaces, changed_variables
    from heapwright.study.program import program_of
    from heapwright.study.store import read_study, study_errors
    from heapwright.study.verifications import Question, times_verified
    from heapwright.workload.model import whole_only, with_prefix
    from heapwright.workload.program import ProgramIdentity, identify_program

    with read_study(args.study) as store, study_errors(args.study):
        meta = store.meta
        view, spaces, identity = view_of(store), all_spaces(meta), program_of(store) or ProgramIdentity()
        before, now = changed_variables(meta.environment, _space_files(spaces))
    pick = pick_to_verify(view, args.pick)
    given = args.command is not None or args.workload is not None
    if view.recordings is not None and not given:
        raise UsageError(
            f"{args.study} is a study of recordings, so it has no command to run",
            "give the real load: -- CMD, or --workload FILE",
        )
    if given:
        identity = ProgramIdentity(allocators=identity.allocators)
    with _workload(args, view.workload if view.recordings is None else {}) as workload:
        if workload.file.prefix is None:
            workload = with_prefix(workload, view.prefix)
        if workload.file.prefix is not None and (why := whole_only(workload.file)):
            raise UsageError(
                f"the study measured only a prefix of each run, but {why}", "verify the program that the study measured"
            )
        _refuse_linked(workload, pick)
        refuse_uncompared(workload, view.objectives)
        refuse_unmeasured(workload, view.objectives)
        question = (
            Question(pick.config.id, _program_text(workload), identify_program(workload)) if view.recordings else None
        )
        earlier = times_verified(meta, question) if question else 0
        found, notes = _verified(args, view, pick, spaces, workload, identity, earlier)
        if before and view.recordings is None:
            notes.insert(0, f"the environment differs from the study's: it was {before}, now it is {now}")
        if question is not None:
            notes += _keep(args.study, view, question, found)
    if args.json:
        write_json(args.json, _as_json(view, pick, found, notes))
    if args.junit:
        write_whole(args.junit, _junit(view, found))
    if not args.quiet and args.json != "-":
        out = console()
        for note in notes:
            out.print(visible(f"note: {note}"), style="yellow", soft_wrap=True)
        out.print(visible(found.sentence), style="bold", soft_wrap=True)
        if found.requirements:
            from heapwright.report.terminal import requirements_table

            out.print()
            out.print(requirements_table(found.requirements))
    if question is not None and found.state != "undecided" and not args.quiet:
        _name_old_report(args.study)
    return INTERRUPTED if found.interrupted else _STATUS[found.state]


def _space_files(spaces: dict[str, Any]) -> list[SpaceFile]:
    import msgspec

    from heapwright.allocators.space_spec import SpaceFile

    return [msgspec.convert(space, SpaceFile) for space in spaces.values()]


def _refuse_linked(workload: Workload, pick: Pick) -> None:
    """Raise UsageError if `heapwright link` linked the pick's allocator into the program: that leaves no default."""
    from heapwright.allocators.program_file import read_program

    found = read_program(workload.program(workload.inputs[0]))
    if found is not None and found.linked == pick.config.allocator and "LD_PRELOAD" in pick.config.env:
        raise UsageError(f"this build has {found.linked} linked in already", "verify the build without it")


@contextmanager
def _workload(args: argparse.Namespace, studied: dict[str, Any]) -> Iterator[Workload]:
    """Open the workload: the command or file that the user gave, or else the study's workload.

    Args:
        args: the command line.
        studied: the study's workload; empty for a study of recordings. A command without such options gets its standard
            input, statuses of success, environment and the way in which outputs are compared.
    """

    import msgspec

    from heapwright.workload.model import check_stdin, file_of, from_identity, with_prefix, with_stdin

    if args.command is not None or args.workload is not None:
        if args.workload is None and args.success is None:
            args.success = studied.get("success")
        with open_workload(args, before=studied.get("stdin") or "") as workload:
            check_stdin(workload)
            if args.workload is None and studied:
                before = file_of(studied)
                file = msgspec.structs.replace(workload.file, env=before.env, output=before.output)
                workload = dataclasses.replace(workload, file=file)
            yield workload
        return
    where = opened_container(args)
    if args.container is not None:
        studied = {**studied, "container": {"image": args.container, "args": list(where.args) if where else []}}
    workload = from_identity(studied)
    if not args.quiet and workload.container is None and workload.cwd.resolve() != args.study.resolve().parent:
        say(f"the program runs in {workload.cwd}, as in the study")
    if args.success:
        workload = dataclasses.replace(
            workload, file=msgspec.structs.replace(workload.file, success=list(args.success))
        )
    if args.prefix is not None:
        workload = with_prefix(workload, args.prefix)
    with ExitStack() as stack:
        if args.stdin is not None:
            taken = read_stdin(args, lambda: stack.enter_context(scratch_folder()))
            workload = with_stdin(workload, str(taken.path) if taken else "")
        check_stdin(workload)
        yield workload


def _verified(
    args: argparse.Namespace,
    view: StudyView,
    pick: Pick,
    spaces: dict[str, Any],
    workload: Workload,
    identity: ProgramIdentity,
    earlier: int,
) -> tuple[Verification, list[str]]:
    """Run the pairs and judge them.

    Args:
        args: the command line.
        view: the study.
        pick: the pick to verify.
        spaces: parameter-space file of each allocator, as the study stores it.
        workload: what to run.
        identity: the files of the study that are to be the same now.
        earlier: how often the same question was asked before.

    Returns:
        The verdict, and all remarks for the user.
    """

    import msgspec

    from heapwright.measure.host import describe_host, differences
    from heapwright.report.progress import make_progress
    from heapwright.study.metering import meter_options_of
    from heapwright.study.options import Options
    from heapwright.tuning.verification import refused
    from heapwright.tuning.verify import verify
    from heapwright.workload.execute import Executor
    from heapwright.workload.program import program_changes

    options = msgspec.convert(view.options, Options, strict=False)
    notes = [
        *program_changes(identity),
        *(f"this machine differs from the study's: {text}" for text in differences(view.host, describe_host())),
    ]
    default, default_notes = _default_now(view)
    notes += default_notes
    local: list[Config] = []
    for config in (default, pick.config):
        here, config_notes = _as_run_here(config, spaces, workload, identity)
        local.append(here)
        notes += config_notes
    default, choice = local
    why = _unreached(choice, spaces, workload, workload.base_environment())
    predicted = view.recordings is not None
    if why:
        return refused(pick, why, options.objectives, predicted), notes
    limit = args.timeout or options.timeout or workload.file.timeout
    with scratch_folder() as folder, make_progress(quiet=args.quiet) as progress:
        executor = Executor(workload, meter_options_of(options, limit), folder / "references")
        found = verify(
            pick, (default, choice), workload, options, executor, progress, args.max_time, args.keep, predicted, earlier
        )
    return found, notes


def _default_now(view: StudyView) -> tuple[Config, list[str]]:
    """Return the default to compare with, and notes: for a study of recordings, the program as it is."""
    from heapwright.interleaving.configuration import DEFAULT

    if view.recordings is None or view.default.allocator != DEFAULT:
        return view.default, []
    notes = []
    if view.recordings.own_malloc:
        notes.append(f"the default is the program as it is. In the study: {view.recordings.reference_why}")
    return dataclasses.replace(view.default, env={}), notes


def _as_run_here(
    config: Config, spaces: dict[str, Any], workload: Workload, identity: ProgramIdentity
) -> tuple[Config, list[str]]:
    """Return a configuration with the environment that applies it on this machine, and notes on its allocator.

    Args:
        config: the configuration, as the study stores it.
        spaces: parameter-space file of each allocator.
        workload: what to run.
        identity: the files of the study that are to be the same now.
    """
    from heapwright.study.local_environment import local_environment
    from heapwright.workload.program import allocator_changes

    env, notes = dict(config.env), []
    if env and workload.container is None:
        base = workload.base_environment()
        env, instead = local_environment(config.env, config.settings, config.allocator, spaces, base)
        library = instead or env.get("LD_PRELOAD", "").partition(":")[0]
        notes += [f"{config.allocator} is loaded from {instead}"] if instead else []
        notes += allocator_changes(identity, {config.allocator: library}) if library else []
    return dataclasses.replace(config, env=env), notes


def _program_text(workload: Workload) -> str:
    """Return the program for people: its workload file, or its command."""
    return workload.path or shlex.join(workload.file.command)


def _keep(study: Path, view: StudyView, question: Question, found: Verification) -> list[str]:
    """Store the verdict in a study of recordings, so that its claim is proven or refuted; return notes for the user."""
    from datetime import UTC, datetime

    from heapwright.study.store import open_writable_study
    from heapwright.study.verifications import store_verdict

    verified = {
        "config": question.config,
        "verdict": found.state,
        "sentence": found.sentence,
        "on": question.on,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "pairs": found.pairs,
        "objection": found.objection,
        "requirements": [dataclasses.asdict(result) for result in found.requirements],
    }
    try:
        with open_writable_study(study) as store:
            store_verdict(store, question, verified)
    except HeapwrightError as error:
        return [f"the verdict is not stored in {view.path}: {error.message}"]
    return []


def _name_old_report(study: Path) -> None:
    """Say that the report beside the study was written before the verdict, if there is one."""
    from heapwright.study.open import report_path

    if (report := report_path(study)).exists():
        say(f"{report} was written before this verdict; to write it again: heapwright report {shlex.quote(str(study))}")


def _unreached(choice: Config, spaces: dict[str, Any], workload: Workload, base: dict[str, str]) -> str:
    """Return why the settings do not take effect on this machine; empty if they do."""
    import msgspec

    from heapwright.allocators.library_report import effective_settings
    from heapwright.allocators.space_spec import SpaceFile

    if choice.allocator not in spaces or not choice.settings:
        return ""
    spec = msgspec.convert(spaces[choice.allocator], SpaceFile).allocator
    library = choice.env.get("LD_PRELOAD", "").partition(":")[0]
    spec = msgspec.structs.replace(spec, preload=library)
    own = {key: value for key, value in choice.settings.items() if key.partition(".")[0] not in spaces}
    found = effective_settings(spec, workload.program(), own, {**base, **choice.env})
    wrong = [f"{key}={value}" for key, value in choice.settings.items() if found.get(key, value) != value]
    return f"{', '.join(wrong)} does not take effect on this machine" if wrong else ""


def _as_json(view: StudyView, pick: Pick, found: Verification, notes: list[str]) -> dict[str, Any]:
    then = {m: {"ratio": c.ratio, "low": c.low, "high": c.high} for m, c in found.then.items()}
    now = {
        m: {"ratio": c.ratio, "low": c.low, "high": c.high, "verdict": c.verdict, "state": found.states.get(m)}
        for m, c in found.now.items()
    }
    return {
        "study": view.path,
        "pick": pick.name,
        "allocator": pick.config.allocator,
        "settings": pick.config.settings,
        "verdict": found.state,
        "sentence": found.sentence,
        "then": then,
        "now": now,
        "bounds": found.bounds,
        "requirements": {r.text: r.state for r in found.requirements},
        "pairs": found.pairs,
        "wall_s": found.wall_s,
        "failure": found.failure or None,
        "interrupted": found.interrupted,
        "notes": notes,
    }


def _junit_error(study: Path, error: HeapwrightError) -> str:
    """Return JUnit XML that says why nothing could be verified, so that no older file stays in its place."""
    from xml.etree import ElementTree

    suite = ElementTree.Element("testsuite", name="heapwright verify", tests="1", failures="0", errors="1", skipped="0")
    case = ElementTree.SubElement(suite, "testcase", classname=visible(str(study)), name="verification")
    ElementTree.SubElement(case, "error", message=visible(error.message))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _junit(view: StudyView, found: Verification) -> str:
    """Return JUnit XML with a test case per objective and requirement: failed if lost, skipped if undecided."""
    from xml.etree import ElementTree

    from heapwright.metrics import METRICS

    cases = found.states or dict.fromkeys(found.then, found.state)
    suite = ElementTree.Element(
        "testsuite",
        name="heapwright verify",
        tests=str(len(cases)),
        failures=str(sum(state == "lost" for state in cases.values())),
        errors="0",
        skipped=str(sum(state == "undecided" for state in cases.values())),
        time=f"{found.wall_s:.3f}",
    )
    for metric, state in cases.items():
        label = METRICS[metric].label if metric in METRICS else metric
        case = ElementTree.SubElement(
            suite, "testcase", classname=visible(view.path), name=label, time=f"{found.wall_s:.3f}"
        )
        if state != "holds":
            kind = "failure" if state == "lost" else "skipped"
            ElementTree.SubElement(case, kind, message=visible(found.sentence))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
