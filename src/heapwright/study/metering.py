"""Derives from the options of a study how its runs are measured."""

from __future__ import annotations

from heapwright.measure.meter import MeterOptions, least_intrusive_backend, needs_pss, stops_for_massif
from heapwright.study.options import Options
from heapwright.study.policy import requirements_of


def meter_options_of(options: Options, timeout: float, series: int = 0) -> MeterOptions:
    """Return how the runs of a study are measured.

    Args:
        options: the study's options.
        timeout: seconds until a run is stopped; 0 for no limit.
        series: maximum number of points of memory over time; 0 for none.
    """
    metrics = (*options.objectives, *(required.metric for required in requirements_of(options)))
    return MeterOptions(
        backend=least_intrusive_backend(options.meter, metrics, stops_for_massif(options.massif, options.massif_by)),
        massif=options.massif,
        massif_by=options.massif_by,
        series=series,
        timeout=timeout,
        callgrind=options.callgrind,
        pss=needs_pss(metrics),
    )
