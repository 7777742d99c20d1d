"""The table of plans, predicted and measured, of points made up, and the runs that it is measured with."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from experiments.benchmarks.plans import measure, tables
from testbed.core.parallelism.plan import SEARCHED
from testbed.orchestrator.config.config import resolve


def point(place: int, predicted_s: float, published_s: float, step_s: float, **other: str) -> dict[str, Any]:
    plan = {"pp": 2, "dp": 2, "micro_batch": 4, "cuts": [0, 4], "placement": [0, 1, 2, 3]}
    result = {"verdict": other.get("verdict", "valid"), "reasons": [], "dilation": 2.0, "step_s": step_s, **plan}
    result |= {"predicted_s": predicted_s, "published_s": published_s}
    return {
        "asked": {"topo": "gcp4", "schedule": other.get("schedule", "1f1b"), "place": place},
        "result": result,
        "is_disturbed": False,
        "others_cores": 0.0,
    }


def test_each_plan_is_held_against_its_run_and_each_order_against_that_of_the_runs() -> None:
    lines = tables.plans([point(2, 1.2, 0.5, 1.5), point(1, 0.9, 0.6, 1.0), point(3, 2.0, 0.4, 1.75)]).split("\n")
    assert lines[2] == "| 1f1b | 3 | 14.3% | 20.0% | 66.7% | 77.1% |"
    assert lines[6:8] == [
        "| gcp4 | 3 | corrected | 1.00 | 0.0% | 1 |",
        "| gcp4 | 3 | AMP's | -1.00 | 75.0% | 3 |",
    ]
    row = "| gcp4 | 1f1b | 1 | pp 2 (from 0 4), dp 2, 4 a micro-batch | 0.900 | 0.600 | 1.000 | 0.90 | 2 | valid |"
    assert lines[11] == row


def test_errors_are_told_of_each_schedule() -> None:
    told = tables.plans([point(1, 0.9, 0.6, 1.0), point(1, 1.1, 0.6, 1.0, schedule="gpipe")])
    assert "| 1f1b | 1 | 10.0% | 10.0% | 40.0% | 40.0% |\n| gpipe | 1 | 10.0% | 10.0% | 40.0% | 40.0% |" in told


def test_a_run_that_may_not_be_believed_is_shown_and_does_not_count() -> None:
    wrong = point(2, 1.2, 0.5, 0.5, verdict="invalid")
    told = tables.plans([point(1, 0.9, 0.6, 1.0), wrong, point(3, 2.0, 0.7, 1.75)])
    assert "| 0.500 | 2.40 | 2 | invalid |" in told and "| gcp4 | 2 | corrected | 1.00 | 0.0% | 1 |" in told
    assert "| 1f1b | 2 | 12.1% | 14.3% |" in told


@pytest.mark.tier("all")
def test_runs_of_a_network_differ_by_schedule_and_place_alone() -> None:
    for topo, own in measure.NETWORKS.items():
        asked = [one.asked for one in measure.points(quick=False) if one.asked["topo"] == topo]
        assert [(one["schedule"], one["place"]) for one in asked] == list(itertools.product(SEARCHED, measure.PLACES))
        for one in asked:
            found = resolve(measure.overrides(**one))
            assert not found.faults
            params = found.spec.strategy.params
            assert (params["schedule"], params["plan_place"]) == (one["schedule"], one["place"])
            assert set(own) <= set(measure.overrides(**one)) and found.spec.workers == measure.WORKERS


def test_figures_depend_on_what_predicts_and_on_what_executes() -> None:
    names = {path.name for path in measure.depends_on("gcp4", "gpipe", 1)}
    assert {"costs.py", "schedules.py", "link_probe.py", "hybrid.py", "search.py"} <= names
