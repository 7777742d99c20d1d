"""One row of values for each run of a folder, read tolerantly: what cannot be read is named, and nothing is ever run.

Summaries are read one by one: a summary is some kilobytes, and a thousand of them take less time than a database takes
to load.
"""

from __future__ import annotations

import calendar
import math
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from testbed.core.errors import InputError
from testbed.core.files import finite, read_object
from testbed.core.record.run_directory import RUN_ID, RunDir
from testbed.core.record.summary import compressor_label, form_fault, version_fault

UNREADABLE = ("damaged", "foreign", "refused")
"""First words of the `status` of entries that are no run that can be read."""
Row = dict[str, Any]
"""Values of one run by the names of `COLUMNS`; None where one is missing."""
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_AGE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd])")


@dataclass(frozen=True)
class Column:
    """One column: its name, which has the base unit, its type, and where the summary has the value."""

    name: str
    kind: Literal["word", "text", "count", "number"]
    """Word: one of a few names. Text: anything. Count: whole number. Number: real number."""
    path: tuple[str, ...] = ()
    """Keys in `summary.json`; empty for what is found elsewhere."""


def _columns(kind: Literal["word", "text", "count", "number"], *names: str) -> tuple[Column, ...]:
    """Return columns that are called as in the summary."""
    return tuple(Column(name, kind, (name,)) for name in names)


COLUMNS = (
    Column("run_id", "text"),
    Column("started", "text"),
    Column("status", "text", ("status",)),
    *_columns("word", "verdict", "kind", "topo", "workload", "strategy", "compressor", "device"),
    *_columns("count", "workers", "seed", "steps"),
    Column("metric_name", "word", ("metric", "name")),
    Column("metric_last", "number", ("metric", "value")),
    Column("metric_best", "number", ("metric", "best")),
    Column("metric_target", "number", ("metric", "target")),
    Column("time_to_target_s", "number", ("metric", "time_to_target_s")),
    *_columns("number", "time_s", "wall_s"),
    Column("step_mean_s", "number", ("step_time_s", "mean")),
    Column("step_p50_s", "number", ("step_time_s", "p50")),
    Column("step_p95_s", "number", ("step_time_s", "p95")),
    Column("exchange_p50_s", "number", ("step_time_s", "exchange_p50")),
    Column("forward_s", "number", ("phase_s", "forward")),
    Column("backward_s", "number", ("phase_s", "backward")),
    Column("compress_s", "number", ("phase_s", "compress")),
    Column("communicate_s", "number", ("phase_s", "communicate")),
    Column("decompress_s", "number", ("phase_s", "decompress")),
    Column("optimizer_s", "number", ("phase_s", "optimizer")),
    Column("exposed_communication_s", "number", ("phase_s", "exposed_communication")),
    Column("payload_bytes", "count", ("bytes", "payload")),
    Column("wire_bytes", "count", ("bytes", "wire_total")),
    Column("wan_bytes", "count", ("bytes", "wire_wan")),
    Column("dense_bytes", "count", ("bytes", "dense")),
    *_columns("number", "compression_ratio", "dilation", "scale"),
    *_columns("count", "workers_at_end", "attempts"),
    Column("steps_left_out", "count", ("left_out", "count")),
    Column("reasons", "text"),
    Column("hooks", "text"),
    Column("user_code", "text", ("user_code",)),
)
NAMES = tuple(column.name for column in COLUMNS)
_EMPTY: Row = dict.fromkeys(NAMES)


def read_rows(runs_root: Path) -> list[Row]:
    """Return one row for each entry of a folder of runs, oldest first.

    `status` is one of the summary's, or "running", "killed", "damaged: why", "foreign: why", "refused: of schema
    version ...".

    Raises:
        InputError: The folder cannot be read.
    """
    try:
        paths = sorted(runs_root.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"--runs {runs_root}: cannot be read: {error.strerror}") from error
    return [read_row(path) for path in paths if not path.name.startswith(".")]


def read_row(path: Path) -> Row:
    """Return the row of one entry of a folder of runs."""
    row = _EMPTY | {"run_id": path.name}
    if not RUN_ID.fullmatch(path.name):
        return row | {"status": "foreign: not a run id"}
    try:
        if path.is_symlink() or not path.is_dir():
            return row | {"status": "foreign: not a directory of its own"}
        return row | {"started": _started(path.name)} | _run_values(RunDir(path))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        return row | {"status": f"damaged: {error}"}


def is_readable(row: Mapping[str, Any]) -> bool:
    """Return True if the row is that of a run that this program reads."""
    return status_word(row) not in UNREADABLE


def status_word(row: Mapping[str, Any]) -> str:
    """Return the status without what stands behind the colon."""
    return str(row["status"]).partition(":")[0]


def started_unix_s(run_id: str) -> float:
    """Return the second in which a run was named; NaN, which compares false with everything, if its name has none."""
    try:
        return float(calendar.timegm(time.strptime(run_id[:16], "%Y%m%dT%H%M%SZ")))
    except ValueError:
        return math.nan


def since_unix_s(text: str, now_s: float) -> float | None:
    """Return the moment that an age or a date means; None for anything else.

    Args:
        text: An age such as "90s", "30m", "12h", "7d", counted back from `now_s`; or a date of ISO 8601, which without
            a zone is UTC, as in the names of runs.
    """
    if match := _AGE.fullmatch(text):
        return now_s - float(match.group(1)) * _SECONDS[match.group(2)]
    try:
        date = datetime.fromisoformat(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def differing_columns(rows: Iterable[Mapping[str, Any]], names: Iterable[str]) -> list[str]:
    """Return those of `names` in which rows have different values; a missing value differs from none."""
    found = list(rows)
    return [name for name in names if len({row[name] for row in found} - {None}) > 1]


def _started(run_id: str) -> str | None:
    seconds = started_unix_s(run_id)
    return None if math.isnan(seconds) else datetime.fromtimestamp(seconds, UTC).isoformat()


def _run_values(run: RunDir) -> Row:
    try:
        summary = read_object(run.summary)
    except FileNotFoundError:
        status = "running" if run.is_alive() else "killed"
        return _spec_values(run) | {"status": status}
    if fault := version_fault(summary):
        return {"status": f"{'damaged' if summary.get('schema_version') is None else 'refused'}: {fault}"}
    if fault := form_fault(summary):
        return {"status": f"damaged: summary.json: {fault}"}
    row = {column.name: _checked(column, _at(summary, column.path)) for column in COLUMNS if column.path}
    row["reasons"] = "; ".join(map(str, summary.get("reasons") or ())) or None
    row["hooks"] = compressor_label(summary) if summary.get("hooks") else None
    return row


def _at(summary: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = summary
    for key in path:
        found = (found or {}).get(key)
    return found


def _checked(column: Column, value: Any) -> Any:
    return finite(value) if column.kind in ("count", "number") else _word(value)


def _spec_values(run: RunDir) -> Row:
    """Return what was asked, of a run that has not ended."""
    try:
        spec = read_object(run.spec)
    except FileNotFoundError:
        return {}
    topology = spec.get("topology") or {}
    parts = {key: _word((spec.get(key) or {}).get("name")) for key in ("strategy", "compressor", "workload", "device")}
    workers = len(topology.get("nodes") or ()) or None
    numbers = {key: finite(spec.get(key)) for key in ("seed", "steps")}
    return {"topo": _word(topology.get("name")), **parts, "workers": workers, **numbers}


def _word(value: object) -> str | None:
    return value if isinstance(value, str) else None
