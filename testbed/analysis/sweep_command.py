"""Writes the folder of a sweep: results.json, results.csv, table.txt, report.html, a file for each figure of points."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.analysis import sweep as of_sweep
from testbed.analysis.axis_boxes import AxisBoxes
from testbed.analysis.chart import standalone
from testbed.analysis.comparison import compare
from testbed.analysis.comparison_figures import PARETO, Figure, figures
from testbed.analysis.comparison_page import comparison_page
from testbed.core.errors import InputError
from testbed.core.rundir import write_json


def command(question: Mapping[str, Any], runs_root: Path, output: Path) -> str:
    """The table as text.

    Args:
        question: as of `sweep.read_sweep`.

    Raises:
        InputError: it is none, a run cannot be read, or the folder not be written.
    """
    found = of_sweep.read_sweep(question, runs_root)
    text = of_sweep.text(found)
    comparison = compare(found.records)
    drawn, faults = figures(comparison)
    page = comparison_page(comparison, drawn, faults, output / "report.html", AxisBoxes.of(found))
    written = {"table.txt": f"{text}\n", "results.csv": of_sweep.to_csv(found), "report.html": page}
    points = {f"{figure.file_name}.svg": standalone(figure.svg) for figure in drawn if _is_pareto(figure)}
    try:
        output.mkdir(parents=True, exist_ok=True)
        for old in output.glob("*.svg"):  # of a call with other runs
            old.unlink()
        for name, content in (written | points).items():
            (output / name).write_text(content, encoding="utf-8")
        write_json(output / "results.json", of_sweep.to_json(found))
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be written: {error.strerror}") from error
    return text


def _is_pareto(figure: Figure) -> bool:
    return figure.title.startswith(PARETO)
