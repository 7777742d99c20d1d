"""`longhaul plot`, and the same from Python: from runs to a figure in a file."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path

from matplotlib.figure import Figure as PrintedFigure

from testbed.analysis.figures import page, printed
from testbed.analysis.figures.build import build
from testbed.analysis.figures.table import Figure
from testbed.analysis.record.record import Record, load
from testbed.core.errors import InputError

Runs = Iterable[Record | Path | str]
SUFFIXES = (*printed.SUFFIXES, page.SUFFIX)


def plot(
    runs: Runs,
    kind: str = "accuracy_over_time",
    path: Path | str | None = None,
    *,
    columns: int = 1,
    target: float | None = None,
    band: str = "range",
    allow_invalid: bool = False,
) -> PrintedFigure:
    """Return the figure of some runs as matplotlib's, and write it to `path` if there is one.

    Runs that differ by the seed alone become one series with a band. Invalid and unfinished runs are left out with a
    `UserWarning` that names them.

    Args:
        runs: Records or directories of runs.
        kind: One of `FIGURE_KINDS`.
        path: File to write; its suffix tells the format: .pdf, .svg, .png, or .html for one that can be zoomed.
        columns: Width in columns of a paper, 1 or 2.
        target: Value of the metric that counts as reached, in its own unit, such as 0.9; None for that of each run.
        band: "range" (lowest to highest of the seeds) or "interval" (95 % interval of their mean).
        allow_invalid: True to draw invalid and unfinished runs too.

    Raises:
        InputError: With every fault of the arguments at once, or because there is nothing to draw.
    """
    figure, drawn = write(
        records_of(runs), kind, path, columns=columns, target=target, band=band, allow_invalid=allow_invalid
    )
    for note in figure.left_out:
        warnings.warn(note, stacklevel=2)
    return drawn


def write(
    records: list[Record],
    kind: str,
    path: Path | str | None,
    *,
    columns: int = 1,
    target: float | None = None,
    band: str = "range",
    allow_invalid: bool = False,
) -> tuple[Figure, PrintedFigure]:
    """Build the figure, write it if there is a path, and return it as a table and as matplotlib's."""
    file = None if path is None else Path(path)
    faults = [] if file is None or file.suffix.lower() in SUFFIXES else [_format_fault(file)]
    faults += printed.column_faults(columns)
    try:
        figure = build(records, kind, target=target, band=band, allow_invalid=allow_invalid)
    except InputError as error:
        raise InputError(*faults, *error.faults) from error
    if faults:
        raise InputError(*faults)
    drawn = printed.drawn_figure(figure, columns)
    if file is not None and file.suffix.lower() == page.SUFFIX:
        page.write_page([figure], file)
    elif file is not None:
        printed.save(drawn, file)
    return figure, drawn


def _format_fault(file: Path) -> str:
    return f"{file}: the suffix tells the format, and must be one of {', '.join(SUFFIXES)}"


def records_of(runs: Runs) -> list[Record]:
    """Return the records of runs, read where they are directories.

    Raises:
        InputError: With a line for each that is no run, or because there is none at all.
    """
    found: list[Record] = []
    faults: list[str] = []
    for run in [runs] if isinstance(runs, str | Path) else runs:
        try:
            found.append(run if isinstance(run, Record) else load(Path(run)))
        except InputError as error:
            faults += error.faults
    if faults or not found:
        raise InputError(*(faults or ["no runs to draw: give records or directories of runs"]))
    return found
