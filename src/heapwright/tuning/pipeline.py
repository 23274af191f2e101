"""The tuning pipeline of a study, from the first run of the program to the confirmed picks.

The *default* is the program as its users run it. A *pick* is a configuration that the study recommends under one name:
the best for memory, the best for time, or the best balance of both; a pick may be missing, and two may be the same
configuration. The *claim* is the sentence that a pick is better than the default by so much, with its interval.

    calibrate    runs the default alone: does it work, how long does it take, how noisy is it? Then plans the study:
                 whole runs, prefixes of runs if whole ones take too long, or only a prediction
    allocators   runs each allocator at its default settings, drops those that fail, and sorts the rest, best first
    runtimes     tries each setting of the program's runtime alone, if it has one, and drops those without effect
    search       tries settings: on replays of the program's recorded calls of malloc and free, if replays are cheaper
                 and rank settings as the program does (`tuning.replay_search`), else on the program itself. Settings
                 of a runtime are always tried on the program, together with the best settings of the replays
    shortlist    measures the best candidates again on the program, and chooses the picks
    minify       drops settings from each pick whose removal shows no cost
    confirm      measures new pairs of the default and each pick, on the test inputs if there are any
    whole run    after a study of prefixes: one whole run with the best pick, as a check, not as proof

Only the pairs of `confirm` support a claim: earlier runs selected the picks, so picks look too good in those runs.
Minify comes before, so that the confirmed configuration is exactly the one that `apply` prints.

A study of recordings alone (`tune --trace`) has the same stages. Each of its runs is a replay, so its pairs support a
prediction, not a claim; `verify` proves it with the program.

A study that resumes starts here again. Every run that is stored already is returned at once instead of made, and every
decision follows from stored runs and their charged seconds; so the study continues where it stopped (`study.store`).

When time is short: without time for a confirmation the study only predicts (`_predict`), or stops after its first run;
picks without time for minify keep all settings; picks without time for a confirmation are dropped (`_confirm`).

With `search_only` the study ends after the search, as published searches do: its best single evaluations stay as picks,
and the claim says that nothing is confirmed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from heapwright.allocators.in_image import image_allocators
from heapwright.allocators.joint import ALLOCATOR, JointSpace, has_extras
from heapwright.allocators.registry import Allocator, find_allocators
from heapwright.allocators.space import Space
from heapwright.errors import HeapwrightError
from heapwright.interleaving.candidates import Candidate, gather
from heapwright.interleaving.configuration import Config
from heapwright.interleaving.phases import Phase
from heapwright.interleaving.records import StoredRun
from heapwright.interleaving.stats import pairs_needed
from heapwright.search.methods import check_method
from heapwright.study import options as opt
from heapwright.study.policy import aims_of
from heapwright.study.prefix import WholeRun, chosen_prefix, whole_ratios
from heapwright.study.view import PickName
from heapwright.tuning.calibrate import calibrate
from heapwright.tuning.choose_space import loaded_space, screened_space
from heapwright.tuning.confirm import confirm, fitting_rows
from heapwright.tuning.huge_pages import huge_page_points
from heapwright.tuning.minify import minify_each
from heapwright.tuning.recorded_setting import points_under_runtime_setting
from heapwright.tuning.references import references
from heapwright.tuning.replay_search import ReplaySearch
from heapwright.tuning.runtimes import combinations
from heapwright.tuning.schedule import begin
from heapwright.tuning.search_loop import Evaluator
from heapwright.tuning.session import Session
from heapwright.tuning.shortlist import choose_picks, measure_again
from heapwright.tuning.strategy import search_of, search_on, warm_points
from heapwright.tuning.takeover_check import take_over
from heapwright.workload.model import with_prefix


def tune_study(session: Session) -> None:
    """Run the whole pipeline of a study.

    Raises:
        HeapwrightError: the study is a landscape, a package of its search method is missing, the program does not
            work by itself, or nothing can be measured or stored.
        KeyboardInterrupt: all completed runs are stored.
    """
    if session.options.axes:
        raise HeapwrightError(f"{session.store.path} is a landscape", "name another file with --study for a new one")
    check_method(session.store.meta.method.get("name") or session.options.method)  # before minutes of measurements
    session.phase(Phase.CALIBRATE)
    calibrate(session)
    session.say_saving_bound()
    if not session.allocators:  # none can reach the program; the claim says so
        session.phase(Phase.DONE)
        return
    if not session.proof:  # no time for a confirmation
        _predict(session)
        return
    space, screened = screened_space(session)
    runs = _search(session, space, screened)
    if session.store.meta.managed.get("reach") == "none" and not session.extra_levels:  # it makes no call of malloc
        session.phase(Phase.DONE)
        return
    if session.options.search_only:
        _keep_raw(session, runs)
        return
    begin(session, Phase.SHORTLIST)
    picks = _shortlist(session, runs)
    searched: dict[str, int] = {name: c.config.id for name, c in picks.items()}
    if searched != session.store.meta.searched:  # picks of an earlier, smaller search are out of date
        session.store.update(searched=searched, picks={})
    begin(session, Phase.MINIFY, {c.config.id: len(c.config.settings) for c in picks.values()}.values())
    final = _minify(session, space, picks)
    begin(session, Phase.CONFIRM)
    _confirm(session, final, len({run.config for run in runs} - {session.default.id}))
    _run_whole(session, final)
    _count_look(session)
    session.phase(Phase.DONE)


def _count_look(session: Session) -> None:
    """Note that the result of the confirmation will be shown, unless it was shown before with the same runs."""
    looks, runs = session.store.meta.confirm_looks, len(session.store.runs(Phase.CONFIRM))
    if runs and runs not in looks:
        session.store.update(confirm_looks=[*looks, runs])


def _keep_raw(session: Session, runs: list[StoredRun]) -> None:
    """End the study after its search: store its best single evaluations as picks, which nothing confirms."""
    aims, configs = aims_of(session.options), session.config_cache.configs
    found = [c for c in gather(runs, configs, session.default.id).values() if aims.costs(c) is not None]
    searched = {name: c.config.id for name, c in choose_picks(found, aims).items()}
    session.store.update(searched=searched, picks=searched, too_short=None)
    session.phase(Phase.DONE)


def _predict(session: Session) -> None:
    """Store the prediction of replays, if there is time for replays, and end the study without a claim."""
    best, tried = None, 0
    if session.predicts:
        on_replays = ReplaySearch(session, loaded_space(session), [])
        best, tried = on_replays.predict(), on_replays.tried
        session.store.update(no_prediction=on_replays.why)
    predicted = None
    if best is not None:
        ratios = {m: math.exp(best.cost(m) or 0.0) for m in session.options.objectives}
        predicted = {"config": best.config.id, "ratios": ratios}
    needs = {"run_s": session.run_s, "searched": 0.0, "replayed": float(tried)}
    enough = {key: seconds for key, seconds in session.store.meta.plan.items() if key == "enough_s"}
    session.store.update(predicted=predicted, picks={}, too_short=needs | enough)
    session.phase(Phase.DONE)


def _search(session: Session, space: Space, screened: list[StoredRun]) -> list[StoredRun]:
    """Search settings, and return runs of the program, from which the picks are chosen.

    Args:
        session: the study's session.
        space: the parameter space.
        screened: runs of the program that screened its allocators.
    """
    begin(session, Phase.SEARCH)
    measured = screened
    if session.recordings is None:  # otherwise every run is a replay
        on_replays = ReplaySearch(session, space, screened)
        done = on_replays.run()
        measured = on_replays.measured
        if done and not has_extras(space):
            return measured
        session.phase(Phase.SEARCH)  # after phases of the replay search
    evaluator = Evaluator(Phase.SEARCH, session.blocks, noise=session.noise)
    search = search_of(session, space, evaluator, measured)
    huge, joined = huge_page_points(session, space), combinations(session, space, measured)
    first = [*joined, *huge] if session.runtime_first else [*huge, *joined]
    under_runtime = points_under_runtime_setting(session, space, measured)
    search_on(session, search, [*warm_points(session, space), *first, *under_runtime])
    return search.runs


def _shortlist(session: Session, runs: list[StoredRun]) -> dict[PickName, Candidate]:
    """Measure the best candidates again, and choose the picks: those that are better than the default."""
    aims = aims_of(session.options)
    configs = session.config_cache.configs
    again = measure_again(runs, session.blocks, configs, session.default, session.workload.train, aims)
    return choose_picks(again, aims)


def _minify(session: Session, space: Space, picks: dict[PickName, Candidate]) -> dict[PickName, Config]:
    """Drop settings without effect from the picks; drop a pick that has become the default."""
    if not session.options.minify:
        session.store.update(unminified=sorted({c.config.id for c in picks.values()}))
        return {name: candidate.config for name, candidate in picks.items()}
    aims = aims_of(session.options)
    smaller, cut_short = minify_each(
        {name: candidate.config for name, candidate in picks.items()},
        blocks=session.blocks,
        make_config=lambda who, settings: session.config_cache.config(
            space, {ALLOCATOR: who, **settings} if isinstance(space, JointSpace) else settings
        ),
        inputs=session.workload.train,
        objectives=session.options.objectives,
        margin=session.options.margin,
        noise=session.noise,
        gains={c.config.id: [max(0.0, -(c.cost(m) or 0.0)) for m in aims.objectives] for c in picks.values()},
        bounded=aims.bounded,
    )
    for name in cut_short:
        session.progress.note(f"{name} pick: no time was left to drop settings that do nothing")
    session.store.update(unminified=sorted({picks[name].config.id for name in cut_short}))
    return {name: config for name, config in smaller.items() if not config.is_default}


def _confirm(session: Session, final: dict[PickName, Config], searched: int) -> None:
    """Confirm the picks, together with rows of usual advice; drop picks that there is no time to confirm.

    The chosen picks are stored before their pairs are measured, so that a resumed study confirms the same ones. Picks
    that fail in a pair are judged later (`study.final_picks`).

    Args:
        session: the study's session.
        final: the picks after minify.
        searched: number of configurations, besides the default, that ran on the program during the search.
    """
    inputs, options = session.workload.test, session.options
    configs = list({c.id: c for c in final.values()}.values())  # two picks may be one configuration
    advice = {name: c for name, c in usual_advice(session).items() if not c.is_default}
    rows = fitting_rows(session.default, configs, list(advice.values()), session.blocks, inputs, options)
    chosen = {c.id for c in [*rows.picks, *rows.references]} if rows else set()
    session.store.update(
        picks={name: config.id for name, config in final.items() if config.id in chosen},
        unconfirmed=[name for name, config in final.items() if config.id not in chosen],
        references={name: c.id for name, c in advice.items() if c.id in chosen},
    )

    def note_too_short(tests: int) -> None:
        """Store the needs of a confirmation with so many tests: pairs of each input, and seconds for one pick."""
        pairs = pairs_needed(len(inputs), tests)
        a_pair = len(inputs) * session.blocks.seconds_of([session.default, *configs[:1]])
        needs = {"pairs": pairs, "seconds": pairs * a_pair, "run_s": session.run_s}
        replayed = {run.config for run in session.store.runs(Phase.REPLAY)} - {session.default.id}
        unmeasured = 0.0 if searched else float(len(replayed))
        found = {"searched": float(searched), "unmeasured": unmeasured, "candidates": float(len(configs))}
        session.store.update(too_short=needs | found)

    method = session.store.meta.method.get("name", options.method)  # 'auto' may have chosen a grid
    # Nothing can be claimed if picks could not be confirmed, or if too few settings ran (a grid may
    # be that small).
    too_short = session.budget.limited and ((rows is None and bool(final)) or not searched)
    few = rows is None and 0 < searched < opt.ENOUGH_EVALUATIONS and method != "grid"
    session.store.update(too_short=None)
    if too_short or few:
        note_too_short(len(options.objectives))
    if rows is not None:
        pairs = confirm(session.default, rows, session.blocks, inputs, options)
        tests = (len(rows.picks) + len(rows.references)) * len(options.objectives)
        if session.budget.limited and pairs < pairs_needed(len(inputs), tests):  # runs were slower than expected
            note_too_short(tests)


def usual_advice(session: Session) -> dict[str, Config]:
    """The rows of usual advice for this program, such as MALLOC_ARENA_MAX=1, by name.

    There are none if the study searches a single allocator: its default is that allocator, not the usual malloc.
    """
    if len(session.allocators) == 1:
        return {}
    base = session.config_cache.base

    def works(allocator: Allocator) -> Allocator | None:
        run = session.as_run(allocator)
        able, _ = take_over(session.store, session.executor, run, base, session.workload, session.budget)
        return able

    def config(allocator: Allocator, settings: dict[str, str]) -> Config:
        return session.config_cache.config(allocator.space(threads=True, expert=True), settings)

    container = session.workload.container
    if container is None:
        found = find_allocators()
    else:
        found = image_allocators(container.image.platform, container.image.libraries, container.image.libc_version)
    return references(found, base, session.threads, works, config)


def _run_whole(session: Session, final: Mapping[PickName, Config]) -> None:
    """After a study of prefixes, make one whole run of each input with the most important pick, if there is time.

    The result is shown, and speaks against the pick if the gain is missing (`study.prefix`); it is no proof.
    """
    stored, chosen = chosen_prefix(session.store), next(iter(final.values()), None)
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
    # Block 0 of the calibration has the whole runs of the default; prefixes came later.
    first = [run for run in session.store.runs() if run.phase == Phase.CALIBRATE and run.block == 0]
    failure = next((o.failure for o in outcomes if o.failure), "")
    ratios = {} if failure else whole_ratios(outcomes, first, inputs, (*session.options.objectives, "cpu_s"))
    whole = WholeRun(chosen.id, failure, ratios, session.budget.charge())
    session.store.update(prefix=msgspec.to_builtins(msgspec.structs.replace(stored, whole=whole)))
