"""Names the requirements of metrics, such as a part of the workload file, without which no run can measure them."""

from __future__ import annotations

from heapwright.metrics import METRICS
from heapwright.workload.model import WorkloadFile

METRIC_NEEDS = {
    "instructions": "count them with --instructions=callgrind",
    "massif_peak_bytes": "it needs --massif emulation",
    "objective": "it needs a workload file with [objective]",
    "idle_rss_bytes": "it needs a workload file with 'idle = SECONDS' in its [server]",
    "energy_j": "'heapwright doctor' says what RAPL lacks here",
    "cgroup_peak_bytes": "it needs a command with a memory cgroup of its own",
}
_NEEDS_LOAD = "it needs a workload file with [server.load_metrics] that reads it from the load's output"


def missing_in_file(file: WorkloadFile, metric: str) -> str:
    """Return the requirement of a metric that the workload does not meet; empty if there is none.

    Args:
        file: the workload; of a command without a file, its words alone.
        metric: key.
    """
    if not METRICS[metric].of_load:
        return ""
    if metric == "objective":
        said = file.objective is not None
    elif metric == "idle_rss_bytes":
        said = file.server is not None and file.server.idle > 0
    else:
        said = file.server is not None and file.server.load_metrics is not None
    return "" if said else METRIC_NEEDS.get(metric, _NEEDS_LOAD)


def unread_in_load(warnings: list[str]) -> str:
    """Return why a run of a server lacks a metric of its load, which the workload file reads from the load's output.

    Args:
        warnings: of the run.
    """
    said = (text for text in warnings if text.startswith("[server.load_metrics]"))
    return next(said, "[server.load_metrics] does not read it from the load's output")
