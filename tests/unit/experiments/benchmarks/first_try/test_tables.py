"""The table of first runs: what is counted as valid, and what is said of the rest."""

from __future__ import annotations

from typing import Any

from experiments.benchmarks.first_try import measure, tables
from experiments.common.first_try.drawing import COUNT, SEED


def point(overrides: str, verdict: str, *, load: bool = False, repeat: int = 0, **result: Any) -> dict[str, Any]:
    asked = {"overrides": overrides, "load": load, "repeat": repeat, "seed": SEED}
    found = {"verdict": verdict, "reasons": [] if verdict == "valid" else ["too slow"], "wall_s": 41.7, **result}
    return {"asked": asked, "result": found, "is_disturbed": False, "others_cores": 0.0}


def test_restarts_are_counted_apart_and_refusals_as_not_valid() -> None:
    text = tables.first_try(
        [
            point("topo=a", "valid", dilation=2.0, attempts=1, left_out=2, training_s=12.0),
            point("topo=a", "valid", repeat=1, dilation=3.0, attempts=2, training_s=28.0),
            point("topo=b", "refused"),
            point("topo=b", "invalid", load=True, dilation=4.0, attempts=2),
        ]
    )
    first, _, table, _, reasons = text.split("\n\n")
    assert f"Seed {SEED}. Without load 2 of 3 `valid` (1 of them after a restart; steps left out: 2)" in first
    assert "half a busy core 0 of 1 `valid` (0 of them" in first and first.endswith("Longest training 28 s.")
    assert table.splitlines()[0].count("quiet") == 2 and "loaded" in table.splitlines()[0]
    assert "| `topo=a` | valid, 2, 42 | valid, 3, 42, restarted | - |" in table
    assert "| `topo=b` | refused, 42 | - | invalid, 4, 42, restarted |" in table
    assert reasons.splitlines()[2:] == [
        "| `topo=b` | refused: too slow |",
        "| `topo=b`, loaded | invalid: too slow |",
    ]


def test_two_passes_without_load_and_one_with_it_and_one_short_point_for_a_quick_look() -> None:
    points = measure.points(quick=False)
    assert len(points) == 3 * COUNT
    assert sum(one.asked["load"] for one in points) == COUNT
    assert len(measure.points(quick=True)) == 1
