"""The study's own facts, beside its runs: one typed structure, stored as rows (key, JSON value) of the table `meta`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from heapwright.study.options import Options


class VerifiedBuild(msgspec.Struct):
    """How often `verify` judged pairs of a configuration on a build of a program.

    Attributes:
        config: number of the configuration.
        on: the program for people: its command or workload file.
        build: build id or digest of each file of the program, without those that the program itself writes.
        times: how often.
    """

    config: int
    on: str
    build: list[str]
    times: Annotated[int, msgspec.Meta(ge=0)]


class StudyMeta(msgspec.Struct, kw_only=True):
    """The facts of a study besides its runs. A field that was never stored has its default.

    Attributes:
        created: ISO time, UTC. version: of heapwright, that made the study.
        phase: how far the study is (`interleaving.phases.Phase`).
        identity: the workload as a JSON-like dict; empty in a file without a study.
        workload_file: absolute path of the workload file; empty for a bare command.
        program: the build of the program (`workload.program.ProgramIdentity`); None in studies of older versions.
        spaces: allocator → its parameter space as a JSON-like dict.
        host: fingerprint of the machine. environment: variables that change the allocators' defaults.
        options: `study.options.Options` as a JSON-like dict; see `study_options`.
        objectives_given: whether the user chose the objectives; None in studies of older versions.
        reproduce: the command line that made the study, as words.
        spent_s: seconds of the study's time spent so far. report_s: seconds kept for the report.
        stopped_s: the charge, in seconds, at which the deadline ended the study; None if it did not.
        charged: work that is not a run → seconds charged to it.
        plan: the estimate made after the first runs (`tuning.plan`).
        fixed_time: what shows that the load runs for a fixed time, if times are not the objectives because of it.
        tree: largest number of live processes, where the objectives are proportional memory because of it; else 0.
        unread_tree: largest number of live processes, where runs of the default lack proportional memory and the
            objectives are those of one process; else 0.
        managed: who manages the program's memory, where that is not plain malloc (`tuning.reachable_allocators`).
        seeks_runtimes: whether the study searches the settings of a runtime if it finds one; not in older studies.
        runtimes: runtime, or space added by the user → `tuning.session.ExtraSpace`; None before the program was
            inspected.
        added: space that the user added → its file as a JSON-like dict.
        takeover: allocator → whether it takes over, and how long the test took (`tuning.takeover_check`).
        not_searched: allocator → why it is not searched.
        recordings: the recordings of a study of recordings (`trace.recordings.Recordings`); None for a program.
        hidden: allocator → settings that are not searched, because a replay does not show their effect.
        verified: the verdict of `verify` on the program, in a study of recordings; None before.
        undecided: the last verdict of `verify` that decided nothing, until one decides; None without one.
        verified_builds: how often `verify` judged pairs, in such a study (`study.verifications`).
        recorded: input → facts about its recording. recorded_beside: the same under a setting of the runtime, by
            'KEY=VALUE/INPUT'. recorded_again: counts of further recordings, by 'ALLOCATOR/KEY=VALUE/INPUT'.
        proxy: facts about the replays; None before they were tried.
        method: name of the search method, and why it was chosen.
        warm: good settings of other studies; None before they were looked up.
        generations: configuration → the batch of the search method that first proposed it; 0: before the method began.
        strayed: number of configurations that the search method proposed before an interruption and not again.
        searched: pick → configuration found by the search. picks: pick → configuration after minify.
        unminified: configurations that were not minified. unconfirmed: picks without time for a confirmation.
        references: row of usual advice → configuration.
        confirm_looks: for each time that the study was finished, the number of runs of its confirmations by then.
        choice: pick → configuration that `run` starts; the key '' stands for the study's own choice. (`shipped` in
            studies of version 0.2.0, which chose by other rules.)
        too_short: where the budget proves too little: seconds of a run, and what would be enough.
        predicted: the prediction of the replays, where no proof was possible. no_prediction: why there is none.
        prefix: the prefix that the study chose (`study.prefix.ChosenPrefix`).
        repeats: of a landscape: whether it repeats some of its points.
        cluster: kind and workers of the machines that ran the study.
    """

    created: str = ""
    version: str = ""
    phase: str = ""
    identity: dict[str, Any] = {}
    workload_file: str = ""
    program: dict[str, Any] | None = None
    spaces: dict[str, dict[str, Any]] = {}
    host: dict[str, str | int | float | bool | None] = {}
    environment: dict[str, str] = {}
    options: dict[str, Any] = {}
    objectives_given: bool | None = None
    reproduce: list[str] = []
    spent_s: float = 0.0
    report_s: float | None = None
    stopped_s: float | None = None
    charged: dict[str, float] = {}
    plan: dict[str, float] = {}
    fixed_time: str = ""
    tree: int = 0
    unread_tree: int = 0
    managed: dict[str, str] = {}
    seeks_runtimes: bool = False
    runtimes: dict[str, dict[str, Any]] | None = None
    added: dict[str, dict[str, Any]] = {}
    takeover: dict[str, dict[str, Any]] = {}
    not_searched: dict[str, str] = {}
    recordings: dict[str, Any] | None = None
    hidden: dict[str, list[str]] = {}
    verified: dict[str, Any] | None = None
    undecided: dict[str, Any] | None = None
    verified_builds: list[VerifiedBuild] = []
    recorded: dict[str, dict[str, Any]] = {}
    recorded_beside: dict[str, dict[str, Any]] = {}
    recorded_again: dict[str, dict[str, Any]] = {}
    proxy: dict[str, Any] | None = None
    method: dict[str, str] = {}
    warm: list[dict[str, str]] | None = None
    generations: dict[str, int] = {}
    strayed: int = 0
    searched: dict[str, int] = {}
    picks: dict[str, int] = {}
    unminified: list[int] = []
    unconfirmed: list[str] = []
    references: dict[str, int] = {}
    confirm_looks: list[int] = []
    choice: dict[str, int] = {}
    too_short: dict[str, float] | None = None
    predicted: dict[str, Any] | None = None
    no_prediction: str = ""
    prefix: dict[str, Any] | None = None
    repeats: bool = False
    cluster: dict[str, Any] = {}

    @property
    def earlier_looks(self) -> int:
        """How often a finished confirmation was shown before the present one: with fewer pairs, or of other picks."""
        return max(0, len(self.confirm_looks) - 1)

    @property
    def study_options(self) -> Options:
        """The stored options; the defaults where none are stored."""
        return msgspec.convert(self.options, Options, strict=False)
