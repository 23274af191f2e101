"""Lists allocators and settings that a study does not search, and picks that became the default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heapwright.interleaving.phases import Phase
from heapwright.study.meta import StudyMeta

# Why a setting is only measured alone. Such a measurement can still lead to a pick.
USELESS_ALONE = "alone, no objective improved by more than the noise"


def not_searched(reasons: Mapping[str, str], past: bool = False) -> list[str]:
    """Return sentences without a full stop: 'hoard and scudo are not searched: there was no time for a measurement'.

    Args:
        reasons: name → why it is not searched.
        past: 'was' and 'were' in place of 'is' and 'are'.
    """
    names: dict[str, list[str]] = {}
    for name, why in reasons.items():
        names.setdefault(why, []).append(name)
    one, several = ("was", "were") if past else ("is", "are")
    sentences = []
    for why, same in names.items():
        searched = "searched further" if why == USELESS_ALONE else "searched"
        sentences.append(f"{_joined(same)} {several if same[1:] else one} not {searched}: {why}")
    return sentences


def became_default(meta: StudyMeta) -> str:
    """Return a sentence about the picks of a finished study that minify reduced to the default; empty if none was."""
    if meta.phase != Phase.DONE or meta.study_options.search_only or not meta.plan.get("proof", 1.0):
        return ""
    names = [name for name in meta.searched if name not in meta.picks and name not in meta.unconfirmed]
    if not names:
        return ""
    picks = f"{_joined(names)} pick{'s' if names[1:] else ''}"
    text = f"No setting of the {picks} had an effect, so {'they were' if names[1:] else 'it was'} dropped"
    runs = "; the confirmation's runs were for the usual advice" if meta.references and not meta.picks else ""
    return f"{text}{runs}."


def _joined(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if names[1:] else names[0]
