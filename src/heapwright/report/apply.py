"""Prints a configuration as a shell script, systemd unit, Dockerfile and other formats, with values quoted for each.

Formats for images name a preloaded library by its path in the image, and say which file to copy there.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from heapwright import SCHEMA_VERSION, __version__
from heapwright.allocators.huge_pages import with_library
from heapwright.allocators.registry import joined_variables
from heapwright.errors import HeapwrightError
from heapwright.interleaving.configuration import Config
from heapwright.platforms import INSIDE, KIT_NAME
from heapwright.report.shipped_library import ShippedLibrary, environment_inside, preloaded_libraries

_SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _Shipped(NamedTuple):
    """A configuration to print, with the tuned command, its directory (empty if unknown) and the claim.

    `own` are the variables that the workload sets for its command. `inside` are the configuration's variables in an
    image that has `libraries` at their paths there.
    """

    config: Config
    command: list[str]
    claim: str
    cwd: str
    libraries: list[ShippedLibrary]
    inside: dict[str, str]
    own: dict[str, str]


def _comment(claim: str) -> str:
    return f"# heapwright {__version__}: {' '.join(claim.split())}"


def _env(shipped: _Shipped) -> str:
    lines = [f"export {k}={shlex.quote(v)}" for k, v in shipped.config.env.items()]
    undo = f"# to undo: unset {' '.join(shipped.config.env)}"
    replaces = ["# This replaces an LD_PRELOAD that is set; --format shell keeps it."]
    notes = [*(replaces if "LD_PRELOAD" in shipped.config.env else []), undo]
    return "\n".join([_comment(shipped.claim), *lines, *notes])


def _enter(cwd: str) -> list[str]:
    """Return the line of a script that enters the directory of the tuned command; none if it is not known.

    Words of the command may be relative to that directory. In a container or on another machine it may be missing;
    then the script stays where it is.
    """
    directory = shlex.quote(cwd)
    return [f"[ ! -d {directory} ] || cd {directory} || exit"] if cwd else []


def _tuned(shipped: _Shipped) -> tuple[list[str], list[str]]:
    """Return the lines that prepare the tuned command (its directory and its own variables), and its words.

    A shell cannot export a variable whose name is none of its own (such as 'a.b'), but env(1) can.
    """
    exported = {name: value for name, value in shipped.own.items() if _SHELL_NAME.fullmatch(name)}
    others = [f"{name}={value}" for name, value in shipped.own.items() if name not in exported]
    lines = [f"export {name}={shlex.quote(value)}" for name, value in exported.items()]
    return [*_enter(shipped.cwd), *lines], [*(["env", *others] if others else []), *shipped.command]


def _exports(env: dict[str, str]) -> list[str]:
    """Return the lines of a script that export the variables.

    A variable that joins several settings keeps the user's; ours come last, so they take precedence.
    """
    joined = joined_variables()
    lines = []
    for key, value in env.items():
        if key in joined:
            lines.append(f'{key}="${{{key}:+${key}{joined[key]}}}"{shlex.quote(value)}')
        elif key == "LD_PRELOAD":  # the first library takes precedence
            lines.append(f'{key}={shlex.quote(value)}"${{{key}:+:${key}}}"')
        else:
            lines.append(f"{key}={shlex.quote(value)}")
        lines.append(f"export {key}")
    return lines


def _shell(shipped: _Shipped) -> str:
    """Return a wrapper script for any command.

    Without arguments it runs the tuned command in its directory with its own variables; if there is none, it prints
    its usage and fails. The settings come last: they are added to the values of the variables.
    """
    usage = "# Usage: this-script COMMAND ARGS..."
    if shipped.command:
        usage += "; without arguments it runs the tuned command."
        lines, words = _tuned(shipped)
        lines = [f"  {line}" for line in (*lines, f"set -- {shlex.join(words)}")]
        default = "\n".join(["if [ $# -eq 0 ]; then", *lines, "fi"])
    else:  # of a study of recordings
        default = '[ $# -gt 0 ] || { echo "usage: $0 COMMAND ARGS..." >&2; exit 2; }'
    head = ["#!/bin/sh", _comment(shipped.claim), usage]
    return "\n".join([*head, default, *_exports(shipped.config.env), 'exec "$@"'])


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


def _context_file(library: ShippedLibrary) -> str:
    """Return the library's file relative to the folder where an image is built."""
    return library.source if library.in_kit else Path(library.source).name


def _copy_lines(shipped: _Shipped) -> list[str]:
    """Return the lines of a Dockerfile that put the libraries into the image, with their sources in comments."""
    lines = []
    for library in shipped.libraries:
        lines.append(f"# {library.sentence}")
        if not library.in_kit:
            lines.append("# Copy it beside the Dockerfile. The image needs the libraries that it needs, see 'ldd'.")
        lines.append(f"COPY {json.dumps([_context_file(library), library.inside], ensure_ascii=False)}")
    return lines


def _docker(shipped: _Shipped) -> str:
    settings = [f"ENV {k}={docker_quote(v)}" for k, v in shipped.inside.items()]
    return "\n".join([_comment(shipped.claim), *_copy_lines(shipped), *settings])


def yaml_quote(text: str) -> str:
    """Return a text in double quotes for YAML. Characters that YAML may not contain are escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    escaped = re.sub(
        "[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]",
        lambda m: f"\\u{ord(m[0]):04x}",
        escaped,
    )
    return f'"{escaped}"'


def _compose(shipped: _Shipped) -> str:
    """Return a second file for Compose. Compose expands $, so each one is doubled."""
    lines = [
        _comment(shipped.claim),
        "# Save as heapwright.yml and write your service's name for 'app'; then:",
        "# docker compose -f compose.yml -f heapwright.yml up",
        *(f"# {library.sentence}" for library in shipped.libraries),
        "services:",
        "  app:",
        "    environment:",
        *(f"      {key}: {yaml_quote(value.replace('$', '$$'))}" for key, value in shipped.inside.items()),
    ]
    if shipped.libraries:
        lines.append("    volumes:")
    for library in shipped.libraries:
        source = library.source if library.source.startswith("/") else f"./{library.source}"
        lines += [
            "      - type: bind",
            f"        source: {yaml_quote(source.replace('$', '$$'))}",
            f"        target: {yaml_quote(library.inside.replace('$', '$$'))}",
            "        read_only: true",
        ]
    return "\n".join(lines)


def _kubernetes(shipped: _Shipped) -> str:
    """Return a patch of a Deployment.

    Kubernetes expands $(NAME) in values and reads $$ as one $, so each $ is doubled. A library comes from an init
    container that copies it into a volume.
    """
    # An image that has another library than the kit's is no image of the kit.
    name = KIT_NAME if all(library.in_kit for library in shipped.libraries) else "heapwright-library"
    image = f"{name}:{__version__}"
    lines = [
        _comment(shipped.claim),
        "# Write your container's name for 'app'; then: kubectl patch deployment NAME --patch-file THIS-FILE",
    ]
    if shipped.libraries:
        lines += [
            f"# The init container needs an image with the library, here called {image}. Push one to your registry,",
            "# made with:",
            "#   FROM busybox",
            *(f"#   {line}" for line in _copy_lines(shipped)),
            "# Or write the COPY line into your own image, and leave out initContainers, volumes and volumeMounts.",
        ]
    lines += ["spec:", "  template:", "    spec:"]
    if shipped.libraries:
        files = ", ".join(yaml_quote(library.inside) for library in shipped.libraries)
        lines += [
            "      initContainers:",
            "        - name: heapwright",
            f"          image: {image}",
            f'          command: ["cp", {files}, "/heapwright"]',
            "          volumeMounts:",
            "            - {name: heapwright, mountPath: /heapwright}",
        ]
    lines += ["      containers:", "        - name: app", "          env:"]
    for key, value in shipped.inside.items():
        lines += [f"            - name: {key}", f"              value: {yaml_quote(value.replace('$', '$$'))}"]
    if shipped.libraries:
        lines += [
            "          volumeMounts:",
            f"            - {{name: heapwright, mountPath: {INSIDE}/lib, readOnly: true}}",
            "      volumes:",
            "        - {name: heapwright, emptyDir: {}}",
        ]
    return "\n".join(lines)


def supervisord_quote(text: str) -> str:
    """Return a quoted value for `environment` of supervisord, whose quotes have no escapes.

    Raises:
        HeapwrightError: the value holds what supervisord cannot read.
    """
    quote = '"' if '"' not in text else "'"
    lines = len(text.splitlines()) > 1 or text != text.rstrip("\r\n")
    if lines or quote in text or text[:1] in ("'", '"') or text[-1:] in ("'", '"') or re.search(r"(^|\s)[;#]", text):
        raise HeapwrightError(
            f"supervisord cannot read the value {text!r}: it has a line break, quotes or a comment",
            "choose another --format",
        )
    return f"{quote}{text.replace('%', '%%')}{quote}"


def _supervisord(shipped: _Shipped) -> str:
    settings = ",".join(f"{key}={supervisord_quote(value)}" for key, value in shipped.config.env.items())
    return "\n".join(
        [
            _comment(shipped.claim),
            "# Add the line to [program:NAME], after settings of its own with a comma; then: supervisorctl update",
            *(f"# {library.copy_instruction}" for library in shipped.libraries),
            "[program:NAME]",
            f"environment={settings}",
        ]
    )


def _entrypoint(shipped: _Shipped) -> str:
    """Return a script that an image runs before its command, for one program of several in the image."""
    copies = [line if line.startswith("#") else f"#   {line}" for line in _copy_lines(shipped)]
    return "\n".join(
        [
            "#!/bin/sh",
            _comment(shipped.claim),
            "# Save as heapwright-entrypoint with mode 755. In the Dockerfile, before the entry point that it has:",
            *copies,
            '#   COPY ["heapwright-entrypoint", "/"]',
            '#   ENTRYPOINT ["/heapwright-entrypoint", "the entry point that the image has"]',
            *_exports(shipped.inside),
            'exec "$@"',
        ]
    )


def lua_quote(text: str) -> str:
    """Return a string of Lua in double quotes; control characters are escaped by three digits."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub("[\x00-\x1f\x7f]", lambda m: f"\\{ord(m[0]):03d}", escaped) + '"'


def _lmod(shipped: _Shipped) -> str:
    """Return a module file for Lmod, which undoes it at `module unload`."""
    lines = []
    for key, value in shipped.config.env.items():
        call = "prepend_path" if key == "LD_PRELOAD" else "setenv"
        lines.append(f'{call}("{key}", {lua_quote(value)})')
    name = Path(shipped.command[0]).name if shipped.command else "the program"
    return "\n".join(
        [
            f"--{_comment(shipped.claim)[1:]}",
            "-- Save as heapwright/NAME.lua in a folder of $MODULEPATH; then: module load heapwright/NAME",
            *(f"-- {library.copy_instruction}" for library in shipped.libraries),
            f"whatis({lua_quote(f'malloc settings for {name}')})",
            *lines,
        ]
    )


# Programs that start the tasks of a job by themselves: srun before them would start them once for each task.
_LAUNCHERS = {"srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "ibrun", "aprun", "jsrun"}
_WRAPPERS = {"env", "time", "nice", "ionice", "numactl", "stdbuf", "taskset", "timeout", "nohup", "setsid", "chrt"}


def _starts_tasks(command: Sequence[str]) -> bool:
    """Return whether a command is one of `_LAUNCHERS`, perhaps behind wrappers with their options and variables."""
    for word in command:
        name = Path(word).name
        if name in _LAUNCHERS:
            return True
        if name not in _WRAPPERS and not re.match(r"-|\d|\w+=", word):
            return False
    return False


def _slurm(shipped: _Shipped) -> str:
    exports = [f"export {k}={shlex.quote(v)}" for k, v in shipped.config.env.items()]
    lines, words = _tuned(shipped)
    run = f"{'' if _starts_tasks(shipped.command) else 'srun --export=ALL '}{shlex.join(words) or 'COMMAND'}"
    return "\n".join(["#!/bin/bash", "#SBATCH --export=ALL", _comment(shipped.claim), *lines, *exports, run])


def _json(shipped: _Shipped) -> str:
    value = {
        "allocator": shipped.config.allocator,
        "settings": shipped.config.settings,
        "env": shipped.config.env,
        "libraries": [
            {"path": x.path, "source": x.source, "in_kit": x.in_kit, "inside": x.inside, "sha256": x.sha256 or None}
            for x in shipped.libraries
        ],
        "claim": shipped.claim,
    }
    return json.dumps({"schema_version": SCHEMA_VERSION, **value}, indent=1)


FORMATS: dict[str, Callable[[_Shipped], str]] = {
    "env": _env,
    "shell": _shell,
    "systemd": _systemd,
    "docker": _docker,
    "compose": _compose,
    "kubernetes": _kubernetes,
    "supervisord": _supervisord,
    "entrypoint": _entrypoint,
    "lmod": _lmod,
    "slurm": _slurm,
    "json": _json,
}


def render_config(
    config: Config,
    fmt: str,
    command: list[str],
    claim: str,
    cwd: str = "",
    platform: str | None = None,
    own: Mapping[str, str] | None = None,
) -> str:
    """Return a configuration in one of `FORMATS`; for a default without settings, a comment that says to keep it.

    Args:
        config: the configuration.
        fmt: a key of `FORMATS`.
        command: the tuned command.
        claim: the sentence to print as a comment.
        cwd: the directory of the tuned command; empty if it is not known.
        platform: of the image in which the configuration was measured; None if it was measured on this machine.
        own: the variables that the workload sets for its command.
    """
    if config.is_default and not config.env and fmt not in ("json", "shell", "slurm", "entrypoint"):
        comment = _comment(claim)
        dash = "--" if fmt == "lmod" else "#"
        return f"{dash}{comment[1:]}\n{dash} Nothing to set: keep the default."
    config = dataclasses.replace(config, env=with_library(config.env, inside=platform is not None))
    libraries = preloaded_libraries(config.env, platform)
    inside = environment_inside(config.env, libraries)
    return FORMATS[fmt](_Shipped(config, command, claim, cwd, libraries, inside, dict(own or {})))
