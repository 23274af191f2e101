"""`heapwright run`: replaces itself by a command that runs with the settings of a study."""

from __future__ import annotations

import argparse
import errno
import os
import signal
from pathlib import Path
from typing import Any

from heapwright.cli.common import add_workload_option, read_inputs, read_workload
from heapwright.terminal_text import say, warn

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
    parser.add_argument(
        "--pick",
        choices=("memory", "time", "balanced"),
        help="which pick of the study (default: the one that its claim names)",
    )
    parser.set_defaults(run=run, takes_command=True)


def run(args: argparse.Namespace) -> int:
    """Replace this process by the command; other settings of the user in the same variables stay."""
    from heapwright.allocators.huge_pages import are_forbidden, forbid_huge_pages
    from heapwright.allocators.reach import find_barrier
    from heapwright.study.choose import chosen_config, kept_choice
    from heapwright.study.local_environment import all_spaces, local_environment
    from heapwright.study.program import changed_sentence, program_of
    from heapwright.study.store import read_study, study_errors
    from heapwright.workload.command import under_shell
    from heapwright.workload.program import allocator_changes, command_changes

    workload = read_workload(args)
    input_ = read_inputs(args, workload)[0]
    command, program = workload.command(input_), workload.program(input_)
    env, instead = {**os.environ, **workload.file.env, **input_.env}, ""
    with read_study(args.study) as store, study_errors(args.study):
        config = kept_choice(store, args.pick)
        if config is None:
            from heapwright.study.load import view_of

            config = chosen_config(view_of(store), args.pick)
        identity = program_of(store)
        spaces, recordings, verified = all_spaces(store.meta), store.meta.recordings, store.meta.verified
        measured = str((store.meta.identity.get("command") or command)[0])
        if not config.is_default or config.env:
            added, instead = local_environment(config.env, config.settings, config.allocator, spaces, env)
            env |= added
    if instead:
        say(f"{config.allocator} is loaded from {instead}, because the study's library is not on this machine")
    library = instead or config.env.get("LD_PRELOAD", "").partition(":")[0]
    if config.is_default and not config.env and args.pick is None:
        says = "proves" if recordings is None else "predicts"
        say(f"{args.study} {says} no gain, so the program runs with nothing changed")
    elif recordings is not None:
        if verified is None or verified["verdict"] != "holds":
            say(f"predicted by replays, not proven: 'heapwright verify {args.study} -- CMD' proves it")
    elif Path(measured).name != Path(command[0]).name:
        say(f"the study measured another program, {measured}; its claim does not cover {command[0]}")
    elif identity is not None:
        hint = f"'heapwright verify {args.study}' checks whether its gain still holds"
        if changes := command_changes(identity, [program, *command[1:]], workload.cwd):
            warn(f"{changed_sentence(changes)}; {hint}")
        if library and (changes := allocator_changes(identity, {config.allocator: library})):
            warn(f"{changed_sentence(changes, 'the allocator')}; {hint}")
    barrier = None if config.is_default else find_barrier(program, config.allocator, library)
    if barrier is not None:
        warn(str(barrier))
    stdin = input_.stdin or workload.file.stdin
    if stdin:
        os.dup2(os.open(stdin, os.O_RDONLY), 0)
    os.chdir(workload.cwd)
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
