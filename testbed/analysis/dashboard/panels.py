"""A panel's answers as markup, by the panel's type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.analysis.dashboard import boxes, plots
from testbed.analysis.dashboard.fields import Palette, Style, dashes_of, marker_of, style_of, swatch
from testbed.analysis.dashboard.frames import TIME, Field, Frame, reduced, transformed
from testbed.analysis.dashboard.opened import Opened
from testbed.analysis.dashboard.panel_schema import require_known
from testbed.analysis.style import method_style
from testbed.analysis.style.swatch import swatch as plot_swatch
from testbed.core.errors import InputError

_ROWS_OF_STATES = 20


@dataclass
class Board:
    """What the panels of one page share."""

    opened: Opened
    links: Mapping[str, str] = field(default_factory=dict)
    """Pages of runs, by their ids."""
    palette: Palette = field(default_factory=Palette)


def markup(board: Board, panel: Mapping[str, Any], answered: Sequence[Frame] | None = None) -> str:
    """What is in a panel; empty where its queries have no answer.

    Args:
        answered: what they answer; asked here if not given.

    Raises:
        InputError: something of it is not known here.
        QueryError: Prometheus refused one of its queries.
    """
    require_known(panel)
    frames = board.opened.frames(panel) if answered is None else answered
    frames = transformed(frames, panel.get("transformations") or (), str(panel["title"]))
    if not any(frame.rows for frame in frames):
        return ""
    return _KINDS[str(panel["type"])](board, panel, frames)


def _lines(board: Board, panel: Mapping[str, Any], frames: Sequence[Frame]) -> str:
    custom, scale = _custom(panel), _scale(panel, frames[0])
    curves = list(_curves(board, panel, frames))
    stacked = (custom.get("stacking") or {}).get("mode") == "normal"
    limits = (custom.get("thresholdsStyle") or {}).get("mode") == "dashed"
    svg = plots.lines(panel["gridPos"], curves, scale, _end_s(board.opened), stacked=stacked, limits=limits)
    return _plot(svg) + boxes.legend([(curve.name, swatch(curve.color, curve.dashes)) for curve in curves])


def _states(board: Board, panel: Mapping[str, Any], frames: Sequence[Frame]) -> str:
    drawn = [
        plots.Curve(frame.name, _points(board.opened, frame), style_of(panel, frame, frame.fields[1]), "")
        for frame in frames[:_ROWS_OF_STATES]
    ]
    opened = board.opened
    svg = plots.states(panel["gridPos"], drawn, opened.step_s, _end_s(opened))
    meanings = list(dict.fromkeys(drawn[0].style.words.values()))
    more = len(frames) - len(drawn)
    rest = f'<p class="note">and {more} more runs, of which nothing is drawn</p>' if more > 0 else ""
    return _plot(svg) + boxes.legend([(word, swatch(color)) for word, color in meanings]) + rest


def _points_panel(board: Board, panel: Mapping[str, Any], frames: Sequence[Frame]) -> str:
    matchers = [one[axis]["matcher"]["options"] for one in panel["options"]["series"] for axis in ("x", "y")]
    if len(matchers) != 2:
        raise InputError(f"one series of x and y is known here, not {len(matchers) // 2}")
    joined = _custom(panel).get("show") == "points+lines"
    seen: Counter[str] = Counter()
    curves, across = [], None
    for frame in frames:
        x, y = (frame.named(name) for name in matchers)
        if x is None or y is None:
            raise InputError(f"no column {' or '.join(matchers)}")
        pairs = [(a, b) for a, b in zip(x.values, y.values, strict=True) if a is not None and b is not None]
        if not pairs:
            continue
        style, color = _look(board, panel, frame, y)
        curves.append(plots.Curve(frame.name, sorted(pairs), style, color, dashes_of(seen[color]) if joined else "-"))
        seen[color] += 1
        across = style_of(panel, frame, x)
    if across is None:
        return ""
    svg = plots.points(panel["gridPos"], curves, plots.Scale(curves[0].style), plots.Scale(across), joined=joined)
    found = [method_style.PlotStyle(curve.color, marker_of(curve.name), curve.dashes) for curve in curves]
    return _plot(svg) + boxes.legend(
        [(curve.name, plot_swatch(plot_style)) for curve, plot_style in zip(curves, found, strict=True)]
    )


def _numbers(board: Board, panel: Mapping[str, Any], frames: Sequence[Frame]) -> str:
    on_background = panel["options"]["colorMode"] == "background"
    return boxes.numbers(list(_entries(board, panel, frames)), on_background=on_background)


def _bars(board: Board, panel: Mapping[str, Any], frames: Sequence[Frame]) -> str:
    defaults = panel["fieldConfig"]["defaults"]
    return boxes.bars(list(_entries(board, panel, frames)), defaults.get("min", 0.0), defaults.get("max"))


def _shares(board: Board, panel: Mapping[str, Any], frames: Sequence[Frame]) -> str:
    frame, defaults = frames[0], panel["fieldConfig"]["defaults"]
    names = frame.named(panel["options"]["xField"])
    if names is None:
        raise InputError(f"{panel['title']}: no column {panel['options']['xField']}")
    parts = [(one, *_look(board, panel, frame, one)) for one in frame.fields if one is not names]
    rows = [
        (str(name), [boxes.Entry(one.title, one.values[index] or 0.0, style, shade) for one, style, shade in parts])
        for index, name in enumerate(names.values)
    ]
    drawn = boxes.stacked_bars(rows, defaults.get("min", 0.0), defaults.get("max"))
    return boxes.legend([(one.title, swatch(color)) for one, _, color in parts]) + drawn


def _table(board: Board, panel: Mapping[str, Any], frames: Sequence[Frame]) -> str:
    if len(frames) != 1:
        raise InputError(f"{panel['title']}: {len(frames)} tables, of which Grafana would show the first alone")
    (frame,) = frames
    styles = {one.title: style_of(panel, frame, one) for one in frame.fields}
    return boxes.table(frame, styles, panel["options"].get("sortBy") or (), board.links)


def _curves(board: Board, panel: Mapping[str, Any], frames: Sequence[Frame]) -> Iterator[plots.Curve]:
    seen: Counter[str] = Counter()
    for frame in frames:
        style, color = _look(board, panel, frame, frame.fields[1])
        dashes = "--" if style.is_dashed else dashes_of(seen[color])
        seen[color] += not style.is_dashed
        yield plots.Curve(frame.name, _points(board.opened, frame), style, color, dashes)


def _entries(board: Board, panel: Mapping[str, Any], frames: Sequence[Frame]) -> Iterator[boxes.Entry]:
    (calculation,) = panel["options"]["reduceOptions"]["calcs"]
    for frame in frames:
        value = reduced(frame.fields[1].values, calculation)
        if value is not None:
            yield boxes.Entry(frame.name, value, *_look(board, panel, frame, frame.fields[1]))


def _look(board: Board, panel: Mapping[str, Any], frame: Frame, one: Field) -> tuple[Style, str]:
    style = style_of(panel, frame, one)
    return style, style.color or board.palette.of(one.title)


def _points(opened: Opened, frame: Frame) -> list[tuple[float, float]]:
    """Against elapsed time."""
    times, values = (one.values for one in frame.fields)
    if frame.fields[0].name != TIME:
        raise InputError(f"{frame.name}: no time to draw it over")
    return [(at_s - opened.begin_s, value) for at_s, value in zip(times, values, strict=True)]


def _scale(panel: Mapping[str, Any], frame: Frame) -> plots.Scale:
    defaults = panel["fieldConfig"]["defaults"]
    return plots.Scale(style_of(panel, frame, frame.fields[1]), defaults.get("min"), defaults.get("max"))


def _custom(panel: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = panel["fieldConfig"]["defaults"].get("custom") or {}
    return found


def _end_s(opened: Opened) -> float:
    return opened.data_end_s - opened.begin_s


def _plot(svg: str) -> str:
    return f'<div class="plot">{svg}</div>'


_KINDS: dict[str, Callable[[Board, Mapping[str, Any], Sequence[Frame]], str]] = {
    "timeseries": _lines,
    "stat": _numbers,
    "bargauge": _bars,
    "table": _table,
    "xychart": _points_panel,
    "barchart": _shares,
    "state-timeline": _states,
}
