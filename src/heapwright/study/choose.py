"""Chooses the configuration that a study ships, if the user names none."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from heapwright.errors import HeapwrightError
from heapwright.interleaving.configuration import Config
from heapwright.interleaving.phases import Phase
from heapwright.study.claim import is_proven, proven_by, recommended_pick
from heapwright.study.view import Pick, PickName, StudyView

if TYPE_CHECKING:
    from heapwright.study.store import Store


def chosen_pick(view: StudyView, name: PickName | None) -> Pick | None:
    """The named pick, or the pick of the study's claim; None: keep the default.

    Raises:
        HeapwrightError: the study has no such pick, or is not finished.
    """
    if name is None:
        if view.phase != Phase.DONE:
            raise HeapwrightError(
                f"{view.path} is not finished (it is in phase '{view.phase}')",
                "give its tune command again: it continues where it stopped",
            )
        return recommended_pick(view.picks, view.objectives)
    if name not in view.picks:
        have = f"it has: {', '.join(view.picks)}" if view.picks else "nothing beat the default"
        raise HeapwrightError(f"{view.path} has no '{name}' pick", have)
    return view.picks[name]


def pick_to_verify(view: StudyView, name: PickName | None) -> Pick:
    """Return the pick whose gain is to be verified.

    Args:
        view: the study.
        name: of the pick; None for that of the study's claim.

    Raises:
        HeapwrightError: the study has no such pick, or claims no gain of it.
    """
    pick = chosen_pick(view, name)
    if pick is None:
        says = "claims" if view.recordings is None else "predicts"
        raise HeapwrightError(f"{view.path} {says} no gain, so there is nothing to verify", "see 'heapwright report'")
    if not pick.confirmed:
        raise HeapwrightError(
            f"the {pick.name} pick of {view.path} was not confirmed, so there is nothing to verify",
            "continue the study with the same 'heapwright tune' command, without --search-only",
        )
    if not is_proven(pick, view.objectives):
        gain = "proven gain" if view.recordings is None else "predicted gain"
        raise HeapwrightError(
            f"the {pick.name} pick of {view.path} has no {gain}, so there is nothing to verify",
            "see 'heapwright report'",
        )
    return pick


def gain_is_proven(view: StudyView) -> bool:
    """Whether fresh pairs of the program prove a gain: in the study, or by `verify` in a study of recordings."""
    if view.recordings is None:
        return recommended_pick(view.picks, view.objectives) is not None
    return any(proven_by(pick, view.verified) for pick in view.picks.values())


def keep_choice(store: Store, view: StudyView) -> None:
    """Store the choice of a finished study, so that `run` need not judge the runs again."""
    pick = recommended_pick(view.picks, view.objectives)
    named = {name: p.config.id for name, p in view.picks.items()}
    store.update(choice={"": pick.config.id if pick else view.default.id, **named})


def kept_choice(store: Store, name: PickName | None) -> Config | None:
    """The stored choice for this pick; None: the runs must be judged."""
    choice = store.meta.choice if store.meta.phase == Phase.DONE else {}
    if (name or "") not in choice:
        return None
    return _as_shipped(store.config_by_id(choice[name or ""]), store.meta.recordings is not None)


def chosen_config(view: StudyView, name: PickName | None) -> Config:
    """The configuration of `chosen_pick`; the default if nothing is proven."""
    return config_of(view, chosen_pick(view, name))


def config_of(view: StudyView, pick: Pick | None) -> Config:
    """The configuration that a study ships: that of a pick, or the default if there is none."""
    return _as_shipped(pick.config if pick else view.default, view.recordings is not None)


def _as_shipped(config: Config, from_recordings: bool) -> Config:
    """A configuration as it is shipped: the default of a study of recordings sets nothing.

    Replays need variables for their default, such as the library of the recorded malloc. The program has that malloc.
    """
    return dataclasses.replace(config, env={}) if config.is_default and from_recordings else config


def prediction_caution(view: StudyView, pick: Pick | None, path: Path | str) -> str:
    """Return a line that a pick is only predicted, from recordings, and how to prove it; empty if it is proven.

    After an undecided `verify`, the line has its verdict and figures.

    Args:
        view: the study.
        pick: its pick, or None for the default.
        path: the file of the study.
    """
    if pick is None or view.recordings is None or proven_by(pick, view.verified):
        return ""
    command = shlex.join(["heapwright", "verify", str(path)])
    if view.undecided is not None and view.undecided["config"] == pick.config.id:
        return f"predicted, not proven on {view.undecided['on']}: {view.undecided['sentence']}"
    return f"predicted, not proven; to prove it with the real load: {command} -- CMD"
