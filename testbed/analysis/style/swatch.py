"""Colour and marker of a method as a small SVG, for tables in pages."""

from __future__ import annotations

from matplotlib.markers import MarkerStyle

from testbed.analysis.style.series_style import SeriesStyle

_PLOT_COMMANDS = {1: "M", 2: "L", 3: "Q", 4: "C", 79: "Z"}
"""Of matplotlib's path codes."""


def swatch(style: SeriesStyle) -> str:
    """Return the line and the marker of a method as they are in the figures, for its name in a table."""
    marker = MarkerStyle(style.marker)
    outline = marker.get_path().transformed(marker.get_transform())
    parts = []
    for points, code in outline.iter_segments(simplify=False):
        pairs = " ".join(f"{x:.2f},{y:.2f}" for x, y in zip(9 * points[::2], -9 * points[1::2], strict=True))
        parts.append(_PLOT_COMMANDS[int(code)] + ("" if int(code) == 79 else pairs))
    dashes = " ".join(f"{length:g}" for length in style.dash)
    return (
        '<svg class="swatch" viewBox="-14 -7 28 14" width="28" height="14" aria-hidden="true">'
        f'<path d="M-14,0H14" stroke="{style.color}" stroke-width="1.6" stroke-dasharray="{dashes}"/>'
        f'<path d="{"".join(parts)}" fill="{style.color}" stroke="#1a1a1a" stroke-width=".7"/></svg>'
    )
