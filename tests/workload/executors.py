"""Runs shell scripts with an executor, for the tests of runs (the fixture `make`)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from heapwright.workload.execute import Executor, Outcome
from heapwright.workload.model import Input

Make = Callable[..., Executor]


def run(executor: Executor, input_: Input | None = None, pad: int = 0, **env: str) -> Outcome:
    return executor.run(input_ or Input("default"), env, pad)


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
