"""Lists every run of a study in order, as typed records and as CSV, for analyses outside heapwright."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heapwright.interleaving.phases import Phase
from heapwright.interleaving.records import by_block
from heapwright.metrics import NUMERIC
from heapwright.study.store import Store


@dataclass(frozen=True)
class EvaluationRun:
    """One run of one configuration, as an evaluation of a search or in another stage.

    Attributes:
        order: 1, 2, … in the order in which the runs were made, over all stages.
        evaluation: number of the configuration in the order of blocks, as in the report; 0 for the default.
        stage: the stage, such as 'calibrate', 'search', 'replay' or 'confirm'.
        generation: the batch of the search method that proposed the configuration, from 1; 0 for configurations tried
            before the method began (warm starts); None for the default and in studies of older versions.
        block: number of the block within its stage. Runs of one block are compared with each other.
        input: name of the input.
        elapsed_s: seconds that the run took, with set-up and measuring.
        study_s: seconds of the study's time when the run ended.
        allocator: name of the allocator.
        settings: key → value as text; empty for the default.
        feasible: False if the run crashed, timed out or changed the output; then `failure` says which.
        failure: the reason, or empty.
        ratios: metric key → ratio to the default's run of the same block and input; only where both were measured. It
            is 1 if both are 0, and infinite (math.inf) if only the default's is 0.
        metrics: metric key → value in the metric's unit; only metrics that were measured.
        machine: the worker of a cluster that made the run, as machine:process; empty if there was no cluster.
    """

    order: int
    evaluation: int
    stage: str
    generation: int | None
    block: int
    input: str
    elapsed_s: float
    study_s: float
    allocator: str
    settings: dict[str, str]
    feasible: bool
    failure: str
    ratios: dict[str, float]
    metrics: dict[str, float]
    machine: str = ""


def evaluation_runs(store: Store) -> list[EvaluationRun]:
    """Return all runs of a study in order."""
    runs = store.runs()
    generations = store.meta.generations
    configs = {id_: store.config_by_id(id_) for id_ in {1, *(r.config for r in runs)}}
    base = {(r.phase, r.block, r.input): r for r in runs if r.config == 1 and not r.failure}
    numbers = {config: number for number, config in enumerate(dict.fromkeys([1, *(r.config for r in by_block(runs))]))}
    spent, found = 0.0, []
    for order, run in enumerate(runs, 1):
        spent += run.charged_s()
        default_run = base.get((run.phase, run.block, run.input))
        metrics = {m: v for m in NUMERIC if (v := run.metrics.get(m)) is not None}
        config = configs[run.config]
        found.append(
            EvaluationRun(
                order,
                numbers[run.config],
                run.phase,
                generations.get(str(run.config)) if run.config != 1 else None,
                run.block,
                run.input,
                run.elapsed_s,
                spent,
                config.allocator,
                dict(config.settings),
                not run.failure,
                run.failure,
                {
                    m: _ratio(v, other)
                    for m, v in metrics.items()
                    if default_run is not None
                    and run.phase != Phase.CALIBRATE
                    and (other := default_run.metrics.get(m)) is not None
                },
                metrics,
                str(run.extra.get("machine") or ""),
            )
        )
    return found


def _ratio(value: float, default: float) -> float:
    if value == default:
        return 1.0
    return value / default if default else math.inf


def study_csv(studies: Mapping[str, Sequence[EvaluationRun]], named: bool = False) -> str:
    """Return one line for each run. Settings and metrics have a column each; an empty cell is unset or not measured.

    The cell of an infinite ratio is empty, too.

    Args:
        studies: name of a study → its runs. With several studies the first column is the name.
        named: whether a single study has that column, too.
    """
    runs = [run for found in studies.values() for run in found]
    several = named or len(studies) > 1
    keys = list(dict.fromkeys(key for run in runs for key in run.settings))
    ratios = [m for m in NUMERIC if any(m in run.ratios for run in runs)]
    metrics = [m for m in NUMERIC if any(m in run.metrics for run in runs)]
    plain = [
        "order",
        "evaluation",
        "stage",
        "generation",
        "block",
        "input",
        "elapsed_s",
        "study_s",
        "machine",
        "allocator",
    ]
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    head = [*plain, "feasible", "failure", *(f"set.{k}" for k in keys), *(f"ratio.{m}" for m in ratios), *metrics]
    table.writerow([*(["study"] if several else []), *head])
    for study, run in ((name, run) for name, found in studies.items() for run in found):
        table.writerow(
            [
                *([study] if several else []),
                *("" if (v := getattr(run, name)) is None else v for name in plain),
                int(run.feasible),
                run.failure,
                *(run.settings.get(k, "") for k in keys),
                *(repr(r) if math.isfinite(r := run.ratios.get(m, math.inf)) else "" for m in ratios),
                *(repr(run.metrics[m]) if m in run.metrics else "" for m in metrics),
            ]
        )
    return out.getvalue()
