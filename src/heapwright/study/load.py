"""Builds the plain `StudyView` that reports read from a study file, finished or not."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from heapwright.allocators.space_spec import ParamSpec, SpaceFile, version_trouble
from heapwright.interleaving.candidates import Candidate, Comparisons, gather
from heapwright.interleaving.configuration import Config
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.records import StoredRun, by_block, metrics_by_input
from heapwright.interleaving.stats import Summary, relative_noise, summarise
from heapwright.metrics import METRICS, NUMERIC
from heapwright.study import agreement
from heapwright.study.cautions import hazards_of, warnings_of
from heapwright.study.claim import (
    SEARCH_ONLY,
    configuration_name,
    pick_claim,
    predicted_effect,
    predicted_for_program,
    prediction_claim,
    proven_by,
    recommended_pick,
    single_claim,
    study_claim,
    tree_sentence,
    unmet_claim,
    unread_tree_sentence,
    with_misfit_objection,
    with_time_objection,
    with_verdict,
)
from heapwright.study.cold_pages import with_cold_pages
from heapwright.study.confirmation import judge_pairs
from heapwright.study.evaluations import evaluations_of, not_repeated_sentence, quality_of
from heapwright.study.evidence import with_evidence
from heapwright.study.extra_space_text import extra_spaces
from heapwright.study.final_picks import final_picks
from heapwright.study.landscape_judge import landscape_result_of
from heapwright.study.landscape_result import landscape_claim
from heapwright.study.left_out import became_default, not_searched
from heapwright.study.meta import StudyMeta
from heapwright.study.options import Options
from heapwright.study.policy import aims_of, requirements_of
from heapwright.study.prefix import ChosenPrefix, chosen_prefix, prefix_sentence, with_objection
from heapwright.study.program import program_of
from heapwright.study.requirement import with_requirements
from heapwright.study.stage_times import stages_of
from heapwright.study.store import Store, read_study, study_errors
from heapwright.study.study_bound import bound_after
from heapwright.study.view import (
    Confirmation,
    Dropped,
    Evaluation,
    Pick,
    PickName,
    Proxy,
    Reference,
    Series,
    StudyView,
    Worker,
)
from heapwright.trace.recordings import Recordings
from heapwright.workload.model import WorkloadFile, file_of
from heapwright.workload.program import program_json
from heapwright.workload.work_done import fixed_time_warning

_SEARCHED = (Phase.ALLOCATORS, Phase.RUNTIMES, Phase.SEARCH, Phase.CHECK, Phase.RACE, Phase.SHORTLIST, Phase.LANDSCAPE)


class ClaimBasis(NamedTuple):
    """The facts that a claim states besides its confirmation.

    Attributes:
        inputs: number of test inputs.
        margin: equivalence margin, as a share.
        part: the part of a run that was measured; empty for whole runs.
        replays: whether the pairs are replays.
        earlier_looks: how often results were shown before (`StudyMeta.earlier_looks`).
    """

    inputs: int
    margin: float
    part: str
    replays: bool
    earlier_looks: int


class RunsByPurpose(NamedTuple):
    """The runs of a study, grouped by their purpose.

    Attributes:
        calibrated: runs of the default before the search.
        searched: runs of the program that the search made.
        replays: replays that stand in for runs of the program.
    """

    calibrated: list[StoredRun]
    searched: list[StoredRun]
    replays: list[StoredRun]


class ParamSpecs(NamedTuple):
    """The specifications of the parameters that a study searches.

    Attributes:
        of_allocators: (allocator, key) → parameter.
        of_runtimes: RUNTIME.KEY → parameter, also of spaces that the user added.
        several: whether the study searches more than one allocator.
    """

    of_allocators: dict[tuple[str, str], ParamSpec]
    of_runtimes: dict[str, ParamSpec]
    several: bool

    def explanations(self) -> dict[str, str]:
        """The key of each parameter, with its allocator if there are several → its explanation."""
        return {
            **{f"{name}.{key}" if self.several else key: _explain(p) for (name, key), p in self.of_allocators.items()},
            **{key: _explain(p) for key, p in self.of_runtimes.items()},
        }


def load_view(path: Path) -> StudyView:
    """Reads a study for showing.

    Raises:
        HeapwrightError: missing, not a study, another version's, or damaged.
    """
    with read_study(path) as store, study_errors(path):
        return view_of(store)


def view_of(store: Store) -> StudyView:
    """The view of an open study."""
    meta = store.meta
    options = meta.study_options
    landscape = landscape_result_of(store) if options.axes else None
    file = file_of(meta.identity) if meta.identity else None
    runs = store.runs()
    configs = {id_: store.config_by_id(id_) for id_ in {1, *(r.config for r in runs)}}
    default = configs[1]
    calibrated, searched, replays = purposes = _by_purpose(runs)
    noise = _noise(calibrated)
    candidates, predicted = _candidates_of(purposes, configs, meta.recorded)
    only = {id_: c for id_, c in predicted.items() if id_ not in candidates}
    evaluations, front = evaluations_of(candidates, only, by_block([*replays, *searched]), options)
    params = _param_specs(meta)
    early = chosen_prefix(store)
    prefix = early.prefix if early else file.prefix if file else None
    recordings = msgspec.convert(meta.recordings, Recordings) if meta.recordings else None
    part = prefix.shown() if prefix else ""
    inputs = _test_inputs(meta.identity)
    basis = ClaimBasis(inputs, options.margin, part, recordings is not None, meta.earlier_looks)
    picks, usual, dropped = _confirmed_rows(store, runs, configs, evaluations, basis, recordings)
    return StudyView(
        path=str(store.path),
        created=meta.created,
        version=meta.version,
        command=recordings.command if recordings else meta.identity.get("command", []),
        workload=meta.identity,
        workload_file=meta.workload_file,
        reproduce=meta.reproduce,
        options=msgspec.to_builtins(options),
        host=meta.host,
        meter=next((str(r.extra["meter"]) for r in runs if "meter" in r.extra), ""),
        objectives=[METRICS[key].key for key in options.objectives],
        baseline=_summaries(calibrated),
        noise=noise,
        default=default,
        evaluations=evaluations,
        front=front,
        picks=picks,
        claim=landscape_claim(landscape) if landscape else _claim(store, picks, recordings, candidates),
        series=_series(runs, default, picks),
        hazards=hazards_of(picks, params.of_allocators, params.of_runtimes, runs, meta.host),
        warnings=[
            *warnings_of(runs, calibrated, noise, options, picks),
            *([doubt] if file and (doubt := _fixed_time_doubt(file, calibrated)) else []),
            *dropped,
            *_left_out(meta),
        ],
        explanations=params.explanations(),
        phase=meta.phase or Phase.CALIBRATE,
        wall_s=sum(r.elapsed_s for r in runs),
        method="sweep" if landscape else meta.method.get("name", options.method),
        method_why=meta.method.get("why", ""),
        quality=quality_of(evaluations, runs, configs, options),
        warm=len(meta.warm or []),
        landscape=landscape,
        proxy=_proxy(store, options, candidates, predicted, noise),
        workers=msgspec.convert(meta.cluster.get("workers", []), list[Worker]),
        references=usual,
        stages=stages_of(store, runs),
        objectives_why=_why_these_objectives(store, early, options),
        prefix=prefix,
        matters=bound_after(store, runs, [*picks.values(), *usual.values()]) if recordings is None else None,
        program=program_json(known) if (known := program_of(store)) is not None and recordings is None else {},
        managed=meta.managed,
        runtimes=extra_spaces(meta, evaluations),
        recordings=recordings,
        hidden=meta.hidden,
        verified=meta.verified,
        undecided=meta.undecided,
    )


def _by_purpose(runs: Sequence[StoredRun]) -> RunsByPurpose:
    return RunsByPurpose(
        [r for r in runs if r.phase == Phase.CALIBRATE],
        [r for r in runs if r.phase in _SEARCHED],
        [r for r in runs if r.phase == Phase.REPLAY],
    )


def _param_specs(meta: StudyMeta) -> ParamSpecs:
    """The parameters of the allocators, and of the runtimes and other spaces beside them, as the study stores them."""
    spaces = {name: msgspec.convert(space, SpaceFile) for name, space in meta.spaces.items()}
    extras = meta.runtimes or {}
    files = {name: msgspec.convert(extra["space"], SpaceFile) for name, extra in extras.items()}
    of_extras = {  # as the version has them: a setting may have another default or range in others
        f"{name}.{p.key}": p
        for name, file in files.items()
        for p in file.param
        if not version_trouble(p, extras[name].get("version", ""))
    }
    return ParamSpecs(
        {(name, p.key): p for name, space in spaces.items() for p in space.param},
        of_extras,
        len(spaces) > 1,
    )


def _fixed_time_doubt(file: WorkloadFile, calibrated: Sequence[StoredRun]) -> str:
    """The doubt that the load of a server takes a fixed time, so that its time says nothing; empty if there is none."""
    return fixed_time_warning(metrics_by_input(calibrated)) if file.server else ""


def _left_out(meta: StudyMeta) -> list[str]:
    """Return sentences about results that did not repeat, picks without a confirmation, and allocators not searched."""
    return [
        *([not_repeated_sentence(meta.strayed)] if meta.strayed else []),
        *([sentence] if (sentence := became_default(meta)) else []),
        *(f"There was no time to confirm the {name} pick." for name in meta.unconfirmed),
        *(f"{sentence}." for sentence in not_searched(meta.not_searched, past=True)),
    ]


def _why_these_objectives(store: Store, early: ChosenPrefix | None, options: Options) -> str:
    """Return sentences about special objectives: those of several processes, of a prefix, of a load of fixed time."""
    whole = configuration_name(store.config_by_id(early.whole.config)) if early and early.whole else ""
    sentences = [
        tree_sentence(store.meta.tree) if store.meta.tree else "",
        unread_tree_sentence(store.meta.unread_tree) if store.meta.unread_tree else "",
        prefix_sentence(early, options.objectives, whole) if early else "",
        store.meta.fixed_time or "",
    ]
    return " ".join(filter(None, sentences))


def _candidates_of(
    purposes: RunsByPurpose, configs: Mapping[int, Config], recorded: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[int, Candidate], dict[int, Candidate]]:
    """The candidates that the program measured in the search, and those that replays predicted."""
    candidates = gather(purposes.searched, configs, 1)
    predicted = gather(purposes.replays, configs, 1, agreement.replayed_program(purposes.calibrated, recorded))
    return candidates, agreement.anchored(predicted, candidates)


def _confirmed_rows(
    store: Store,
    runs: Sequence[StoredRun],
    configs: dict[int, Config],
    evaluations: list[Evaluation],
    basis: ClaimBasis,
    recordings: Recordings | None,
) -> tuple[dict[PickName, Pick], dict[str, Reference], list[str]]:
    """The picks and the rows of usual advice with their confirmation, and a sentence about each dropped pick."""
    meta, options = store.meta, store.meta.study_options
    start = store.phase_start(Phase.CONFIRM)
    fresh = [r for r in runs if r.phase == Phase.CONFIRM and r.block >= (start.first if start else 0)]
    judged = judge_pairs(fresh, configs, 1, options, meta.earlier_looks)
    confirmed = predicted_for_program(judged, configs, recordings)
    picks = _picks(store, evaluations, confirmed, options, basis)
    usual = _references(store, confirmed, options, basis)
    requires, tested = requirements_of(options), Comparisons(fresh, configs)
    picks = with_cold_pages(with_requirements(picks, requires, confirmed, tested.to(1)), runs, 1, meta.host)
    usual = with_requirements(usual, requires, confirmed, tested.to(1))
    dropped: list[str] = []
    if meta.phase == Phase.DONE:
        picks, dropped = final_picks(picks, usual, aims_of(options), tested)
        picks = with_objection(picks, chosen_prefix(store))
        if recordings is not None:
            picks = with_misfit_objection(with_time_objection(picks, options.objectives), recordings)
            picks = with_verdict(picks, meta.verified)
    return with_evidence(picks, store, runs, fresh, options), usual, dropped


def _claim(
    store: Store, picks: Mapping[PickName, Pick], recordings: Recordings | None, searched: Mapping[int, Candidate]
) -> str:
    """The claim of a study that is not a landscape, in one sentence; of recordings with the error and the next step."""
    meta, options = store.meta, store.meta.study_options
    if meta.managed.get("reach") == "none" and not meta.runtimes:
        return str(meta.managed["sentence"])
    done = meta.phase == Phase.DONE
    unmet = unmet_claim(requirements_of(options), list(searched.values()))
    known = (meta.too_short, _predicted_text(store), meta.no_prediction, unmet, recordings is not None)
    claim = study_claim(picks, options.objectives, done, *known)
    best = recommended_pick(picks, options.objectives) if done else None
    if done and options.search_only:
        return SEARCH_ONLY
    if recordings is None or not done or (best is not None and proven_by(best, meta.verified)):
        return claim
    return prediction_claim(claim, recordings, str(store.path), options.objectives, best is not None)


def _predicted_text(store: Store) -> str:
    """The prediction of replays, if no proof was possible; else empty."""
    kept = store.meta.predicted
    if not kept:
        return ""
    return predicted_effect(store.config_by_id(kept["config"]), msgspec.convert(kept["ratios"], dict[str, float]))


def _references(
    store: Store, confirmed: dict[int, dict[str, Confirmation]], options: Options, basis: ClaimBasis
) -> dict[str, Reference]:
    """The rows of usual advice."""
    found = {}
    for name, id_ in store.meta.references.items():
        seen = confirmed.get(id_, {})
        claim = pick_claim(seen, options.objectives, *basis)
        found[name] = Reference(name, store.config_by_id(id_), seen, claim)
    return found


def _proxy(
    store: Store,
    options: Options,
    program: dict[int, Candidate],
    predicted: dict[int, Candidate],
    noise: dict[str, float],
) -> Proxy | None:
    kept: dict[str, Any] | None = store.meta.proxy
    if kept is None:
        return None
    of_ratio = {metric: math.sqrt(2) * value for metric, value in noise.items()}
    return Proxy(
        kept["used"],
        kept["why"],
        store.meta.recorded,
        kept.get("program_s"),
        kept.get("replay_s"),
        kept.get("slots", 1),
        agreement.check(program, predicted, options.objectives, of_ratio).by_objective if kept["used"] else [],
        kept.get("checked", ""),
    )


def _test_inputs(identity: dict[str, Any]) -> int:
    inputs = identity.get("input", [])
    return sum(i.get("split") == "test" for i in inputs) or max(1, len(inputs))


def _explain(spec: ParamSpec) -> str:
    return f"{spec.explain} Default: {spec.default}{' ' + spec.unit if spec.unit and spec.default.isdecimal() else ''}."


def _counted(calibrated: list[StoredRun]) -> list[StoredRun]:
    """Calibration runs without each input's warm-up."""
    return [r for r in calibrated if r.block > 0] or calibrated


def _summaries(calibrated: list[StoredRun]) -> dict[str, Summary]:
    found: dict[str, Summary] = {}
    for metric in NUMERIC:
        values = [v for r in _counted(calibrated) if (v := r.metrics.get(metric)) is not None]
        if values:
            found[metric] = summarise(values)
    return found


def _noise(calibrated: list[StoredRun]) -> dict[str, float]:
    """Relative spread per metric: the largest of all inputs."""
    noise: dict[str, float] = {}
    for metric in NUMERIC:
        by_input: dict[str, list[float]] = {}
        for run in _counted(calibrated):
            value = run.metrics.get(metric)
            if value is not None:
                by_input.setdefault(run.input, []).append(value)
        if by_input:
            noise[metric] = max(relative_noise(v) for v in by_input.values())
    return noise


def _picks(
    store: Store,
    evaluations: list[Evaluation],
    confirmed: dict[int, dict[str, Confirmation]],
    options: Options,
    basis: ClaimBasis,
) -> dict[PickName, Pick]:
    by_id = {e.config.id: e for e in evaluations}
    searched = cast(dict[PickName, int], store.meta.searched)
    final = cast(dict[PickName, int], store.meta.picks)
    picks: dict[PickName, Pick] = {}
    for name, id_ in final.items():
        config = store.config_by_id(id_)
        origin = by_id[searched[name]]
        dropped = [Dropped(k, v) for k, v in origin.config.settings.items() if k not in config.settings]
        found = confirmed.get(id_, {})
        if options.search_only and not found:
            claim = single_claim(origin.ratios, options.objectives)
        else:
            claim = pick_claim(found, options.objectives, *basis)
        minified = not options.search_only and origin.config.id not in store.meta.unminified
        picks[name] = Pick(name, config, origin, dropped, found, claim, minified=minified)
    return picks


def _series(runs: list[StoredRun], default: Config, picks: dict[PickName, Pick]) -> dict[str, Series]:
    names: dict[int, list[str]] = {default.id: ["default"]}
    for pick in picks.values():
        names.setdefault(pick.config.id, []).append(pick.name)
    found: dict[str, Series] = {}
    walls: dict[int, list[float]] = {}
    for run in runs:
        if run.phase == Phase.CONFIRM and run.series and (wall := run.metrics.get("wall_s")) is not None:
            walls.setdefault(run.config, []).append(wall)
    middle = {config: statistics.median(w) for config, w in walls.items()}

    def rank(run: StoredRun) -> tuple[bool, float, int]:
        """Sort key: first the run of the confirmation whose wall time is closest to the median."""
        off = abs((run.metrics.get("wall_s") or 0.0) - middle.get(run.config, 0.0))
        return run.phase != Phase.CONFIRM, off, -run.block

    for run in sorted(runs, key=rank):
        for name in names.get(run.config, []):
            if run.series and name not in found:
                found[name] = Series(*(run.series.get(k, []) for k in ("t", "rss", "heap", "vm", "huge")))
    return found
