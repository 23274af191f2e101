"""Which configuration a study stands for when nobody says which."""

from __future__ import annotations

from heapwright.errors import HeapwrightError
from heapwright.study.claim import headline
from heapwright.study.view import Config, Pick, PickName, StudyView


def chosen_pick(view: StudyView, name: PickName | None) -> Pick | None:
    """The named pick, or the one the study's claim speaks of; None: keep the default.

    Raises:
        HeapwrightError: the study has no such pick, or has not got that far.
    """
    if name is None:
        if view.phase != "done":
            raise HeapwrightError(
                f"{view.path} is not finished (it is in phase '{view.phase}')",
                "give its tune command again: it goes on where it stopped",
            )
        return headline(view.picks, view.objectives)
    if name not in view.picks:
        have = ", ".join(view.picks) or "none: nothing beat the default"
        raise HeapwrightError(f"{view.path} has no '{name}' pick", f"it has: {have}")
    return view.picks[name]


def chosen_config(view: StudyView, name: PickName | None) -> Config:
    """The configuration of `chosen_pick`; the default where nothing is proven."""
    pick = chosen_pick(view, name)
    return pick.config if pick else view.default
