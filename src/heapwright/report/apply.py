"""The thing to paste, in the format of whatever starts the program. Every value is quoted for its format."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from typing import NamedTuple

from heapwright import __version__
from heapwright.allocators.registry import joined_variables
from heapwright.errors import HeapwrightError
from heapwright.experiment.configuration import Config


class _Shipped(NamedTuple):
    config: Config
    command: list[str]
    claim: str
    cwd: str


def _comment(claim: str) -> str:
    return f"# heapwright {__version__}: {' '.join(claim.split())}"


def _env(what: _Shipped) -> str:
    lines = [f"export {k}={shlex.quote(v)}" for k, v in what.config.env.items()]
    undo = f"# taken back: unset {' '.join(what.config.env)}"
    return "\n".join([_comment(what.claim), *lines, undo])


def _enter(cwd: str) -> list[str]:
    """The line of a script that goes to the directory the command was tuned in; none where that is not known.

    Words of the command may be relative to it. In a container or on another machine it may be missing.
    """
    where = shlex.quote(cwd)
    return [f"[ ! -d {where} ] || cd {where} || exit"] if cwd else []


def _shell(what: _Shipped) -> str:
    """A wrapper script. Other settings that stand in a joined variable stay; ours come last and win.

    Alone it runs the tuned command, in the directory where that was tuned.
    """
    joined = joined_variables()
    lines = ["#!/bin/sh", _comment(what.claim), "# Use: this-script COMMAND ARGS...; alone it runs the tuned command."]
    for key, value in what.config.env.items():
        if key in joined:
            lines.append(f'{key}="${{{key}:+${key}{joined[key]}}}"{shlex.quote(value)}')
        elif key == "LD_PRELOAD":  # the first library wins
            lines.append(f'{key}={shlex.quote(value)}"${{{key}:+:${key}}}"')
        else:
            lines.append(f"{key}={shlex.quote(value)}")
        lines.append(f"export {key}")
    command = shlex.join(what.command) if what.command else "true"
    lines.append(f"[ $# -gt 0 ] || {{ {''.join(f'{line}; ' for line in _enter(what.cwd))}set -- {command}; }}")
    lines.append('exec "$@"')
    return "\n".join(lines)


def systemd_quote(text: str) -> str:
    """A word in double quotes for a unit file: backslash and quote escaped, % doubled (systemd.syntax(7)).

    Control characters too: systemd ends a line at a carriage return as well.
    """
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    escaped = re.sub("[\x00-\x1f\x7f]", lambda m: "\\n" if m[0] == "\n" else f"\\x{ord(m[0]):02x}", escaped)
    return f'"{escaped}"'


def _systemd(what: _Shipped) -> str:
    lines = [f"Environment={systemd_quote(f'{k}={v}')}" for k, v in what.config.env.items()]
    head = "# /etc/systemd/system/NAME.service.d/heapwright.conf; then: systemctl daemon-reload"
    return "\n".join([_comment(what.claim), head, "[Service]", *lines])


def docker_quote(text: str) -> str:
    """A value in double quotes for a Dockerfile's ENV: backslash, quote and $ escaped.

    Raises:
        HeapwrightError: it holds a line break, which no escape can stand for and which would end the instruction.
    """
    if len(text.splitlines()) > 1 or text != text.rstrip("\r\n"):
        raise HeapwrightError("a Dockerfile cannot hold a value with a line break", "choose another --format")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{escaped}"'


def _docker(what: _Shipped) -> str:
    return "\n".join([_comment(what.claim), *(f"ENV {k}={docker_quote(v)}" for k, v in what.config.env.items())])


def _slurm(what: _Shipped) -> str:
    exports = [f"export {k}={shlex.quote(v)}" for k, v in what.config.env.items()]
    run = f"srun --export=ALL {shlex.join(what.command) or 'COMMAND'}"
    return "\n".join(["#!/bin/bash", "#SBATCH --export=ALL", _comment(what.claim), *exports, *_enter(what.cwd), run])


def _json(what: _Shipped) -> str:
    value = {
        "allocator": what.config.allocator,
        "settings": what.config.settings,
        "env": what.config.env,
        "claim": what.claim,
    }
    return json.dumps({"schema_version": 1, **value}, indent=1)


FORMATS: dict[str, Callable[[_Shipped], str]] = {
    "env": _env,
    "shell": _shell,
    "systemd": _systemd,
    "docker": _docker,
    "slurm": _slurm,
    "json": _json,
}


def render(config: Config, fmt: str, command: list[str], claim: str, cwd: str = "") -> str:
    """A configuration in one of `FORMATS`; for a default with nothing to set a comment that says to keep it.

    Args:
        cwd: the directory that the command was tuned in; empty where that is not known.
    """
    if config.is_default and not config.env and fmt not in ("json", "shell", "slurm"):
        return f"{_comment(claim)}\n# Nothing to set: keep the default."
    return FORMATS[fmt](_Shipped(config, command, claim, cwd))
