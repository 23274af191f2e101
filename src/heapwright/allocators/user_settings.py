"""Checks whether settings given by the user, in the environment or with --set, take effect.

Allocators drop settings that they do not understand, most of them silently. glibc reads '128k' as 128, jemalloc drops
everything after the first malformed part, and a variable of another version has no effect. Each problem is one line:
the setting, its effect, and what to write instead. For glibc the valid range is in its space file (`accepts`) and the
loader is asked; other allocators are asked themselves (`library_report`).
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Mapping, Sequence

from heapwright.allocators.glibc_tunables import find_loader, list_tunables
from heapwright.allocators.library_report import ask_library, known_keys
from heapwright.allocators.registry import (
    Allocator,
    bundled_names,
    bundled_space,
    find_allocators,
    glibc_version,
    upstream_version,
)
from heapwright.allocators.runtime_settings import runtime_problems
from heapwright.allocators.space_spec import ParamSpec, SpaceFile, variable_of, version_trouble
from heapwright.errors import UsageError

_UNITS = {"k": 10, "m": 20, "g": 30}
_JEMALLOC_PAIR = re.compile(r"[A-Za-z0-9_]+:[^,]*")


def environment_problems(
    env: Mapping[str, str], allocators: Iterable[Allocator] | None = None, program: str | None = None
) -> list[str]:
    """Return a line for each setting of malloc or of a runtime in this environment that will not take effect.

    Args:
        env: the whole environment the target gets.
        allocators: those that will run; default: all found here.
        program: the target, whose loader is asked; default: any.
    """
    of_runtime = runtime_problems(env, program)
    if not any(name.startswith(_variable_prefixes()) or name.endswith("MALLOC_CONF") for name in env):
        return of_runtime  # the usual case, and looking for libraries takes a moment
    every = find_allocators().values() if allocators is None else allocators
    found = list({a.path: a for a in reversed(list(every))}.values())[::-1]  # each library once, variants aside
    lines = _glibc_problems(env, program, glibc_version() or "") if glibc_version() else []
    lines += _jemalloc_problems(env, [a for a in found if a.file.allocator.probe == "jemalloc"])
    for name in ("mimalloc", "tcmalloc", "tbbmalloc"):
        lines += _variable_problems(env, bundled_space(name), [a for a in found if _env(a) == _env_of(name)])
    for allocator in found:
        if allocator.file.allocator.probe == "complaint" and env.get(_env(allocator)):
            lines += ask_library(allocator.file.allocator, env).complaints
    return list(dict.fromkeys([*lines, *of_runtime]))


def check_settings(allocator: Allocator, settings: Mapping[str, str], env: Mapping[str, str]) -> None:
    """Checks settings given with --set.

    Args:
        settings: as given: keys of the allocator's space, or variables.
        env: the whole environment that makes them so.

    Raises:
        UsageError: one will not take effect as it stands.
    """
    written = {variable_of(allocator.file.allocator, s) for s in allocator.file.param if s.key in settings}
    touched = {name: value for name, value in env.items() if name in written or name in settings}
    problems = environment_problems(touched, [allocator])
    if problems:
        raise UsageError(f"--set: {problems[0]}")


def _variable_prefixes() -> tuple[str, ...]:
    """Return the prefixes of the variables that allocators read."""
    return ("MALLOC_", *(bundled_space(name).allocator.env.partition("{")[0] for name in bundled_names()))


def _env(allocator: Allocator) -> str:
    return allocator.file.allocator.env


def _env_of(space: str) -> str:
    return bundled_space(space).allocator.env


# glibc


def _glibc_problems(env: Mapping[str, str], program: str | None, version: str) -> list[str]:
    """GLIBC_TUNABLES, and the older variables."""
    file = bundled_space("glibc")
    specs = {s.key: s for s in file.param if not version_trouble(s, version)}
    lines = [f"GLIBC_TUNABLES: {line}" for line in tunables_problems(env.get("GLIBC_TUNABLES", ""), version)]
    text = env.get("GLIBC_TUNABLES", "")
    loader = find_loader(program or sys.executable) if text else None
    listed = list_tunables(loader, {"GLIBC_TUNABLES": text}) if loader else {}
    for part in filter(None, text.split(":") if listed else []):
        name, _, value = part.partition("=")
        if any(part in line for line in lines) or name != name.strip():
            continue
        if name not in listed:
            close = difflib.get_close_matches(name, listed, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            lines.append(f"GLIBC_TUNABLES: {name}: glibc {version} has no such setting and says nothing{hint}")
        elif _number(value) is not None and listed[name] != _number(value) and _last(text, name) == value:
            lines.append(f"GLIBC_TUNABLES: {part} does not take effect: the loader says {listed[name]}")
    aliases = {s.alias: s for s in specs.values() if s.alias}
    for variable, value in env.items():
        if variable in aliases:
            spec = aliases[variable]
            trouble = _value_trouble(variable, value, spec, version)
            beaten = f"glibc.malloc.{spec.key}="
            if trouble:
                lines.append(trouble)
            elif any(part.startswith(beaten) for part in text.split(":")):
                lines.append(f"{variable}={value} does nothing: GLIBC_TUNABLES sets {spec.key} too, and wins")
        else:
            meant = next((a for a in aliases if a in (variable + "_", variable.rstrip("_"))), None)
            if meant:
                lines.append(f"no glibc reads {variable}; did you mean {meant}?")
    return lines


def tunables_problems(text: str, version: str) -> list[str]:
    """Return a line for each setting of malloc in GLIBC_TUNABLES that glibc of this version ignores or changes."""
    every = {s.key: s for s in bundled_space("glibc").param}
    specs = {s.key: s for s in bundled_space("glibc").param if not version_trouble(s, version)}
    lines = []
    for part in filter(None, text.split(":")):
        name, equals, value = part.partition("=")
        key = name.removeprefix("glibc.malloc.")
        if not equals:
            lines.append(f"'{part}' is not name=value; glibc drops it and says nothing")
        elif name != name.strip():
            lines.append(f"'{part}': with a space before or after the name glibc drops it and says nothing")
        elif key == name:
            continue
        elif key not in specs and key in every:
            needs = every[key].requires
            why = f"needs {needs.since}" if needs.since else f"does nothing since {needs.before}"
            lines.append(f"{part} is ignored: it {why}, here is glibc {version}")
        elif key in specs:
            trouble = _value_trouble(name, value, specs[key], version)
            lines += [trouble] if trouble else []
    return lines


def _last(text: str, name: str) -> str | None:
    values = [part.partition("=")[2] for part in text.split(":") if part.partition("=")[0] == name]
    return values[-1] if values else None


def _number(text: str) -> int | None:
    """A number as glibc reads it whole: decimal, 0x…, 0…; None for anything else."""
    match = re.fullmatch(r"([-+]?)(0[xX][0-9a-fA-F]{1,40}|0[0-7]{0,40}|[1-9][0-9]{0,40})", text)
    if match is None:
        return None
    digits = match[2]
    base = 16 if digits[:2].lower() == "0x" else 8 if digits[0] == "0" else 10
    return int(digits, base) * (-1 if match[1] == "-" else 1)


def _value_trouble(name: str, value: str, spec: ParamSpec, version: str) -> str:
    """Return what is wrong with a number for glibc, or empty.

    Args:
        name: the setting or variable, for the message.
        value: its text.
        spec: the parameter.
        version: the glibc version, for the message.
    """
    number = _number(value)
    if number is None:
        read = re.match(r"\d+", value)
        meant = _with_unit(value)
        write = f"; write {meant}" if meant is not None else "; write a plain number"
        if not read:
            return f"{name}={value} is not a number: glibc takes 0 or drops it, and says nothing{write}"
        return f"{name}={value} is read as {read[0]}, or dropped: glibc knows no unit letters{write}"
    low, high = spec.accepts or (None, None)
    if low is not None and high is not None and not low <= number <= high:
        top = "" if high >= 2**31 - 1 else f" to {high}"
        return f"{name}={value}: glibc {version} takes {low}{top or ' and more'} and ignores the rest in silence"
    return ""


def _with_unit(text: str) -> int | None:
    """'128k', '128 KiB', '4MB' → bytes."""
    match = re.fullmatch(r"(\d{1,40})\s*([kKmMgG])(i?[bB])?", text.strip())
    return int(match[1]) << _UNITS[match[2].lower()] if match else None


# jemalloc


def _jemalloc_problems(env: Mapping[str, str], found: Sequence[Allocator]) -> list[str]:
    names = {_env(a) for a in found} or {_env_of("jemalloc")}
    lines = [f"{name}: {line}" for name in sorted(names) for line in conf_problems(env.get(name, ""))]
    for name in sorted(
        n for n in env if n.endswith("MALLOC_CONF") and n not in names and any(a.embedded for a in found)
    ):
        lines.append(f"{name} is ignored: the jemalloc in this program reads {', '.join(sorted(names))}")
    if lines:
        return lines
    for allocator in found:
        name = _env(allocator)
        text = env.get(name, "")
        if not text:
            continue
        answer = ask_library(allocator.file.allocator, {name: text})
        who = f"jemalloc {answer.version}" if answer.version else allocator.name
        for complaint in answer.complaints:
            what, _, pair = complaint.partition(": ")
            key, _, value = pair.partition(":")
            close = difflib.get_close_matches(key, answer.values, 1)
            if what == "Invalid conf pair" and key not in answer.values:
                hint = f"; did you mean {close[0]}?" if close else ""
                lines.append(f"{name}: {pair} is ignored: {who} has no setting '{key}'{hint}")
            elif what.endswith("conf value"):
                meant = _with_unit(value)
                hint = f"; write {meant}" if meant is not None else ""
                lines.append(f"{name}: {pair} is ignored: {who} does not take this value{hint}")
            elif what != "Malformed conf string":
                lines.append(f"{name}: {who} says: {complaint}")
        last = dict(part.split(":", 1) for part in text.split(","))
        for key, value in last.items():
            real = answer.values.get(key, value)
            if real != value and value.lstrip("-").isdecimal() and not any(f"{key}:" in x for x in answer.complaints):
                lines.append(f"{name}: {key}:{value} becomes {real} in {who}")
    return lines


def conf_problems(text: str) -> list[str]:
    """Return where jemalloc stops reading MALLOC_CONF, and which settings it thereby drops."""
    parts = text.split(",") if text else []
    for number, part in enumerate(parts):
        if _JEMALLOC_PAIR.fullmatch(part):
            continue
        if not part and number == len(parts) - 1:
            return ["it ends with a comma: remove it"]
        rest = ",".join(parts[number + 1 :])
        lost = f" and all that follows ({rest})" if rest else ""
        key, equals, value = part.strip().partition("=")
        write = f"{key.strip()}:{value.strip()}" if equals else part.strip() if ":" in part else "key:value"
        return [f"'{part}' is not key:value; jemalloc drops it{lost}: write {write}"]
    return []


# mimalloc, tcmalloc, tbbmalloc: a variable for each setting


def _variable_problems(env: Mapping[str, str], file: SpaceFile, found: Sequence[Allocator]) -> list[str]:
    start = file.allocator.env.partition("{")[0]
    specs = {s.key: s for s in file.param}
    lines = []
    for variable in sorted(name for name in env if name.startswith(start)):
        key, value = variable.removeprefix(start).lower(), env[variable]
        knowing = {a.name: known_keys(a.file.allocator) for a in found}
        without = [a for a in found if (keys := knowing[a.name]) is not None and key not in keys]
        if without or (key not in specs and not any(knowing.values())):
            every = {k for keys in knowing.values() for k in keys or ()} | set(specs)
            close = difflib.get_close_matches(key, every - {key}, 1)
            hint = f"; did you mean {start}{close[0].upper()}?" if close and len(without) == len(found) else ""
            who = " and ".join(f"{a.name} {upstream_version(a.version or '')}".strip() for a in without)
            verb = "have" if " and " in who else "has"
            lines.append(
                f"{variable}={value} is ignored: {who or file.allocator.name} {verb} no such setting, and"
                f" say{'' if ' and ' in who else 's'} nothing{hint}"
            )
            continue
        spec = specs.get(key)
        if spec is not None:
            lines += _plain_trouble(variable, value, spec, file, env)
        for allocator in found if file.allocator.probe == "mimalloc" else []:
            if any(f"mimalloc_{key} " in text for text in ask_library(allocator.file.allocator, env).complaints):
                lines.append(f"{variable}={value} is ignored: {allocator.name} does not take this value")
    return lines


def _plain_trouble(variable: str, value: str, spec: ParamSpec, file: SpaceFile, env: Mapping[str, str]) -> list[str]:
    if spec.type == "int" and file.allocator.probe != "mimalloc" and not re.fullmatch(r"-?\d+", value):
        meant = _with_unit(value)
        write = f"write {meant}" if meant is not None else "write a plain number"
        return [f"{variable}={value} is read up to its first letter: {file.allocator.name} knows no units; {write}"]
    if spec.accepts and re.fullmatch(r"-?\d{1,40}", value) and not spec.accepts[0] <= int(value) <= spec.accepts[1]:
        low, high = spec.accepts
        return [f"{variable}={value} is clamped to the range {low} to {high}"]
    for other, spoilt in spec.unless.items():
        against = next(variable_of(file.allocator, s) for s in file.param if s.key == other)
        if env.get(against, "") in map(str, spoilt):
            hazard = f" ({spec.hazard})" if spec.hazard else ""
            return [
                f"{variable}={value} must not stand beside {against}={env[against]}, or means nothing there{hazard}"
            ]
    return []
