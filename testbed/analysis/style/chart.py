"""What all figures share: colours, size, thinning, and SVG that can stand inside an HTML page."""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.analysis.record.record import Point

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#000000")
"""Okabe and Ito, "Color Universal Design" (2008): told apart by colour-blind readers."""
POINTS_PER_CURVE = 600
LEGEND_ENTRIES = 16
_ROW = re.compile(r'<g id="(row-[\w -]+)">')

_STYLE: Any = {
    "svg.hashsalt": "longhaul",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.3,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "figure.constrained_layout.use": True,
}


@contextmanager
def style() -> Iterator[None]:
    """Draw in the project's style. Names come from a record, so a dollar sign is no formula."""
    with mpl.rc_context(_STYLE):
        yield


def new_figure(panels: int = 1, legend_rows: int = 1, width_in: float = 8.4) -> tuple[Figure, list[Axes]]:
    """A figure with `panels` panels side by side and room for a legend below."""
    figure = Figure(figsize=(width_in, 2.7 + 0.18 * legend_rows))
    return figure, [figure.add_subplot(1, panels, index + 1) for index in range(panels)]


def to_svg(figure: Figure, titles: Mapping[str, str] | None = None) -> str:
    """An <svg> element for HTML: no prolog, no metadata, no address of any kind; the same bytes for the same figure.

    What was drawn with a `gid` that begins with "row-" has that as its classes, so that a page can hide it.

    Args:
        titles: by such a `gid`, what is told of it where a pointer rests on it.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # HTML gives <svg> and xlink: their namespaces itself. The first tag alone, so that no text of a record is touched.
    head, rest = text.split(">", 1)
    rest = _ROW.sub(lambda found: _opened(found[1], (titles or {}).get(found[1])), rest)
    return re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", head) + ">" + rest


def _opened(names: str, title: str | None) -> str:
    told = "" if title is None else f"<title>{html.escape(title)}</title>"
    return f'<g class="{names}">{told}'


def standalone(svg: str) -> str:
    """An element of `to_svg` as a file of its own, which must name its namespaces."""
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return svg.replace("<svg", f"<svg {names}", 1)


def thin(points: Sequence[Point], most: int = POINTS_PER_CURVE) -> list[Point]:
    """At most `most` points, in their order: of each stretch of the curve its first, lowest, highest and last, so that
    no peak is lost and what lies between two stretches, a step too, stays as it is.

    Jugel et al., M4: A Visualization-Oriented Time Series Data Aggregation, VLDB 2014; by number, not by time.
    """
    if len(points) <= most:
        return list(points)
    size = math.ceil(len(points) / max(1, most // 4))
    kept: list[Point] = []
    for start in range(0, len(points), size):
        stretch = range(start, min(start + size, len(points)))
        low = min(stretch, key=lambda index: points[index][1])
        high = max(stretch, key=lambda index: points[index][1])
        kept += [points[index] for index in sorted({stretch[0], low, high, stretch[-1]})]
    return kept


def draw(axes: Axes, points: Sequence[Point], label: str, color: str, scale: float = 1.0, dashes: str = "-") -> None:
    """A thinned curve, values times `scale`; a handful of points is marked."""
    kept = thin(points)
    marker = "o" if len(kept) < 30 else None
    axes.plot(
        [x for x, _ in kept],
        [y * scale for _, y in kept],
        color=color,
        label=label,
        marker=marker,
        markersize=3,
        linestyle=dashes,
    )


def legend(axes: Axes) -> None:
    """Below the panel; none where it would hide the panel."""
    handles, labels = axes.get_legend_handles_labels()
    if 0 < len(handles) <= LEGEND_ENTRIES:
        letters = 13 * axes.figure.get_figure(root=True).get_figwidth()  # that fit beside each other
        columns = max(1, min(4, len(handles), int(letters) // (max(map(len, labels)) + 6)))
        drawn = axes.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=columns)
        for handle, entry, words in zip(handles, drawn.legend_handles, drawn.get_texts(), strict=True):
            if isinstance(handle, Artist) and entry is not None:  # error bars are several
                entry.set_gid(handle.get_gid())
                words.set_gid(handle.get_gid())
