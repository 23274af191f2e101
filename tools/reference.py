"""Writes docs/verbs.md (from the command line's own parser) and docs/metrics.md (from metrics.py), the only places.

.venv/bin/python tools/reference.py verbs >docs/verbs.md
.venv/bin/python tools/reference.py metrics >docs/metrics.md
"""

from __future__ import annotations

import argparse
import sys

from heapwright.cli.completion import verbs_of
from heapwright.cli.main import build_parser
from heapwright.metrics import METRICS

_UNITS = {"": "", "count": "", "B": "B", "B/s": "B/s", "s": "s", "J": "J"}


def _shown(action: argparse.Action) -> str:
    """'`-n RUNS`, `--runs RUNS`'."""
    choices = "|".join(map(str, action.choices)) if action.choices else ""
    value = str(action.metavar or choices or (action.dest.upper() if action.nargs != 0 else ""))
    if not action.option_strings:
        return f"`{value}`"
    return ", ".join(
        f"`{flag} {value}`" if value and action.nargs != 0 else f"`{flag}`" for flag in action.option_strings
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def verbs() -> None:
    """Every verb: what it does, its options, examples; as tables, the same whatever Python makes them."""
    print(HEAD)
    for name, verb in verbs_of(build_parser()).items():
        print(f"\n## {name}\n\n{verb.description}\n")
        command = " `-- CMD`" if verb.get_default("takes_command") else ""
        positional = [_shown(a) for a in verb._actions if not a.option_strings]
        print(f"`heapwright {name}` {' '.join([*positional, '[options]'])}{command}\n".replace("  ", " "))
        rows = [a for a in verb._actions if not isinstance(a, argparse._HelpAction)]
        if rows:
            print("| | |\n|---|---|")
        for action in rows:
            choices = f" ({', '.join(map(str, action.choices))})" if action.choices and action.metavar else ""
            print(f"| {_cell(_shown(action))} | {_cell((action.help or '').replace('%%', '%') + choices)} |")
        if verb.epilog:
            print(f"\n```text\n{verb.epilog.strip()}\n```")


HEAD = """\
# Every verb

Made by `tools/reference.py` from the command line's own parser; `heapwright VERB --help` says the same.

Exit status: 0 done, 1 failed, 2 usage; `measure`, `record` and `run` pass the command's own on (128 + signal). Ctrl-C:
130, what was measured is kept. Everything after `--` is the command, word for word, without a shell."""


def metrics() -> None:
    """Every metric."""
    print("# Every metric\n\nMade by `tools/reference.py` from `src/heapwright/metrics.py`, the only place for them.")
    print("`--minimize` takes the key or the short form. JSON has the full keys, sizes in bytes, times in seconds.\n")
    print("| key | short | unit | what it is | who counts it | pick |\n|---|---|---|---|---|---|")
    for m in METRICS.values():
        short = f"`{m.short}`" if m.short != m.key else ""
        aim = {"memory": "memory", "time": "time", "count": "balanced", "output": ""}[m.kind]
        print(f"| `{m.key}` | {short} | {_UNITS[m.unit]} | {m.meaning} | {m.source} | {aim} |")


if __name__ == "__main__":
    {"verbs": verbs, "metrics": metrics}[sys.argv[1]]()
