"""Runs every test that `make test` leaves out, in parts that each resume: `make torture` calls it.

    .venv/bin/python tools/torture.py [PART…] [--list] [--again] [--stop-after SECONDS]

A part is one make target or one run of pytest. build/torture.json keeps the result, the time and the commit of each
part. A part that passed at this commit is not run again; after an interruption the tool goes on with the part that was
under way. A part that failed runs again. A commit with changes that are not committed is another commit.

At the end the tool prints a table of all parts with result, time, duration and findings. It writes the table to
build/torture.md too, and the output of a part to build/torture/PART.log. A part that has not run at this commit is in
the table as such. The exit status is 0 if every part passed, 1 if one failed, 3 if parts have not run.
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
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
STATE = ROOT / "build/torture.json"
LOGS = ROOT / "build/torture"
TEST = (sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "--long")
# Property tests try more examples in the long form; Hypothesis marks them.
MORE = "long or hypothesis"
NOTHING_COLLECTED = 5  # pytest's exit status if no test is selected
INCOMPLETE = 3  # our exit status if parts have not run
FUZZ_SECONDS = os.environ.get("HEAPWRIGHT_FUZZ_SECONDS", "60")


@dataclass(frozen=True)
class Part:
    """A part of `make torture`.

    Attributes:
        name: its name in the table and of its log.
        words: the command.
        limit: the time limit in seconds.
        may_be_empty: whether pytest may select no test: the folder has no long test.
    """

    name: str
    words: tuple[str, ...]
    limit: float = 3600
    may_be_empty: bool = False


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


def parts(root: Path = ROOT) -> list[Part]:
    """All parts in their order. Every folder of tests is in one, so that no new folder is left out."""
    made = [Part(f"sanitize-all-{one}", ("make", f"sanitize-all-{one}")) for one in ("memory", "thread", "trap")]
    made += [Part(f"sanitize-python-{one}", ("make", f"sanitize-python-{one}")) for one in ("memory", "trap")]
    made.append(Part("analyze", ("make", "analyze")))
    for path in sorted(root.glob("tests/torture/test_*.py")):
        limit = 7200 if path.stem == "test_programs" else 3600
        made.append(Part(f"torture-{path.stem.removeprefix('test_')}", (*TEST, str(path.relative_to(root))), limit))
    made.append(Part("fuzz", (sys.executable, "tools/fuzz.py", "--seconds", FUZZ_SECONDS), 4 * 3600))
    made.append(Part("docs-commands", (*TEST, "tests/docs/test_running.py")))
    # All of tests/allocators, because `make peers` has installed allocators that `make test` may lack.
    made.append(Part("allocators", (*TEST, "tests/allocators")))
    for folder in sorted(path for path in root.glob("tests/*") if any(path.rglob("test_*.py"))):
        if folder.name in ("torture", "allocators"):
            continue
        less = ("--ignore", "tests/docs/test_running.py") if folder.name == "docs" else ()
        made.append(Part(f"long-{folder.name}", (*TEST, "-m", MORE, f"tests/{folder.name}", *less), 3600, True))
    single = tuple(str(path.relative_to(root)) for path in sorted(root.glob("tests/test_*.py")))
    made.append(Part("long-other", (*TEST, "-m", MORE, *single), 3600, True))
    return made


def commit(root: Path = ROOT) -> str:
    """The commit of the checkout, with a hash of the changes to it, if there are any."""

    def git(*words: str) -> bytes:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, check=True).stdout

    head = git("rev-parse", "--short=12", "HEAD").decode().strip()
    names = git("ls-files", "--others", "--exclude-standard", "-z").split(b"\0")[:-1]
    changes = git("diff", "HEAD", "--binary") + b"".join(
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
    """Runs a part to its end in a process group of its own.

    Args:
        part: the part.
        at: the commit.
        log: the file that gets the output.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    began, clock = time.time(), time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            part.words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
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
    text = log.read_text(errors="replace")
    nothing = outcome == "passed" and part.may_be_empty and process.returncode == NOTHING_COLLECTED
    said = "no long test in this folder" if nothing else found(text)
    return Result(outcome, at, began, round(time.monotonic() - clock, 1), said)


def table(every: list[Part], results: Mapping[str, Result], at: str) -> Iterator[str]:
    """Yields the lines of the Markdown table of all parts at a commit."""
    yield f"`make torture` at {at}:"
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


def main() -> int:
    """Runs the parts that have not passed yet, and returns the exit status."""
    every = parts()
    parser = argparse.ArgumentParser(description="Runs every test that make test leaves out, in resumable parts.")
    parser.add_argument("part", nargs="*", help="run these parts only")
    parser.add_argument("--list", action="store_true", help="print the table of stored results and run nothing")
    parser.add_argument("--again", action="store_true", help="run parts that passed at this commit again")
    parser.add_argument("--stop-after", type=float, metavar="SECONDS", help="begin no further part after this time")
    args = parser.parse_args()
    unknown = set(args.part) - {part.name for part in every}
    if unknown:
        parser.error(f"unknown part: {', '.join(sorted(unknown))}; --list names all")
    at, clock = commit(), time.monotonic()
    results = load(STATE)
    for part in every if not args.list else []:
        last = results.get(part.name)
        if args.part and part.name not in args.part:
            continue
        if last and last.commit == at and last.outcome == "passed" and not args.again:
            continue
        if args.stop_after is not None and time.monotonic() - clock > args.stop_after:
            break
        print(f"torture: {part.name}: {' '.join(part.words)}", file=sys.stderr, flush=True)
        results[part.name] = result = run(part, at, LOGS / f"{part.name}.log")
        store(STATE, results)
        print(f"torture: {part.name}: {result.outcome}, {result.seconds:.0f} s: {result.found}", file=sys.stderr)
        if result.outcome == "interrupted":
            break
    lines = list(table(every, results, at))
    if not args.list:
        draft = STATE.with_name(f".torture.md.{os.getpid()}")
        draft.write_text("\n".join(lines) + "\n")
        draft.replace(STATE.with_suffix(".md"))
    print("\n".join(lines))
    here = [one.outcome if (one := results.get(part.name)) and one.commit == at else "" for part in every]
    if any(outcome and outcome != "passed" for outcome in here):
        return 1
    return 0 if all(here) else INCOMPLETE


if __name__ == "__main__":
    sys.exit(main())
