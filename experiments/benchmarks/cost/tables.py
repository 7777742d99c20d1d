"""The table of CPU seconds for each gigabyte over a WAN link."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.tables import Found, medians_table
from testbed.core.units import format_rate


def cost(points: Sequence[Found]) -> str:
    columns = {
        "all, s/GB": ("all_s_per_gb", 1, ".2f"),
        "delay shaper, s/GB": ("delay_line_s_per_gb", 1, ".2f"),
        "cores in use": ("all_s_per_s", 1, ".3f"),
    }
    return medians_table(points, "rate_bit_s", ("rate", format_rate), columns)
