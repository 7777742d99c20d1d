"""Points of a benchmark: each measured in fresh namespaces, kept in a JSON file, left out when it is there already."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from experiments.common import sources
from testbed.core.errors import RunError
from testbed.core.record.run_directory import write_json
from testbed.orchestrator.machine import provenance
from testbed.orchestrator.machine.clone import CLONE, environment

FOLDER = CLONE / "experiments" / "benchmarks"
# Ends with whoever started it, however that ended; the point within is then asked to end.
IN_NAMESPACES = ["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child=TERM", "--mount-proc"]
IN_NAMESPACES += ["--net", "--mount", "--ipc", "--uts"]
_LEAVING_S = 90.0
DISTURBED_CORES = 0.15
"""A point beside which others used more cores than this is marked, and measured again at the next call."""
_TIMES_PATIENCE = 4
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_MEASURING = ("testnet.py", "flow.py", "stream.py", "point.py")
_NETWORK = ("testbed/core/spec/topology.py", "topologies/parts.py", "topologies/two_regions.py")
_EMULATION, _OBSERVATION = "testbed.orchestrator.emulation.", "testbed.orchestrator.observation."
_BESIDES = {
    "netem": tuple(f"experiments.benchmarks.mininet.{name}" for name in ("netem_inside", "offered", "mininet_tclink")),
    "gaps": (f"{_EMULATION}measuring.tap",),
    "set_up": (f"{_EMULATION}containers.runc_container",),
    "monitor": (f"{_OBSERVATION}collector", f"{_EMULATION}traffic.background", "topologies.star"),
    "observation": tuple(f"{_OBSERVATION}{name}" for name in ("collector", "recorder", "exporter")),
    "simulator": ("testbed.analysis.simulator.model.step_plan",),
}
"""Modules that a benchmark needs beside its own file and the network; what they import of `_FOLLOWED` counts too."""
_FOLLOWED = (_EMULATION, _OBSERVATION, "testbed.analysis.simulator.")
_WHOLE_RUNS = (
    *("start_up", "pacing", "scaling", "run_dilation", "collectives", "observation", "dear", "fusion"),
    "simulator",
)
"""Benchmarks whose points are whole runs: what runs in the nodes, and what starts it, counts too."""
_BESIDE_THE_NETWORK = ("traffic/", "containers/", "measuring/capture", "measuring/tap")


@dataclass(frozen=True)
class Point:
    """One measurement: what is asked, and about how long it takes."""

    asked: dict[str, Any]
    seconds: float

    @property
    def key(self) -> str:
        return json.dumps(self.asked, sort_keys=True)


def code_hash(name: str, asked: Mapping[str, Any]) -> str:
    """Of what a point's figures depend on."""
    return hash_of(tuple(sorted(files_of(name, asked))))


def files_of(name: str, asked: Mapping[str, Any]) -> set[Path]:
    """What its benchmark names in `depends_on`; where it has none, the network, what measures it, and its own file."""
    depends_on = getattr(sources.benchmark(name), "depends_on", None)
    return set(_of_network(name) if depends_on is None else depends_on(**asked))


def _of_network(name: str) -> list[Path]:
    emulation = CLONE / "testbed" / "orchestrator" / "emulation"
    return [
        *(
            path
            for path in emulation.rglob("*.py")
            if not str(path.relative_to(emulation)).startswith(_BESIDE_THE_NETWORK)
        ),
        *(CLONE / name for name in _NETWORK),
        *(_of_whole_runs() if name in _WHOLE_RUNS else ()),
        *sources.files(_BESIDES.get(name, ()), _FOLLOWED),
        *(FOLDER.parent / "common" / name for name in _MEASURING),
        sources.benchmark_file(name),
    ]


@functools.cache
def hash_of(paths: tuple[Path, ...]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.relative_to(CLONE)}\0{_meaning(path)}\0".encode())
    return digest.hexdigest()[:16]


def _meaning(path: Path) -> str:
    """Without comments and format, which make no figures stale."""
    text = path.read_text()
    if path.suffix == ".py":
        return ast.dump(ast.parse(text))
    return json.dumps(yaml.safe_load(text)) if path.suffix == ".yaml" else text


def _of_whole_runs() -> Iterator[Path]:
    for folder in ("testbed/core", "testbed/worker", "compressors"):
        yield from (CLONE / folder).rglob("*.py")
    for name in ("orchestration", "workers/workers", "workers/fork_server", "calibration"):
        yield CLONE / "testbed" / "orchestrator" / "run" / f"{name}.py"
    yield FOLDER.parent / "common" / "whole_run.py"


def points_of(name: str, *, quick: bool = False) -> list[Point]:
    found: list[Point] = sources.benchmark(name).points(quick=quick)
    return found


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
        made = {"asked": point.asked, "code_hash": code, "measured_at": now, "machine": machine()}
        self.points[point.key] = {**made, **measured}
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


def measure(name: str, point: Point) -> dict[str, Any]:
    """Measure a point in namespaces of its own; says how much of the machine others used meanwhile.

    Raises:
        RunError: with what it said, if it failed or took several times as long as expected.
    """
    before, started_s = _cpu_times(), time.monotonic()
    process = subprocess.Popen(
        [*IN_NAMESPACES, sys.executable, "-m", "experiments.common.point", name, point.key],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=CLONE,
        env=environment(),
    )
    try:
        said, complaint = process.communicate(timeout=_TIMES_PATIENCE * point.seconds + 30)
    except subprocess.TimeoutExpired:
        process.kill()  # unshare; the point is asked to end, and the pipes last as long as it does
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_LEAVING_S)
        raise RunError(f"{name} {point.key}: not done after {_TIMES_PATIENCE * point.seconds + 30:.0f} s") from None
    if process.returncode != 0:
        raise RunError(f"{name} {point.key}: failed: {complaint.strip()[-2000:]}")
    after, wall_s = _cpu_times(), time.monotonic() - started_s
    others = max(0.0, (after[1] - before[1]) - (after[2] - before[2])) / wall_s
    return {
        "wall_s": round(wall_s, 2),
        "idle_ratio": round((after[0] - before[0]) / wall_s / (os.cpu_count() or 1), 3),
        "others_cores": round(others, 3),
        "is_disturbed": others > DISTURBED_CORES and not _is_timeless(name),
        "result": rounded(json.loads(said.strip().splitlines()[-1])),
    }


def _is_timeless(name: str) -> bool:
    """Its figures are the same however busy the machine is."""
    return bool(getattr(sources.benchmark(name), "TIMELESS", False))


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
