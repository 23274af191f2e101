"""`heapwright apply`: prints the settings of a study, ready to paste."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapwright.cli.cautions import warn_of_changes
from heapwright.cli.common import add_pick_option
from heapwright.cli.containers import add_container_option, opened_container
from heapwright.errors import FAILED, NO_GAIN, UNDECIDED, UsageError
from heapwright.terminal_text import say, visible, warn

if TYPE_CHECKING:
    from heapwright.interleaving.configuration import Config
    from heapwright.measure.container import Container
    from heapwright.study.view import StudyView

_EPILOG = """\
examples:
  eval "$(heapwright apply heapwright-perl-1a2b3c.study)"
  heapwright apply heapwright-perl-1a2b3c.study --pick time --format systemd
  heapwright apply heapwright-server-1a2b3c.study --check --container my-image

Exit status: 0 a gain is proven; 3 no gain is proven, the output keeps the default, and a line on stderr says so;
4 a gain is predicted by replays (tune --trace) and not proven, its settings are printed; 1 failure; 2 wrong usage.
eval hides the status of the command in it, so a script that needs it stores the output first:
  settings=$(heapwright apply heapwright-perl-1a2b3c.study) && eval "$settings"
"""

# Those of report.apply.FORMATS, without its imports; a test compares them.
_FORMATS = (
    "env",
    "shell",
    "systemd",
    "docker",
    "compose",
    "kubernetes",
    "supervisord",
    "entrypoint",
    "lmod",
    "slurm",
    "json",
)


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "apply",
        help="print the settings to paste",
        description="Prints the settings of a study for a shell, a wrapper script, systemd,"
        " images, pods, supervisord, Lmod, SLURM or a program.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("study", type=Path, metavar="STUDY", help="the study's file, which 'tune' writes")
    add_pick_option(parser)
    parser.add_argument(
        "--format", choices=_FORMATS, default="env", dest="fmt", help="the form of the output (default: env)"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="tell whether the settings would take effect here, or in an image; exit status 1 if they would not",
    )
    add_container_option(parser, "with --check: check the settings in this image instead of the study's")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb; the exit status says whether the printed settings are proven to be a gain."""
    from heapwright.allocators.huge_pages import are_forbidden
    from heapwright.report.apply import render_config
    from heapwright.study.choose import chosen_pick, config_of, prediction_caution
    from heapwright.study.claim import is_proven
    from heapwright.study.load import load_view
    from heapwright.study.take_effect import library_trouble
    from heapwright.study.view import MET
    from heapwright.workload.model import first_command

    container = opened_container(args)
    if container is not None and not args.check:
        raise UsageError("--container applies only to --check here", "add --check")
    warn_of_changes(args.study)
    view = load_view(args.study)
    pick = chosen_pick(view, args.pick)
    config, claim = config_of(view, pick), pick.claim if pick else view.claim
    if args.check:
        return _check(args, view, config, container)
    cwd = str(view.workload.get("cwd") or "")
    command, own = first_command({"command": view.command, **view.workload})
    if view.recordings is not None:  # the command of the recorded program is not known
        command, own, cwd = [], {}, ""
    if sys.stdout.isatty():  # a terminal must not obey control characters; a file or a pipe gets the exact text
        shown = {name: visible(value) for name, value in config.env.items()}
        config, command = dataclasses.replace(config, env=shown), [visible(word) for word in command]
        cwd, own = visible(cwd), {visible(name): visible(value) for name, value in own.items()}
    platform = str(view.host.get("image_platform") or "") or None
    if command and not platform and are_forbidden(config.env) and (why := library_trouble(command[0])):
        warn(why)
    text = render_config(config, args.fmt, command, claim, "" if platform else cwd, platform, own)
    print(visible(text, "\n") if sys.stdout.isatty() else text, flush=True)
    for r in pick.requirements if pick else []:
        if r.state != "kept":
            warn(f"requirement {MET[r.state]}: {r.text} (measured: {r.shown})")
    if caution := prediction_caution(view, pick, args.study):
        say(caution)
        return UNDECIDED
    if pick is not None and is_proven(pick, view.objectives):
        return 0
    if pick is None:
        say(f"no gain is proven for {args.study}: the output keeps the default")
    else:  # only with --pick
        say(f"no gain is proven for the {pick.name} pick of {args.study}, whose settings are printed as asked")
    return NO_GAIN


def _check(args: argparse.Namespace, view: StudyView, config: Config, container: Container | None) -> int:
    """Print whether each part of the settings takes effect; return 1 if one does not."""
    from heapwright.platforms import INSIDE
    from heapwright.report.shipped_library import environment_inside, preloaded_libraries
    from heapwright.study.local_environment import all_spaces
    from heapwright.study.store import read_study, study_errors
    from heapwright.study.take_effect import effects_of
    from heapwright.workload.model import from_identity

    if view.recordings is not None:
        raise UsageError("--check needs the program, and a study of recordings has none", "leave it out")
    if not config.env:
        print("nothing to check: the default is kept")
        return 0
    with read_study(args.study) as store, study_errors(args.study):
        spaces = all_spaces(store.meta)
    studied = dict(view.workload)
    if container is not None:
        studied["container"] = {"image": container.image.name, "args": list(container.args)}
    workload = from_identity(studied)
    where = "on this machine"
    if workload.container is not None:
        image = workload.container.image
        where = f"in the image {image.name} ({image.digest[:19]})"
        if container is not None and not view.host.get("image"):  # tuned here: libraries move as --format docker says
            env = environment_inside(config.env, preloaded_libraries(config.env))
            config = dataclasses.replace(config, env=env)
            missing = [p for p in env.get("LD_PRELOAD", "").split(":") if p and not p.startswith(f"{INSIDE}/")]
            for path in missing:
                warn(f"{path} is not in the kit")
    found = effects_of(config, spaces, workload)
    for effect in found:
        state = {True: "takes effect", False: "does not take effect", None: "unknown effect"}[effect.works]
        print(f"{state} {where}: {visible(effect.text)}")
    return FAILED if any(effect.works is False for effect in found) else 0
