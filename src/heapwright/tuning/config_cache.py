"""Turns settings into configurations: renders them, stores them once, and tests once whether they took effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from heapwright.allocators.joint import ALLOCATOR, JointSpace, extra_settings
from heapwright.allocators.library_report import effective_settings
from heapwright.allocators.space import Space
from heapwright.interleaving.configuration import Config
from heapwright.study.store import Store


class ConfigCache:
    """The configurations of a study.

    Args:
        store: the study; it keeps the configurations.
        default: the configuration that all others are compared with.
        base: the program's environment before any setting.
        program: returns the path of the program; called only to test whether settings took effect.

    Attributes:
        configs: the configurations that this process has used, by number.
        unusable: configurations that need not run because a setting did not take effect → which setting.
    """

    def __init__(self, store: Store, default: Config, base: Mapping[str, str], program: Callable[[], str]) -> None:
        self.store = store
        self.default = default
        self.base = dict(base)
        self.configs: dict[int, Config] = {default.id: default}
        self.unusable: dict[int, str] = {}
        self._program = program

    def config(self, space: Space, settings: Mapping[str, str]) -> Config:
        """The configuration of these settings in this space."""
        env = space.environment(settings, self.base)
        own = {key: value for key, value in settings.items() if key != ALLOCATOR}
        part = space.part(settings[ALLOCATOR]) if isinstance(space, JointSpace) else space
        if (not own and env == self.default.env) or self._changes_nothing(env):
            return self.default
        config = self.store.config(part.allocator.name, own, env)
        if config.settings and not config.effective:
            ours = {key: value for key, value in own.items() if key not in extra_settings(space, own)}
            found = effective_settings(part.allocator, self._program(), ours, env)
            if found:
                self.store.set_effective(config.id, found)
                config = self.store.config_by_id(config.id)
        refused = [
            f"{key}={value}"
            for key, value in config.settings.items()
            if key in config.effective and config.effective[key] != value
        ]
        if refused:
            self.unusable[config.id] = f"did not take effect: {', '.join(refused)}"
        self.configs[config.id] = config
        return config

    def recall(self, number: int) -> None:
        """Use a stored configuration that this process has not proposed."""
        self.configs.setdefault(number, self.store.config_by_id(number))

    def _changes_nothing(self, env: Mapping[str, str]) -> bool:
        """Whether the program gets the environment that it has by default: the user has set the same values already."""
        return bool(env) and {**self.base, **env} == {**self.base, **self.default.env}
