"""`heapwright run`: replaces itself by a command that runs with the settings of a study."""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from heapwright.cli.common import add_pick_option, add_workload_option, read_inputs, read_workload
from heapwright.terminal_text import say, warn

if TYPE_CHECKING:
    from heapwright.interleaving.configuration import Config
    from heapwright.workload.program import ProgramIdentity

_EPILOG = """\
examples:
  heapwright run heapwright-perl-1a2b3c.study --pick time -- perl report.pl access.log
  heapwright run redis.study --workload redis.toml

The command replaces the heapwright process. With --workload, the command, directory and environment come from the file,
and stdin and arguments from one input. Set-up, clean-up and the load of a server do not run.
"""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "run",
        help="run a command with the chosen settings",
        description="Runs a command with the settings of a study in its environment.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("study", type=Path, metavar="STUDY", help="the study's file, which 'tune' writes")
    add_workload_option(parser, inputs="the first")
    add_pick_option(parser)
    parser.set_defaults(run=run, takes_command=True)


class _Choice(NamedTuple):
    """The setting that a study chose, and the facts that tell whether its claim covers a program.

    Attributes:
        config: the setting.
        identity: the files of the program that the study measured; None if it measured none.
        from_recordings: whether the study is one of recordings.
        verified: the verdict of `heapwright verify` on a study of recordings; None if there is none.
        measured: the program that the study measured.
    """

    config: Config
    identity: ProgramIdentity | None
    from_recordings: bool
    verified: dict[str, Any] | None
    measured: str


def run(args: argparse.Namespace) -> int:
    """Replace this process by the command; other settings of the user in the same variables stay."""
    from heapwright.allocators.preload_obstacles import find_obstacle
    from heapwright.study.choose import chosen_config, kept_choice
    from heapwright.study.local_environment import all_spaces, local_environment
    from heapwright.study.program import program_of
    from heapwright.study.store import read_study, study_errors

    workload = read_workload(args)
    input_ = read_inputs(args, workload)[0]
    command, program = workload.command(input_), workload.program(input_)
    env, instead = {**os.environ, **workload.file.env, **input_.env}, ""
    with read_study(args.study) as store, study_errors(args.study):
        config = kept_choice(store, args.pick)
        if config is None:
            from heapwright.study.load import view_of

            config = chosen_config(view_of(store), args.pick)
        measured = str((store.meta.identity.get("command") or command)[0])
        from_recordings, spaces = store.meta.recordings is not None, all_spaces(store.meta)
        choice = _Choice(config, program_of(store), from_recordings, store.meta.verified, measured)
        if not config.is_default or config.env:
            added, instead = local_environment(config.env, config.settings, config.allocator, spaces, env)
            env |= added
    if instead:
        say(f"{config.allocator} is loaded from {instead}, because the study's library is not on this machine")
    library = instead or config.env.get("LD_PRELOAD", "").partition(":")[0]
    _tell_coverage(args, choice, library, command, program, workload.cwd)
    obstacle = None if config.is_default else find_obstacle(program, config.allocator, library)
    if obstacle is not None:
        warn(str(obstacle))
    _replace_process(command, env, workload.cwd, input_.stdin or workload.file.stdin)


def _tell_coverage(
    args: argparse.Namespace, choice: _Choice, library: str, command: list[str], program: str, cwd: Path
) -> None:
    """Tell the user if the claim of the study does not cover this run: another program, changed files, no proof.

    Args:
        args: the command line.
        choice: the setting of the study.
        library: the library of its allocator; empty for none.
        command: the command to run.
        program: its executable.
        cwd: its directory.
    """
    from heapwright.study.program import changed_sentence
    from heapwright.workload.program import allocator_changes, command_changes

    config, identity = choice.config, choice.identity
    verify = shlex.join(["heapwright", "verify", str(args.study)])
    if config.is_default and not config.env and args.pick is None:
        says = "predicts" if choice.from_recordings else "proves"
        say(f"{args.study} {says} no gain, so the program runs with nothing changed")
    elif choice.from_recordings:
        if choice.verified is None or choice.verified["verdict"] != "holds":
            say(f"predicted by replays, not proven; to prove it: {verify} -- CMD")
    elif Path(choice.measured).name != Path(command[0]).name:
        say(f"the study measured another program, {choice.measured}; its claim does not cover {command[0]}")
    elif identity is not None:
        hint = f"to check whether its gain still holds: {verify}"
        if changes := command_changes(identity, [program, *command[1:]], cwd):
            warn(f"{changed_sentence(changes)}; {hint}")
        if library and (changes := allocator_changes(identity, {config.allocator: library})):
            warn(f"{changed_sentence(changes, 'the allocator')}; {hint}")


def _replace_process(command: list[str], env: dict[str, str], cwd: Path, stdin: str) -> NoReturn:
    """Replace this process by the command.

    Args:
        command: the program and its arguments.
        env: its environment.
        cwd: its directory.
        stdin: a file for its standard input; empty for ours.
    """
    from heapwright.allocators.huge_pages import are_forbidden, forbid_huge_pages
    from heapwright.workload.command import under_shell

    if stdin:
        os.dup2(os.open(stdin, os.O_RDONLY), 0)
    os.chdir(cwd)
    if are_forbidden(env):
        forbid_huge_pages()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and the program would inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, env)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        words = under_shell(command, env.get("PATH"))
        os.execve(words[0], words, env)
