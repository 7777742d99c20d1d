"""The table of what observing a run costs."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.tables import Found, median, table
from testbed.analysis.comparison.intervals import estimate


def observation(points: Sequence[Found]) -> str:
    """All repeats together; the interval is over pairs of windows."""
    results = [point["result"] for point in points]
    ratios = [ratio for result in results for ratio in result["ratios"]]
    longer = estimate({number: [ratio] for number, ratio in enumerate(ratios)})
    assert longer is not None and longer.half_width is not None
    heads = (
        *("runs", "k", "step, ms", "collector: of a core", "observed steps are longer by", "±", "pairs of windows"),
        "others disturbed",
    )
    row = [
        str(len(results)),
        f"{median(results, 'dilation'):g}",
        f"{median(results, 'step_s') * 1e3:.0f}",
        f"{median(results, 'collector_s_per_sample'):.2%}",
        f"{longer.mean - 1:+.2%}",
        f"{longer.half_width:.2%}",
        str(len(ratios)),
        "yes" if any(point["is_disturbed"] for point in points) else "",
    ]
    return table(heads, [row])
