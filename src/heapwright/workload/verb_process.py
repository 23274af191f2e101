"""Runs a verb of heapwright in a process of its own, for the Python API and for experiments.

The process is interrupted once, by its caller or because its caller has ended, and then has time to stop its program.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from heapwright.workload.server import STOP_S

PATIENCE_S = 2 * STOP_S + 10  # for a verb to end after an interruption; a server may need both of its signals
# Interrupts the verb when its parent is gone, even if that was killed. PR_SET_PDEATHSIG is 1.
_TIED = """import ctypes, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
ctypes.CDLL(None).prctl(1, signal.SIGINT, 0, 0, 0)
if os.getppid() != int(sys.argv.pop(1)):
    sys.exit(130)
from heapwright.cli.main import main
sys.exit(main())
"""


def start_verb(words: Sequence[str], **how: Any) -> subprocess.Popen[str]:
    """Start a verb without input and output. It ends when the calling thread ends, however that ends.

    Args:
        words: the verb and its arguments.
        how: further arguments of `subprocess.Popen`, above all `stderr`, which receives its messages.

    Returns:
        Its process, in a session of its own: Ctrl-C at the terminal does not reach it, so the caller interrupts it.
    """
    # -P: a file such as json.py in the current folder must not take the place of Python's own
    # module.
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _TIED, str(os.getpid()), *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, text=True, errors="replace", start_new_session=True, **how,
    )  # fmt: skip


def wait_for_verb(process: subprocess.Popen[str]) -> str:
    """Wait for the end of a verb; return its messages.

    Raises:
        KeyboardInterrupt: Ctrl-C. The verb was interrupted and has ended, or was killed after `PATIENCE_S`.
    """
    try:
        _, said = process.communicate()
    except BaseException:
        process.send_signal(signal.SIGINT)  # it keeps its study and removes its temporary files
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
        raise
    return said
