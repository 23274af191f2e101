"""Fuzzes the harnesses of tests/torture/fuzz, and keeps their corpora and a table: `make fuzz` calls it.

    .venv/bin/python tools/fuzz.py [HARNESS…] [--seconds N] [--minimise] [--cover] [--list]

Each harness runs for N seconds (60), and as many at a time as there are processors: the native ones by libFuzzer with
sanitizers, the Python ones by atheris. New inputs are kept in build/fuzz/corpus/HARNESS, and the next call goes on from
there. The sums of all calls are in build/fuzz/totals.json, and as a Markdown table in build/fuzz.md: seconds,
executions, edges that the corpus reaches, findings. An input that breaks something is kept in
build/fuzz/findings/HARNESS; the exit status is then 1.

    --minimise  reduces each native corpus to a small set of inputs with the same edges, and replaces the one in
                tests/torture/corpora by it
    --cover     runs the corpora through harnesses built for llvm-cov, adds the share of lines to the table, and lists
                the functions that no harness reaches in build/fuzz/unreached.txt
    --list      prints the harnesses
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "tests/torture/fuzz"
CORPORA = ROOT / "tests/torture/corpora"
FOLDER = ROOT / "build/fuzz"
COVERED = ROOT / "build/fuzz-coverage"
TABLE = ROOT / "build/fuzz.md"
MAX_SEEDS = 80  # inputs of a minimised corpus; with more, `make test` takes longer
MAX_BYTES = 4096  # of an input of a minimised corpus
# From a small process, because a fuzzer inherits its peak of memory from its parent, and its limit
# counts that.
SHELL = ("sh", "-c", '"$@"; exit $?', "sh")
LIMITS = ("-timeout=120", "-rss_limit_mb=3000", "-max_len=20000", "-print_final_stats=1")


@dataclass(frozen=True)
class Total:
    """The sums of a harness over all calls.

    Attributes:
        seconds: elapsed time of fuzzing.
        executions: number of inputs tried.
        edges: edges of the instrumented code that the corpus reaches, as the fuzzer counts them.
        findings: number of inputs that broke something.
        covered: lines that the corpus reaches, or None if --cover has not run or cannot.
        lines: lines of the sources that the harness is about.
    """

    seconds: float = 0
    executions: int = 0
    edges: int = 0
    findings: int = 0
    covered: int | None = None
    lines: int | None = None


def native() -> list[str]:
    """The native harnesses, as the build knows them."""
    text = (SOURCE / "CMakeLists.txt").read_text()
    return " ".join(re.findall(r"^set\((?:HEAP_)?HARNESSES ([\w ]+)\)", text, re.MULTILINE)).split()


def python() -> list[str]:
    """The Python harnesses."""
    sys.path.insert(0, str(ROOT))
    from tests.torture.fuzz.targets import TARGETS

    return list(TARGETS)


def build(folder: Path, names: list[str], *options: str) -> None:
    """Builds native harnesses.

    Args:
        folder: the build folder.
        names: the harnesses.
        options: more for CMake.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "build.log"
    targets = [word for name in names for word in ("--target", f"fuzz_{name}")]
    with log.open("wb") as output:
        for words in (
            ["cmake", "-S", str(SOURCE), "-B", str(folder), "-DCMAKE_CXX_COMPILER=clang++", *options],
            ["cmake", "--build", str(folder), "-j", str(len(os.sched_getaffinity(0))), *targets],
        ):
            if subprocess.run(words, stdout=output, stderr=output, check=False).returncode:
                sys.exit(f"fuzz: the harnesses do not build (clang and libclang-rt-dev: tools/setup torture): {log}")


def atheris() -> Path:
    """Installs atheris, locked by its hash, in a folder of its own, and returns the folder."""
    folder, lock = FOLDER / "atheris", SOURCE / "requirements.lock"
    stamp = folder / hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    if not stamp.exists():
        words = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        done = subprocess.run([*words, "--no-deps", "-r", lock, "--target", folder, "--upgrade"], check=False)
        if done.returncode:
            sys.exit("fuzz: atheris cannot be installed, which the Python harnesses need")
        stamp.touch()
    return folder


def command(name: str, is_native: bool) -> tuple[list[str], dict[str, str]]:
    """The command that fuzzes a harness, without options, and its environment."""
    if is_native:
        return [*SHELL, str(FOLDER / f"fuzz_{name}")], dict(os.environ)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(atheris())))}
    return [*SHELL, sys.executable, "-m", "tests.torture.fuzz.drive", name], env


def measured(text: str) -> tuple[int, int]:
    """The executions and the edges that libFuzzer prints."""
    runs = re.findall(r"stat::number_of_executed_units:\s+(\d+)|^#(\d+)\s", text, re.MULTILINE)
    executions = max((int(a or b) for a, b in runs), default=0)
    return executions, max(map(int, re.findall(r"\bcov: (\d+)", text)), default=0)


def fuzz(name: str, is_native: bool, seconds: int, before: Total) -> Total:
    """Fuzzes a harness and returns its new sums.

    Args:
        name: the harness.
        is_native: whether it is a libFuzzer program rather than a Python target.
        seconds: for how long.
        before: the sums so far.
    """
    corpus, findings = FOLDER / "corpus" / name, FOLDER / "findings" / name
    corpus.mkdir(parents=True, exist_ok=True)
    findings.mkdir(parents=True, exist_ok=True)
    known = len(list(findings.iterdir()))
    words, env = command(name, is_native)
    options = [f"-max_total_time={seconds}", *LIMITS, "-close_fd_mask=1", f"-artifact_prefix={findings}/"]
    began = time.monotonic()
    log = FOLDER / f"{name}.log"
    with log.open("wb") as output:
        words += [*options, str(corpus), str(CORPORA / name)]
        done = subprocess.run(words, cwd=ROOT, env=env, stdout=output, stderr=output, check=False)
    executions, edges = measured(log.read_text(errors="replace"))
    found = len(list(findings.iterdir())) - known
    if done.returncode and not found:
        sys.exit(f"fuzz: {name} ended with status {done.returncode} and kept no input: {log}")
    return Total(
        before.seconds + time.monotonic() - began,
        before.executions + executions,
        max(before.edges, edges),
        before.findings + found,
        before.covered,
        before.lines,
    )


def minimise(name: str) -> None:
    """Replaces the corpus of a native harness by the fewest inputs that reach the same edges."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as made:
        folders = [made, str(CORPORA / name), str(FOLDER / "corpus" / name)]
        words = [*SHELL, str(FOLDER / f"fuzz_{name}"), "-set_cover_merge=1", f"-max_len={MAX_BYTES}", "-timeout=30"]
        subprocess.run([*words, *folders], check=True, capture_output=True)
        chosen = sorted(Path(made).iterdir(), key=lambda path: path.stat().st_size)[:MAX_SEEDS]
        replace(name, [path.read_bytes() for path in chosen])


def replace(name: str, inputs: list[bytes]) -> None:
    """Makes these inputs the corpus of a harness; what people wrote (seed-*) stays."""
    folder = CORPORA / name
    for old in folder.iterdir():
        if not old.name.startswith("seed-"):
            old.unlink()
    kept = {path.read_bytes() for path in folder.iterdir()}
    for data in inputs:
        if data not in kept:
            (folder / hashlib.sha256(data).hexdigest()[:12]).write_bytes(data)


def cover(names: list[str], totals: Mapping[str, Total]) -> dict[str, Total]:
    """Runs the corpora through harnesses built for llvm-cov; returns the sums with the lines that are reached.

    Args:
        names: the native harnesses.
        totals: the sums so far.
    """
    build(COVERED, names, "-DCOVERAGE=ON")
    result, reached, every = dict(totals), set[str](), set[str]()
    for name in names:
        program, raw, data = COVERED / f"fuzz_{name}", COVERED / f"{name}.profraw", COVERED / f"{name}.profdata"
        folders = [path for path in (CORPORA / name, FOLDER / "corpus" / name) if path.is_dir()]
        env = {**os.environ, "LLVM_PROFILE_FILE": str(raw)}
        subprocess.run([program, *folders], env=env, check=True, capture_output=True)
        subprocess.run(["llvm-profdata", "merge", "-sparse", raw, "-o", data], check=True)
        words = ["llvm-cov", "export", "-skip-expansions", f"-instr-profile={data}", str(program)]
        report = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)["data"][0]
        here = {f["name"]: f for f in report["functions"] if any("/native/" in file for file in f["filenames"])}
        every |= here.keys()
        reached |= {function for function, one in here.items() if one["count"]}
        # The sources that the harness is about: those of which it reaches anything.
        files = [f["summary"]["lines"] for f in report["files"] if f"{ROOT}/native/" in f["filename"]]
        files = [lines for lines in files if lines["covered"]]
        covered, lines = sum(f["covered"] for f in files), sum(f["count"] for f in files)
        result[name] = Total(**{**asdict(totals.get(name, Total())), "covered": covered, "lines": lines})
    names_of = subprocess.run(
        ["c++filt"], input="\n".join(sorted(every - reached)), text=True, capture_output=True, check=True
    )
    (FOLDER / "unreached.txt").write_text(names_of.stdout)
    return result


def table(totals: Mapping[str, Total]) -> Iterator[str]:
    """Yields the lines of the Markdown table."""
    yield "| harness | seconds | executions | edges | lines reached | findings |"
    yield "|---|---|---|---|---|---|"
    for name, one in totals.items():
        share = (
            "" if not one.lines else f"{one.covered:,} of {one.lines:,} ({100 * (one.covered or 0) / one.lines:.0f}%)"
        )
        yield f"| {name} | {one.seconds:.0f} | {one.executions:,} | {one.edges:,} | {share} | {one.findings} |"
    runs = sum(one.executions for one in totals.values())
    minutes = sum(one.seconds for one in totals.values()) / 60
    yield ""
    yield f"{minutes:.0f} minutes, {runs:,} executions, {sum(one.findings for one in totals.values())} findings."


def store(totals: Mapping[str, Total]) -> None:
    """Writes the sums and the table as whole files."""
    content = json.dumps({name: asdict(one) for name, one in totals.items()}, indent=1) + "\n"
    for path, text in ((FOLDER / "totals.json", content), (TABLE, "\n".join(table(totals)) + "\n")):
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(text)
        draft.replace(path)


def main() -> int:
    """Fuzzes, and returns the exit status."""
    both = {**dict.fromkeys(native(), True), **dict.fromkeys(python(), False)}
    parser = argparse.ArgumentParser(description="Fuzzes the harnesses, and keeps their corpora and a table.")
    parser.add_argument("harness", nargs="*", help="these only; all if none is named")
    parser.add_argument("--seconds", type=int, default=60, help="time for each harness; 0 runs none (60)")
    parser.add_argument("--minimise", action="store_true", help="reduce the corpora and keep them in the source")
    parser.add_argument("--cover", action="store_true", help="measure the lines reached with llvm-cov")
    parser.add_argument("--list", action="store_true", help="print the harnesses and run nothing")
    args = parser.parse_args()
    unknown = [name for name in args.harness if name not in both]
    if unknown:
        parser.error(f"unknown harness: {', '.join(unknown)}; --list names all")
    if args.list:
        print("\n".join(f"{name}  {'native' if is_native else 'Python'}" for name, is_native in both.items()))
        return 0
    names = args.harness or list(both)
    natives = [name for name in names if both[name]]
    FOLDER.mkdir(parents=True, exist_ok=True)
    if natives and (args.seconds or args.minimise):
        build(FOLDER, natives)
    stored = FOLDER / "totals.json"
    totals = {n: Total(**one) for n, one in json.loads(stored.read_text()).items()} if stored.exists() else {}
    totals = {name: totals.get(name, Total()) for name in both}
    found = 0
    if args.seconds and len(natives) < len(names):
        atheris()  # before threads use it
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        chosen = names if args.seconds else []
        runs = {pool.submit(fuzz, name, both[name], args.seconds, totals[name]): name for name in chosen}
        try:
            for run in as_completed(runs):
                name = runs[run]
                before, totals[name] = totals[name], run.result()
                new = totals[name].executions - before.executions
                found += totals[name].findings - before.findings
                store(totals)
                print(f"fuzz: {name}: {new:,} executions", file=sys.stderr, flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    for name in natives if args.minimise else []:
        minimise(name)
    if args.cover:
        totals = cover(natives, totals)
    store(totals)
    print(TABLE.read_text(), end="")
    if found:
        print(f"fuzz: {found} inputs broke something: {FOLDER / 'findings'}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
