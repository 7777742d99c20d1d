"""Rows of all runs of a folder, read once and again only when a run's files change."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from testbed.core.record.run_directory import RUN_ID, RunDir
from testbed.core.record.run_row import Row, is_readable, read_row

FIELDS = (
    *("run_id", "started", "status", "verdict", "kind", "topo", "workload", "strategy", "compressor", "workers"),
    *("seed", "metric_name", "metric_last", "metric_best", "time_to_target_s", "time_s", "wan_bytes"),
)
"""Columns that the page of runs has."""
_MIN_AGE_S = 0.5
"""Shortest time between two looks at the folder."""
_Stamp = tuple[int, int]


class RunIndex:
    """All runs of one folder. Its methods may be called from several threads."""

    def __init__(self, runs_root: Path) -> None:
        self.runs_root = runs_root
        self.version = 0
        """Number of times that the rows have changed."""
        self._lock = threading.Lock()
        self._rows: dict[str, tuple[_Stamp, Row]] = {}
        self._looked_s = float("-inf")

    def rows(self) -> list[Row]:
        """Return a row for each run that can be read, newest first."""
        with self._lock:
            if time.monotonic() - self._looked_s >= _MIN_AGE_S:
                self._refresh()
                self._looked_s = time.monotonic()
            return [row for _, row in self._rows.values() if is_readable(row)]

    def to_json(self) -> dict[str, Any]:
        """Return {"version", "unreadable", "fields", "rows"}: a list of values for each run, by `FIELDS`.

        `unreadable` is the number of directories that have the name of a run and cannot be read as one.
        """
        rows = self.rows()
        return {
            "version": self.version,
            "unreadable": len(self._rows) - len(rows),
            "fields": FIELDS,
            "rows": [[_value(row, name) for name in FIELDS] for row in rows],
        }

    def run(self, run_id: str) -> RunDir | None:
        """Return the directory of a run; None if the folder has no such directory of its own."""
        path = self.runs_root / run_id
        return RunDir(path) if RUN_ID.fullmatch(run_id) and path.is_dir() and not path.is_symlink() else None

    def _refresh(self) -> None:
        found: dict[str, tuple[_Stamp, Row]] = {}
        names = [path.name for path in self.runs_root.iterdir()] if self.runs_root.is_dir() else []
        for name in sorted((name for name in names if RUN_ID.fullmatch(name)), reverse=True):
            path = self.runs_root / name
            stamp = (_stamp(path / "summary.json"), _stamp(path / "spec.json"))
            known = self._rows.get(name)
            # A run without a summary may end or be killed without a change of its files.
            found[name] = known if known and known[0] == stamp and stamp[0] else (stamp, read_row(path))
        if found != self._rows:
            self.version += 1
        self._rows = found


def _value(row: Row, name: str) -> Any:
    return row["hooks"] or row[name] if name == "compressor" else row[name]


def _stamp(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
