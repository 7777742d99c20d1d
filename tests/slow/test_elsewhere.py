"""Real runs on two Ray nodes of this machine, which take turns; one of them is lost in mid-run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.core.rundir import RUN_ID
from testbed.orchestrator.clone import CLONE, environment
from tests.distributed.ray_cluster import Cluster, needs

pytestmark = [pytest.mark.slow, needs("ray")]
WORDS = (
    *("topo=lan", "topo.lan_rate='1 Gbit/s'", "compressor=none,topk", "seed=range(2)", "workers=2", "workload=digits"),
    *("steps=30", "evaluate_every=10", "batch_size=8", "device=paced", "device.step_s=0.1", "dilation=4"),
)
LIMIT_S = 1200.0


@pytest.mark.timeout(2000)
def test_real_runs_come_back_whole_though_a_node_is_lost(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("r")
    runs, output = folder / "runs", folder / "output"
    with Cluster(folder, {**environment(), "PYTHONWARNINGS": "ignore"}) as cluster:
        words = ["--executor", "ray", "--executor-option", f"address={cluster.address}", "--runs", str(runs), *WORDS]
        command = [sys.executable, "-m", "testbed", "sweep", *words]
        with output.open("w") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, cwd=CLONE, env=environment())
        try:
            deadline_s = time.monotonic() + LIMIT_S
            while not made(runs):
                assert process.poll() is None and time.monotonic() < deadline_s, output.read_text()
                time.sleep(0.5)
            cluster.kill(1)
            # a busy machine makes runs invalid, which are then made once more
            assert process.wait(LIMIT_S) in (0, 5), output.read_text()
        finally:
            process.kill()
            process.wait()
    assert "lost, to be made again: with the Ray node on" in output.read_text()
    (results,) = (runs / ".sweeps").glob("*/results.json")
    points = json.loads(results.read_text())["points"]
    assert len(points) == 4 and all(point["state"] in ("done", "given up") for point in points)
    for path in made(runs):
        there = {found.name for found in path.iterdir()}
        assert {"spec.json", "summary.json", "provenance.json", "network.json", "events.jsonl", "logs"} <= there
    summaries = [json.loads((path / "summary.json").read_text()) for path in made(runs)]
    assert {one["status"] for one in summaries} == {"completed"} and all(one["bytes"]["payload"] for one in summaries)


def made(runs: Path) -> list[Path]:
    return [path for path in sorted(runs.glob("*")) if RUN_ID.fullmatch(path.name)]
