"""The terms that a report links to, each with its meaning.

The page must explain itself without a network, so it carries these sentences at its end. They are the sentences of
docs/glossary.md; tests/report/test_glossary.py compares both.
"""

from __future__ import annotations

from typing import NamedTuple


class Term(NamedTuple):
    """One term.

    Attributes:
        name: the term as docs/glossary.md has it, in its first or second column.
        meaning: one or two sentences.
    """

    name: str
    meaning: str

    @property
    def key(self) -> str:
        """The part of the page's anchor after 'term-'."""
        return self.name.replace(" ", "-")


TERMS = (
    Term("default", "The program as its users run it, with nothing changed. All ratios compare with it."),
    Term("setting", "One parameter of an allocator with one value, such as `arena_max=1`."),
    Term("configuration", "An allocator with some settings, as environment variables."),
    Term("objective", "A metric that a study minimises, such as peak resident memory."),
    Term("block", "Runs of the default and of some configurations, in random order, close together in time."),
    Term("pair", "A run of a configuration and the run of the default in the same block."),
    Term("calibration", "The first runs of the default, which show how much a metric varies."),
    Term("evaluation", "One configuration as the search measured it."),
    Term(
        "replay",
        "A process that makes the calls of a trace under an allocator, and touches memory as the program did.",
    ),
    Term("prediction", "A change of the program that follows from a replay, without a run of the program."),
    Term(
        "Pareto front",
        "The configurations that no other one dominates: none is at least as good in every objective and better in"
        " one.",
    ),
    Term("hypervolume", "The volume that the front dominates, bounded by 1.1 times the default in every objective."),
    Term("minify", "The stage that removes each setting without effect."),
    Term("pick", "A configuration that a study recommends: for memory, for time, or balanced."),
    Term(
        "confirmation",
        "The stage that measures fresh pairs of each pick and the default; only these count for a claim.",
    ),
    Term("margin", "Differences below it do not matter; 0.5% by default."),
    Term(
        "verdict",
        "What a confirmation shows for one metric: better, worse, same (within the margin), or unproven (none of"
        " these).",
    ),
    Term("usual advice", "Common recommendations, such as `MALLOC_ARENA_MAX=1`, confirmed beside the picks."),
    Term("exgen", "Our allocator for programs with one thread; safe with several."),
    Term("reaper", "Our allocator for programs with several threads."),
    Term("landscape", "One objective over the whole range of one or two settings."),
)
