"""The table of few bytes: what counts as good as `ddp` of the same seeds."""

from __future__ import annotations

from typing import Any

from experiments.benchmarks.diloco import tables


def learnt(kind: str, *values: float, workload: str = "glyphs", wan_bytes: float | None = 2e7) -> list[dict[str, Any]]:
    metric = {"glyphs": "accuracy", "bytelm": "bits_per_byte"}[workload]
    return [
        {
            "asked": {"kind": kind, "workload": workload, "seed": seed, "repeat": seed},
            "result": {"metric": {"name": metric, "value": value}, "wan_bytes": wan_bytes, "verdict": "valid"},
            "is_disturbed": False,
            "others_cores": 0.0,
        }
        for seed, value in enumerate(values)
    ]


def test_few_bytes_are_held_against_ddp_of_the_same_seeds() -> None:
    points = [
        *learnt("far", 0.85, 0.84, 0.845),
        *learnt("close", 0.869, 0.859, 0.865),
        *learnt("ddp", 0.87, 0.86, 0.865, wan_bytes=None),
    ]
    head, text = tables.diloco(points, {"glyphs": 2e9}).split("\n\n")
    assert head == "**glyphs**; `ddp` sends 2000 MB over `wan100m`"
    rows = [row.strip("| ").split(" | ") for row in text.splitlines()[2:]]
    assert [row[0] for row in rows] == ["ddp", "close", "far"]
    assert [row[4] for row in rows] == ["yes", "yes", "no"]
    # by hand: differences -0.1, -0.1 and 0 points, of standard deviation 0.0577; 4.303 * 0.0577 / sqrt(3) = 0.143
    assert rows[1][3:] == ["-0.07 ± 0.14", "yes", "20.0", "1.00", "valid"]
    assert rows[0][5:7] == ["2000.0", "100.00"]


def test_of_a_loss_less_is_better_and_a_share_counts() -> None:
    points = [*learnt("ddp", 2.0, 2.0, workload="bytelm"), *learnt("worse", 2.2, 2.2, workload="bytelm")]
    points += learnt("better", 1.9, 1.9, workload="bytelm")
    text = tables.diloco(points, {})
    rows = [row.strip("| ").split(" | ") for row in text.splitlines() if row.startswith("| ")][2:]
    assert [row[0] for row in rows] == ["ddp", "better", "worse"]
    assert [row[3:5] for row in rows] == [["+0.00 ± 0.00", "yes"], ["+5.00 ± 0.00", "yes"], ["-10.00 ± 0.00", "no"]]
    assert rows[1][6] == "-"  # ddp's bytes are not known
