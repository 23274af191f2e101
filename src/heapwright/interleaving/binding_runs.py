"""Makes a run that is not counted, in which the program's loader tells which allocator became its malloc."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from heapwright.allocators.takeover import Bindings, bindings, watch_environment
from heapwright.files import scratch_folder
from heapwright.interleaving.runner import RunsInputs
from heapwright.measure.streams import Stopped
from heapwright.workload.execute import Outcome
from heapwright.workload.model import Input

_ENOUGH_S = 5.0  # a run that takes longer is stopped as soon as its bindings are enough
_LOOK_S = 0.1  # between two looks at the bindings


def run_with_bindings(executor: RunsInputs, input_: Input, env: Mapping[str, str]) -> tuple[Outcome, Bindings]:
    """Run the program once, without padding, and ask its loader where each process got malloc from.

    Args:
        executor: runs the program.
        input_: the input that the program is run on.
        env: the environment variables that make the configuration.

    Returns:
        The outcome, and the bindings as `allocators.takeover` reads them.
    """
    with scratch_folder() as folder:
        outcome = executor.run(input_, {**env, **watch_environment(folder)}, 0, None)
        return outcome, bindings(folder)


def run_until_bound(
    executor: RunsInputs, input_: Input, env: Mapping[str, str], enough: Callable[[Bindings], bool]
) -> tuple[Outcome | None, Bindings]:
    """Do as `run_with_bindings`, but stop a run of more than five seconds once its bindings are enough.

    Args:
        executor: runs the program.
        input_: the input that the program is run on.
        env: the environment variables that make the configuration.
        enough: whether the bindings so far settle the question. It is called from another thread.

    Returns:
        The outcome, or None if the run was stopped early; and the bindings.
    """
    with scratch_folder() as folder:
        outcome: Outcome | None = None
        with _stop_when(enough, folder) as stop, suppress(Stopped):
            outcome = executor.run(input_, {**env, **watch_environment(folder)}, 0, stop)
        return outcome, bindings(folder)


@contextmanager
def _stop_when(enough: Callable[[Bindings], bool], folder: Path) -> Iterator[threading.Event]:
    """Yield an event that a thread sets when a long run has written enough bindings.

    The thread looks only at bindings that have not grown since its last look: the loader may still be writing them.

    Args:
        enough: whether these bindings settle the question.
        folder: where the loader writes its bindings (`watch_environment`).
    """
    stop, done = threading.Event(), threading.Event()

    def look() -> None:
        began = time.monotonic()
        size = -1
        while not done.wait(_LOOK_S):
            now = sum(path.stat().st_size for path in folder.glob("bindings.*"))
            settled, size = now == size, now
            if settled and time.monotonic() - began >= _ENOUGH_S and enough(bindings(folder)):
                stop.set()
                return

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield stop
    finally:
        done.set()
        watcher.join()
