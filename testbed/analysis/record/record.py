"""A run directory as read-only data."""

from __future__ import annotations

import calendar
import contextlib
import functools
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from testbed.core.errors import InputError
from testbed.core.files import is_regular, read_object
from testbed.core.record.network_form import network_fault
from testbed.core.record.run_directory import RunDir
from testbed.core.record.spoiled_steps import left_out
from testbed.core.record.summary import form_fault, version_fault
from testbed.core.spec.run_spec import RunSpec

Point = tuple[float, float]
"""(t_s, value)."""
Direction = tuple[str, str, str]
"""(link, from, to): between two places there may be several links."""
_MAX_TIME_S = 10 * 365 * 24 * 3600.0
"""Longer than any run; an event of a later moment, or of one so long before the run, is none of its."""
_LAST_UNIX_S = 2**33
"""In the year 2242: what reads milliseconds of Unix time reads this one."""


def is_finite(value: object) -> TypeGuard[float]:
    # by comparing: an integer of hundreds of digits is no float
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def is_time(value: object) -> TypeGuard[float]:
    """Return True for a moment of a run, in seconds since its first step."""
    return is_finite(value) and not isinstance(value, bool) and abs(value) <= _MAX_TIME_S


def spoken_directions(directions: Iterable[Direction]) -> dict[Direction, str]:
    """As "a to b", with the link's name where several lead there."""
    found = list(dict.fromkeys(directions))
    counts = Counter((source, target) for _, source, target in found)
    return {
        (link, source, target): f"{source} to {target}" + (f" ({link})" if counts[source, target] > 1 else "")
        for link, source, target in found
    }


@dataclass(frozen=True)
class Record:
    """What a run wrote. A file that is missing, or cannot be read, is None or empty."""

    run: RunDir
    spec: RunSpec | None
    provenance: dict[str, Any]
    network: dict[str, Any]
    summary: dict[str, Any] | None
    faults: tuple[str, ...] = ()
    """One line for each file that is there and cannot be read."""

    @functools.cached_property
    def _timed(self) -> tuple[list[dict[str, Any]], int]:
        """Events in order of `t_s`, and how many have a time that cannot be."""
        try:
            found = [event for event in self.run.read_events() if "t_s" in event]
        except (OSError, ValueError):
            return [], 0
        timed = [event for event in found if is_time(event["t_s"])]
        return sorted(timed, key=lambda event: event["t_s"]), len(found) - len(timed)

    @property
    def events(self) -> list[dict[str, Any]]:
        """In order of `t_s`. Read when first asked for: a table over hundreds of runs does without."""
        return self._timed[0]

    @property
    def time_fault(self) -> str | None:
        """Line on events that are left out since they have a time that cannot be; None if there are none."""
        count = self._timed[1]
        return f"events.jsonl: {count} events have a time that cannot be; left out" if count else None

    @property
    def run_id(self) -> str:
        return self.run.run_id

    @property
    def start_unix_s(self) -> float | None:
        """When step 1 began; where nobody wrote it down, the second in which the run was named."""
        start = self.provenance.get("start_unix_s")
        if is_finite(start) and 0 <= start <= _LAST_UNIX_S:
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

    def remaining_steps(self) -> dict[int, list[dict[str, Any]]]:
        """The step events of all ranks, by step, without those that the figures leave out."""
        gone = left_out(self.events).steps
        return {step: events for step, events in self.steps().items() if step not in gone}

    def metric_name(self) -> str | None:
        for event in self.of_kind("model"):
            name = event["metric_name"]
            return None if name is None else str(name)
        return next((str(event["name"]) for event in self.of_kind("evaluation")), None)

    def metric_points(self) -> list[Point]:
        """The workload's metric as the lowest rank that evaluates saw it; what is not finite is left out."""
        name = self.metric_name()
        found = [event for event in self.of_kind("evaluation") if event["name"] == name]
        first_rank = min((event["rank"] for event in found), default=None)
        points = [(event["t_s"], event["value"]) for event in found if event["rank"] == first_rank]
        return [(t_s, value) for t_s, value in points if is_finite(value)]

    def wan_bytes(self) -> dict[Direction, list[Point]]:
        """Bytes that had left each WAN direction, from the first step on."""
        directions: dict[Direction, list[Point]] = defaultdict(list)
        for event in self.of_kind("link"):
            if event["wan"] and event["t_s"] >= 0 and is_finite(event["wire_bytes"]):
                direction = event["name"], event["from"], event["to"]
                directions[direction].append((event["t_s"], event["wire_bytes"]))
        return dict(sorted(directions.items()))


def load(path: Path, summary: dict[str, Any] | None = None) -> Record:
    """Read the run directory `path`.

    Args:
        summary: used in place of `summary.json`, which a run writes last of all.

    Raises:
        InputError: `path` is no run directory, or its summary is of another schema version.
    """
    run = RunDir(path.resolve())
    if not run.spec.exists() and not run.events.exists():
        raise InputError(f"{path}: holds neither spec.json nor events.jsonl; give the directory of a run")
    faults: list[str] = []
    for file in (run.events, run.samples):
        if os.path.lexists(file) and not is_regular(file):
            faults.append(f"{file.name} is no regular file")
    return Record(
        run=run,
        spec=_spec(run, faults),
        provenance=_object(run.provenance, faults),
        network=_network(run, faults),
        summary=summary or _summary(run, faults),
        faults=tuple(faults),
    )


def _summary(run: RunDir, faults: list[str]) -> dict[str, Any] | None:
    found = _object(run.summary, faults)
    if not found:
        return None
    if fault := version_fault(found):
        raise InputError(f"{run.path}: summary.json is {fault}")
    if fault := form_fault(found):
        faults.append(f"summary.json: {fault}")
        return None
    return found


def _spec(run: RunDir, faults: list[str]) -> RunSpec | None:
    data = _object(run.spec, faults)
    try:
        return RunSpec.from_json(data) if data else None
    except (InputError, KeyError, TypeError, ValueError, AttributeError) as error:
        faults.append(f"spec.json is no spec that this program reads: {type(error).__name__}: {error}")
        return None


def _network(run: RunDir, faults: list[str]) -> dict[str, Any]:
    found = _object(run.network, faults)
    if fault := network_fault(found):
        faults.append(f"network.json: {fault}")
        return {}
    return found


def _object(path: Path, faults: list[str]) -> dict[str, Any]:
    try:
        return read_object(path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        faults.append(str(error))
        return {}
