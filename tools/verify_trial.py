"""Counts how often `verify` is wrong on a busy machine: ten studies whose gain exists, ten whose gain does not.

    .venv/bin/python tools/verify_trial.py [--folder out/verify] [--studies 10] [--max-time 2m]

Tunes the programs of tools/programs.py until enough studies claim a gain. Each study is verified
twice: on its own program, and on a similar program that hardly uses malloc, where the gain does not
exist. The tool finds the truth by its own pairs on both programs: the geometric mean ratios of CPU
time and peak resident memory, which the kernel counts (wait4). If the truth is close to the
threshold, neither verdict would be wrong, and the case is listed as borderline. During the
verifications each processor has a load that works for 4 seconds and rests for 2. Prints a Markdown
table. Results that are in the folder are not made again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from programs import HEAPWRIGHT, PROGRAMS, make_inputs

# Programs that hardly use malloc; the tool uses the installed ones.
NOTHING = [
    ["perl", "-e", "my $s = 0; $s += $_ * $_ for 1..4000000; print $s"],
    ["mawk", "BEGIN { for (i = 0; i < 6000000; i++) s += i * i; print s }"],
    ["python3", "-S", "-c", "s = 0\nfor i in range(3000000): s ^= i\nprint(s)"],
    ["lua5.4", "-e", "local s = 0 for i = 1, 30000000 do s = s + i % 7 end print(s)"],
    ["gawk", "BEGIN { for (i = 0; i < 4000000; i++) s += i % 7; print s }"],
    ["ruby", "--disable-gems", "-e", "s = 0; i = 0; while i < 6000000; s ^= i; i += 1; end; puts s"],
    ["sh", "-c", "i=0; while [ $i -lt 400000 ]; do i=$((i + 1)); done; echo $i"],
    ["tclsh", "nothing.tcl"],
    ["bash", "-c", "for ((i = 0; i < 200000; i++)); do ((s += i)); done; echo $s"],
    ["gzip", "-c", "-9", "words.txt"],
]
TRIED = {
    **PROGRAMS,
    "perl-sort": ["perl", "-e", 'my @a = sort map { "x" x ($_ * 7 % 50) } 1..300000; print scalar @a'],
    "perl-lists": ["perl", "-e", 'push @{$h{$_ % 5000}}, {k => $_, v => "v$_"} for 1..120000; print scalar keys %h'],
    "perl-join": ["perl", "-e", 'my @p = split /,/, join ",", 1..700000; print scalar @p'],
    "gawk-join": ["gawk", "BEGIN { for (i = 0; i < 300000; i++) a[i % 5000] = a[i % 5000] i; print length(a) }"],
    "mawk-join": ["mawk", "BEGIN { for (i = 0; i < 300000; i++) a[i % 5000] = a[i % 5000] i; print length(a) }"],
    "bash-strings": ["bash", "-c", "for i in {1..60000}; do a[i % 3000]=x$i$i; done; echo ${#a[@]}"],
    "bash-words": ["bash", "-c", "x=({1..150000}); y=(${x[@]/1/one}); echo ${#y[@]}"],
    "python3-lists": [
        "env",
        "PYTHONMALLOC=malloc",
        "python3",
        "-S",
        "-c",
        "print(len([str(i) for i in range(600000)]))",
    ],
    "python3-dicts": [
        "env",
        "PYTHONMALLOC=malloc",
        "python3",
        "-S",
        "-c",
        "print(len([{i: (i,)} for i in range(200000)]))",
    ],
}
TUNED = ["--allocators", "glibc,exgen,reaper,jemalloc", "--budget", "8", "--proxy", "none", "--pairs", "12:20"]
METRICS = {"cpu_s": "CPU time", "peak_rss_bytes": "peak resident memory"}
LOAD = "while :; do timeout 4 sh -c 'while :; do :; done'; sleep 2; done"
NEAR = 0.25  # borderline: closer to the threshold than this share of the claimed gain
TRUE_PAIRS = 15
VERDICTS = (0, 3, 4)  # exit statuses of verify: holds, lost, undecided


def usage(command: Sequence[str], env: Mapping[str, str], folder: Path) -> dict[str, float]:
    """Measures CPU seconds and peak resident bytes of one run, as the kernel counts them.

    The meter starts the run, because the peak of a process that Python forks begins at Python's own size.

    Args:
        command: The program.
        env: Variables to add.
        folder: Its working directory.
    """
    words = [
        "measure",
        "-q",
        "--meter",
        "poll",
        "--json",
        "-",
        *(w for k, v in env.items() for w in ("--env", f"{k}={v}")),
    ]
    done = subprocess.run([HEAPWRIGHT, *words, "--", *command], cwd=folder, capture_output=True, check=True)
    (run,) = json.loads(done.stdout)["runs"]
    return {metric: run[metric] for metric in METRICS}


def true_ratios(command: Sequence[str], env: Mapping[str, str], folder: Path) -> dict[str, float]:
    """Measures the geometric mean ratios of interleaved pairs: with the setting to without.

    Args:
        command: The program.
        env: The variables of the setting.
        folder: Its working directory.
    """
    logs: dict[str, list[float]] = {metric: [] for metric in METRICS}
    for pair in range(-1, TRUE_PAIRS):
        order = ({}, env) if pair % 2 else (env, {})
        first, second = (usage(command, e, folder) for e in order)
        default, chosen = (first, second) if order[1] is env else (second, first)
        for metric in METRICS if pair >= 0 else ():
            logs[metric].append(math.log(chosen[metric] / default[metric]))
    return {metric: math.exp(fmean(values)) for metric, values in logs.items()}


def truth(true: Mapping[str, float], then: Mapping[str, Mapping[str, Any]], keep: float = 0.5) -> str:
    """Decides whether a claim is true: 'holds', 'lost' or 'borderline'.

    It holds if the share `keep` of each claimed gain exists, and the other metrics cost no more than at confirmation.

    Args:
        true: The true ratio of each metric.
        then: The confirmation of each metric in the study.
        keep: The share of a gain that must remain.
    """
    gains = {m: math.log(c["ratio"]) for m, c in then.items() if c["verdict"] == "better"}
    most = max(-gain for gain in gains.values())
    margins = []
    for metric, c in then.items():
        bound = keep * gains[metric] if metric in gains else max(math.log(c["high"]), 0.0) + (1 - keep) * most
        margins.append((bound - math.log(true[metric])) / -gains.get(metric, -most))
    least = min(margins)
    return "holds" if least > NEAR else "lost" if least < -NEAR else "borderline"


def claimed(name: str, folder: Path) -> dict[str, Any] | None:
    """The pick for which a program's study claims a gain, or None. Tunes the program if there is no study yet."""
    result, study = folder / f"{name}.json", f"{name}.study"
    if not result.exists():
        words = ["tune", "-q", *TUNED, "--study", study, "--json", result.name]
        subprocess.run([HEAPWRIGHT, *words, "--", *TRIED[name]], cwd=folder, check=True, capture_output=True)
    found: dict[str, Any] = json.loads(result.read_text())
    shown = subprocess.run(
        [HEAPWRIGHT, "apply", study, "--format", "json"], cwd=folder, capture_output=True, check=True
    )
    env = json.loads(shown.stdout)["env"]
    pick: dict[str, Any] | None = next((p for p in found["picks"].values() if p["env"] == env), None)
    return pick and {**pick, "confirmed": {m: pick["confirmed"][m] for m in METRICS}}


def verified(name: str, command: Sequence[str], out: Path, max_time: str) -> dict[str, Any]:
    """Runs `verify` for a study on a command, and returns its JSON.

    Args:
        name: The study's name.
        command: The program to verify on.
        out: File of the JSON; if it exists, nothing runs.
        max_time: Value of --max-time.
    """
    if not out.exists():
        words = ["verify", "-q", f"{name}.study", "--max-time", max_time, "--json", out.name, "--", *command]
        done = subprocess.run([HEAPWRIGHT, *words], cwd=out.parent, check=False, capture_output=True, text=True)
        if done.returncode not in VERDICTS:
            raise SystemExit(f"{name}: {done.stderr}")
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def main() -> None:
    """Tunes, measures the true ratios, verifies under load, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("out/verify"))
    parser.add_argument("--studies", type=int, default=10)
    parser.add_argument("--max-time", default="2m")
    parser.add_argument(
        "--programs",
        default=",".join(TRIED),
        help="programs to tune until there are enough studies, separated by commas",
    )
    args = parser.parse_args()
    folder: Path = args.folder.resolve()
    make_inputs(folder)
    (folder / "nothing.tcl").write_text("set s 0; for {set i 0} {$i < 3000000} {incr i} {incr s $i}; puts $s\n")
    nothing = [command for command in NOTHING if shutil.which(command[0])]
    studies: dict[str, dict[str, Any]] = {}
    for name in (name for name in args.programs.split(",") if shutil.which(TRIED[name][0])):
        if len(studies) < args.studies and (pick := claimed(name, folder)) is not None:
            studies[name] = pick
    cases: list[tuple[str, list[str], dict[str, float], Path]] = []
    for number, (name, pick) in enumerate(studies.items()):
        for kind, command in (("same", TRIED[name]), ("other", nothing[number % len(nothing)])):
            kept = folder / f"{name}.{kind}.true.json"
            if not kept.exists():
                kept.write_text(json.dumps(true_ratios(command, pick["env"], folder)))
            cases.append((name, command, json.loads(kept.read_text()), folder / f"{name}.{kind}.verify.json"))
    loads = [subprocess.Popen(["sh", "-c", LOAD], start_new_session=True) for _ in range(os.cpu_count() or 2)]
    wrong = undecided = 0
    print("| study | program | claimed | true | gain | verify | pairs |\n|---|---|---|---|---|---|---|")
    try:
        for name, command, true, out in cases:
            state, then = verified(name, command, out, args.max_time), studies[name]["confirmed"]
            really = truth(true, then)
            wrong += really != "borderline" and state["verdict"] not in {really, "undecided"}
            undecided += state["verdict"] == "undecided"
            was = "; ".join(f"{METRICS[m]} {100 * (c['ratio'] - 1):+.1f}%" for m, c in then.items())
            now = "; ".join(f"{METRICS[m]} {100 * (true[m] - 1):+.1f}%" for m in then)
            ran = "its own" if command == TRIED[name] else command[0]
            cells = (name, ran, was, now, really, state["verdict"], state["pairs"])
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
    finally:
        for load in loads:
            os.killpg(load.pid, signal.SIGKILL)
    print(f"\n{len(cases)} verifications: {wrong} wrong, {undecided} undecided")


if __name__ == "__main__":
    main()
