"""The table of what watching a run takes of the CPU."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.tables import Found, medians_table


def monitor(points: Sequence[Found]) -> str:
    columns = {
        "collector, ms/s": ("collector_s_per_s", 1e3, ".1f"),
        "probe process, ms/s": ("probe_s_per_s", 1e3, ".1f"),
    }
    return medians_table(points, "links", ("WAN links", str), columns)
