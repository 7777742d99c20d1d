"""The table of learning: which compressors keep accuracy."""

from __future__ import annotations

from typing import Any

from experiments.benchmarks.learning import tables


def _learnt(compressor: str, *accuracies: float) -> list[dict[str, Any]]:
    return [
        {
            "asked": {"compressor": compressor, "seed": seed},
            "result": {"metric": {"value": value}, "dense_bytes": 100, "sent_bytes": 10},
        }
        for seed, value in enumerate(accuracies)
    ]


def test_half_a_point_is_judged_by_the_interval_of_the_differences() -> None:
    table = tables.learning(
        _learnt("none", 0.870, 0.860, 0.865)
        + _learnt("close", 0.869, 0.859, 0.865)
        + _learnt("far", 0.850, 0.841, 0.845)
        + _learnt("torn", 0.870, 0.850, 0.860)
        + _learnt("once", 0.870)
    )
    verdicts = {row.split(" | ")[0].strip("| "): row.split(" | ")[4] for row in table.splitlines()[2:]}
    assert verdicts == {"none": "yes", "close": "yes", "far": "no", "torn": "open", "once": "one seed"}
    # by hand: differences -0.1, -0.1 and 0 points, of standard deviation 0.0577; 4.303 * 0.0577 / sqrt(3) = 0.143
    assert "| -0.07 ± 0.14 |" in table
