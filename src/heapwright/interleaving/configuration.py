"""Defines a configuration: an allocator and its settings, as environment variables of the program."""

from __future__ import annotations

from dataclasses import dataclass, field

DEFAULT_ID = 1
DEFAULT = "default"  # where a study searches several allocators: the name of the malloc that the program has


@dataclass(frozen=True)
class Config:
    """An allocator and its settings, as environment variables of the program.

    Attributes:
        id: number of its row in the store; 1 is always the default.
        allocator: name in the registry; DEFAULT for the program as it is, where several allocators are searched.
        settings: parameter key → value as text; a parameter that is left out is unset.
        env: the environment variables that make the configuration; users paste these. For the default they are the
            variables that the allocator needs in any case.
        effective: parameter key → value that is in force by the word of the program's own loader; empty if that was
            not probed.
    """

    id: int
    allocator: str
    settings: dict[str, str]
    env: dict[str, str]
    effective: dict[str, str] = field(default_factory=dict)

    @property
    def is_default(self) -> bool:
        """Whether this is the default, which all other configurations are compared with."""
        return self.id == DEFAULT_ID
