"""matplotlib and Plotly draw the same series, styles and ranges: those of the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.lines import Line2D

from testbed.analysis.figures.build import KINDS, build
from testbed.analysis.figures.printed import drawn_figure, print_figure
from testbed.analysis.figures.table import Figure
from testbed.analysis.figures.web import web_figure
from testbed.analysis.record.record import Record, load
from testbed.core.errors import InputError
from tests.unit.analysis.figures.drawn_runs import drawn_run

Drawn = dict[str, tuple[list[float], list[float]]]
"""x and y by label."""


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    root = tmp_path_factory.mktemp("runs")
    methods = [("ddp", "none"), ("ddp", "topk"), ("local_sgd", "none")]
    return [
        load(drawn_run(root, strategy, compressor, seed=seed, topo=topo, workers=workers))
        for strategy, compressor in methods
        for topo, workers in (("wan", 2), ("wan", 4), ("lan", 4))
        for seed in (0, 1)
    ]


def printed_panel(figure: Figure, axes: Axes) -> Drawn:
    if figure.form == "stack":
        return {
            str(bars.get_label()): ([bar.get_width() for bar in bars], [bar.get_y() + 0.35 for bar in bars])
            for bars in axes.containers
        }
    if figure.form in ("points", "ranking"):
        lines = [(one.get_label(), one.lines[0]) for one in axes.containers if isinstance(one, ErrorbarContainer)]
    else:
        inside = [line for line in axes.lines if line.get_transform() == axes.transData]
        lines = [(line.get_label(), line) for line in inside if line.get_marker() not in ("None", None)]
    return {str(label): (values(line, "x"), values(line, "y")) for label, line in lines}


def values(line: Line2D, which: str) -> list[float]:
    return [float(value) for value in getattr(line, f"get_{which}data")()]


def web_panel(drawn: dict[str, Any], number: int) -> Drawn:
    axis = "x" if number == 0 else f"x{number + 1}"
    traces = [trace for trace in drawn["data"] if trace["xaxis"] == axis and "guide" not in trace["meta"]]
    return {trace["name"]: (trace["x"], trace["y"]) for trace in traces if trace.get("fill") is None}


@pytest.mark.parametrize("kind", KINDS)
def test_both_backends_draw_the_table(kind: str, records: list[Record]) -> None:
    figure = build(records, kind)
    printed, web = drawn_figure(figure), web_figure(figure)
    assert len(figure.panels) == len(printed.axes) > 1
    assert any(one.has_band for panel in figure.panels for one in panel.series) or kind == "link_use"
    for number, (panel, axes) in enumerate(zip(figure.panels, printed.axes, strict=True)):
        mids = {one.label: pytest.approx(one.mid) for one in panel.series}
        places = {one.label: pytest.approx(one.x) for one in panel.series}
        expected = (mids, places) if figure.is_sideways else (places, mids)
        for drawn in (printed_panel(figure, axes), web_panel(web, number)):
            found = tuple({label: points[axis] for label, points in drawn.items()} for axis in (0, 1))
            assert found == expected
        assert web_ranges(web, number) == [pytest.approx(axes.get_xlim()), pytest.approx(axes.get_ylim())]


def web_ranges(drawn: dict[str, Any], number: int) -> list[list[float]]:
    name = "" if number == 0 else str(number + 1)
    axes = [drawn["layout"][f"{axis}axis{name}"] for axis in "xy"]
    return [[10**value for value in axis["range"]] if axis.get("type") == "log" else axis["range"] for axis in axes]


def test_bands_are_the_same(records: list[Record]) -> None:
    figure = build(records, "accuracy_over_time")
    printed, web = drawn_figure(figure), web_figure(figure)
    bands = [trace for trace in web["data"] if trace.get("fill")]
    areas = [area for axes in printed.axes for area in axes.collections]
    assert len(bands) == len(areas) == 9
    for trace, area in zip(bands, areas, strict=True):
        corners = {(round(x, 6), round(y, 6)) for x, y in zip(trace["x"], trace["y"], strict=True)}
        assert {(round(x, 6), round(y, 6)) for x, y in area.get_paths()[0].vertices} == corners


def test_web_figures_are_plain_json_that_keeps_what_the_user_zoomed(records: list[Record]) -> None:
    for kind in KINDS:
        drawn = web_figure(build(records, kind), dark=True)
        assert json.loads(json.dumps(drawn, allow_nan=False)) == drawn
        assert drawn["layout"]["uirevision"] == "longhaul"
        assert "#000000" not in json.dumps(drawn)


@pytest.mark.parametrize("suffix", [".pdf", ".svg", ".png"])
def test_print_writes_the_same_bytes_each_time(suffix: str, records: list[Record], tmp_path: Path) -> None:
    figure = build(records[:4], "accuracy_over_time")
    for name in ("one", "two"):
        print_figure(figure, tmp_path / f"{name}{suffix}", columns=2)
    assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()


def test_print_says_what_it_cannot_do(records: list[Record], tmp_path: Path) -> None:
    figure = build(records[:2], "pareto")
    with pytest.raises(InputError, match=r"must be one of \.pdf, \.svg, \.png"):
        print_figure(figure, tmp_path / "figure.doc")
    with pytest.raises(InputError, match="columns=3: must be 1 or 2"):
        print_figure(figure, tmp_path / "figure.pdf", columns=3)
    with pytest.raises(InputError, match="nothing to draw"):
        print_figure(build([], "pareto"), tmp_path / "figure.pdf")
