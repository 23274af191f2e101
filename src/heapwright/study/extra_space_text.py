"""Names the settings beside malloc's, such as a runtime's, in a study's sentence; at the end also untried ones.

The study stores its sentence before the search, so the sentence cannot know how far the budget goes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from heapwright.interleaving.phases import Phase

if TYPE_CHECKING:
    from heapwright.study.meta import StudyMeta
    from heapwright.study.view import Evaluation

_SEARCHED = "its settings are searched too ({}).".format
_LISTED = re.compile(re.escape(_SEARCHED("LIST")).replace("LIST", r"([^()]*)"))


def searched_too(keys: Sequence[str]) -> str:
    """'its settings are searched too (malloc).'"""
    return _SEARCHED(", ".join(keys))


def extra_spaces(meta: StudyMeta, evaluations: Sequence[Evaluation]) -> dict[str, dict[str, Any]]:
    """The spaces beside the allocators'; of a finished study with the settings that were not tried."""
    stored = meta.runtimes or {}
    if meta.phase != Phase.DONE:
        return stored
    return with_tried(stored, {key for e in evaluations for key in e.config.settings})


def with_tried(stored: Mapping[str, dict[str, Any]], tried: Collection[str]) -> dict[str, dict[str, Any]]:
    """The spaces beside the allocators' after the end of a study: their sentences name untried settings.

    Args:
        stored: name of a space → `tuning.session.ExtraSpace` as a JSON-like dict.
        tried: NAME.KEY of each setting that a configuration of the study has.
    """
    return {
        name: {**extra, "sentence": _with_untried(name, extra["sentence"], tried)} for name, extra in stored.items()
    }


def _with_untried(name: str, sentence: str, tried: Collection[str]) -> str:
    listed = _LISTED.search(sentence)
    keys = listed[1].split(", ") if listed else []
    missed = [key for key in keys if f"{name}.{key}" not in tried]
    if listed is None or not missed:
        return sentence
    if len(missed) == len(keys):
        return sentence.replace(listed[0], f"the budget left no room to try its settings ({listed[1]}).")
    return f"{sentence} Not tried in this study: {', '.join(missed)}."
