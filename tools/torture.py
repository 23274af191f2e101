"""Runs every test that `make test` leaves out, in parts that each resume: `make torture` calls it.

    .venv/bin/python tools/torture.py [PART…] [--list] [--again] [--stop-after SECONDS]

A part is one make target or one run of pytest. build/torture.json keeps the result, the time and the commit of each
part; tools/parts.py says how. A commit with changes that are not committed is another commit. The table of all parts
is printed at the end and written to build/torture.md, and the output of a part to build/torture/PART.log. The exit
status is 0 if every part passed, 1 if one failed, 3 if parts have not run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from parts import ROOT, Part, commit, run_parts

STATE = ROOT / "build/torture.json"
LOGS = ROOT / "build/torture"
PYTEST = (sys.executable, "-m", "pytest")
TEST = (*PYTEST, "-n", "2", "--dist", "loadgroup", "--long")
# Property tests try more examples in the long form; Hypothesis marks them.
MORE = "long or longer or hypothesis"
FUZZ_SECONDS = os.environ.get("HEAPWRIGHT_FUZZ_SECONDS", "60")


def programs() -> list[Part]:
    """A part for each whole program, because many of them take minutes under each malloc."""
    sys.path.insert(0, str(ROOT))
    from tests.torture.whole import PROGRAMS

    file = "tests/torture/test_programs.py"
    one = [Part(f"program-{name}", (*PYTEST, "--long", f"{file}::test_prints_the_same[{name}]")) for name in PROGRAMS]
    return [*one, Part("torture-programs", (*TEST, "-k", "not test_prints_the_same", file))]


def parts(root: Path = ROOT) -> list[Part]:
    """All parts in their order. Every folder of tests is in one, so that no new folder is left out."""
    made = [Part(f"sanitize-all-{one}", ("make", f"sanitize-all-{one}")) for one in ("memory", "thread", "trap")]
    made += [Part(f"sanitize-python-{one}", ("make", f"sanitize-python-{one}")) for one in ("memory", "trap")]
    made.append(Part("analyze", ("make", "analyze")))
    for path in sorted(root.glob("tests/torture/test_*.py")):
        if path.stem == "test_programs":
            made += programs()
        else:
            made.append(Part(f"torture-{path.stem.removeprefix('test_')}", (*TEST, str(path.relative_to(root)))))
    made.append(Part("fuzz", (sys.executable, "tools/fuzz.py", "--seconds", FUZZ_SECONDS), 4 * 3600))
    made.append(Part("docs-commands", (*TEST, "tests/docs/test_running.py")))
    # All of tests/allocators, because `make peers` has installed allocators that `make test` may
    # lack.
    made.append(Part("allocators", (*TEST, "tests/allocators")))
    for folder in sorted(path for path in root.glob("tests/*") if any(path.rglob("test_*.py"))):
        if folder.name in ("torture", "allocators"):
            continue
        less = ("--ignore", "tests/docs/test_running.py") if folder.name == "docs" else ()
        made.append(Part(f"long-{folder.name}", (*TEST, "-m", MORE, f"tests/{folder.name}", *less), 3600, True))
    single = tuple(str(path.relative_to(root)) for path in sorted(root.glob("tests/test_*.py")))
    made.append(Part("long-other", (*TEST, "-m", MORE, *single), 3600, True))
    return made


def main() -> int:
    """Runs the parts that have not passed yet, and returns the exit status."""
    return run_parts("Runs every test that make test leaves out, in resumable parts.", parts(), commit(), STATE, LOGS)


if __name__ == "__main__":
    sys.exit(main())
