"""A configuration: an allocator and its settings, as rendered for the program."""

from __future__ import annotations

from dataclasses import dataclass, field

DEFAULT_ID = 1
DEFAULT = "default"  # stands for an allocator where a study searches several: the malloc the program has


@dataclass(frozen=True)
class Config:
    """An allocator and its settings, as rendered for the target.

    Attributes:
        id: the store's row; 1 is always the default.
        allocator: its registry name; DEFAULT for the program as it is, where several are searched.
        settings: parameter key → value as text; a parameter left out is unset.
        env: the variables that make it so (what the user pastes), for the default what the allocator needs at all.
        effective: parameter key → value the target's own loader says is in force; empty if not probed.
    """

    id: int
    allocator: str
    settings: dict[str, str]
    env: dict[str, str]
    effective: dict[str, str] = field(default_factory=dict)

    @property
    def is_default(self) -> bool:
        """Whether it is the program as it is: what everything else is compared with."""
        return self.id == DEFAULT_ID
