"""Transformations and panels as Grafana has them, on results that are made up here."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.analysis.dashboard.check import read_dashboards
from testbed.analysis.dashboard.frames import Field, Frame, table_frame, transformed
from testbed.analysis.dashboard.opened import Opened
from testbed.analysis.dashboard.panel_schema import require_known
from testbed.analysis.dashboard.prometheus_queries import PrometheusClient, Series
from testbed.core.errors import InputError

Json = dict[str, Any]


def series(value: float, **labels: str) -> Series:
    return Series(labels, [(100.0, value)])


def table(ref_id: str, *found: Series) -> Frame:
    return table_frame(ref_id, found, is_only=False)


def cells(frame: Frame) -> dict[str, list[Any]]:
    return {one.title: one.values for one in frame.fields}


def changed(frames: list[Frame], name: str, **options: Any) -> list[Frame]:
    return transformed(frames, [{"id": name, "options": options}], "Panel")


# Frames -------------------------------------------------------------------------------------------------------------


def test_a_table_has_a_column_for_each_label() -> None:
    frame = table("B", series(1.0, run="a", name="x"), series(2.0, run="b"))
    assert cells(frame) == {"Time": [100.0] * 2, "name": ["x", None], "run": ["a", "b"], "Value #B": [1.0, 2.0]}
    assert cells(table_frame("B", [], is_only=True)) == {"Time": [], "Value": []}


def test_merge_joins_what_agrees_in_what_all_have() -> None:
    """The first has a label more, by which its rows are the wider ones; a run without a value has a blank."""
    info = table("A", series(1.0, run="a", verdict="valid"), series(1.0, run="b", verdict="invalid"))
    took = table("B", series(20.0, run="b"), series(30.0, run="c"))
    (merged,) = changed([info, took, table("C", series(0.5, run="a"))], "merge")
    assert cells(merged) == {
        "Time": [100.0] * 3,
        "run": ["a", "b", "c"],
        "verdict": ["valid", "invalid", None],
        "Value #A": [1.0, 1.0, None],
        "Value #B": [None, 20.0, 30.0],
        "Value #C": [0.5, None, None],
    }


def test_merge_widens_every_row_that_agrees() -> None:
    ways = table("A", series(1.0, link="l", to="x"), series(2.0, link="l", to="y"))
    (merged,) = changed([ways, table("B", series(9.0, link="l"))], "merge")
    assert cells(merged)["Value #B"] == [9.0, 9.0]


def test_merge_keeps_apart_what_contradicts() -> None:
    (merged,) = changed([table("A", series(1.0, run="a", name="x"), series(2.0, run="a", name="y"))], "merge")
    assert cells(merged)["Value #A"] == [1.0, 2.0]


def test_organize_orders_renames_and_leaves_out() -> None:
    frame = table("A", series(1.0, run="a", topo="t", beside="z"))
    options = {"excludeByName": {"Time": True, "topo": False}, "indexByName": {"run": 0, "Value #A": 2, "topo": 1}}
    (made,) = changed([frame], "organize", includeByName={}, renameByName={"Value #A": "time"}, **options)
    assert list(cells(made)) == ["run", "topo", "time", "beside"]
    assert made.named("Value #A") is made.named("time"), "found by both of its names"


def test_partition_makes_a_frame_for_each_value() -> None:
    frame = table("A", series(1.0, run="a", compressor="topk"), series(2.0, run="b", compressor="none"))
    first, second = changed([frame], "partitionByValues", fields=["compressor"], keepFields=False)
    assert (first.name, second.name) == ("topk", "none")
    assert first.named("compressor") is None
    assert first.named("Value #A") == Field("Value #A", [1.0], "Value #A topk")


def test_the_matrix_has_a_column_for_each_value() -> None:
    rows = [
        series(0.25, run="a", phase="forward"),
        series(0.75, run="a", phase="wait"),
        series(1.0, run="b", phase="wait"),
    ]
    frame = table_frame("A", rows, is_only=True)
    (made,) = changed([frame], "groupingToMatrix", columnField="phase", rowField="run", valueField="Value")
    assert cells(made) == {"run\\phase": ["a", "b"], "forward": [0.25, None], "wait": [0.75, 1.0]}


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"id": "sortBy", "options": {}}, "no transformation sortBy is known here"),
        ({"id": "merge", "options": {"deep": 1}}, "transformation merge has no deep here"),
        ({"id": "merge", "options": {}, "disabled": True}, "transformation merge has no disabled here"),
        ({"id": "organize", "options": {"includeByName": {"a": True}}}, "includeByName is not known here"),
    ],
)
def test_what_is_not_known_of_a_transformation_is_an_error(step: Json, words: str) -> None:
    with pytest.raises(InputError, match=words):
        transformed([table("A", series(1.0, run="a"))], [step], "Panel")


# Panels ------------------------------------------------------------------------------------------------------------

DEFAULTS: Json = {
    "unit": "s",
    "thresholds": {"mode": "absolute", "steps": [{"value": None, "color": "green"}, {"value": 2, "color": "red"}]},
}


def panel(**config: Any) -> Json:
    return {"title": "Panel", "type": "timeseries", "fieldConfig": {"defaults": DEFAULTS, "overrides": [], **config}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"type": "piechart"}, "no panel of type piechart is known here"),
        ({"repeat": "run"}, "panel: repeat='run' is not known here"),
        ({"targets": [{"refId": "A", "expr": "up", "hide": True}]}, "query A: hide=True is not known here"),
        ({"fieldConfig": {"defaults": {"unit": "furlong"}}}, "unit furlong: not known here"),
        ({"options": {"footer": 1}}, "timeseries options: footer=1 is not known here"),
        ({"fieldConfig": {"defaults": {"noValue": "-"}}}, "field defaults: noValue='-' is not known here"),
        ({"fieldConfig": {"defaults": {"custom": {"drawStyle": "bars"}}}}, "drawStyle='bars' is not known here"),
        ({"fieldConfig": {"defaults": {"mappings": [{"type": "range"}]}}}, "mapping of type range"),
        (
            {"fieldConfig": {"overrides": [{"matcher": {"id": "byType"}, "properties": [{"id": "max"}]}]}},
            "override by byType is not known here(.|\n)*override of max is not known here",
        ),
    ],
)
def test_what_is_not_known_of_a_panel_is_an_error(change: Json, words: str) -> None:
    with pytest.raises(InputError, match=words):
        require_known({**panel(), **change})


def test_all_of_the_dashboards_is_known() -> None:
    for board in read_dashboards():
        for one in board["panels"]:
            if one["type"] != "row":
                require_known(one)


# Opening ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data_end_s", [60.0, 300.0, 21_600.0])
@pytest.mark.parametrize("runs", [2, 300])
def test_a_line_has_a_few_hundred_points(data_end_s: float, runs: int) -> None:
    variables: dict[str, str | list[str]] = {"run": ["r"] * runs}
    opened = Opened({}, PrometheusClient("http://127.0.0.1:1"), variables, 0.0, 21_600.0, data_end_s)
    assert opened.step_s >= 1
    assert data_end_s / opened.step_s <= (150 if runs > 50 else 300)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9091", "http://localhost:9090/", "http://[::1]:9091"])
def test_a_server_of_this_machine_is_asked(url: str) -> None:
    assert PrometheusClient(url).url == url


@pytest.mark.parametrize(
    "url",
    [
        *("https://127.0.0.1:9091", "http://192.0.2.1:9091", "http://example.org:9091"),
        *("127.0.0.1:9091", "http://127.0.0.1", "http://127.0.0.1:port"),
    ],
)
def test_no_other_server_is_asked(url: str) -> None:
    with pytest.raises(InputError, match="must be on loopback with its port"):
        PrometheusClient(url)
