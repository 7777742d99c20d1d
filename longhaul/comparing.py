"""Runs compared over seeds: means and intervals as a DataFrame, and the table of `longhaul compare`."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from longhaul.one_run import Run, records
from longhaul.run_frame import frame
from testbed.analysis.comparison import tables
from testbed.analysis.comparison.comparison import compare as compared
from testbed.analysis.comparison.groups import BELIEVED, EXPORTED
from testbed.analysis.comparison.intervals import estimate
from testbed.core.errors import InputError, nearest
from testbed.core.record.run_row import read_row
from testbed.core.record.table_formats import FORMATS, format_for, write_text

Runs = pd.DataFrame | Iterable[Run | str | Path]


def compare(runs: Runs, by: str | Sequence[str] | None = None, *, allow_invalid: bool = False) -> pd.DataFrame:
    """Return one row per configuration: mean over seeds and 95 % interval of everything that was measured.

    For each column of `longhaul.runs` that is a measurement, such as `time_s`, there are `time_s_mean`, `time_s_low`
    and `time_s_high`. The interval is Student's t over seeds; one seed has none, and repeats of a seed count once.
    Invalid and unfinished runs are left out with a warning.

    >>> import longhaul
    >>> runs = longhaul.runs(RUNS, status="completed")
    >>> compare(runs, by="topo", allow_invalid=True)[["topo", "seeds", "time_s_mean", "time_s_low"]]
              topo  seeds  time_s_mean  time_s_low
    0          lan      1    54.624103         NaN
    1  two_regions      4     4.622681    -2.38792

    Args:
        runs: DataFrame as `longhaul.runs` returns it, or `Run`s, or paths of run directories.
        by: Column or columns of `longhaul.runs` whose values make a row. None makes a row of runs that differ by the
            seed alone: the same settings, the same code.
        allow_invalid: True to take in invalid and unfinished runs too.

    Raises:
        InputError: There are no runs, or a column is unknown.
    """
    if by is None:
        found = compared(records(runs), take_all=allow_invalid)
        if not allow_invalid and (line := tables.left_out_line(found)):
            warnings.warn(line.replace("--all takes them in", "allow_invalid=True takes them in"), stacklevel=2)
        rows = tables.rows(found)
        return pd.DataFrame(rows, columns=None if rows else tables.FIELDS).convert_dtypes()
    keys = [by] if isinstance(by, str) else list(by)
    every = _run_frame(runs)
    _require_known(keys, every)
    found_runs = _believed(every, allow_invalid=allow_invalid)
    groups = [
        dict(zip(keys, values, strict=True)) | _measured(group)
        for values, group in found_runs.groupby(keys, observed=True, dropna=False)
    ]
    names = [*keys, *_measured(every.iloc[:0])]
    return pd.DataFrame(groups, columns=names)


def table(runs: Runs, path: str | Path | None = None, *, format: str | None = None, allow_invalid: bool = False) -> str:
    r"""Return the table of `longhaul compare`, and write it to `path` if there is one.

    >>> print(table([f"{RUNS}/20261127T201206Z-two_regions-ddp-topk-69dc4d3e"], format="latex", allow_invalid=True))
    % \usepackage{booktabs} and \usepackage[T1]{fontenc}
    % topo two_regions, workload digits, workers 2, kind emulated.
    % One seed a row, hence no interval.
    \begin{tabular}{llllrrrrrrrrr}
    \toprule
    strategy & compressor & seeds & verdicts & best accuracy & ...
    \midrule
    ddp & topk & 1 & 1 invalid & 0.4111 & 0.4111 & - & 1.465 & 311 & - & 873.2 & 942.6 & 50 \\
    \bottomrule
    \end{tabular}

    Args:
        runs: DataFrame as `longhaul.runs` returns it, or `Run`s, or paths of run directories.
        path: File to write; its suffix tells the format if none is given: .tex, .csv, .json or .txt.
        format: "text", "csv", "latex" or "json". CSV and JSON have all fields, in base units.
        allow_invalid: True to take in invalid and unfinished runs too.

    Raises:
        InputError: There are no runs, the format is unknown, or the file cannot be written.
    """
    if format is not None and format not in FORMATS:
        raise InputError(f"format={format!r}: unknown; known: {', '.join(FORMATS)}")
    output = None if path is None else Path(path)
    form = format_for(format, output)
    text = tables.formatted(compared(records(runs), take_all=allow_invalid), form)
    if output is not None:
        write_text(output, text)
    return text


def _run_frame(runs: Runs) -> pd.DataFrame:
    if isinstance(runs, pd.DataFrame):
        return runs
    paths = [record.run.path for record in records(runs)]
    return frame([(read_row(path), path) for path in paths])


def _believed(runs: pd.DataFrame, *, allow_invalid: bool) -> pd.DataFrame:
    gone = runs[~runs["verdict"].isin(BELIEVED)]
    if allow_invalid or gone.empty:
        return runs
    named = ", ".join(str(run_id) for run_id in gone["run_id"])
    words = f"left out, invalid or unfinished: {named}; allow_invalid=True takes them in"
    warnings.warn(words, stacklevel=3)
    return runs[runs["verdict"].isin(BELIEVED)]


def _require_known(keys: Sequence[str], runs: pd.DataFrame) -> None:
    faults = []
    for key in keys:
        if key not in runs.columns:
            close = nearest(key, runs.columns)
            meant = f"; did you mean {close}?" if close else ""
            faults.append(f"by={key!r}: no such column{meant}; columns: {', '.join(map(str, runs.columns))}")
    if faults:
        raise InputError(*faults)


def _measured(group: pd.DataFrame) -> dict[str, Any]:
    found: dict[str, Any] = {"seeds": group["seed"].nunique(), "runs": len(group)}
    for measure in EXPORTED:
        by_seed: dict[int, list[float]] = defaultdict(list)
        for seed, value in zip(group["seed"].fillna(0), group[measure.key], strict=True):
            if not pd.isna(value):
                by_seed[int(seed)].append(float(value))
        found |= tables.measured_fields({measure.key: estimate(by_seed)})
    return found
