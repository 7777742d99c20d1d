"""Shared parts of the figures of benchmarks and studies: colours, size, and SVG that can stand inside an HTML page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#000000")
"""Okabe and Ito, "Color Universal Design" (2008): told apart by colour-blind readers."""
LEGEND_ENTRIES = 16

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


def to_svg(figure: Figure) -> str:
    """Return an <svg> element for HTML: no prolog, no metadata, no address; the same bytes for the same figure."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # HTML gives <svg> and xlink: their namespaces itself. The first tag alone, so that no text of a record is touched.
    head, rest = text.split(">", 1)
    return re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", head) + ">" + rest


def standalone(svg: str) -> str:
    """An element of `to_svg` as a file of its own, which must name its namespaces."""
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return svg.replace("<svg", f"<svg {names}", 1)


def legend(axes: Axes) -> None:
    """Below the panel; none where it would hide the panel."""
    handles, labels = axes.get_legend_handles_labels()
    if 0 < len(handles) <= LEGEND_ENTRIES:
        letters = 13 * axes.figure.get_figure(root=True).get_figwidth()  # that fit beside each other
        columns = max(1, min(4, len(handles), int(letters) // (max(map(len, labels)) + 6)))
        axes.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=columns)
