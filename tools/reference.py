"""Writes the reference pages of the documentation: verbs from the command line's own parser, metrics from metrics.py.

Run `.venv/bin/python tools/reference.py FOLDER`; `make docs` runs it for docs/. It writes verbs.md, verbs/GROUP.md and
metrics.md below FOLDER.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from paragraph import paragraph

from heapwright.cli.main import build_parser, verbs_by_group
from heapwright.cli.parser import verbs_of
from heapwright.metrics import METRICS

_UNITS = {"": "", "count": "", "B": "B", "B/s": "B/s", "s": "s", "ms": "ms", "s/op": "s", "1/s": "1/s", "J": "J"} | {
    "number": ""
}


def _shown(action: argparse.Action) -> str:
    """'`-n RUNS`, `--runs RUNS`'."""
    choices = "|".join(map(str, action.choices)) if action.choices else ""
    value = str(action.metavar or choices or (action.dest.upper() if action.nargs != 0 else ""))
    value += "…" if action.nargs in ("+", "*") else ""
    if not action.option_strings:
        return f"`{value}`"
    return ", ".join(
        f"`{flag} {value}`" if value and action.nargs != 0 else f"`{flag}`" for flag in action.option_strings
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def verbs() -> dict[str, str]:
    """The pages of the verbs: an index, and a page for each group of `heapwright --help`.

    Returns:
        Path below the folder of the documentation → text. It is the same under every version of Python.
    """
    parser = build_parser()
    known = verbs_of(parser)
    pages, index = {}, [HEAD]
    for group, names in verbs_by_group(parser).items():
        page = f"verbs/{group}.md"
        index += [f"\n## {group.capitalize()}\n", "| | |\n|---|---|"]
        index += [f"| [{name}]({page}#{name}) | {_cell(known[name].description or '')} |" for name in names]
        title = f"# Verbs: {group}\n\nMade by `tools/reference.py`; see [every verb](../verbs.md)."
        pages[page] = "\n".join([title, *(_verb(name, known[name]) for name in names)]) + "\n"
    return {"verbs.md": "\n".join(index) + "\n", **pages}


def _verb(name: str, verb: argparse.ArgumentParser) -> str:
    """The section of a verb: its description, options and examples."""
    command = " `-- CMD`" if verb.get_default("takes_command") else ""
    positional = [_shown(a) for a in verb._actions if not a.option_strings]
    usage = f"`heapwright {name}` {' '.join([*positional, '[options]'])}{command}\n".replace("  ", " ")
    lines = [f"\n## {name}\n\n{paragraph(verb.description or '')}\n", paragraph(usage) + "\n"]
    actions = [a for a in verb._actions if not isinstance(a, argparse._HelpAction)]
    if actions:
        lines.append("| | |\n|---|---|")
    for action in actions:
        lines.append(f"| {_cell(_shown(action))} | {_cell((action.help or '').replace('%%', '%'))} |")
    if verb.epilog:
        lines.append(f"\n```text\n{verb.epilog.strip()}\n```")
    return "\n".join(lines)


HEAD = """\
# Every verb

Made by `tools/reference.py` from the command line's own parser; `heapwright VERB --help` says the
same.

Exit status: 0 done, 1 failed, 2 usage error. `verify`, `apply` and `tune --exit-code` also return 3
(no gain) and 4 (undecided, or only predicted); `canary` returns 4 without a claim. `measure`,
`record` and `run` return the command's own status (128 + signal). Ctrl-C returns 130, except for
`canary`; all measurements so far are kept. Everything after `--` is the command, word for word,
without a shell."""


def metrics() -> dict[str, str]:
    """The page of the metrics, as `verbs` returns its pages."""
    lines = [
        "# Every metric\n\nMade by `tools/reference.py` from `src/heapwright/metrics.py`, the only place for them.",
        "`--minimize` takes the key or the short form. JSON has the full keys, sizes in bytes, times in\nseconds.\n",
        "| key | short | unit | meaning | source | pick |\n|---|---|---|---|---|---|",
    ]
    for m in METRICS.values():
        short = f"`{m.short}`" if m.short != m.key else ""
        aim = {"memory": "memory", "time": "time", "count": "balanced", "output": ""}[m.kind]
        lines.append(f"| `{m.key}` | {short} | {_UNITS[m.unit]} | {m.meaning} | {m.source} | {aim} |")
    return {"metrics.md": "\n".join(lines) + "\n"}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for name, text in (verbs() | metrics()).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
