"""A dashboard as a page: its panels where the grid has them, one below another on a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from testbed.analysis.style import html_page

STYLE = """
body { max-width: 1400px; margin-top: 1em; }
nav { display: flex; flex-wrap: wrap; gap: .3em 1.2em; } nav b { border-bottom: 2px solid #1a1a1a; }
.board { display: grid; grid-template-columns: repeat(24, minmax(0, 1fr)); gap: 10px; }
.board > h2 { grid-column: 1 / -1; margin: .9em 0 0; border-bottom: 1px solid #ccc; }
.panel { border: 1px solid #ddd; border-radius: 4px; padding: 8px 12px; min-width: 0; display: flex;
  flex-direction: column; }
.panel .note { margin: 0 0 .5em; font-size: 12px; line-height: 1.35; } .panel h3 { font-size: 14px; }
.plot { overflow-x: auto; } .plot svg { display: block; width: 100%; height: auto; }
.scroll { overflow: auto; } .panel table { font-size: 11.5px; } .panel td, .panel th { padding-right: 9px; }
.panel thead th { position: sticky; top: 0; background: #fff; } .panel .wide { overflow: visible; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 0 1em; margin: .4em 0 0; padding: 0; font-size: 11px;
  max-height: 7.6em; overflow-y: auto; }
.legend li { overflow-wrap: anywhere; margin: 0; } .legend .swatch, .legend li svg { vertical-align: -1px; }
.panel .lines td:first-child { min-width: 5em; } .panel .runs td:first-child { min-width: 15.5em; }
.panel th { white-space: normal; vertical-align: bottom; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(170px, 1fr)); gap: 6px; flex: 1; }
.tiles.one { grid-template-columns: 1fr; } .tile { padding: 4px 8px; border-radius: 3px; align-content: center; }
.tile .of { display: block; font-size: 11px; overflow-wrap: anywhere; } .tile b { font-size: 18px; }
.one .tile { text-align: center; } .one .tile b { font-size: 30px; font-weight: 600; }
.bar { display: grid; grid-template-columns: 1fr auto; gap: 0 8px; font-size: 12px; margin-bottom: 5px; }
.bar > span { overflow-wrap: anywhere; } .bar b { font-variant-numeric: tabular-nums; }
.track { grid-column: 1 / -1; display: flex; height: 9px; background: #f1f1f1; } .track i { display: block; }
.none { color: #555; margin: auto; } .scroll .none { margin: 1.5em 0; text-align: center; }
.fault { color: #b04400; overflow-wrap: anywhere; }
@media (max-width: 700px) {
  .board { display: block; } .panel { margin: 0 0 10px; padding: 8px 10px; }
  .whole .plot svg { min-width: 700px; }
}
@media print { .board { display: block; } .panel { break-inside: avoid; margin-bottom: 4mm; }
  .scroll, .legend { overflow: visible; max-height: none !important; } }
"""
_ROW_PX = 38
_HEAD_PX = 46
_COLUMNS = 24

Panel = Mapping[str, Any]


def board(dashboard: Mapping[str, Any], inside: Callable[[Panel], str], title: Callable[[str], str]) -> str:
    """All panels.

    Args:
        inside: what is in a panel.
        title: a title as readers see it.
    """
    panels = sorted(_flat(dashboard), key=lambda panel: (panel["gridPos"]["y"], panel["gridPos"]["x"]))
    edges = lines(panels)
    parts = []
    for panel in panels:
        at = place(panel["gridPos"], edges)
        if panel["type"] == "row":
            parts.append(f'<h2 style="{at}">{html_page.text(title(panel["title"]))}</h2>')
        else:
            parts.append(_panel(panel, at, title, inside(panel)))
    return f'<div class="board">\n{"".join(parts)}</div>'


def lines(panels: list[Panel]) -> list[int]:
    """Where panels begin or end, from top to bottom: the rows of the page's grid, as high as what is in them."""
    grids = [panel["gridPos"] for panel in panels]
    return sorted({edge for grid in grids for edge in (grid["y"], grid["y"] + grid["h"])})


def place(grid: Mapping[str, int], edges: list[int]) -> str:
    """In the page's own grid.

    >>> place({"x": 12, "y": 1, "w": 12, "h": 8}, [0, 1, 9])
    'grid-column:13/span 12;grid-row:2/3'
    """
    rows = edges.index(grid["y"]) + 1, edges.index(grid["y"] + grid["h"]) + 1
    return f"grid-column:{grid['x'] + 1}/span {grid['w']};grid-row:{rows[0]}/{rows[1]}"


def _flat(dashboard: Mapping[str, Any]) -> Iterator[Panel]:
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels") or ()


def _panel(panel: Panel, at: str, title: Callable[[str], str], content: str) -> str:
    grid = panel["gridPos"]
    height_px = _ROW_PX * grid["h"] - _HEAD_PX
    scrolls = panel["type"] in ("table", "bargauge", "barchart", "stat")
    if scrolls:
        content = f'<div class="scroll" tabindex="0" style="max-height:{max(90, height_px)}px">{content}</div>'
    kind = "panel whole" if grid["w"] == _COLUMNS else "panel"
    return (
        f'<section class="{kind}" style="{at}" id="panel-{panel["id"]}">'
        f"<h3>{html_page.text(title(panel['title']))}</h3>\n"
        f"{html_page.note(title(str(panel.get('description') or '')))}\n{content}</section>\n"
    )
