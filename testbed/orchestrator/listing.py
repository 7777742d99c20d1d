"""The runs in a directory, read tolerantly: what cannot be read is named, and nothing in it is ever run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from testbed.core.errors import LonghaulError
from testbed.core.rundir import RUN_ID, RunDir
from testbed.orchestrator.display import VERDICT_STYLES
from testbed.orchestrator.progress import MISSING, spoken, spoken_size, spoken_time
from testbed.orchestrator.terminal import say

FIELDS = ("run_id", "status", "verdict", "topo", "strategy", "compressor", "workload", "metric", "time_s", "wire_wan")
_MAX_SUMMARY_BYTES = 50_000_000
"""A summary is some kilobytes; a larger file is something else."""


def read_runs(runs_root: Path) -> list[dict[str, Any]]:
    """One row of `FIELDS` for each entry, oldest first. `status` is one of the summary's, or "running", "killed",
    "damaged: why", "foreign: why"."""
    if not runs_root.is_dir():
        return []
    return [_row(path) for path in sorted(runs_root.iterdir()) if not path.name.startswith(".")]


def _row(path: Path) -> dict[str, Any]:
    empty: dict[str, Any] = dict.fromkeys(FIELDS) | {"run_id": path.name}
    if not RUN_ID.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
        kind = "not a directory of its own" if RUN_ID.fullmatch(path.name) else "not a run id"
        return empty | {"status": f"foreign: {kind}"}
    run = RunDir(path)
    try:
        if run.summary.exists():
            return empty | _of_summary(_read(run.summary))
        status = "running" if run.is_alive() else "killed"
        return empty | _of_spec(_read(run.spec) if run.spec.exists() else {}) | {"status": status}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        return empty | {"status": f"damaged: {error}"}


def _read(path: Path) -> dict[str, Any]:
    size_bytes = path.stat().st_size
    if size_bytes > _MAX_SUMMARY_BYTES or not path.is_file():
        raise ValueError(f"{path.name} is no such file of ours ({size_bytes} bytes)")
    try:
        data = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is not JSON") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path.name} holds no object")
    return data


def _of_summary(summary: dict[str, Any]) -> dict[str, Any]:
    plain = {
        key: summary.get(key) for key in ("status", "verdict", "topo", "strategy", "compressor", "workload", "time_s")
    }
    if not isinstance(plain["status"], str):
        raise ValueError("summary.json has no status")
    metric, sent = summary.get("metric") or {}, summary.get("bytes") or {}
    return plain | {"metric": metric.get("value"), "wire_wan": sent.get("wire_wan")}


def _of_spec(spec: dict[str, Any]) -> dict[str, Any]:
    topology = spec.get("topology") or {}
    parts = {key: (spec.get(key) or {}).get("name") for key in ("strategy", "compressor", "workload")}
    return {"topo": topology.get("name"), **parts}


def seal_killed(runs_root: Path) -> None:
    """Give killed runs their summary. What cannot be sealed (no root, a damaged record) stays as it is and is named."""
    from testbed.orchestrator import seal

    try:
        seal.seal_killed(runs_root)
    except (OSError, ValueError, KeyError, TypeError, LonghaulError) as error:
        say(f"a killed run could not be sealed: {type(error).__name__}: {error}")


def table(rows: Sequence[dict[str, Any]]) -> Table:
    view = Table(box=box.SIMPLE_HEAD)
    for heading in ("run", "status", "verdict", "topo", "strategy", "compressor"):
        view.add_column(heading, overflow="fold", no_wrap=False)
    for heading in ("metric", "time", "WAN bytes"):
        view.add_column(heading, justify="right")
    for row in rows:
        texts = [str(row[key] or MISSING) for key in ("run_id", "status", "verdict", "topo", "strategy", "compressor")]
        numbers = [spoken(row["metric"]), spoken_time(row["time_s"]), spoken_size(row["wire_wan"])]
        # rich reads [..] in a plain text as markup, and a foreign directory may bear any name
        cells = [text.replace("[", "\\[") for text in texts]
        view.add_row(*cells, *numbers, style=VERDICT_STYLES.get(str(row["verdict"]), "").replace("green", ""))
    return view
