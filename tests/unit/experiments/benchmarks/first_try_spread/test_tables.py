"""The table of how far first runs differ."""

from __future__ import annotations

from typing import Any

from experiments.benchmarks.first_try_spread import tables


def point(repeat: int, **result: Any) -> dict[str, Any]:
    asked = {"overrides": "topo=a", "repeat": repeat}
    return {"asked": asked, "result": result, "is_disturbed": False, "others_cores": 0.0}


def last_row(points: list[dict[str, Any]]) -> list[str]:
    return tables.first_try_spread(points).splitlines()[-1].strip("| ").split(" | ")


def test_the_spread_is_of_medians_and_losses_are_equal_or_not() -> None:
    steps_s = (1.0, 0.99, 1.01)
    runs = [
        point(index, verdict="valid", dilation=2.0, step_s=step_s, losses_hash="a")
        for index, step_s in enumerate(steps_s)
    ]
    assert last_row(runs) == ["`topo=a`", "3", "valid", "2, 2, 2", "1.0000", "2.00", "yes"]
    runs[2]["result"]["losses_hash"] = "b"
    assert last_row(runs)[-1] == "no"


def test_a_refused_run_has_no_losses() -> None:
    assert last_row([point(0, verdict="refused", reasons=["no"], wall_s=3.0)]) == [
        "`topo=a`",
        "1",
        "refused",
        "",
        "-",
        "-",
        "no",
    ]
