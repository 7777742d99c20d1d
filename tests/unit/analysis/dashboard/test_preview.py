"""Transformations, styles and layout as Grafana has them, on results that are made up here."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.analysis.dashboard import boxes, layout, plots
from testbed.analysis.dashboard.fields import COLORS, INK, Palette, Style, style_of
from testbed.analysis.dashboard.frames import Field, Frame, series_frame, table_frame, transformed
from testbed.analysis.dashboard.opened import Opened
from testbed.analysis.dashboard.panel_schema import require_known
from testbed.analysis.dashboard.preview_command import read_dashboards
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


# Styles -------------------------------------------------------------------------------------------------------------

VERDICT = {"0": {"text": "valid", "color": "green"}, "1": {"text": "invalid", "color": "red"}}
DEFAULTS: Json = {
    "unit": "s",
    "thresholds": {"mode": "absolute", "steps": [{"value": None, "color": "green"}, {"value": 2, "color": "red"}]},
}


def panel(**config: Any) -> Json:
    return {"title": "Panel", "type": "timeseries", "fieldConfig": {"defaults": DEFAULTS, "overrides": [], **config}}


def one_series(shown: str = "r-topk-00000001") -> Frame:
    return series_frame("B", series(1.0, run="r"), shown)


@pytest.mark.parametrize(
    ("matcher", "options"),
    [("byFrameRefID", "B"), ("byName", "r-topk-00000001"), ("byName", "Value"), ("byRegexp", "/(?:^|[ -])topk-/")],
)
def test_an_override_is_for_what_it_matches(matcher: str, options: str) -> None:
    color = {"id": "color", "value": {"mode": "fixed", "fixedColor": "#0072B2"}}
    frame = one_series()
    override = {"matcher": {"id": matcher, "options": options}, "properties": [color, {"id": "unit", "value": "bps"}]}
    found = style_of(panel(overrides=[override]), frame, frame.fields[1])
    assert (found.color, found.unit) == ("#0072B2", "bps")
    other = Frame("A", [Field("Other", [1.0], "none")])
    assert style_of(panel(overrides=[override]), other, other.fields[0]).color is None


def test_colours_follow_thresholds_and_words() -> None:
    frame = one_series()
    limited = style_of(panel(), frame, frame.fields[1])
    assert [limited.color_at(value) for value in (-1.0, 1.9, 2.0)] == [COLORS["green"]] * 2 + [COLORS["red"]]
    mappings = [{"type": "value", "options": VERDICT}]
    meant = style_of(panel(defaults={"unit": "none", "mappings": mappings}), frame, frame.fields[1])
    assert [meant.text(value) for value in (0.0, 1.0, 3.0)] == ["valid", "invalid", "3"]
    assert meant.color_at(1.0) == COLORS["red"]


def test_a_name_keeps_its_colour_on_a_page() -> None:
    palette = Palette()
    first = [palette.of(name) for name in ("a", "b", "c")]
    assert [palette.of(name) for name in ("c", "a", "b")] == [first[2], *first[:2]]
    assert len(set(first)) == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"type": "piechart"}, "no panel of type piechart is known here"),
        ({"repeat": "run"}, "panel: repeat='run' is not known here"),
        ({"targets": [{"refId": "A", "expr": "up", "hide": True}]}, "query A: hide=True is not known here"),
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


# Pages --------------------------------------------------------------------------------------------------------------


def test_panels_are_placed_as_the_grid_has_them() -> None:
    def at(x: int, y: int, w: int, h: int) -> Json:
        return {"id": 1, "title": f"{x} {y}", "type": "stat", "gridPos": {"x": x, "y": y, "w": w, "h": h}}

    high, above, below = at(0, 1, 12, 8), at(12, 1, 12, 4), at(12, 5, 12, 4)
    edges = layout.lines([high, above, below])
    places = [layout.place(one["gridPos"], edges) for one in (high, above, below)]
    assert places == [
        "grid-column:1/span 12;grid-row:1/3",
        "grid-column:13/span 12;grid-row:1/2",
        "grid-column:13/span 12;grid-row:2/3",
    ]
    text = layout.board({"panels": [below, high, above]}, lambda one: one["title"], str)
    assert [text.index(f"<h3>{title}<") for title in ("0 1", "12 1", "12 5")] == sorted(
        text.index(f"<h3>{title}<") for title in ("0 1", "12 1", "12 5")
    ), "read from left to right and down, as a phone has them"


def test_what_comes_from_a_record_is_escaped() -> None:
    evil = '<img src=x onerror="alert(1)">'
    entry = boxes.Entry(evil, 1.0, Style("s"), INK)
    frame = Frame("", [Field("run", [evil]), Field(evil, [evil])])
    styles = {one.title: Style("none") for one in frame.fields}
    made = [
        boxes.numbers([entry, entry], on_background=True),
        boxes.bars([entry], 0, None),
        boxes.stacked_bars([(evil, [entry])], 0, 1),
        boxes.legend([(evil, "")]),
        boxes.table(frame, styles, (), {evil: "run.html"}),
        plots.states({"x": 0, "y": 0, "w": 24, "h": 8}, [plots.Curve(evil, [(0.0, 1.0)], Style("none"), INK)], 1, 10),
    ]
    assert not any("<img" in text for text in made)
    assert all("&lt;img" in text for text in made)


def test_a_legend_says_how_many_it_leaves_out() -> None:
    text = boxes.legend([(f"run {number}", "") for number in range(300)])
    assert text.count("<li") == boxes.LEGEND_ENTRIES + 1 and f"and {300 - boxes.LEGEND_ENTRIES} more" in text


def test_rows_are_sorted_and_those_without_a_value_are_last() -> None:
    frame = Frame("", [Field("run", ["a", "b", "c"]), Field("Value #A", [None, 20.0, 3.0], "time")])
    text = boxes.table(frame, {one.title: Style("s") for one in frame.fields}, [{"displayName": "time"}], {})
    assert sorted("abc", key=lambda run: text.index(f"<td>{run}</td>")) == ["c", "b", "a"]
    with pytest.raises(InputError, match="sorted by length, which is no column"):
        boxes.table(frame, {}, [{"displayName": "length"}], {})


def test_300_curves_are_as_small_as_a_page_can_hold() -> None:
    points = [(float(second), float(second % 7)) for second in range(600)]
    curves = [plots.Curve(f"run {number}", points, Style("s"), INK) for number in range(300)]
    grid = {"x": 0, "y": 0, "w": 12, "h": 8}
    svg = plots.lines(grid, curves, plots.Scale(Style("s"), 0), 600.0, stacked=False, limits=False)
    assert svg.count("<path") >= 300 and len(svg) < 1_500_000


def test_limits_are_drawn_where_they_can_be_seen() -> None:
    style = Style("percentunit", thresholds=[(float("-inf"), "#00aa00"), (0.5, "#aa5500"), (2.0, "#aa0000")])
    curve = plots.Curve("run", [(0.0, 0.0), (1.0, 1.0)], style, INK)
    grid = {"x": 0, "y": 0, "w": 12, "h": 8}
    svg = plots.lines(grid, [curve], plots.Scale(style, 0), 1.0, stacked=False, limits=True)
    assert "#aa5500" in svg and "#aa0000" not in svg and "100%" in svg
    assert "#aa5500" not in plots.lines(grid, [curve], plots.Scale(style, 0), 1.0, stacked=False, limits=False)


@pytest.mark.parametrize(("seconds", "text"), [(0, "00:00"), (75, "01:15"), (3725, "1:02:05")])
def test_elapsed_time(seconds: float, text: str) -> None:
    assert plots.elapsed(seconds) == text


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
