"""Figures of runs, as `longhaul plot` draws them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from longhaul.comparing import Runs
from longhaul.one_run import records
from testbed.core.errors import MachineError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot(
    runs: Runs,
    kind: str = "accuracy_over_time",
    path: str | Path | None = None,
    *,
    columns: int = 1,
    target: float | None = None,
    band: str = "range",
    allow_invalid: bool = False,
) -> Figure:
    """Return a figure of some runs as matplotlib's, and write it to `path` if there is one.

    Runs that differ by the seed alone are one series with a band. Invalid and unfinished runs are left out with a
    warning that names them.

    >>> import longhaul
    >>> runs = longhaul.runs(RUNS, status="completed", topo="two_regions")
    >>> figure = plot(runs, "accuracy_over_bytes", FIGURES / "bytes.pdf", allow_invalid=True)
    >>> (FIGURES / "bytes.pdf").read_bytes()[:5]
    b'%PDF-'

    Args:
        runs: DataFrame as `longhaul.runs` returns it, or `Run`s, or paths of run directories.
        kind: "accuracy_over_time", "accuracy_over_bytes", "accuracy_over_steps", "time_to_target", "step_split",
            "pareto", "link_use" or "scaling".
        path: File to write; its suffix tells the format: .pdf, .svg, .png, or .html to zoom in a browser.
        columns: Width in columns of a paper, 1 or 2.
        target: Value of the metric that counts as reached, such as 0.9; None for that of each run.
        band: "range" (lowest to highest of the seeds) or "interval" (95 % interval of their mean).
        allow_invalid: True to draw invalid and unfinished runs too.

    Raises:
        InputError: With every fault of the arguments at once, or because there is nothing to draw.
        MachineError: The packages for figures are not installed.
    """
    try:
        from testbed.analysis.figures.plot import plot as draw
    except ModuleNotFoundError as error:
        raise MachineError(f"plot: {error.name} is not installed: pip install 'longhaul[figures]'") from error
    options = {"columns": columns, "target": target, "band": band, "allow_invalid": allow_invalid}
    return draw(records(runs), kind, path, **options)  # type: ignore[arg-type]
