"""The table of ways of distributing K-FAC, its crossings and its figure, of points made up."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.benchmarks.kfac import measure, tables
from experiments.benchmarks.kfac.declaration import BENCHMARK
from experiments.common.harness import code_hash
from experiments.common.papers.kfac import ARMS


def point(arm: str, rate: float, step_s: float, kind: str = measure.SIMULATED, verdict: str | None = None) -> Any:
    found: dict[str, Any] = {"step_s": step_s}
    if kind == measure.EMULATED:
        found |= {"verdict": verdict or "valid", "predicted_s": step_s + 0.001, "dilation": 10.0}
    asked = {"kind": kind, "model": "ResNet-50", "arm": arm, "rate_gbit_s": rate}
    return {"asked": asked, "result": found, "is_disturbed": False, "others_cores": 0.0}


def test_where_pad_stops_being_faster_lies_between_the_rates_beside_it() -> None:
    steps = {1: (2.0, 1.0), 10: (1.0, 1.25), 25: (1.0, 2.0)}
    points = [
        point(arm, rate, step_s)
        for rate, both in steps.items()
        for arm, step_s in zip(("SPD-KFAC", "PAD-KFAC"), both, strict=True)
    ]
    # 2 at 1 Gbit/s and 0.8 at 10: a straight line over the logarithm is 1 at five sixths of the way
    assert tables.crossings(points, measure.SIMULATED, "SPD / PAD") == {"ResNet-50": [pytest.approx(10 ** (5 / 6))]}
    assert tables.crossings(points, measure.SIMULATED, "SPD / PAD, gradients") == {}
    text = tables.kfac(points)
    assert "SPD / PAD is 1: ResNet-50 at 6.8 Gbit/s." in text
    assert "| ResNet-50 | 77 | 1 | - | - | 2.000 | 1.000 | - | - | - | 2.00 | - |" in text
    assert tables.draw(points) == tables.draw(points)


def test_an_invalid_run_has_no_ratio() -> None:
    points = [
        point("D-KFAC", 10, 1.2, measure.EMULATED),
        point("SPD-KFAC", 10, 0.8, measure.EMULATED),
        point("MPD-KFAC", 10, 1.0, measure.EMULATED, "invalid"),
    ]
    (by_arm,) = tables.cells(points, measure.EMULATED).values()
    found = {name: tables.ratio(by_arm, name) for name in tables.RATIOS}
    assert found["D / SPD"] == pytest.approx(1.5)
    assert found["MPD / SPD"] is None and found["SPD / PAD"] is None
    assert "| 0.800 (0.801) |" in tables.kfac(points)


def test_each_rate_has_all_arms_and_its_own_dilation() -> None:
    points = measure.points(quick=False)
    emulated = [one.asked for one in points if one.asked["kind"] == measure.EMULATED]
    arms = {(one["rate_gbit_s"], one["arm"]) for one in emulated}
    assert arms == {(r, arm) for r in measure.DILATIONS for arm in ARMS}
    assert set(measure.DILATIONS) <= set(measure.RATES_GBIT_S)
    assert len(points) == len(emulated) + 2 * 5 * 5
    assert len({code_hash(BENCHMARK, one) for one in emulated}) == 4, "PAD's two arms are of one strategy"
