"""Figures of pages: one Plotly figure for each panel, so that each has a legend of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.analysis.figures.build import build
from testbed.analysis.figures.run_figures import run_figures
from testbed.analysis.figures.table import Figure
from testbed.analysis.figures.web import panels_alone, web_figure
from testbed.analysis.record.record import Record, load
from testbed.core.errors import InputError

Drawing = dict[str, Any]


def drawing(figure: Figure, *, dark: bool) -> Drawing:
    """Return {"kind", "title", "notes", "panels": [{"title", "data", "layout", "config"}]}."""
    panels = [{"title": panel.title, **web_figure(alone, dark=dark)} for panel, alone in panels_alone(figure)]
    return {"kind": figure.kind, "title": figure.title, "notes": list(figure.notes), "panels": panels}


def drawing_of_runs(
    paths: Sequence[Path], kind: str, *, band: str = "range", allow_invalid: bool = False, dark: bool = False
) -> Drawing:
    """Return the figure of a kind over several runs; runs that cannot be read are named in its notes.

    Raises:
        InputError: An unknown kind or band.
    """
    records: list[Record] = []
    faults: list[str] = []
    for path in paths:
        try:
            records.append(load(path))
        except InputError as error:
            faults += error.faults
    figure = build(records, kind, band=band, allow_invalid=allow_invalid)
    return drawing(dataclasses.replace(figure, notes=(*figure.notes, *faults)), dark=dark)


def drawings_of_run(record: Record, *, dark: bool) -> list[Drawing]:
    """Return every figure of one run for which its record holds something."""
    figures, faults = run_figures(record)
    found = [drawing(figure, dark=dark) for figure in figures if figure.panels]
    broken = [figure for figure in figures if figure.kind in faults]
    return [*found, *({**drawing(figure, dark=dark), "notes": [faults[figure.kind]]} for figure in broken)]
