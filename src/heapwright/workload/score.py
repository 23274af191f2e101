"""Computes the metric `objective` of a run by the command or the function that the workload file names."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from heapwright.errors import HeapwrightError, unknown
from heapwright.measure.meter import Run
from heapwright.measure.process_group import kill_group
from heapwright.plugins import OBJECTIVES_GROUP, load_plugin, plugin_names
from heapwright.units import MAX_PLAUSIBLE, is_plausible
from heapwright.workload.last_line import TAIL_BYTES, last_line
from heapwright.workload.model import Objective

NO_OBJECTIVE = "no objective: "  # begins the reason why a run has none
MIN_LIMIT_S = 60.0  # seconds that the command has, unless the workload file has a timeout


def score(run: Run, how: Objective, output: IO[bytes], cwd: Path, env: Mapping[str, str], limit: float) -> str:
    """Compute the metric and put it among the run's metrics.

    Args:
        run: the run; it succeeded.
        how: the command or the function.
        output: the run's stdout, from its beginning.
        cwd: where the command runs.
        env: the environment of the command: the program's, without the settings that are tried.
        limit: seconds after which the command is stopped.

    Returns:
        Why there is no number, so that the run does not count; empty if there is one.

    Raises:
        HeapwrightError: the command does not start, or no package offers the function.
    """
    with tempfile.NamedTemporaryFile(prefix="heapwright-") as file:
        shutil.copyfileobj(output, file)
        file.flush()
        if how.function:
            value, why = _by_function(how.function, Path(file.name), run)
        else:
            value, why = _by_command([file.name if w == "{output}" else w for w in how.command], cwd, env, limit)
    if why:
        return f"{NO_OBJECTIVE}{why}"
    if not (is_plausible(value) and value > 0):
        return f"{NO_OBJECTIVE}{value:g} is not a number above 0 and below {MAX_PLAUSIBLE:g}"
    run.metrics["objective"] = value
    return ""


def _by_command(words: list[str], cwd: Path, env: Mapping[str, str], limit: float) -> tuple[float, str]:
    """Return the number that a command prints as its last word, and why there is none."""
    try:
        process = subprocess.Popen(
            words, cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise HeapwrightError(f"the command of [objective], {words[0]}, does not start: {error.strerror}") from None
    with process:
        try:
            out, err = process.communicate(timeout=limit)
        except BaseException as error:  # an interruption too
            kill_group(process)
            if isinstance(error, subprocess.TimeoutExpired):
                return 0.0, f"the command timed out after {limit:g} s"
            raise
    if process.returncode:
        words_said = last_line(err[-TAIL_BYTES:].decode(errors="replace"))
        return 0.0, f"exit status {process.returncode}" + (f": {words_said}" if words_said else "")
    last = out[-TAIL_BYTES:].decode(errors="replace").split()[-1:]
    try:
        return float(last[0]), ""
    except (IndexError, ValueError):
        return (
            0.0,
            f"the command printed {last[0]!r} last, which is not a number" if last else "the command printed nothing",
        )


def _by_function(name: str, output: Path, run: Run) -> tuple[float, str]:
    """Return the number that a package's function computes, and why there is none."""
    function = load_plugin(OBJECTIVES_GROUP, name)
    if function is None:
        raise unknown("objective", name, plugin_names(OBJECTIVES_GROUP))
    try:
        return float(function(output, dict(run.metrics))), ""
    except Exception as error:  # any error of foreign code
        return 0.0, f"{name} raised {type(error).__name__}: {error}"
