"""The study of scale, simulated: its kinds, and its table of points made up."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.benchmarks.study_scale import measure, tables
from testbed.orchestrator.config.config import resolve


def scaled(kind: str, workers: int, step_s: float, outside: list[str]) -> dict[str, Any]:
    one = {"step_s": step_s, "wan_bytes": 1.0, "bound_by": "computing", "outside": outside}
    by_rate = {f"{rate:g}": one for rate in measure.RATES_MBIT_S}
    return {"asked": {"kind": kind, "workers": workers}, "result": {"by_rate": by_rate}}


def test_the_fastest_kind_of_each_size_is_named_and_what_was_not_validated_is_counted() -> None:
    points = [scaled("none", 4, 0.5, []), scaled("topk", 4, 0.4, []), scaled("none", 1000, 9.0, ["workers 1000"])]
    points.append({"asked": {"kind": "topk", "workers": 1000}, "result": {"refused": "why"}})
    told = tables.study_scale(points)
    assert "| **fastest** | topk | - | - | - | - | - | none |" in told
    assert "| none | 0.5 | - | - | - | - | - | 9 |" in told
    assert "Not simulated: topk on 1000: why." in told
    assert told.endswith("1 of 3 points lie outside what the simulator was validated on, by workers.")


@pytest.mark.parametrize("kind", measure.KINDS)
def test_each_kind_of_the_study_of_scale_can_be_asked_for(kind: str) -> None:
    found = resolve(measure.overrides(kind, 64), emulated=False)
    assert not found.faults
    assert found.spec.workers == 64
