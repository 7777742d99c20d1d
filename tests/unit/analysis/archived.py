"""Finished runs for the archive, as small as a run can be, and questions to the Prometheus that serves them."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis.archive.archive import Outcome
from testbed.analysis.archive.blocks import stored_samples
from testbed.analysis.archive.text import EPOCH_S
from testbed.analysis.record.openmetrics import write_openmetrics
from testbed.analysis.record.record import load
from testbed.analysis.record.samples import series_of
from testbed.core.record.run_directory import RunDir, write_json
from testbed.core.record.summary import empty_summary
from testbed.orchestrator.dashboard.prometheus_server import Server
from tests.unit.analysis.synthetic import make_run
from tests.waiting import HANG_S

STEPS = 5


def run_id(index: int) -> str:
    return f"20250102T030405Z-wan-ddp-topk-{index:08x}"


def finished_run(root: Path, index: int = 0, *, with_openmetrics: bool = True, **options: Any) -> RunDir:
    """A sealed run directory; `options` are those of `make_run`."""
    run = make_run(root, run_id=run_id(index), **{"steps": STEPS, **options})
    seal(run)
    if with_openmetrics:
        record = load(run.path)
        with run.openmetrics.open("w") as file:
            write_openmetrics(record, series_of(record), file)
    return run


def seal(run: RunDir, **values: Any) -> None:
    summary = {"run_id": run.run_id, "status": "completed", "verdict": "valid", "topo": "wan", "compressor": "topk"}
    write_json(run.summary, {**empty_summary(), **summary, **values})


def copies(run: RunDir, count: int) -> list[RunDir]:
    """`count` runs in all, `run` the first of them; every third is without metrics.openmetrics."""
    made = [run]
    for index in range(1, count):
        copy = RunDir(run.path.with_name(run_id(index)))
        copy.path.mkdir()
        for file in (run.spec, run.provenance, run.network, run.events):
            shutil.copy(file, copy.path)
        seal(copy)
        if index % 3:
            copy.openmetrics.write_text(run.openmetrics.read_text().replace(run.run_id, copy.run_id))
        made.append(copy)
    return made


def require_prometheus() -> None:
    for name in ("prometheus", "promtool"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed (apt-get install prometheus)")


@contextmanager
def served(data: Path, folder: Path, config: str = "{}\n") -> Iterator[Server]:
    file = folder / "prometheus.yml"
    file.write_text(config)
    server = Server("test", file, data, 0, folder / "prometheus.log", keep="100y")
    try:
        server.start()
        server.wait_until_ready()
        yield server
    finally:
        server.stop()


def ask(server: Server, expression: str, at_s: float | None = None) -> list[dict[str, Any]]:
    """The result of an instant query; without `at_s` now."""
    asked = {"query": expression} | ({} if at_s is None else {"time": str(at_s)})
    url = f"{server.address}/api/v1/query?{urllib.parse.urlencode(asked)}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=HANG_S) as response:
        answer = json.load(response)
    assert answer["status"] == "success", answer
    result: list[dict[str, Any]] = answer["data"]["result"]
    return result


def value(server: Server, expression: str, elapsed_s: float) -> float | None:
    """The one value of `expression` so long after all runs' first step; None where there is none."""
    result = ask(server, expression, EPOCH_S + elapsed_s)
    assert len(result) <= 1, result
    return float(result[0]["value"][1]) if result else None


def dumped(data: Path) -> set[str]:
    """All samples of a data directory, a line each."""
    (data / "wal").mkdir(exist_ok=True)  # a server makes one; without, promtool reads nothing
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "data").mkdir()  # in which promtool 2.53 puts what it needs besides
        command = ["promtool", "tsdb", "dump", str(data.resolve())]
        done = subprocess.run(command, capture_output=True, text=True, cwd=place, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines())


def assert_whole(done: Outcome, runs: Path, count: int) -> None:
    """`done` says of the archive what is so: `count` runs, each with as many samples as its record gives."""
    assert done.runs == count
    assert stored_samples(done.data) == done.samples
    state = json.loads((done.data.parent / "state.json").read_text())
    assert len(state["runs"]) == count
    assert not list(done.data.parent.glob(".*")), "nothing half made is left"
    lines = dumped(done.data)
    assert len(lines) == done.samples, "no sample twice"
    for path in runs.iterdir():
        if path.name in state["runs"]:
            assert sum(f'"{path.name}"' in line for line in lines) == state["runs"][path.name]["samples"]
