"""The table of paced workers: their phases against the device's model."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from experiments.benchmarks.pacing.measure import PHASES
from experiments.common.tables import RUN_HEADS, Found, grouped, median, number, run_cells, table

_MIN_PHASE_S = 0.01
"""Shorter phases are timed by when a sleeping process wakes up, not by their device."""


def pacing(points: Sequence[Found]) -> str:
    def worst_phase(results: Sequence[Found]) -> str:
        """The largest error of the median of any phase that lasts."""
        errors = [
            statistics.median(result["measured"][phase] / result["modelled"][phase] for result in results) - 1
            for phase in PHASES
            if results[0]["modelled"][phase] > _MIN_PHASE_S
        ]
        return number(max(errors, key=abs, default=None), "+.2f", 100)

    rows = [
        [
            str(workers),
            str(len(results)),
            worst_phase(results),
            number(median(results, "step_over_parts") - 1, "+.2f", 100),
            f"{median(results, 'step_s'):.3f}",
            f"{median(results, 'exposed_s'):.3f}",
            *run_cells(results),
        ]
        for (workers,), results in grouped(points, "workers").items()
    ]
    heads = ("workers", "of", "worst phase: %", "step against its parts: %", "step, s", "exposed, s", *RUN_HEADS)
    return table(heads, rows)
