"""The table of plans, predicted and measured, of points made up, and the runs that it is measured with."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.benchmarks.plans import measure, tables
from testbed.orchestrator.config.config import resolve


def point(place: int, predicted_s: float, published_s: float, step_s: float, verdict: str = "valid") -> dict[str, Any]:
    plan = {"pp": 2, "dp": 2, "micro_batch": 4, "cuts": [0, 4], "placement": [0, 1, 2, 3]}
    result = {"verdict": verdict, "reasons": [], "dilation": 2.0, "step_s": step_s, **plan}
    result |= {"predicted_s": predicted_s, "published_s": published_s}
    return {
        "asked": {"topo": "gcp4", "place": place},
        "result": result,
        "is_disturbed": False,
        "others_cores": 0.0,
    }


def test_each_plan_is_held_against_its_run_and_each_order_against_that_of_the_runs() -> None:
    lines = tables.plans([point(2, 1.2, 0.5, 1.5), point(1, 0.9, 0.6, 1.0), point(3, 2.0, 0.4, 1.75)]).split("\n")
    row = "| gcp4 | 1 | pp 2 (from 0 4), dp 2, 4 a micro-batch | 0.900 | 0.600 | 1.000 | 0.90 | 2 | valid |"
    assert lines[2] == row
    assert lines[-2:] == [
        "| gcp4 | 3 | corrected | 1.00 | 0.0% | 1 |",
        "| gcp4 | 3 | AMP's | -1.00 | 75.0% | 3 |",
    ]


def test_a_run_that_may_not_be_believed_is_shown_and_does_not_count() -> None:
    told = tables.plans([point(1, 0.9, 0.6, 1.0), point(2, 1.2, 0.5, 0.5, "invalid"), point(3, 2.0, 0.7, 1.75)])
    assert "| 0.500 | 2.40 | 2 | invalid |" in told and "| gcp4 | 2 | corrected | 1.00 | 0.0% | 1 |" in told


@pytest.mark.tier("all")
def test_runs_of_a_network_differ_by_the_place_of_their_plan_alone() -> None:
    for topo, places in measure.PLACES.items():
        asked = [one.asked for one in measure.points(quick=False) if one.asked["topo"] == topo]
        assert [one["place"] for one in asked] == list(places)
        for one in asked:
            found = resolve(measure.overrides(**one))
            assert not found.faults
            assert found.spec.strategy.params["plan_place"] == one["place"]
            assert found.spec.workers == measure.WORKERS


def test_figures_depend_on_what_predicts_and_on_what_executes() -> None:
    names = {path.name for path in measure.depends_on("gcp4", 1)}
    assert {"costs.py", "link_probe.py", "hybrid.py", "search.py"} <= names
