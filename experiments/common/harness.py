"""Points of a benchmark: each measured in fresh namespaces, kept in a JSON file, left out when it is there already."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from experiments.common import sources
from experiments.common.benchmark import Benchmark, Point
from testbed.core.errors import RunError
from testbed.core.record.run_directory import write_json
from testbed.orchestrator.machine import provenance
from testbed.orchestrator.machine.clone import CLONE, environment

# Ends with whoever started it, however that ended; the point within is then asked to end.
IN_NAMESPACES = ["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child=TERM", "--mount-proc"]
IN_NAMESPACES += ["--net", "--mount", "--ipc", "--uts"]
ON_THE_MACHINE = ["setpriv", "--pdeathsig", "TERM"]
"""For points that are commands as a user gives them; such a point ends what it has started."""
_LEAVING_S = 90.0
DISTURBED_CORES = 0.15
"""A point beside which others used more cores than this is marked, and measured again at the next call."""
_TIMES_PATIENCE = 8
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def code_hash(benchmark: Benchmark, asked: Mapping[str, Any]) -> str:
    """Hash of the code and settings that a point's figures depend on."""
    return sources.hash_of(files_of(benchmark, asked))


def files_of(benchmark: Benchmark, asked: Mapping[str, Any]) -> set[Path]:
    """Return the benchmark's own files and those that it depends on."""
    depends_on = getattr(benchmark.measure, "depends_on", None)
    others = sources.of_network() if depends_on is None else depends_on(**asked)
    return sources.of_measuring(benchmark.measure.__name__) | set(others)


class Results:
    """The file of one benchmark: its points by what was asked."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}.json"
        self.name = name
        self.points: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            content = json.loads(self.path.read_text())
            for found in content["points"]:
                # older files name one machine for all their points
                known = found if "machine" in found else {**found, "machine": content["machine"]}
                self.points[json.dumps(found["asked"], sort_keys=True)] = known

    def has(self, point: Point, code: str) -> bool:
        found = self.points.get(point.key)
        return found is not None and found["code_hash"] == code and not found["is_disturbed"]

    def is_disturbed(self, point: Point, code: str) -> bool:
        """It is there, but others used the machine meanwhile."""
        found = self.points.get(point.key)
        return found is not None and found["code_hash"] == code and bool(found["is_disturbed"])

    def keep(self, point: Point, code: str, measured: dict[str, Any]) -> bool:
        """Whether it stays, as measured now on this machine. Where it is disturbed, an earlier one of the same code
        stays that is not, or is less so."""
        before = self.points.get(point.key)
        if before and before["code_hash"] == code and _is_better(before, measured):
            return False
        now = datetime.now(UTC).isoformat(timespec="seconds")
        made = {"asked": point.asked, "code_hash": code, "measured_at": now, "commit": provenance.commit()}
        self.points[point.key] = {**made, "machine": machine(), **measured}
        self.save()
        return True

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        points = sorted(self.points.values(), key=lambda found: json.dumps(found["asked"], sort_keys=True))
        write_json(self.path, {"benchmark": self.name, "points": points})

    def found(self) -> Iterator[dict[str, Any]]:
        yield from self.points.values()

    def of(self, points: Iterable[Point]) -> tuple[list[dict[str, Any]], list[Point]]:
        """(those of these points that were measured, those that are missing)."""
        asked = list(points)
        return (
            [self.points[point.key] for point in asked if point.key in self.points],
            [point for point in asked if point.key not in self.points],
        )

    def keep_only(self, points: Iterable[Point]) -> None:
        """Of what is asked no more nothing stays."""
        asked = {point.key for point in points}
        self.points = {key: found for key, found in self.points.items() if key in asked}


def _is_better(before: Mapping[str, Any], measured: Mapping[str, Any]) -> bool:
    """Whether `before` was disturbed less; not so where neither was."""
    if not (before["is_disturbed"] and measured["is_disturbed"]):
        return bool(measured["is_disturbed"])
    return bool(before["others_cores"] < measured["others_cores"])


def machine() -> dict[str, Any]:
    found = provenance.collect()
    return {key: found[key] for key in ("kernel", "system", "cpu", "cores", "memory_bytes", "python", "iproute2")}


def measure(benchmark: Benchmark, point: Point) -> dict[str, Any]:
    """Measure a point, in namespaces of its own unless it runs commands; says how much of the machine others used.

    Raises:
        RunError: with what it said, if it failed or took several times as long as expected.
    """
    label = f"{benchmark.name} {point.key}"
    prefix = ON_THE_MACHINE if benchmark.runs_commands else IN_NAMESPACES
    before, started_s = _cpu_times(), time.monotonic()
    process = subprocess.Popen(
        [*prefix, sys.executable, "-m", "experiments.common.point", benchmark.measure.__name__, point.key],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=CLONE,
        env=environment(),
    )
    try:
        said, complaint = process.communicate(timeout=_TIMES_PATIENCE * point.seconds + 30)
    except subprocess.TimeoutExpired:
        # unshare: the point is asked to end, and the pipes last as long as it does
        (process.terminate if benchmark.runs_commands else process.kill)()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_LEAVING_S)
        raise RunError(f"{label}: not done after {_TIMES_PATIENCE * point.seconds + 30:.0f} s") from None
    if process.returncode != 0:
        raise RunError(f"{label}: failed: {complaint.strip()[-2000:]}")
    after, wall_s = _cpu_times(), time.monotonic() - started_s
    others = max(0.0, (after[1] - before[1]) - (after[2] - before[2])) / wall_s
    return {
        "wall_s": round(wall_s, 2),
        "idle_ratio": round((after[0] - before[0]) / wall_s / (os.cpu_count() or 1), 3),
        "others_cores": round(others, 3),
        "is_disturbed": others > DISTURBED_CORES and not benchmark.is_timeless,
        "result": rounded(json.loads(said.strip().splitlines()[-1])),
    }


def _cpu_times() -> tuple[float, float, float]:
    """Idle of all cores; used by processes of anybody; used by this process's own and their children that ended."""
    fields = [int(word) * _TICK_S for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    own = os.times()
    return fields[3] + fields[4], sum(fields[:3]), own.user + own.system + own.children_user + own.children_system


def rounded(value: Any, digits: int = 6) -> Any:
    """Six significant digits: the files are read by people too."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: rounded(inner, digits) for key, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner, digits) for inner in value]
    return value


def total_s(points: Iterable[Point]) -> float:
    return sum(point.seconds for point in points)
