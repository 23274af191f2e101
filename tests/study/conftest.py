"""A study in a folder of its own, on a program that is not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from heapwright.allocators.registry import Allocator
from heapwright.allocators.space_spec import SpaceFile
from heapwright.interleaving.records import StoredRun
from heapwright.measure.meter import MeterOptions
from heapwright.report.progress import SilentProgress
from heapwright.study.load import load_view
from heapwright.study.open import open_or_begin
from heapwright.study.store import read_study
from heapwright.study.view import StudyView
from heapwright.tuning import proxy, recorded_setting, replay_search
from heapwright.tuning.pipeline import tune_study
from heapwright.tuning.session import Session
from heapwright.workload.execute import Outcome
from heapwright.workload.model import Input, Workload, WorkloadFile

from .fakes import Settings, World, install, read_settings, toy_allocator


class Notes(SilentProgress):
    """Keeps the messages of a study."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.phases: list[tuple[str, int | None]] = []
        self.fresh = 0

    def note(self, text: str) -> None:
        self.notes.append(text)

    def phase(self, name: str, runs: int | None) -> None:
        self.phases.append((name, runs))

    def ran(self, fresh: bool) -> None:
        self.fresh += fresh


@dataclass
class Tuning:
    """`tune` without its command line: the same study can be taken up again and again."""

    path: Path
    world: World
    allocator: Allocator = field(default_factory=toy_allocator)
    others: tuple[Allocator, ...] = ()
    inputs: tuple[Input, ...] = (Input("default"),)
    added: tuple[SpaceFile, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    notes: Notes = field(default_factory=Notes)

    @property
    def allocators(self) -> list[Allocator]:
        """The allocators that the study searches."""
        return [self.allocator, *self.others]

    @property
    def workload(self) -> Workload:
        """The workload that the study tunes."""
        return Workload(WorkloadFile(command=["true"], input=list(self.inputs)), self.path.parent, self.inputs)

    def go(self, **options: Any) -> StudyView:
        """Run the pipeline, or the rest of it."""
        self.options |= options
        self.notes = Notes()
        store, opts = open_or_begin(
            self.path, self.workload, self.allocators, {"proxy": "none", **self.options}, ["heapwright"],
            added=self.added,
        )  # fmt: skip
        with store:
            tune_study(Session(store, self.workload, self.allocators, opts, self.notes, added=self.added))
        return self.view()

    def go_until_interrupted(self, runs: int) -> bool:
        """Makes so many runs, then Ctrl-C; whether it came to that."""
        self.world.interrupt_after = len(self.world.made) + runs
        try:
            self.go()
        except KeyboardInterrupt:
            return True
        finally:
            self.world.interrupt_after = None
        return False

    def view(self) -> StudyView:
        """The view of the study as it is now."""
        return load_view(self.path)

    def runs(self, phase: str = "%") -> list[StoredRun]:
        """The stored runs."""
        with read_study(self.path) as store:
            return store.runs(phase)

    def course(self) -> list[tuple[Any, ...]]:
        """Every run in order: its phase and block, its environment, its measurements."""
        with read_study(self.path) as store:
            return [
                (r.phase, r.block, r.input, r.config, store.config_by_id(r.config).env, r.failure, r.metrics)
                for r in store.runs()
            ]


@pytest.fixture(autouse=True)
def _commits_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk takes 4 ms for each of hundreds of simulated runs, which need not survive a power cut."""
    monkeypatch.setattr("heapwright.study.store.SYNCHRONOUS", "OFF")


@pytest.fixture
def tuning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tuning]:
    """Makes a `Tuning` on a world with these properties."""

    def make(world: World, **more: Any) -> Tuning:
        install(world, monkeypatch)
        return Tuning(tmp_path / "s.study", world, **more)

    return make


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> Callable[[World], None]:
    """Replace the replays of a trace by a simulated world."""

    def put(world: World) -> None:
        class FakeReplays:
            def __init__(
                self,
                _workload: Workload,
                _traces: Mapping[str, Path],
                _options: MeterOptions,
                program_s: Mapping[str, float] | None = None,
            ) -> None:
                pass

            def __enter__(self) -> FakeReplays:
                return self

            def __exit__(self, *_: object) -> None:
                pass

            def run(self, input_: Input, env: Mapping[str, str], pad: int, _stop: object) -> Outcome:
                return world.run(input_, read_settings(env), pad)

        def record_inputs(*_: object) -> tuple[dict[str, Path], dict[str, Any]]:
            return {}, {"default": {"elapsed_s": 2.0, "events": 1000}}

        monkeypatch.setattr(replay_search, "Replays", FakeReplays)
        monkeypatch.setattr(recorded_setting, "Replays", FakeReplays)
        monkeypatch.setattr(proxy, "record_inputs", record_inputs)

    return put


def quick(world: World, of: World) -> World:
    """A world whose runs take a tenth of the program's time on its clock."""
    run = world.run

    def run_quickly(input_: Input, settings: Settings, pad: int) -> Outcome:
        outcome = run(input_, settings, pad)
        of.clock += of.seconds / 10
        return outcome

    world.run = run_quickly  # type: ignore[method-assign]
    return world
