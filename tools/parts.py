"""Runs named parts, each of them a command, and goes on where it stopped: torture.py and results.py use it.

STATE, a JSON file, keeps the result, the time and the commit of each part. A part that passed at this commit is not run
again. A part that failed runs again. The output of a part is in LOGS/PART.log. At the end comes a table of all parts
with result, time, duration and findings; it is kept beside STATE as Markdown. A part that has not run at this commit is
in the table as such.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOTHING_COLLECTED = 5  # pytest's exit status if no test is selected
INCOMPLETE = 3  # our exit status if parts have not run


@dataclass(frozen=True)
class Part:
    """A part.

    Attributes:
        name: its name in the table and of its log.
        words: the command.
        limit: the time limit in seconds.
        may_be_empty: whether pytest may select no test: the folder has no long test.
        output: the file that gets the standard output instead of the log.
    """

    name: str
    words: tuple[str, ...]
    limit: float = 3600
    may_be_empty: bool = False
    output: Path | None = None


@dataclass(frozen=True)
class Result:
    """How a part ended at a commit.

    Attributes:
        outcome: passed, failed, too long or interrupted.
        commit: the commit, with a hash of uncommitted changes.
        began: seconds since 1970.
        seconds: elapsed time.
        found: counts of tests from its output, or the last line.
    """

    outcome: str
    commit: str
    began: float
    seconds: float
    found: str


def commit(root: Path = ROOT, paths: Sequence[str] = (".",)) -> str:
    """The last commit that changed the paths, with a hash of uncommitted changes to them, if there are any."""

    def git(*words: str) -> bytes:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, check=True).stdout

    head = git("log", "-1", "--format=%h", "--abbrev=12", "--", *paths).decode().strip()
    names = git("ls-files", "--others", "--exclude-standard", "-z", "--", *paths).split(b"\0")[:-1]
    changes = git("diff", "HEAD", "--binary", "--", *paths) + b"".join(
        name + b"\0" + path.read_bytes() for name in names if (path := root / os.fsdecode(name)).is_file()
    )
    return f"{head}+{hashlib.sha256(changes).hexdigest()[:8]}" if changes else head


def load(path: Path) -> dict[str, Result]:
    """Reads the stored results; there are none if the file is missing."""
    if not path.exists():
        return {}
    return {name: Result(**one) for name, one in json.loads(path.read_text())["parts"].items()}


def store(path: Path, results: Mapping[str, Result]) -> None:
    """Writes the results as a whole file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    content = {"schema_version": 1, "parts": {name: asdict(one) for name, one in results.items()}}
    draft.write_text(json.dumps(content, indent=1) + "\n")
    draft.replace(path)


def found(text: str) -> str:
    """Returns the counts of pytest and ctest in an output, else its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [
        line.strip("= ").split(" in ")[0]
        for line in lines
        if re.match(r"(=+ )?\d+ (passed|failed|skipped|error|deselected)", line) or "tests passed," in line
    ]
    told += [line.split(". Only")[0] for line in lines if line.startswith("skipped for a missing package")]
    return "; ".join(told) or (lines[-1][:200] if lines else "no output")


def run(part: Part, at: str, log: Path) -> Result:
    """Runs a part to its end in a process group of its own. SIGTERM stops it, as SIGINT does.

    Args:
        part: the part.
        at: the commit.
        log: the file that gets the output.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    began, clock = time.time(), time.monotonic()
    handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    for file in (log, part.output or log):
        file.write_bytes(b"")
    with log.open("ab") as errors, (part.output or log).open("ab") as output:
        process = subprocess.Popen(
            part.words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
        )
        try:
            status = process.wait(part.limit)
            good = status == 0 or (part.may_be_empty and status == NOTHING_COLLECTED)
            outcome = "passed" if good else "failed"
        except subprocess.TimeoutExpired:
            outcome = "too long"
        except KeyboardInterrupt:
            outcome = "interrupted"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            signal.signal(signal.SIGTERM, handler)
    text = log.read_text(errors="replace")
    nothing = outcome == "passed" and part.may_be_empty and process.returncode == NOTHING_COLLECTED
    said = "no long test in this folder" if nothing else found(text)
    return Result(outcome, at, began, round(time.monotonic() - clock, 1), said)


def table(tool: str, every: list[Part], results: Mapping[str, Result], at: str) -> Iterator[str]:
    """Yields the lines of the Markdown table of all parts at a commit."""
    yield f"`make {tool}` at {at}:"
    yield ""
    yield "| part | result | began (UTC) | seconds | found |"
    yield "|---|---|---|---|---|"
    total = 0.0
    for part in every:
        one = results.get(part.name)
        if one is None or one.commit != at:
            when = f"; last at {one.commit}: {one.outcome}" if one else ""
            yield f"| {part.name} | not run{when} | | | |"
            continue
        total += one.seconds
        began = time.strftime("%Y-%m-%d %H:%M", time.gmtime(one.began))
        yield f"| {part.name} | {one.outcome} | {began} | {one.seconds:.0f} | {one.found.replace('|', '/')} |"
    here = [one for part in every if (one := results.get(part.name)) and one.commit == at]
    passed = sum(one.outcome == "passed" for one in here)
    yield ""
    yield f"{passed} of {len(every)} parts passed, {len(every) - len(here)} not run; {total / 60:.0f} minutes."


def run_parts(
    description: str, every: list[Part], at: str, state: Path, logs: Path, passed: Callable[[Part], None] | None = None
) -> int:
    """Runs the parts that the command line names and that have not passed yet.

    Args:
        description: one sentence on the tool, for its help.
        every: all parts in their order.
        at: the commit.
        state: the file of results; its name is the name of the tool and of the make target.
        logs: the folder for the output of the parts.
        passed: is called after a part has passed.

    Returns:
        The exit status: 0 if every part passed, 1 if one failed, INCOMPLETE if parts have not run.
    """
    tool = state.stem
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("part", nargs="*", help="run these parts only")
    parser.add_argument("--list", action="store_true", help="print the table of stored results and run nothing")
    parser.add_argument("--again", action="store_true", help="run parts that passed at this commit again")
    parser.add_argument("--stop-after", type=float, metavar="SECONDS", help="begin no further part after this time")
    args = parser.parse_args()
    unknown = set(args.part) - {part.name for part in every}
    if unknown:
        parser.error(f"unknown part: {', '.join(sorted(unknown))}; --list names all")
    clock = time.monotonic()
    results = load(state)
    for part in every if not args.list else []:
        last = results.get(part.name)
        if args.part and part.name not in args.part:
            continue
        if last and last.commit == at and last.outcome == "passed" and not args.again:
            continue
        if args.stop_after is not None and time.monotonic() - clock > args.stop_after:
            break
        print(f"{tool}: {part.name}: {' '.join(part.words)}", file=sys.stderr, flush=True)
        results[part.name] = result = run(part, at, logs / f"{part.name}.log")
        if result.outcome == "passed" and passed:
            passed(part)  # before the result is stored: if it fails, the part runs again
        store(state, results)
        print(f"{tool}: {part.name}: {result.outcome}, {result.seconds:.0f} s: {result.found}", file=sys.stderr)
        if result.outcome == "interrupted":
            break
    lines = list(table(tool, every, results, at))
    if not args.list:
        draft = state.with_name(f".{tool}.md.{os.getpid()}")
        draft.write_text("\n".join(lines) + "\n")
        draft.replace(state.with_suffix(".md"))
    print("\n".join(lines))
    here = [one.outcome if (one := results.get(part.name)) and one.commit == at else "" for part in every]
    if any(outcome and outcome != "passed" for outcome in here):
        return 1
    return 0 if all(here) else INCOMPLETE
