"""The runs in a directory, read tolerantly: what cannot be read is named, and nothing in it is ever run.

Read one by one: a summary is some kilobytes, and 500 of them take less time than a database takes to load.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from testbed.core.errors import InputError
from testbed.core.files import printable, read_object, spreadsheet_safe
from testbed.core.record.run_directory import RUN_ID, RunDir
from testbed.core.record.summary import compressor_label, form_fault, version_fault
from testbed.orchestrator.terminal.display import VERDICT_STYLES
from testbed.orchestrator.terminal.spoken import MISSING, number, spoken, spoken_size, spoken_time

WORDS = ("status", "verdict", "topo", "strategy", "compressor", "workload", "kind")
FIELDS = ("run_id", *WORDS[:-1], "workers", "seed", "metric", "time_s", "wire_wan", WORDS[-1], "hooks", "user_code")
UNREADABLE = ("damaged", "foreign", "refused")
"""First words of the `status` of what is no run that can be read."""
_VERSION_DIGITS = 6
"""Digits of a version that are shown, as a comparison shows them."""

Row = dict[str, Any]
"""Has all of `FIELDS`."""


def read_runs(runs_root: Path) -> list[Row]:
    """One row for each entry, oldest first. `status` is one of the summary's, or "running", "killed", "damaged: why",
    "foreign: why", "refused: of schema version ...".

    Raises:
        InputError: the directory cannot be read.
    """
    try:
        paths = sorted(runs_root.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"--runs {runs_root}: cannot be read: {error.strerror}") from error
    return [_row(path) for path in paths if not path.name.startswith(".")]


def is_readable(row: Mapping[str, Any]) -> bool:
    return status_word(row) not in UNREADABLE


def status_word(row: Mapping[str, Any]) -> str:
    return str(row["status"]).partition(":")[0]


def _row(path: Path) -> Row:
    row: Row = dict.fromkeys(FIELDS) | {"run_id": path.name}
    if not RUN_ID.fullmatch(path.name):
        return row | {"status": "foreign: not a run id"}
    try:
        if path.is_symlink() or not path.is_dir():
            return row | {"status": "foreign: not a directory of its own"}
        return row | _of_run(RunDir(path))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        return row | {"status": f"damaged: {error}"}


def _of_run(run: RunDir) -> Row:
    try:
        summary = read_object(run.summary)
    except FileNotFoundError:
        status = "running" if run.is_alive() else "killed"
        return _of_spec(run) | {"status": status}
    if fault := version_fault(summary):
        return {"status": f"{'damaged' if summary.get('schema_version') is None else 'refused'}: {fault}"}
    if fault := form_fault(summary):
        return {"status": f"damaged: summary.json: {fault}"}
    words = {key: _word(summary.get(key)) for key in (*WORDS, "user_code")}
    numbers = {key: _finite(summary.get(key)) for key in ("workers", "seed", "time_s")}
    metric, sent = summary.get("metric") or {}, summary.get("bytes") or {}
    words["hooks"] = compressor_label(summary) if summary.get("hooks") else None
    return {**words, **numbers, "metric": _finite(metric.get("value")), "wire_wan": _finite(sent.get("wire_wan"))}


def _of_spec(run: RunDir) -> Row:
    try:
        spec = read_object(run.spec)
    except FileNotFoundError:
        return {}
    topology = spec.get("topology") or {}
    parts = {key: _word((spec.get(key) or {}).get("name")) for key in ("strategy", "compressor", "workload")}
    workers = len(topology.get("nodes") or ()) or None
    return {"topo": _word(topology.get("name")), **parts, "workers": workers, "seed": _finite(spec.get("seed"))}


def _word(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _finite(value: object) -> float | int | None:
    """What a table can show and JSON can say: no integer of a thousand digits, nothing infinite."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 2**63:
        return None
    return value if math.isfinite(value) else None


def table(rows: Sequence[Row]) -> Table:
    """Return a table; it shows the version of the user's code if there is more than one."""
    versions = {row["user_code"] for row in rows} - {None}
    view = Table(box=box.SIMPLE_HEAD)
    for heading in ("run", "status", "verdict", "topo", "strategy", "compressor"):
        view.add_column(heading, overflow="fold", no_wrap=False)
    if len(versions) > 1:
        view.add_column("user code", overflow="fold")
    for heading in ("seed", "last metric", "time", "WAN bytes"):
        view.add_column(heading, justify="right")
    for row in rows:
        keys = ("run_id", "status", "verdict", "topo", "strategy", "compressor")
        texts = [str(row[key] or MISSING) for key in keys[:-1]]
        texts.append(str(row["hooks"] or row["compressor"] or MISSING))
        if len(versions) > 1:
            texts.append((row["user_code"] or MISSING)[:_VERSION_DIGITS])
        if row["kind"] not in (None, "emulated"):
            texts[2] += f", {row['kind']}"
        seed = MISSING if number(row["seed"]) is None else f"{row['seed']:.0f}"
        numbers = [seed, spoken(row["metric"]), spoken_time(row["time_s"]), spoken_size(row["wire_wan"])]
        # no plain str: a foreign directory may bear any name, and rich would read [..] in it as markup
        cells = [Text(printable(text)) for text in texts]
        view.add_row(*cells, *numbers, style=VERDICT_STYLES.get(str(row["verdict"]), "").replace("green", ""))
    return view


def csv_text(rows: Sequence[Row]) -> str:
    """With a line of headings; what is missing is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(FIELDS)
    writer.writerows([spreadsheet_safe(row[key]) for key in FIELDS] for row in rows)
    return text.getvalue().rstrip("\n")
