"""Tests whether allocators reach the program that a command starts.

`env -i`, sudo, dovecot and some supervisors clear the environment. Then no preloaded allocator and no setting reaches
that program, and every configuration would seem to be like the default.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path

from heapwright.allocators.preload_obstacles import find_obstacle
from heapwright.allocators.registry import Allocator
from heapwright.workload.execute import Executor
from heapwright.workload.model import Input

_NOT_PASSED_ON = "the command does not pass its environment on to it, as behind `env -i` or sudo"


class StartedProgram:
    """The program which a command starts and which has most of the memory.

    Args:
        executor: runs the command, on this machine.
        input_: the input to run.
        path: the program's path.
    """

    def __init__(self, executor: Executor, input_: Input, path: str) -> None:
        self._executor = executor
        self._input = input_
        self._path = path
        self._answer: list[bool | None] = []  # empty before the run

    def why_not_loaded(self, allocator: Allocator, env: Mapping[str, str]) -> str:
        """Why a preloaded allocator is not loaded into the program; empty if it may be.

        Args:
            allocator: the allocator.
            env: the environment variables with which the command runs under it.
        """
        obstacle = find_obstacle(self._path, allocator.name, allocator.preload)
        if obstacle is not None:
            why = obstacle.reason
        elif self.has_environment(allocator.preload, env) is False:
            why = _NOT_PASSED_ON
        else:
            return ""
        name = Path(self._path).name
        return f"not loaded into {name}, which the command starts and which has most of the memory: {why}"

    def has_environment(self, preload: str, env: Mapping[str, str]) -> bool | None:
        """Whether the program gets the command's environment. The first call makes a run that is not counted.

        Args:
            preload: value of LD_PRELOAD.
            env: all environment variables of the configuration.

        Returns:
            None if the run failed, or if another program had most of the memory.
        """
        if not self._answer:
            self._answer.append(self._run(preload, env))
        return self._answer[0]

    def _run(self, preload: str, env: Mapping[str, str]) -> bool | None:
        before = self._executor.options
        self._executor.options = dataclasses.replace(before, parts=True)
        try:
            outcome = self._executor.run(self._input, env)
        finally:
            self._executor.options = before
        parts = outcome.run.parts
        if outcome.failure or parts is None or os.path.realpath(parts.main_program) != os.path.realpath(self._path):
            return None
        libraries = {os.path.realpath(path) for path in re.split(r"[ :]+", preload) if path}
        return not libraries.isdisjoint(map(os.path.realpath, parts.busiest_files))
