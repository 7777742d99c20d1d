"""A run directory as read-only data."""

from __future__ import annotations

import calendar
import contextlib
import math
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from testbed.core.errors import InputError
from testbed.core.rundir import RunDir
from testbed.core.spec import RunSpec

Point = tuple[float, float]
"""(t_s, value)."""


def is_finite(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)


@dataclass(frozen=True)
class Record:
    """What a run wrote. A file that is missing, or cannot be read, is None or empty."""

    run: RunDir
    spec: RunSpec | None
    provenance: dict[str, Any]
    network: dict[str, Any]
    summary: dict[str, Any] | None
    events: list[dict[str, Any]]
    """In order of `t_s`."""

    @property
    def run_id(self) -> str:
        return self.run.run_id

    @property
    def start_unix_s(self) -> float | None:
        """When step 1 began; where nobody wrote it down, the second in which the run was named."""
        start = self.provenance.get("start_unix_s")
        if isinstance(start, int | float):
            return float(start)
        with contextlib.suppress(ValueError):
            return float(calendar.timegm(time.strptime(self.run_id[:16], "%Y%m%dT%H%M%SZ")))
        return None

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]

    def steps(self) -> dict[int, list[dict[str, Any]]]:
        """The step events of all ranks, by step."""
        steps: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for event in self.of_kind("step"):
            steps[event["step"]].append(event)
        return dict(sorted(steps.items()))

    def metric_name(self) -> str | None:
        for event in self.of_kind("model"):
            return str(event["metric_name"])
        return next((str(event["name"]) for event in self.of_kind("evaluation")), None)

    def metric_points(self) -> list[Point]:
        """The workload's metric as the lowest rank that evaluates saw it; what is not finite is left out."""
        name = self.metric_name()
        found = [event for event in self.of_kind("evaluation") if event["name"] == name]
        first_rank = min((event["rank"] for event in found), default=None)
        points = [(event["t_s"], event["value"]) for event in found if event["rank"] == first_rank]
        return [(t_s, value) for t_s, value in points if is_finite(value)]

    def wan_bytes(self) -> dict[str, list[Point]]:
        """Bytes that had left each WAN direction, by "from to to", from the first step on."""
        directions: dict[str, list[Point]] = defaultdict(list)
        for event in self.of_kind("link"):
            if event["wan"] and event["t_s"] >= 0 and is_finite(event["wire_bytes"]):
                directions[f"{event['from']} to {event['to']}"].append((event["t_s"], event["wire_bytes"]))
        return dict(sorted(directions.items()))


def load(path: Path, summary: dict[str, Any] | None = None) -> Record:
    """Read the run directory `path`.

    Args:
        summary: used in place of `summary.json`, which a run writes last of all.

    Raises:
        InputError: `path` is no run directory.
    """
    run = RunDir(path.resolve())
    if not run.spec.exists() and not run.events.exists():
        raise InputError(f"{path}: holds neither spec.json nor events.jsonl; give the directory of a run")
    return Record(
        run=run,
        spec=_spec(run),
        provenance=_object(run, run.provenance),
        network=_object(run, run.network),
        summary=summary or _object(run, run.summary) or None,
        events=sorted(_timed(run), key=lambda event: event["t_s"]),
    )


def _spec(run: RunDir) -> RunSpec | None:
    try:
        return RunSpec.from_json(_object(run, run.spec))
    except (InputError, KeyError, TypeError):
        return None


def _object(run: RunDir, path: Path) -> dict[str, Any]:
    try:
        data = run.read_json(path)
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _timed(run: RunDir) -> list[dict[str, Any]]:
    return [event for event in run.read_events() if isinstance(event.get("t_s"), int | float)]
