"""Reads `--cluster`: the address of a Dask scheduler, or a TOML file that describes the cluster.

scheduler = "tcp://head:8786"  # a running scheduler; or [slurm] instead
slots = 40      # blocks that a search requests at once (default: number of usable workers at its start)
patience = 600  # seconds to wait for a worker, or for a lost scheduler

[slurm]         # arguments of dask_jobqueue.SLURMCluster; one job is one worker
jobs = 40
cores = 1
memory = "4GB"
queue = "short"
walltime = "02:00:00"
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from heapwright.errors import HeapwrightError, UsageError, install_extra
from heapwright.tomlfile import load_toml

_ADDRESS = re.compile(r"(tcp|tls)://[^\s:]+(:\d+)?|(tcp|tls)://\[[0-9a-fA-F:]+\]:\d+")


class ClusterFile(msgspec.Struct, forbid_unknown_fields=True):
    """The keys of the file; the head comment explains them."""

    scheduler: str = ""
    slots: int = 0
    patience: float = 600.0
    slurm: dict[str, Any] = {}


@dataclass(frozen=True)
class Settings:
    """Settings of a cluster.

    Attributes:
        scheduler: its address; empty if we start one ourselves.
        slots: see the head comment; 0: the number of usable workers.
        patience_s: seconds to wait for a worker, or for a lost scheduler.
        slurm: arguments of dask_jobqueue.SLURMCluster.
        worker: address of the only worker to use; empty for all.
    """

    scheduler: str
    slots: int = 0
    patience_s: float = 600.0
    slurm: dict[str, Any] = field(default_factory=dict)
    worker: str = ""

    def start(self) -> Any:
        """Start a scheduler and request workers from SLURM; return None if there is a scheduler already.

        Raises:
            HeapwrightError: SLURM or dask-jobqueue is missing, or does not know a key.
            UsageError: `jobs` is not a positive whole number.
        """
        if self.scheduler:
            return None
        if find_spec("dask_jobqueue") is None:
            raise _missing("dask-jobqueue")
        from dask_jobqueue import SLURMCluster  # type: ignore[attr-defined]

        words = {"processes": 1, "n_workers": 0, **self.slurm}
        jobs = words.pop("jobs", 1)
        if not isinstance(jobs, int) or jobs < 1:
            raise UsageError(f"[slurm]: jobs: {jobs} is not a whole number from 1")
        # Workers end before SLURM ends their jobs, at different times, and new jobs replace them.
        words.setdefault("worker_extra_args", _lifetime(str(words.get("walltime", ""))))
        try:
            cluster = SLURMCluster(**words)
            cluster.adapt(minimum_jobs=jobs, maximum_jobs=jobs)
        except (TypeError, ValueError, OSError, RuntimeError) as error:
            raise HeapwrightError(f"cannot request SLURM workers: {str(error).splitlines()[0]}") from None
        return cluster


def _lifetime(walltime: str) -> list[str]:
    """Return options that end a worker before its job: five minutes, or a tenth of the walltime if that is less."""
    days, _, clock = walltime.rpartition("-")
    parts = clock.split(":")
    if len(parts) != 3 or not all(p.isdecimal() for p in [*parts, days or "0"]):
        return []
    total_s = int(days or 0) * 86400 + int(parts[0]) * 3600 + int(parts[1]) * 60 + int(parts[2])
    early = min(300, total_s // 10)
    return ["--lifetime", f"{total_s - early}s", "--lifetime-stagger", f"{early // 2}s"]


def _missing(package: str) -> HeapwrightError:
    return HeapwrightError(f"--cluster needs {package}", install_extra("cluster"))


def read_settings(text: str) -> Settings:
    """Return the settings that the argument of `--cluster` names.

    Raises:
        UsageError: it is neither a valid address nor a usable file.
        HeapwrightError: Dask is not installed.
    """
    if "://" in text:
        if not _ADDRESS.fullmatch(text):
            raise UsageError(f"--cluster {text} is not the address of a scheduler", "for example tcp://head:8786")
        settings = Settings(text)
    elif not text.endswith(".toml"):
        raise UsageError(f"--cluster {text} is neither an address nor a TOML file", "for example tcp://head:8786")
    else:
        file = load_toml(Path(text), ClusterFile)
        if bool(file.scheduler) == bool(file.slurm):
            raise UsageError(f"{text}: give either scheduler or [slurm]")
        if file.scheduler and not _ADDRESS.fullmatch(file.scheduler):
            raise UsageError(f"{text}: scheduler: {file.scheduler} is not an address", "for example tcp://head:8786")
        if file.slots < 0 or file.patience <= 0:
            raise UsageError(f"{text}: slots and patience must be above 0")
        slots = file.slots or int(file.slurm.get("jobs", 0) if isinstance(file.slurm.get("jobs", 0), int) else 0)
        settings = Settings(file.scheduler, slots, file.patience, file.slurm)
    if find_spec("distributed") is None:
        raise _missing("distributed")
    return settings
