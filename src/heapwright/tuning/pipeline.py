"""The tuning pipeline of a study: calibrate → search → shortlist → minify → confirm.

    calibrate    runs the default alone: does it work, how long does it take, how noisy is it?
    allocators   runs each allocator at its defaults, and orders the allocators for the search
    search       tries settings: on replays of the program's allocations where they are cheaper and rank settings as
                 the program does (`tuning.replay_search`), else on the program itself
    shortlist    measures the best candidates again, and picks the best for memory, for time, and balanced
    minify       drops settings from each pick that have no effect
    confirm      measures fresh pairs of the default and each pick; the claim rests on these alone

The pipeline starts from the beginning every time. Stored runs answer at once (see `study.store`), so a resumed study
goes on where it stopped. Minify comes before the confirmation: the configuration that is confirmed, on fresh runs, is
exactly the one that is shipped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from heapwright.allocators.joint import ALLOCATOR, JointSpace
from heapwright.allocators.registry import Allocator
from heapwright.allocators.space import Space
from heapwright.errors import HeapwrightError
from heapwright.experiment.candidates import Candidate
from heapwright.experiment.configuration import Config
from heapwright.experiment.phases import Phase
from heapwright.experiment.records import StoredRun
from heapwright.study import options as opt
from heapwright.study.policy import aims_of
from heapwright.study.prefix import Whole, kept_prefix, whole_ratios
from heapwright.study.view import PickName
from heapwright.tuning.calibrate import calibrate
from heapwright.tuning.choose_space import loaded_space, screened_space
from heapwright.tuning.confirm import confirm, fitting_rows, pairs_needed
from heapwright.tuning.minify import minify_each
from heapwright.tuning.reach import take_over
from heapwright.tuning.references import references
from heapwright.tuning.replay_search import ReplaySearch
from heapwright.tuning.schedule import begin
from heapwright.tuning.search_loop import Evaluator
from heapwright.tuning.session import Session
from heapwright.tuning.shortlist import choose_picks, measure_again
from heapwright.tuning.strategy import search_of, strategy_of, warm_points
from heapwright.workload.model import with_prefix


def tune(session: Session) -> None:
    """Run the whole pipeline of a study.

    Raises:
        HeapwrightError: the program does not work by itself, or nothing can be measured or stored.
        KeyboardInterrupt: all runs measured so far are stored.
    """
    if session.options.axes:
        raise HeapwrightError(f"{session.store.path} is a landscape", "name another file with --study for a new one")
    session.phase(Phase.CALIBRATE)
    calibrate(session)
    session.say_matters()
    if not session.allocators:
        session.phase(Phase.DONE)
        return
    if not session.proof:
        _predict(session)
        return
    space, screened = screened_space(session)
    runs = _search(session, space, screened)
    begin(session, Phase.SHORTLIST)
    picks = _shortlist(session, runs)
    searched: dict[str, int] = {name: c.config.id for name, c in picks.items()}
    if searched != session.store.meta.searched:
        session.store.update(searched=searched, picks={})
    begin(session, Phase.MINIFY, {c.config.id: len(c.config.settings) for c in picks.values()}.values())
    final = _minify(session, space, picks)
    begin(session, Phase.CONFIRM)
    _confirm(session, final, len({run.config for run in runs} - {session.default.id}))
    _run_whole(session, final)
    session.phase(Phase.DONE)


def _predict(session: Session) -> None:
    """Without time for a proof, store the prediction of replays, if there is time for those."""
    best = None
    if session.predicts:
        best = ReplaySearch(session, loaded_space(session), []).predict()
    predicted = None
    if best is not None:
        ratios = {m: math.exp(best.cost(m) or 0.0) for m in session.options.objectives}
        predicted = {"config": best.config.id, "ratios": ratios}
    session.store.update(predicted=predicted, picks={}, too_short={"run_s": session.run_s, "searched": 0.0})
    session.phase(Phase.DONE)


def _search(session: Session, space: Space, screened: list[StoredRun]) -> list[StoredRun]:
    """Runs of the program to choose from."""
    begin(session, Phase.SEARCH)
    on_replays = ReplaySearch(session, space, screened)
    if on_replays.run():
        return on_replays.measured
    session.phase(Phase.SEARCH)
    evaluator = Evaluator(Phase.SEARCH, session.blocks, noise=session.noise)
    search = search_of(session, space, evaluator, on_replays.measured)
    search.go(warm_points(session, space), lambda setup: strategy_of(session, setup))
    return search.runs


def _shortlist(session: Session, runs: list[StoredRun]) -> dict[PickName, Candidate]:
    """The picks, from candidates that were measured again."""
    aims = aims_of(session.options)
    configs = session.config_cache.configs
    again = measure_again(runs, session.blocks, configs, session.default, session.workload.train, aims)
    return choose_picks(again, aims)


def _minify(session: Session, space: Space, picks: dict[PickName, Candidate]) -> dict[PickName, Config]:
    """The picks without settings that have no effect; a pick that has no setting left is dropped."""
    smaller, cut_short = minify_each(
        {name: candidate.config for name, candidate in picks.items()},
        blocks=session.blocks,
        register=lambda who, settings: session.config_cache.config(
            space, {ALLOCATOR: who, **settings} if isinstance(space, JointSpace) else settings
        ),
        inputs=session.workload.train,
        objectives=session.options.objectives,
        margin=session.options.margin,
        noise=session.noise,
    )
    for name in cut_short:
        session.progress.note(f"{name} pick: no time was left to drop settings that do nothing")
    session.store.update(unminified=sorted({picks[name].config.id for name in cut_short}))
    return {name: config for name, config in smaller.items() if not config.is_default}


def _confirm(session: Session, final: dict[PickName, Config], searched: int) -> None:
    """Confirm the picks beside the usual advice; drop picks that there is no time to confirm.

    Args:
        session: the study's session.
        final: the picks after minify.
        searched: how many configurations ran.
    """
    inputs, options = session.workload.test, session.options
    configs = list({c.id: c for c in final.values()}.values())
    advice = {name: c for name, c in usual_advice(session).items() if not c.is_default}
    rows = fitting_rows(configs, list(advice.values()), session.blocks, inputs, options)
    confirmed = {c.id for c in [*rows.picks, *rows.references]} if rows else set()
    session.store.update(
        picks={name: config.id for name, config in final.items() if config.id in confirmed},
        unconfirmed=[name for name, config in final.items() if config.id not in confirmed],
        references={name: c.id for name, c in advice.items() if c.id in confirmed},
    )
    needed = pairs_needed(len(inputs), len(options.objectives))
    lack = {"pairs": needed, "seconds": 2 * needed * len(inputs) * session.run_s, "run_s": session.run_s}
    too_short = session.budget.limited and ((rows is None and bool(final)) or not searched)
    few = rows is None and 0 < searched < opt.ENOUGH_EVALUATIONS and options.method != "grid"
    session.store.update(too_short={**lack, "searched": float(searched)} if too_short or few else None)
    if rows is not None:
        confirm(session.default, rows, session.blocks, inputs, options)


def usual_advice(session: Session) -> dict[str, Config]:
    """The usual advice for this program; none where a study searches the settings of a single allocator."""
    if len(session.allocators) == 1:
        return {}
    base = session.config_cache.base

    def works(allocator: Allocator) -> Allocator | None:
        able, _ = take_over(session.store, session.executor, allocator, base, session.workload, session.budget)
        return able

    def config(allocator: Allocator, settings: dict[str, str]) -> Config:
        return session.config_cache.config(allocator.space(threads=True, expert=True), settings)

    return references(base, session.threads, works, config)


def _run_whole(session: Session, final: Mapping[PickName, Config]) -> None:
    """After a study of prefixes: make one whole run of each input under the chosen pick, if there is time."""
    stored, chosen = kept_prefix(session.store), next(iter(final.values()), None)
    if stored is None or chosen is None or chosen.id not in session.store.meta.picks.values():
        return
    if stored.whole is not None and stored.whole.config == chosen.id:
        session.budget.recall(stored.whole.charged_s)
        return
    if session.budget.limited and session.budget.left_s < stored.run_s:
        return
    inputs = session.workload.inputs
    session.progress.phase(Phase.WHOLE_RUN, len(inputs))
    executor = session.executor_of(with_prefix(session.workload, None))
    outcomes = [executor.run(input_, chosen.env) for input_ in inputs]
    first = [run for run in session.store.runs() if run.phase == Phase.CALIBRATE and run.block == 0]
    failure = next((o.failure for o in outcomes if o.failure), "")
    ratios = {} if failure else whole_ratios(outcomes, first, inputs, session.options.objectives)
    whole = Whole(chosen.id, failure, ratios, session.budget.charge())
    session.store.update(prefix=msgspec.to_builtins(msgspec.structs.replace(stored, whole=whole)))
