"""Write many runs for tests of tables and pages, each a recorded one with another seed, other times and other values.

    vary_runs.py FOLDER COUNT RUN...

The copies are no measurements. Compressors, verdicts and seeds are given in turn, so that there
is something to filter; their times and their metric differ by up to a quarter, drawn by the number of the copy.
"""

from __future__ import annotations

import dataclasses
import json
import random
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from testbed.core.record.metrics import METRICS
from testbed.core.record.run_directory import RunDir, write_json
from testbed.core.spec.run_spec import Part, RunSpec

COMPRESSORS = ("none", "topk", "int8", "powersgd", "fp16", "sz3", "qsgd", "dgc", "randomk", "signsgd")
VERDICTS = ("valid",) * 7 + ("suspect",) * 2 + ("invalid",)
SEEDS = 5
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)
_SPREAD = 0.25
_TARGET = "compressors.topk.TopK"
"""Class of every copy's compressor, so that copies of one name differ in nothing else."""
_METRIC = METRICS["longhaul_train_metric_ratio"].series
_COPIED = ("network.json", "provenance.json")


@dataclasses.dataclass(frozen=True)
class Source:
    """A recorded run, read once for all its copies."""

    run: RunDir
    spec: RunSpec
    summary: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]]


def vary(sources: Sequence[Path], folder: Path, count: int) -> list[Path]:
    """Write `count` copies of runs in turn, a minute apart by their names, and return their directories.

    Args:
        sources: Directories of runs that have ended and have a spec and events.
        folder: Takes the copies; it is made if it is missing.
    """
    read = [_read(path) for path in sources]
    return [_varied(read[number % len(read)], folder, number) for number in range(count)]


def _read(path: Path) -> Source:
    run = RunDir(path)
    spec = RunSpec.from_json(json.loads(run.spec.read_text()))
    events = [json.loads(line) for line in run.events.read_text().splitlines()]
    return Source(run, spec, json.loads(run.summary.read_text()), events)


def _varied(source: Source, folder: Path, number: int) -> Path:
    chance = random.Random(number)
    slower, higher = (1 + _SPREAD * chance.uniform(-1, 1) for _ in range(2))
    compressor = COMPRESSORS[number // SEEDS % len(COMPRESSORS)]
    spec = dataclasses.replace(source.spec, compressor=Part(compressor, _TARGET), seed=number % SEEDS)
    started = (_FIRST + timedelta(minutes=number)).strftime("%Y%m%dT%H%M%SZ")
    name = f"{started}-{spec.topology.name}-{spec.strategy.name}-{compressor}-{number:08x}"
    run = RunDir(folder / name)
    run.path.mkdir(parents=True)
    for file in _COPIED:
        if (source.run.path / file).exists():
            (run.path / file).write_bytes((source.run.path / file).read_bytes())
    write_json(run.spec, spec.to_json())
    events = [_event(event, slower, higher) for event in source.events]
    with run.events.open("w") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)
    changed = {"run_id": name, "compressor": compressor, "seed": spec.seed}
    changed["verdict"] = VERDICTS[number * 7 % len(VERDICTS)]
    changed["reasons"] = [] if changed["verdict"] == "valid" else ["a copy, made for tests"]
    write_json(run.summary, {**_summary(source.summary, events, slower), **changed})
    if source.run.samples.exists():
        _write_samples(source.run.samples, run.samples, slower, higher)
    return run.path


def _write_samples(source: Path, target: Path, slower: float, higher: float) -> None:
    value = f"CASE WHEN metric = '{_METRIC}' THEN least(1, {higher} * value) ELSE value END"
    query = f"SELECT {slower} * t_s AS t_s, metric, labels, {value} AS value FROM '{source}'"
    duckdb.sql(f"COPY ({query}) TO '{target}' (FORMAT parquet, COMPRESSION zstd)")


def _event(event: Mapping[str, Any], slower: float, higher: float) -> dict[str, Any]:
    changed = dict(event)
    for key in ("t_s", "step_s"):
        if isinstance(event.get(key), int | float):
            changed[key] = slower * event[key]
    if isinstance(event.get("phase_s"), dict):
        changed["phase_s"] = _times(event["phase_s"], slower)
    if event.get("event") == "evaluation":
        changed["value"] = min(1.0, higher * event["value"])
    return changed


def _summary(summary: Mapping[str, Any], events: Sequence[Mapping[str, Any]], slower: float) -> dict[str, Any]:
    metric = dict(summary["metric"])
    points = [(event["t_s"], event["value"]) for event in events if event["event"] == "evaluation"]
    if points:
        reached_s = next((t_s for t_s, value in points if value >= metric["target"]), None)
        metric |= {"value": points[-1][1], "best": max(value for _, value in points), "time_to_target_s": reached_s}
    times = {key: _times(summary[key], slower) for key in ("step_time_s", "phase_s")}
    return {**summary, **times, "metric": metric, "time_s": _times(summary, slower)["time_s"]}


def _times(values: Mapping[str, Any], slower: float) -> dict[str, Any]:
    return {key: slower * value if isinstance(value, int | float) else value for key, value in values.items()}


if __name__ == "__main__":
    folder, count, *runs = sys.argv[1:]
    print(len(vary([Path(run) for run in runs], Path(folder), int(count))), "runs in", folder)
