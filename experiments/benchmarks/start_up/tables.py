"""The table of start-up: seconds from the command to the first step, and memory."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.tables import Found, by, grouped, median, table

_STARTS = {"shared": "forked from one", "interpreters": "an interpreter each"}


def start_up(points: Sequence[Found]) -> str:
    groups = grouped(points, "workers", "start")
    marked = {by("workers", "start")(point) for point in points if point["is_disturbed"]}
    rows = [
        [
            str(workers),
            _STARTS[start],
            str(len(results)),
            *(f"{median(results, key):.1f}" for key in ("containers_s", "warm_s", "first_step_s", "cpu_s")),
            f"{median(results, 'pss_bytes') / 1e9:.2f}",
            "yes" if (workers, start) in marked else "",
        ]
        for (workers, start), results in groups.items()
    ]
    heads = (
        *("workers", "start", "of", "containers up, s", "all connected and warm, s", "first step begins, s"),
        *("CPU, s", "memory, GB", "others disturbed"),
    )
    return table(heads, rows)
