"""Figures for a browser, as plain dicts in Plotly's JSON. Python never imports Plotly for them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from testbed.analysis.figures.table import Axis, Figure, Guide, Panel, Series, label_heights
from testbed.analysis.style.series_style import ON_DARK

TEXT = {False: "#1A1A1A", True: "#E8E8E8"}
"""Colour of text on a light and on a dark page."""
_GRID = "rgba(128,128,128,0.25)"
_GREY = "#808080"
SYMBOLS = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "D": "diamond",
    "v": "triangle-down",
    "P": "cross",
    "X": "x",
    "*": "star",
}
_CONFIG: dict[str, Any] = {
    "responsive": True,
    "displaylogo": False,
    # None of those that send a figure anywhere.
    "modeBarButtons": [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
}
_HEIGHT_PX, _ROW_PX = 332, 34
_LOG_TICKS = 5
_GAP = 0.08
"""Free space between panels, as a share of the figure."""


def web_figure(figure: Figure, *, dark: bool = False, across: int | None = None) -> dict[str, Any]:
    """Return {"data", "layout", "config"} for `Plotly.react`.

    A trace has its runs in `meta.run_ids` and shares `legendgroup` with its band. There is no legend: the page makes
    one that a keyboard reaches, unless labels stand at the curves.

    Args:
        figure: With at least one panel.
        dark: True for a dark page.
        across: Number of panels in a row; None: up to two.
    """
    count = len(figure.panels)
    across = max(1, min(count, across or (2 if count > 1 else 1)))
    down = -(-count // across)
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = _layout(figure, down, dark=dark)
    for number, panel in enumerate(figure.panels):
        name = "" if number == 0 else str(number + 1)
        place = _place(figure, number, across, down)
        x, y = (panel.y, panel.x) if figure.is_sideways else (panel.x, panel.y)
        layout[f"xaxis{name}"] = _axis(x, place[0], f"y{name}")
        layout[f"yaxis{name}"] = _axis(y, place[1], f"x{name}", is_sideways=figure.is_sideways)
        traces = [trace for one in panel.series for trace in _FORMS[figure.form](one)]
        traces += [_guide(guide) for guide in panel.guides]
        layout["annotations"] += [_guide_name(guide, panel, name) for guide in panel.guides]
        data += [{**trace, "xaxis": f"x{name}", "yaxis": f"y{name}"} for trace in traces]
        layout["annotations"] += _texts(figure, panel, name)
    found = {"data": data, "layout": layout, "config": _CONFIG}
    return _recoloured(found, ON_DARK) if dark else found


def panels_alone(figure: Figure) -> list[tuple[Panel, Figure]]:
    """Return each panel with a figure of it alone, without its title.

    A page writes the title over the drawing. In a drawing, a long one would lie under Plotly's buttons or be cut off.
    """
    return [
        (panel, dataclasses.replace(figure, panels=(dataclasses.replace(panel, title=""),))) for panel in figure.panels
    ]


def _layout(figure: Figure, down: int, *, dark: bool) -> dict[str, Any]:
    rows = max((len(panel.x.categories) for panel in figure.panels), default=0)
    height_px = 122 + _ROW_PX * rows if figure.is_sideways else _HEIGHT_PX
    right_px = 12 + (8 * max(len(s.label) for p in figure.panels for s in p.series) if figure.has_direct_labels else 0)
    return {
        "height": down * height_px,
        "margin": {"l": 56, "r": right_px, "t": 40, "b": 60},
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": TEXT[dark]},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": False,
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": _GREY, "activecolor": TEXT[dark]},
        "hovermode": "closest",
        "barmode": "stack",
        # Constant, so that an update keeps what the user zoomed and hid.
        "uirevision": "longhaul",
        "annotations": [],
        "meta": {"kind": figure.kind, "legend_title": figure.legend_title, "notes": list(figure.notes)},
    }


def _place(figure: Figure, number: int, across: int, down: int) -> tuple[list[float], list[float]]:
    """Return the horizontal and the vertical domain of a panel; the first is at the top left."""
    gap = 0.22 if figure.has_direct_labels or (figure.is_sideways and across > 1) else _GAP
    row, column = divmod(number, across)
    width, height = (1 - gap * (across - 1)) / across, (1 - 0.2 * (down - 1)) / down
    left, top = column * (width + gap), 1 - row * (height + 0.2)
    return [left, min(1.0, left + width)], [max(0.0, top - height), top]


def _axis(axis: Axis, domain: list[float], anchor: str, *, is_sideways: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {
        "title": {"text": _plain(axis.label)},
        "domain": domain,
        "anchor": anchor,
        "range": list(axis.range),
        "gridcolor": _GRID,
        "zeroline": False,
        "linecolor": _GREY,
        "automargin": True,
    }
    if axis.is_log:
        # Plotly counts the range of such an axis in powers of ten.
        # With more ticks it would label every digit between them.
        found |= {"type": "log", "range": [math.log10(value) for value in axis.range], "nticks": _LOG_TICKS}
    if axis.ticks:
        found["tickvals"] = list(axis.ticks)
    if axis.categories:
        found |= {
            "tickvals": list(range(len(axis.categories))),
            "ticktext": [_plain(word) for word in axis.categories],
            "showgrid": False,
        }
    if is_sideways:
        found["range"] = list(reversed(found["range"]))
    return found


def _common(one: Series) -> dict[str, Any]:
    return {
        "name": _plain(one.label),
        "legendgroup": one.label,
        "meta": {"run_ids": list(one.run_ids), "strategy": one.strategy, "compressor": one.compressor},
    }


def _marker(one: Series, size: float) -> dict[str, Any]:
    return {"symbol": SYMBOLS[one.style.marker], "size": size, "color": one.style.color}


def _lines(one: Series) -> list[dict[str, Any]]:
    dash = ",".join(f"{1.3 * length:g}px" for length in one.style.dash) or "solid"
    line = {
        **_common(one),
        "type": "scatter",
        "mode": "lines+markers",
        "x": list(one.x),
        "y": list(one.mid),
        "line": {"color": one.style.color, "width": 1.8, "dash": dash},
        "marker": {**_marker(one, 7), "maxdisplayed": 10},
    }
    return [*_band(one), line]


def _band(one: Series) -> list[dict[str, Any]]:
    if not one.has_band:
        return []
    edge = {"x": [*one.x, *reversed(one.x)], "y": [*one.high, *reversed(one.low)]}
    look = {
        "mode": "lines",
        "line": {"width": 0, "color": one.style.color},
        "fill": "toself",
        "fillcolor": one.style.color,
        "hoverinfo": "skip",
    }
    return [{**_common(one), "type": "scatter", **edge, **look, "opacity": 0.18, "showlegend": False}]


def _points(one: Series) -> list[dict[str, Any]]:
    point = {**_common(one), "type": "scatter", "mode": "markers", "x": list(one.x), "y": list(one.mid)}
    return [{**point, "marker": _marker(one, 11), **_errors(one, "y")}]


def _ranking(one: Series) -> list[dict[str, Any]]:
    point = {**_common(one), "type": "scatter", "mode": "markers", "x": list(one.mid), "y": list(one.x)}
    return [{**point, "marker": _marker(one, 11), **_errors(one, "x")}]


def _errors(one: Series, axis: str) -> dict[str, Any]:
    if not one.has_band:
        return {}
    above = [high - mid for high, mid in zip(one.high, one.mid, strict=True)]
    below = [mid - low for mid, low in zip(one.mid, one.low, strict=True)]
    look = {"color": one.style.color, "thickness": 1.2, "width": 4}
    return {f"error_{axis}": {"type": "data", "symmetric": False, "array": above, "arrayminus": below, **look}}


def _stack(one: Series) -> list[dict[str, Any]]:
    look = {"color": one.style.color, "pattern": {"shape": one.hatch, "fillmode": "overlay", "fgcolor": "#FFFFFF"}}
    return [{**_common(one), "type": "bar", "orientation": "h", "x": list(one.mid), "y": list(one.x), "marker": look}]


def _area(one: Series) -> list[dict[str, Any]]:
    """Return a layer of a stack, or a line over it where the line is dashed."""
    if one.style.dash:
        return [{**trace, "mode": "lines"} for trace in _lines(one)]
    layer = {**_common(one), "type": "scatter", "mode": "lines", "x": list(one.x), "y": list(one.mid)}
    marker = {"symbol": "square", "color": one.style.color}
    return [{**layer, "stackgroup": "all", "fillcolor": one.style.color, "line": {"width": 0}, "marker": marker}]


_FORMS = {"area": _area, "lines": _lines, "points": _points, "ranking": _ranking, "stack": _stack}


def _guide(guide: Guide) -> dict[str, Any]:
    line = {"color": _GREY, "width": 1.2, "dash": "dot", "shape": "hv" if guide.is_stepped else "linear"}
    found = {"type": "scatter", "mode": "lines", "x": list(guide.x), "y": list(guide.y), "line": line}
    return {**found, "name": _plain(guide.label), "hoverinfo": "skip", "meta": {"guide": True}}


def _guide_name(guide: Guide, panel: Panel, name: str) -> dict[str, Any]:
    x = guide.x[-1]
    # Plotly counts places on a logarithmic axis in powers of ten.
    at = {"xref": f"x{name}", "x": math.log10(x) if panel.x.is_log else x, "yref": f"y{name}", "y": guide.y[-1]}
    anchors = {
        "xanchor": "left" if guide.is_stepped else "right",
        "yanchor": "top" if guide.is_named_below else "bottom",
    }
    return {**at, **anchors, "showarrow": False, "text": _plain(guide.label), "font": {"color": _GREY, "size": 11}}


def _texts(figure: Figure, panel: Panel, name: str) -> list[dict[str, Any]]:
    """Return the panel's title, and labels at the right edge."""
    at: dict[str, Any] = {"xref": f"x{name} domain", "yref": f"y{name} domain", "showarrow": False, "xanchor": "left"}
    found = [{**at, "text": _plain(f"{panel.title}"), "x": 0, "y": 1, "yanchor": "bottom"}] if panel.title else []
    if figure.has_direct_labels:
        for one, height in zip(panel.series, label_heights(panel), strict=True):
            label = {"text": _plain(one.label), "x": 1.01, "y": height, "yanchor": "middle"}
            found.append({**at, **label, "font": {"color": one.style.color, "size": 11}})
    return found


def _plain(text: str) -> str:
    """Return text that Plotly shows as it is: it reads a few tags, and names come from a record."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _recoloured(value: Any, colors: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _recoloured(one, colors) for key, one in value.items()}
    if isinstance(value, list):
        return [_recoloured(one, colors) for one in value]
    return colors.get(value, value) if isinstance(value, str) else value
