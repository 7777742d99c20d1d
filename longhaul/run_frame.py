"""Runs of a folder as a DataFrame, one row a run."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from testbed.analysis.record.record import load
from testbed.analysis.record.run_settings import asked, differing
from testbed.core.errors import InputError, nearest, raise_input_faults
from testbed.core.record.run_row import (
    COLUMNS,
    Row,
    is_readable,
    read_rows,
    since_unix_s,
    started_unix_s,
    status_word,
)
from testbed.core.record.summary import STATUSES, VERDICTS

Wanted = str | int | Iterable[str | int] | None
_STATUSES = (*STATUSES, "running")
_PARTS = ("workload", "strategy", "compressor")
_NAMED = 5


def runs(
    root: str | Path = "runs",
    *,
    topo: Wanted = None,
    workload: Wanted = None,
    strategy: Wanted = None,
    compressor: Wanted = None,
    workers: Wanted = None,
    seed: Wanted = None,
    status: Wanted = None,
    verdict: Wanted = None,
    since: str | date | None = None,
    settings: bool = False,
) -> pd.DataFrame:
    """Return the runs of a folder, oldest first, with typed columns: numbers, categories, texts, and moments in UTC.

    All filters must hold; several values of one mean "or". Entries that cannot be read are left out with a warning.

    >>> runs(RUNS, compressor=["topk", "int8"], since="2026-11-01")[["run_id", "wan_bytes"]]
                                                  run_id  wan_bytes
    0     20261127T195126Z-two_regions-ddp-topk-907bb944       <NA>
    1     20261127T201206Z-two_regions-ddp-topk-69dc4d3e     942614
    2  20261127T202507Z-two_regions-federated-int8-fb...    9800313

    Args:
        root: Folder that holds run directories.
        topo: Name or names of topologies; the other filters are read the same way.
        verdict: "valid", "suspect" or "invalid".
        since: Runs that began then or later: an age ("90s", "30m", "12h", "7d"), a date as text, or a date or
            datetime, in UTC if it has no zone.
        settings: True to add a column for each setting in which the runs differ, such as `compressor.density`. It takes
            about a millisecond a run.

    Raises:
        InputError: The folder does not exist, or a filter cannot be read.
    """
    given = {"topo": topo, "workload": workload, "strategy": strategy, "compressor": compressor}
    given |= {"workers": workers, "seed": seed, "status": status, "verdict": verdict}
    filters = {key: _several(value) for key, value in given.items() if value is not None}
    moment_s = None if since is None else _moment_s(since)
    raise_input_faults([*_unknown_words(filters), *_folder_fault(Path(root))])
    rows = [row for row in read_rows(Path(root)) if _is_wanted(row, filters, moment_s)]
    unreadable = [row for row in rows if not is_readable(row)]
    if unreadable:
        warnings.warn(_left_out(unreadable, root), stacklevel=2)
    return frame([(row, Path(root) / row["run_id"]) for row in rows if is_readable(row)], settings=settings)


def frame(rows: Sequence[tuple[Row, Path]], *, settings: bool = False) -> pd.DataFrame:
    """Return rows of runs as a DataFrame, with the directory of each in the column `path`.

    Args:
        settings: True to add the settings in which they differ.
    """
    columns = {column.name: _typed(column.kind, [row[column.name] for row, _ in rows]) for column in COLUMNS}
    columns["status"] = pd.Categorical([status_word(row) for row, _ in rows])
    columns["started"] = pd.to_datetime(pd.Series([row["started"] for row, _ in rows], dtype="object"), utc=True)
    columns["path"] = pd.array([str(path.absolute()) for _, path in rows], dtype="string")
    if settings:
        found = setting_columns([_settings(path) for _, path in rows])
        columns |= {key: values for key, values in found.items() if key not in columns}
    return pd.DataFrame(columns)


def setting_columns(settings: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Return a column for each setting in which runs differ, but for names, which have columns of their own."""
    keys = [key for key in differing(settings) if key not in _PARTS]
    return {
        key: numbers_or_texts([None if one.get(key) == "null" else one.get(key) for one in settings]) for key in keys
    }


def numbers_or_texts(texts: Sequence[str | None]) -> Any:
    """Return a column of numbers if all texts are numbers, else of texts."""
    column: pd.Series[Any] = pd.Series(list(texts), dtype="object")
    numbers = pd.to_numeric(column, errors="coerce")
    is_number = all(text is None or not pd.isna(value) for text, value in zip(texts, numbers, strict=True))
    return numbers if is_number else pd.array(texts, dtype="string")


def _settings(path: Path) -> dict[str, str]:
    """Return what was asked, with the names of parts: a part's parameters are compared among runs that have it."""
    spec = load(path).spec
    return asked(spec) | {part: getattr(spec, part).name for part in _PARTS} if spec else {}


def _typed(kind: str, values: Sequence[Any]) -> Any:
    if kind == "word":
        return pd.Categorical(values)
    if kind == "text":
        return pd.array(values, dtype="string")
    if kind == "count":
        return pd.array([value if value is None or value == int(value) else None for value in values], dtype="Int64")
    return pd.array(values, dtype="Float64").to_numpy(dtype="float64", na_value=float("nan"))


def _several(value: Wanted) -> frozenset[str]:
    values = [value] if isinstance(value, str | int) else list(value or ())
    return frozenset(map(str, values))


def _is_wanted(row: Row, filters: Mapping[str, frozenset[str]], since_s: float | None) -> bool:
    if since_s is not None and not started_unix_s(str(row["run_id"])) >= since_s:
        return False
    return all(_value(row, key) in values for key, values in filters.items())


def _value(row: Row, key: str) -> str | None:
    if key == "status":
        return status_word(row)
    value = row[key]
    return f"{value:.0f}" if isinstance(value, int | float) else value


def _moment_s(since: str | date) -> float:
    if isinstance(since, date):
        moment = since if isinstance(since, datetime) else datetime(since.year, since.month, since.day)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    found = since_unix_s(since, time.time())
    if found is None:
        raise InputError(f"since={since!r}: neither an age such as 90s, 30m, 12h, 7d nor a date as 2026-11-21")
    return found


def _unknown_words(filters: Mapping[str, frozenset[str]]) -> list[str]:
    """Return a fault for each status and verdict that no run can have; other names may come with any run."""
    faults = []
    for key, known in (("status", _STATUSES), ("verdict", VERDICTS)):
        for value in sorted(filters.get(key, frozenset()) - set(known)):
            close = nearest(value, known)
            meant = f"; did you mean {close}?" if close else ""
            faults.append(f"{key}={value!r}: unknown{meant}; known: {', '.join(known)}")
    return faults


def _folder_fault(root: Path) -> list[str]:
    return [] if root.is_dir() else [f"root={str(root)!r}: no such folder; give the one that holds run directories"]


def _left_out(rows: Sequence[Row], root: str | Path) -> str:
    named = "; ".join(f"{row['run_id']}: {row['status']}" for row in rows[:_NAMED])
    more = f"; and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
    return f"left out: {len(rows)} entries of {root} that cannot be read: {named}{more}"
