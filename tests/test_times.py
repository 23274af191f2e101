"""The summary of times at the end of a test run: folders and tests, the longest first."""

import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from tests.times import CPU, by_folder, summary

Phase = Literal["setup", "call", "teardown"]


def report(nodeid: str, phase: Phase, duration: float, busy: float | None = None) -> pytest.TestReport:
    properties = [] if busy is None else [(CPU, busy)]
    return pytest.TestReport(nodeid, ("", 0, ""), {}, "passed", None, phase, (), duration, user_properties=properties)


REPORTS = [
    report("tests/study/test_a.py::test_one", "setup", 10),
    report("tests/study/test_a.py::test_one", "call", 1),
    report("tests/study/test_a.py::test_one", "teardown", 1, 3),
    report("tests/study/test_b.py::test_two", "call", 9),
    report("tests/link/test_c.py::test_three@tests/link/test_c.py", "call", 13),
    report("tests/test_metrics.py::test_four", "call", 0.25),
]


def test_the_summary_lists_the_longest_first() -> None:
    assert list(by_folder(REPORTS).items()) == [("study", (21, 3)), ("link", (13, 0)), ("test_metrics.py", (0.25, 0))]
    assert summary(REPORTS, 2) == [
        "seconds of tests by folder (of them processor time): study 21 (3), link 13 (0), test_metrics.py 0 (0)",
        "longest tests: link/test_c.py::test_three 13 s, study/test_a.py::test_one 12 s",
    ]


@pytest.mark.long
def test_the_processor_time_of_children_counts(tmp_path: Path) -> None:
    """Also from the workers of pytest-xdist; a test that sleeps takes time but no processor time."""
    root = Path(__file__).parents[1]
    (tmp_path / "tests/busy").mkdir(parents=True)
    (tmp_path / "tests/idle").mkdir()
    (tmp_path / "conftest.py").write_text(
        f"import sys; sys.path.insert(0, {str(root)!r})\n"
        "from tests.conftest import pytest_runtest_makereport, pytest_terminal_summary, pytest_addoption\n"
        "from tests.conftest import pytest_configure\n"
    )
    spin = "import time\nwhile time.process_time() < 1: pass\n"
    (tmp_path / "tests/busy/test_b.py").write_text(
        f"import subprocess, sys\ndef test_b(): subprocess.run([sys.executable, '-c', {spin!r}], check=True)\n"
    )
    (tmp_path / "tests/idle/test_i.py").write_text("import time\ndef test_i(): time.sleep(1)\n")
    words = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    line = next(line for line in done.stdout.splitlines() if line.startswith("seconds of tests by folder"))
    times = {part.split()[0]: float(part.split("(")[1].rstrip(")")) for part in line.split(": ")[1].split(", ")}
    assert times["busy"] >= 1
    assert times["idle"] < times["busy"]
