"""Prints a configuration as a shell script, systemd unit, Dockerfile and other formats, with values quoted for each."""

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
    """A configuration to print, with the tuned command, its directory (empty if unknown) and the claim."""

    config: Config
    command: list[str]
    claim: str
    cwd: str


def _comment(claim: str) -> str:
    return f"# heapwright {__version__}: {' '.join(claim.split())}"


def _env(shipped: _Shipped) -> str:
    lines = [f"export {k}={shlex.quote(v)}" for k, v in shipped.config.env.items()]
    undo = f"# to undo: unset {' '.join(shipped.config.env)}"
    return "\n".join([_comment(shipped.claim), *lines, undo])


def _enter(cwd: str) -> list[str]:
    """Return the line of a script that enters the directory of the tuned command; none if it is not known.

    Words of the command may be relative to that directory. In a container or on another machine it may be missing;
    then the script stays where it is.
    """
    directory = shlex.quote(cwd)
    return [f"[ ! -d {directory} ] || cd {directory} || exit"] if cwd else []


def _shell(shipped: _Shipped) -> str:
    """Return a wrapper script for any command.

    Without arguments the script runs the tuned command in its directory. A variable that joins several settings keeps
    the user's; ours come last, so they take precedence.
    """
    joined = joined_variables()
    lines = [
        "#!/bin/sh",
        _comment(shipped.claim),
        "# Usage: this-script COMMAND ARGS...; without arguments it runs the tuned command.",
    ]
    for key, value in shipped.config.env.items():
        if key in joined:
            lines.append(f'{key}="${{{key}:+${key}{joined[key]}}}"{shlex.quote(value)}')
        elif key == "LD_PRELOAD":  # the first library takes precedence
            lines.append(f'{key}={shlex.quote(value)}"${{{key}:+:${key}}}"')
        else:
            lines.append(f"{key}={shlex.quote(value)}")
        lines.append(f"export {key}")
    command = shlex.join(shipped.command) if shipped.command else "true"
    lines.append(f"[ $# -gt 0 ] || {{ {''.join(f'{line}; ' for line in _enter(shipped.cwd))}set -- {command}; }}")
    lines.append('exec "$@"')
    return "\n".join(lines)


def systemd_quote(text: str) -> str:
    """Return a word in double quotes for a unit file (systemd.syntax(7)).

    Backslashes, quotes and control characters are escaped, % is doubled. systemd ends a line at a carriage return too.
    """
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    escaped = re.sub("[\x00-\x1f\x7f]", lambda m: "\\n" if m[0] == "\n" else f"\\x{ord(m[0]):02x}", escaped)
    return f'"{escaped}"'


def _systemd(shipped: _Shipped) -> str:
    lines = [f"Environment={systemd_quote(f'{k}={v}')}" for k, v in shipped.config.env.items()]
    head = "# /etc/systemd/system/NAME.service.d/heapwright.conf; then: systemctl daemon-reload"
    return "\n".join([_comment(shipped.claim), head, "[Service]", *lines])


def docker_quote(text: str) -> str:
    """Return a value in double quotes for a Dockerfile's ENV, with backslashes, quotes and $ escaped.

    Raises:
        HeapwrightError: the value has a line break, which ends an instruction and which a Dockerfile cannot escape.
    """
    if len(text.splitlines()) > 1 or text != text.rstrip("\r\n"):
        raise HeapwrightError("a Dockerfile cannot hold a value with a line break", "choose another --format")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{escaped}"'


def _docker(shipped: _Shipped) -> str:
    return "\n".join([_comment(shipped.claim), *(f"ENV {k}={docker_quote(v)}" for k, v in shipped.config.env.items())])


def _slurm(shipped: _Shipped) -> str:
    exports = [f"export {k}={shlex.quote(v)}" for k, v in shipped.config.env.items()]
    run = f"srun --export=ALL {shlex.join(shipped.command) or 'COMMAND'}"
    return "\n".join(
        ["#!/bin/bash", "#SBATCH --export=ALL", _comment(shipped.claim), *exports, *_enter(shipped.cwd), run]
    )


def _json(shipped: _Shipped) -> str:
    value = {
        "allocator": shipped.config.allocator,
        "settings": shipped.config.settings,
        "env": shipped.config.env,
        "claim": shipped.claim,
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
    """Return a configuration in one of `FORMATS`; for a default without settings, a comment that says to keep it.

    Args:
        config: the configuration.
        fmt: a key of `FORMATS`.
        command: the tuned command.
        claim: the sentence to print as a comment.
        cwd: the directory of the tuned command; empty if it is not known.
    """
    if config.is_default and not config.env and fmt not in ("json", "shell", "slurm"):
        return f"{_comment(claim)}\n# Nothing to set: keep the default."
    return FORMATS[fmt](_Shipped(config, command, claim, cwd))
