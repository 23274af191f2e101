"""Describes the machine of a measurement; results from machines with different fingerprints are never pooled."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from functools import cache
from pathlib import Path
from typing import Any

from heapwright.allocators.huge_pages import thp_state
from heapwright.allocators.registry import glibc_version
from heapwright.measure.process_tree import stat_fields

# Two sets of runs are comparable only if these agree.
FINGERPRINT = ("cpu", "cores", "kernel", "libc", "thp", "governor", "max_map_count", "machine")


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _cpu_model() -> str:
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    return platform.machine()


def describe_host() -> dict[str, Any]:
    """Return the description of this machine; None for values that cannot be read."""
    memory = next(
        (int(x.split()[1]) * 1024 for x in (_read("/proc/meminfo") or "").splitlines() if x.startswith("MemTotal")),
        None,
    )
    libc = glibc_version()
    maps = _read("/proc/sys/vm/max_map_count")
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory,
        "machine": platform.machine(),
        "kernel": platform.release(),
        "libc": f"glibc {libc}" if libc else None,
        "page_bytes": os.sysconf("SC_PAGE_SIZE"),
        "thp": thp_state() or None,
        "aslr": _read("/proc/sys/kernel/randomize_va_space"),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "max_map_count": int(maps) if maps and maps.isdecimal() else None,
        "os": platform.freedesktop_os_release().get("PRETTY_NAME") if Path("/etc/os-release").exists() else None,
        "python": platform.python_version(),
    }


def fingerprint(host: dict[str, Any]) -> str:
    """Return a short hash of a machine's description; hosts have the same one if `differences` finds none."""
    return hashlib.sha256(json.dumps([host.get(key) for key in FINGERPRINT]).encode()).hexdigest()[:8]


@cache
def this_host() -> str:
    """Return the fingerprint of this machine."""
    return fingerprint(describe_host())


def differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the differences of two descriptions' fingerprints, such as 'kernel: 6.1 then, 6.8 now'."""
    return [f"{key}: {then.get(key)} then, {now.get(key)} now" for key in FINGERPRINT if then.get(key) != now.get(key)]


def process_start() -> float:
    """Return when this process started, in seconds of the monotonic clock; the present time if it cannot be read."""
    fields = stat_fields(os.getpid())
    if not fields:
        return time.monotonic()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # starttime, proc(5)
    return time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - started)
