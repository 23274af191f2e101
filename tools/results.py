"""Makes the tables of docs/results again, by the commands that the pages themselves name: `make results` calls it.

    .venv/bin/python tools/results.py [PART…] [--list] [--again] [--stop-after SECONDS]

A page names a command in a comment before each table that it makes, and ends the table with another comment:

    <!-- make results: .venv/bin/python tools/record_cost.py -n 15 -->
    …
    <!-- end -->

Each such pair is a part, PAGE-NUMBER. A part that passed puts the state of the machine between the two comments, and
the command's standard output, which is Markdown. A part that failed, in any of its commands, leaves the page as it was.
The text of the page names the command too, for the reader. build/results.json keeps what passed at the last commit that
changed src, native or tools, so an interrupted `make results` goes on where it stopped; tools/parts.py says how. The
text around a table is not made again: read it.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from paragraph import paragraph
from parts import ROOT, Part, commit, run_parts

from heapwright.measure.host import describe_host

PAGES = ROOT / "docs/results"
STATE = ROOT / "build/results.json"
LOGS = ROOT / "build/results"
MEASURED = ("src", "native", "tools")  # a result depends on these
TABLE = re.compile(r"(?P<begin><!-- make results: (?P<command>.+?) -->\n).*?(?P<end>^<!-- end -->)", re.M | re.S)
LIMIT = 12 * 3600.0  # seconds
COMMANDS = shlex.quote(str(Path(sys.executable).parent))  # the folder of the command `heapwright`


def parts() -> list[Part]:
    """All tables in the order of pages, which is that of their names."""
    made = []
    for page in sorted(PAGES.glob("*.md")):
        for number, found in enumerate(TABLE.finditer(page.read_text()), 1):
            name = f"{page.stem}-{number}"
            load = shlex.quote(str(LOGS / f"{name}.load"))
            script = f"set -e; PATH={COMMANDS}:$PATH; cut -d ' ' -f 1 /proc/loadavg >{load}; {found['command']}"
            made.append(Part(name, ("sh", "-c", script), LIMIT, output=LOGS / f"{name}.md"))
    return made


def machine(load: str) -> str:
    """One line on the machine and its state; `load` is the average load of the minute before."""
    host = describe_host()
    return (
        f"Made on {time.strftime('%Y-%m-%d')} at {commit(ROOT, MEASURED)}: {host['cpu']}, {host['cores']} CPUs,"
        f" Linux {host['kernel']}, {host['libc'] or 'libc unknown'}, transparent huge pages {host['thp'] or 'n/a'};"
        f" load {load} before."
    )


def wrapped(text: str) -> str:
    """Text with its long lines of prose broken; tables, code, pictures and HTML stay as they are."""
    lines = text.splitlines()
    return "\n".join(x if len(x) <= 100 or x.startswith(("|", "<", "#", "!", " ")) else paragraph(x) for x in lines)


def put(part: Part) -> None:
    """Writes the output of a part into its page."""
    stem, _, number = part.name.rpartition("-")
    page = PAGES / f"{stem}.md"
    text = page.read_text()
    found = list(TABLE.finditer(text))[int(number) - 1]
    assert part.output is not None
    load = part.output.with_suffix(".load").read_text().strip()
    made = f"\n{paragraph(machine(load))}\n\n{wrapped(part.output.read_text().strip())}\n\n"
    draft = page.with_name(f".{page.name}.{os.getpid()}")
    draft.write_text(text[: found.end("begin")] + made + text[found.start("end") :])
    draft.replace(page)


def main() -> int:
    """Makes the tables that are not of this commit, and returns the exit status."""
    about = "Makes the tables of docs/results again, in resumable parts."
    (ROOT / "out").mkdir(exist_ok=True)  # where the commands of the pages write
    return run_parts(about, parts(), commit(ROOT, MEASURED), STATE, LOGS, put)


if __name__ == "__main__":
    sys.exit(main())
