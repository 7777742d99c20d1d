"""Figures for print, by matplotlib: PDF, SVG or PNG, one or two columns of a paper wide."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import figure as mpl_figure
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from testbed.analysis.figures.table import Figure, Guide, Panel, Series, label_heights
from testbed.analysis.style.chart import to_svg
from testbed.core.errors import InputError, raise_input_faults

SUFFIXES = (".pdf", ".svg", ".png")
_WIDTH_IN = {1: 3.4, 2: 7.0}
"""Width in inches, by the number of columns; that of IEEE and ACM pages."""
_HEIGHT_IN, _ROW_IN, _LEGEND_ROW_IN = 1.9, 0.22, 0.16
_LABEL_LETTERS, _LETTERS_IN = 24, 16
"""Letters at the vertical axis, and in an inch of the horizontal one."""
_MARKER_GAP = 0.2
"""Distance of markers along a curve, as a share of the panel's diagonal."""
_MANY_DECADES = 1e3
_MIN_LETTERS = 22
"""Smallest width of a panel, in letters."""
_FEW_POINTS = 8
"""Number of points up to which each has its marker."""
_GREY = "#777777"
_STYLE: Any = {
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "longhaul",
    "text.parse_math": False,
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E0E0E0",
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "legend.title_fontsize": 7.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "savefig.dpi": 300,
    "figure.constrained_layout.use": True,
}


def print_figure(figure: Figure, path: Path, columns: int = 1) -> None:
    """Write the figure to `path`, in the format of its suffix. The same figure gives the same bytes.

    Raises:
        InputError: The suffix is none of `SUFFIXES`, `columns` is neither 1 nor 2, there is nothing to draw, or `path`
            cannot be written.
    """
    save(drawn_figure(figure, columns), path)


def save(drawn: mpl_figure.Figure, path: Path) -> None:
    """Write what `drawn_figure` returned; raises as `print_figure`."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: the suffix tells the format, and must be one of {', '.join(SUFFIXES)}")
    # Without a date, so that a figure that did not change is no new file.
    without_date: Any = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {}}[suffix]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with mpl.rc_context(_STYLE):
            drawn.savefig(path, metadata=without_date)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error


def column_faults(columns: int) -> list[str]:
    return [] if columns in _WIDTH_IN else [f"columns={columns}: must be 1 or 2, the width in columns of a paper"]


def svg_element(figure: Figure) -> str:
    """Return the figure as an <svg> element for an HTML page, two columns wide."""
    drawn = drawn_figure(figure, 2)
    with mpl.rc_context(_STYLE):
        return to_svg(drawn)


def drawn_figure(figure: Figure, columns: int = 1) -> mpl_figure.Figure:
    """Return the figure as matplotlib's.

    Raises:
        InputError: `columns` is neither 1 nor 2, or there is nothing to draw.
    """
    raise_input_faults(column_faults(columns))
    if not figure.panels:
        cure = " --all (in Python allow_invalid=True) draws them." if figure.left_out else ""
        raise InputError(f"{figure.kind}: these runs hold nothing to draw; {' '.join(figure.notes)}{cure}".rstrip("; "))
    across = _across(figure, columns)
    down = -(-len(figure.panels) // across)
    with mpl.rc_context(_STYLE):
        drawn = mpl_figure.Figure(figsize=(_WIDTH_IN[columns], down * _panel_height_in(figure)))
        for number, panel in enumerate(figure.panels):
            axes = drawn.add_subplot(down, across, number + 1)
            _FORMS[figure.form](axes, panel)
            letters = int(_LETTERS_IN * _WIDTH_IN[columns] / across) - max(map(len, panel.x.categories), default=0)
            left = figure.panels[number - 1] if number % across else None
            has_label = left is None or left.y.label != panel.y.label
            _frame(axes, figure, panel, has_label=has_label, letters=letters)
        if not figure.has_direct_labels and figure.form != "ranking":
            rows = _legend(drawn, figure, columns)
            drawn.set_figheight(drawn.get_figheight() + _LEGEND_ROW_IN * rows)
    return drawn


def _across(figure: Figure, columns: int) -> int:
    """Return the number of panels in a row; four make a square, and long labels leave room for fewer."""
    panels = len(figure.panels)
    count = 1 if columns == 1 else {1: 1, 2: 2, 4: 2}.get(panels, 3)
    labels = [one.label for panel in figure.panels for one in panel.series] if figure.has_direct_labels else []
    labels += [word for panel in figure.panels for word in panel.x.categories]
    letters = max(map(len, labels), default=0)
    while count > 1 and _LETTERS_IN * _WIDTH_IN[columns] / count - letters < _MIN_LETTERS:
        count -= 1
    return count


def _panel_height_in(figure: Figure) -> float:
    if figure.is_sideways:
        return 0.75 + _ROW_IN * max(len(panel.x.categories) for panel in figure.panels)
    return _HEIGHT_IN


def _frame(axes: Axes, figure: Figure, panel: Panel, *, has_label: bool, letters: int) -> None:
    """Draw axes, guides and labels.

    Args:
        has_label: True if the vertical axis is named; panels to the right of one of the same name need none.
        letters: Number of letters of which the panel is wide.
    """
    x, y = (panel.y, panel.x) if figure.is_sideways else (panel.x, panel.y)
    for guide in panel.guides:
        how = "steps-post" if guide.is_stepped else "default"
        axes.plot(guide.x, guide.y, color=_GREY, linewidth=0.8, linestyle=(0, (2, 2)), drawstyle=how, zorder=1.5)
        _name_guide(axes, guide)
    if panel.x.is_log:
        _log_scale(axes, panel.x.range)
    axes.set(xlabel=_wrapped(x.label, letters), ylabel=_wrapped(y.label) if has_label else "")
    axes.set(xlim=x.range, ylim=y.range)
    if x.ticks:
        axes.set_xticks(x.ticks)
    axes.set_title(_wrapped(panel.title, letters), loc="left", fontweight="bold")
    if figure.is_sideways:
        axes.set_yticks(range(len(panel.x.categories)), panel.x.categories)
        axes.set_ylim(*reversed(panel.x.range))
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
    if figure.has_direct_labels:
        _label_directly(axes, panel)


def _wrapped(words: str, letters: int = _LABEL_LETTERS) -> str:
    """Return the words in lines of about the same length."""
    lines = -(-len(words) // max(1, letters))
    return textwrap.fill(words, len(words) // lines + 4) if lines > 1 else words


def _name_guide(axes: Axes, guide: Guide) -> None:
    side: Any = {"xytext": (-2, -2), "va": "top"} if guide.is_named_below else {"xytext": (-2, 2), "va": "bottom"}
    at: Any = {
        "textcoords": "offset points",
        "ha": "left" if guide.is_stepped else "right",
        "fontsize": 7,
        "color": _GREY,
    }
    axes.annotate(guide.label, (guide.x[-1], guide.y[-1]), **side, **at)


def _log_scale(axes: Axes, limits: tuple[float, float]) -> None:
    """Put plain numbers at the axis: matplotlib's own labels are formulas, which the style does not read."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if limits[1] / limits[0] < _MANY_DECADES else (1,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _look(one: Series) -> dict[str, Any]:
    return {
        "color": one.style.color,
        "linestyle": (0, one.style.dash) if one.style.dash else "-",
        "linewidth": 1.2,
        "marker": one.style.marker,
        "markersize": 4.5 if one.style.marker != "*" else 6.5,
        "markeredgecolor": "white",
        "markeredgewidth": 0.4,
        "label": one.label,
    }


def _lines(axes: Axes, panel: Panel) -> None:
    for number, one in enumerate(panel.series):
        if one.has_band:
            axes.fill_between(one.x, one.low, one.high, color=one.style.color, alpha=0.18, linewidth=0)
        # Markers of curves that lie over one another stand at different places.
        first = _MARKER_GAP * number / len(panel.series)
        every: Any = (first, _MARKER_GAP) if len(one.x) > _FEW_POINTS else 1
        axes.plot(one.x, one.mid, markevery=every, **_look(one))


def _points(axes: Axes, panel: Panel) -> None:
    for one in panel.series:
        errors = (
            [m - low for m, low in zip(one.mid, one.low, strict=True)],
            [high - m for m, high in zip(one.mid, one.high, strict=True)],
        )
        look = _look(one) | {"linestyle": "none", "markersize": 6 if one.style.marker != "*" else 8}
        axes.errorbar(one.x, one.mid, yerr=errors if one.has_band else None, elinewidth=0.9, capsize=2, **look)


def _ranking(axes: Axes, panel: Panel) -> None:
    for one in panel.series:
        errors = (
            [m - low for m, low in zip(one.mid, one.low, strict=True)],
            [high - m for m, high in zip(one.mid, one.high, strict=True)],
        )
        look = _look(one) | {"linestyle": "none", "markersize": 6 if one.style.marker != "*" else 8}
        axes.hlines(one.x, 0, one.mid, color=one.style.color, linewidth=1.0, alpha=0.5)
        axes.errorbar(one.mid, one.x, xerr=errors if one.has_band else None, elinewidth=0.9, capsize=2, **look)


def _stack(axes: Axes, panel: Panel) -> None:
    left = [0.0] * len(panel.x.categories)
    for one in panel.series:
        look: Any = {"color": one.style.color, "hatch": 2 * one.hatch, "edgecolor": "white", "linewidth": 0.4}
        axes.barh(one.x, one.mid, left=left, height=0.7, label=one.label, **look)
        left = [begin + value for begin, value in zip(left, one.mid, strict=True)]


def _area(axes: Axes, panel: Panel) -> None:
    """Stack what has a solid line, and draw the rest as lines over it."""
    stacked = [one for one in panel.series if not one.style.dash]
    look: Any = {"colors": [one.style.color for one in stacked], "labels": [one.label for one in stacked]}
    axes.stackplot(panel.series[0].x, *(one.mid for one in stacked), linewidth=0, **look)
    for one in panel.series:
        if one.style.dash:
            axes.plot(one.x, one.mid, **_look(one) | {"marker": None})


_FORMS = {"area": _area, "lines": _lines, "points": _points, "ranking": _ranking, "stack": _stack}


def _label_directly(axes: Axes, panel: Panel) -> None:
    """Put each label at the right edge, near the end of its curve, behind its marker."""
    place: Any = {"transform": axes.transAxes, "clip_on": False}
    for one, height in zip(panel.series, label_heights(panel), strict=True):
        axes.plot([1.04], [height], **_look(one) | {"linestyle": "none"}, **place)
        axes.text(1.08, height, one.label, va="center", fontsize=7, transform=axes.transAxes)


def _legend(drawn: mpl_figure.Figure, figure: Figure, columns: int) -> int:
    """Draw the legend below the panels and return its number of lines."""
    handles, labels = drawn.axes[0].get_legend_handles_labels()
    letters = _LETTERS_IN * _WIDTH_IN[columns]
    count = max(1, min(4 if columns == 1 else 8, len(labels), int(letters / (max(map(len, labels)) + 6))))
    drawn.legend(handles, labels, loc="outside lower center", ncols=count, title=figure.legend_title or None)
    return -(-len(labels) // count) + bool(figure.legend_title)
