"""The table of wall times in two clones."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.benchmarks.first_try_cost import measure, tables
from experiments.common.benchmark import AGAINST
from testbed.core.errors import RunError


def point(repeat: int, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    result = {
        "old": {"commit": "a8c9a09", "verdict": "valid", "dilation": 2.0, **old},
        "new": {"verdict": "valid", **new},
    }
    asked = {"overrides": "topo=a", "repeat": repeat, "seed": 1}
    return {"asked": asked, "result": result, "is_disturbed": False, "others_cores": 0.0}


def test_ratios_are_of_runs_that_both_made() -> None:
    text = tables.first_try_cost(
        [
            point(0, {"wall_s": 40.0}, {"wall_s": 44.0, "dilation": 3.0}),
            point(1, {"wall_s": 40.0}, {"wall_s": 60.0, "verdict": "invalid", "dilation": 3.0}),
            point(2, {"wall_s": 5.0, "verdict": "refused", "dilation": None}, {"wall_s": 60.0, "dilation": 3.0}),
        ]
    )
    assert text.startswith("New over old (a8c9a09), of 2 pairs: median 1.30, mean 1.30.\n\n")
    assert "| `topo=a` | refused, 0 | valid, 3 | 5 | 60 | - |" in text


def test_without_another_clone_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(AGAINST, raising=False)
    with pytest.raises(RunError, match="--against"):
        measure.measure("topo=wan1g", 0, 1)
