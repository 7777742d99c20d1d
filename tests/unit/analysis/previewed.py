"""An archive in which every panel of every dashboard has something to show, and dashboards with faults planted in."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.analysis.dashboard.check import read_dashboards
from testbed.analysis.record.openmetrics import write_openmetrics
from testbed.analysis.record.record import load
from testbed.analysis.record.samples import series_of
from testbed.core.record.run_directory import RunDir
from tests.unit.analysis.archived import seal
from tests.unit.analysis.synthetic import make_run

RUNS = (("none", 1, 40.0), ("none", 2, 44.0), ("topk", 1, 20.0), ("topk", 2, 24.0))
"""Compressor, seed and time to target: two configurations of two seeds each."""
INVALID = "20250102T030409Z-wan-ddp-int8-00000009"

Json = dict[str, Any]


def run_id(compressor: str, seed: int) -> str:
    return f"20250102T030405Z-wan-ddp-{compressor}-{seed:08x}"


def make_runs(root: Path) -> list[RunDir]:
    """Those of `RUNS`, and an invalid one, which dashboards that compare leave out."""
    made = [_run(root, run_id(name, seed), name, seed, time_s) for name, seed, time_s in RUNS]
    return [*made, _run(root, INVALID, "int8", 1, 10.0, verdict="invalid", reasons=["late"])]


def _run(root: Path, name: str, compressor: str, seed: int, time_s: float, **sealed: Any) -> RunDir:
    run = make_run(root, run_id=name, compressor=compressor)
    run.spec.write_text(json.dumps(json.loads(run.spec.read_text()) | {"seed": seed}))
    events = [json.loads(line) for line in run.events.read_text().splitlines()]
    for event in events:
        if event["event"] == "host":
            second = max(0, event["t_s"])
            event |= {"softnet_processed": 1000 * second, "softnet_dropped": 0, "softnet_squeezed": second}
            event |= {"collector_cpu_s": 0.01 * second, "observer_cpu_s": 0.03 * second}
        elif event["event"] == "step":
            event |= {"late_s": 0.001, "late_device_s": 0.004, "behind_s": 0.0, "queued_s": 0.002, "cpu_s": 0.3}
    run.events.write_text("".join(json.dumps(event) + "\n" for event in events))
    metric = {"name": "accuracy", "value": 0.9, "best": 0.9, "target": 0.9, "time_to_target_s": time_s}
    seal(run, compressor=compressor, metric=metric, **sealed)
    record = load(run.path)
    with run.openmetrics.open("w") as file:
        write_openmetrics(record, series_of(record), file)
    return run


def planted(folder: Path, board: str, changes: dict[str, Callable[[Json], None]]) -> Path:
    """A folder with one dashboard alone, `changes` made to its panels, by their titles."""
    (found,) = (one for one in read_dashboards() if one["title"] == board)
    found = copy.deepcopy(found)
    for panel in found["panels"]:
        if panel["title"] in changes:
            changes.pop(panel["title"])(panel)
    assert not changes, f"no such panels: {list(changes)}"
    folder.mkdir(exist_ok=True)
    (folder / "planted.json").write_text(json.dumps(found))
    return folder


def asking(expr: str, **more: Any) -> Callable[[Json], None]:
    """The panel's first query as another."""

    def change(panel: Json) -> None:
        panel["targets"][0] |= {"expr": expr, **more}

    return change


def transforming(*steps: Json) -> Callable[[Json], None]:
    """Transformations behind those it has."""

    def change(panel: Json) -> None:
        panel["transformations"] = [*panel.get("transformations", ()), *steps]

    return change
