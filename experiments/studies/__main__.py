"""`python -m experiments.studies NAME`: keeps what came of a study's sweep, and writes its table and figure.

Taken is the results.json that `longhaul sweep NAME` writes under `runs/.sweeps/NAME/`, if it has just the points of
experiments/sweeps/NAME.yaml. Kept are, in `results/NAME.json` here, each point with its hash and what its run says of
itself, and each configuration with its intervals. Raw records stay in `runs/`, which is not part of the clone.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.common.page import between
from experiments.common.tables import Extract, extracted, write_csv
from experiments.studies import sweep_charts, sweep_tables
from testbed.analysis.comparison.sweep import SCHEMA_VERSION
from testbed.core.errors import InputError
from testbed.core.record.run_directory import RunDir, write_json
from testbed.orchestrator.executors.executor import FOLDER
from testbed.orchestrator.machine.clone import CLONE, RUNS_ROOT
from testbed.orchestrator.search.sweep.files import read

RESULTS = Path(__file__).parent / "results"
_STUDIES = CLONE / "docs" / "studies"
_FIGURES = CLONE / "docs" / "figures"


@dataclass(frozen=True)
class Study:
    """A sweep and where it is shown."""

    page: Path
    table: Callable[[Mapping[str, Any]], str]
    figure: Path
    chart: Callable[[Mapping[str, Any]], str]
    extract: Extract = field(default_factory=Extract)


STUDIES = {
    "study-compressors": Study(
        _STUDIES / "compressors.md",
        sweep_tables.compressors,
        _FIGURES / "study-compressors-emulated.svg",
        sweep_charts.compressors,
        Extract(lambda _row: False),  # the figure has them
    ),
    "study-strategies": Study(
        _STUDIES / "strategies.md",
        sweep_tables.strategies,
        _FIGURES / "study-strategies.svg",
        sweep_charts.strategies,
        Extract(
            lambda row: row["title"] == "wan100m",
            heads=("strategy", "to target, s", f"{sweep_tables.BASE} / it, by seed", "over the WAN"),
        ),
    ),
    "study-scale": Study(
        _STUDIES / "scale.md",
        sweep_tables.scale,
        _FIGURES / "study-scale-emulated.svg",
        sweep_charts.scale,
        Extract(lambda _row: False),  # the figure has them
    ),
}
_POINT = ("values", "hash", "outcome", "run_id")
_MAX_NAMED = 3


def kept(found: Mapping[str, Any], code_hash: str, said: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Of a sweep's results.json what the clone keeps; `said` by run, as of `said_by`.

    Raises:
        InputError: it is of another version than this reads.
    """
    if found.get("schema_version") != SCHEMA_VERSION:
        raise InputError(f"results.json: schema_version {found.get('schema_version')}, and this reads {SCHEMA_VERSION}")
    head = {key: found[key] for key in ("schema_version", "name", "interval", "axes", "common")}
    points = [
        {key: point[key] for key in _POINT} | {"time_to_target_s": None, **said.get(point["run_id"], {})}
        for point in found["points"]
    ]
    return {**head, "code_hash": code_hash, "rows": found["rows"], "points": points}


def code_of(found: Mapping[str, Any], runs: Path) -> str:
    """The hash of the code that has made all its runs.

    Raises:
        InputError: there were several.
    """
    made = [RunDir(runs / run_id) for run_id in _run_ids(found)]
    hashes = {str(run.read_json(run.spec)["code_hash"]) for run in made}
    if len(hashes) != 1:
        raise InputError(f"{found['name']}: runs of {len(hashes)} codes ({', '.join(sorted(hashes))}); one is wanted")
    return hashes.pop()


def said_by(found: Mapping[str, Any], runs: Path) -> dict[str, dict[str, Any]]:
    """Of each run's summary what tables rest on, and why it is not valid; None where it has no such figure."""
    return {run_id: _said(RunDir(runs / run_id)) for run_id in _run_ids(found)}


def _said(run: RunDir) -> dict[str, Any]:
    summary = run.read_json(run.summary)
    metric, step, size = (summary.get(key) or {} for key in ("metric", "step_time_s", "bytes"))
    return {
        "time_to_target_s": metric.get("time_to_target_s"),
        "metric_best": metric.get("best"),
        "step_p50_s": step.get("p50"),
        "payload_bytes": size.get("payload"),
        "wan_bytes": size.get("wire_wan"),
        "reasons": summary.get("reasons", []),
    }


def _run_ids(found: Mapping[str, Any]) -> list[str]:
    return sorted({point["run_id"] for point in found["points"] if point["run_id"] is not None})


def results_of(runs: Path, name: str) -> dict[str, Any]:
    """What came of the sweep as its file has it; in NAME-HASH lies one some of whose axes were given otherwise.

    Raises:
        InputError: there is nothing, or it has other points.
    """
    path = runs / FOLDER / name / "results.json"
    if not path.exists():
        raise InputError(f"no {path}: make sweep SWEEP={name}")
    found = dict(json.loads(path.read_text()))
    require_points(name, found)
    return found


def require_points(name: str, found: Mapping[str, Any]) -> None:
    """
    Raises:
        InputError: they are not those of the sweep's file.
    """
    asked = Counter(json.dumps(point.plain, sort_keys=True) for point in read(name).points())
    there = Counter(json.dumps(point["values"], sort_keys=True) for point in found["points"])
    if there != asked:
        raise InputError(
            f"{name}: {there.total()} points, and the sweep's file asks for {asked.total()}; not asked for:"
            f" {_named(there - asked)}; missing: {_named(asked - there)}: make sweep SWEEP={name}"
        )


def _named(points: Counter[str]) -> str:
    some = ", ".join(list(points)[:_MAX_NAMED])
    return f"{points.total()}, such as {some}" if points else "none"


def read_kept(name: str) -> dict[str, Any]:
    return dict(json.loads((RESULTS / f"{name}.json").read_text()))


def page(name: str) -> str:
    """Return the study's page, with what it shows of the table of what is kept."""
    study = STUDIES[name]
    shown = extracted(study.table(read_kept(name)), name, study.page.relative_to(CLONE).as_posix(), study.extract)
    return between(study.page.read_text(), name, shown)


def write(name: str) -> None:
    """Write the study's table and figure, from what is kept."""
    write_csv(STUDIES[name].table(read_kept(name)), name, CLONE)
    STUDIES[name].page.write_text(page(name))
    STUDIES[name].figure.write_text(STUDIES[name].chart(read_kept(name)))


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1] not in STUDIES:
        sys.exit(f"python -m experiments.studies NAME; names: {', '.join(STUDIES)}")
    (name,) = sys.argv[1:]
    try:
        found = results_of(RUNS_ROOT, name)
        content = kept(found, code_of(found, RUNS_ROOT), said_by(found, RUNS_ROOT))
        STUDIES[name].table(content)  # what makes no table or no figure replaces nothing
        STUDIES[name].chart(content)
    except InputError as error:
        sys.exit("\n".join(error.faults))
    RESULTS.mkdir(exist_ok=True)
    write_json(RESULTS / f"{name}.json", content)
    write(name)


if __name__ == "__main__":
    main()
