"""Units, reducers and transformations of the check, compared with answers of @grafana/data."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from dashboards.grafana_data import answers
from dashboards.grafana_data.questions import BEYOND, questions, read_dashboards
from dashboards.interpolate import panels
from testbed.analysis.dashboard.frames import Field, Frame, reduced, transformed
from testbed.analysis.dashboard.panel_schema import UNITS
from testbed.core.errors import InputError

Json = dict[str, Any]

KEPT: Json = json.loads(answers.KEPT.read_text())


def kinds(asked: Json) -> dict[str, set[Any]]:
    """Of questions, what they are about."""
    return {
        "units": {(unit, decimals) for unit, _, decimals in asked["units"]},
        "reducers": {calculation for calculation, _ in asked["reducers"]},
        "transformations": {step["id"] for case in asked["transformations"] for step in case["steps"]},
    }


def missing(boards: list[Json]) -> dict[str, set[Any]]:
    """What dashboards use and no kept answer is about."""
    asked = {key: [case[:-1] for case in KEPT[key]] for key in ("units", "reducers")}
    kept = kinds({**asked, "transformations": KEPT["transformations"]})
    return {name: lacking for name, used in kinds(questions(boards)).items() if (lacking := used - kept[name])}


def test_all_that_a_panel_uses_was_asked() -> None:
    assert not missing(read_dashboards()), "run python -m dashboards.grafana_data"
    assert KEPT["made_with"].startswith("@grafana/data 12.4."), "the version that the dashboards are for"


def test_something_new_in_a_panel_is_missed() -> None:
    boards = copy.deepcopy(read_dashboards())
    shown = [panel for board in boards for panel in panels(board)]
    shown[0]["fieldConfig"] = {"defaults": {"unit": "dtdurations"}, "overrides": []}
    shown[1]["fieldConfig"]["overrides"].append({"matcher": {}, "properties": [{"id": "unit", "value": "celsius"}]})
    shown[2]["options"] = {"reduceOptions": {"calcs": ["mean"]}, "legend": {"calcs": ["max"]}}
    shown[3]["transformations"] = [{"id": "sortBy", "options": {}}]
    shown[4]["transformations"] = [{"id": BEYOND[0], "options": {}}, {"id": "limit", "options": {}}]
    found = missing(boards)
    assert {unit for unit, _ in found["units"]} == {"dtdurations", "celsius"}
    assert (found["reducers"], found["transformations"]) == ({"mean", "max"}, {"sortBy", "limit"})


def test_every_unit_is_one_that_grafana_knows() -> None:
    assert {unit for unit, *_ in KEPT["units"]} == {*UNITS, "suffix:×"}, "none is allowed that nobody asked about"


def test_series_are_reduced_as_grafana_reduces_them() -> None:
    assert KEPT["reducers"]
    for calculation, values, answer in KEPT["reducers"]:
        found = reduced([float("nan") if value == "NaN" else value for value in values], calculation)
        assert found == answer, (calculation, values)
    with pytest.raises(InputError, match="calculation mean is not known here"):
        reduced([1.0], "mean")


@pytest.mark.parametrize("case", KEPT["transformations"], ids=lambda case: case["steps"][0]["id"])
def test_tables_are_transformed_as_grafana_transforms_them(case: Json) -> None:
    frames = [
        Frame(frame["refId"], [Field(one["name"], one["values"]) for one in frame["fields"]])
        for frame in case["frames"]
    ]
    made = transformed(frames, case["steps"], "Panel")
    assert [[[one.title, one.values] for one in frame.fields] for frame in made] == case["answer"]


@pytest.mark.grafana_data
def test_grafana_answers_what_is_kept() -> None:
    assert answers.text(answers.answered(questions(read_dashboards()))) == answers.KEPT.read_text()


@pytest.mark.grafana_data
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"units": [["furlong", 1, None]]}, "no unit furlong in @grafana/data"),
        ({"reducers": [["median of sorts", [1]]]}, "no reducer median of sorts in @grafana/data"),
        ({"transformations": [{"steps": [{"id": BEYOND[0]}], "frames": []}]}, f"no transformation {BEYOND[0]} in"),
    ],
)
def test_what_grafana_does_not_have_is_told(asked: Json, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        answers.answered({"units": [], "reducers": [], "transformations": [], **asked})
