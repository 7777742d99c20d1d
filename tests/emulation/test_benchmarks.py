"""`make bench` measures and keeps what it should; not how fast or exact, which the benchmarks are for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.orchestrator.machine.clone import CLONE


def bench(results: Path) -> str:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "experiments.benchmarks",
            "--quick",
            "--share",
            "--only",
            "accuracy",
            "--results",
            str(results),
        ],
        cwd=CLONE,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.tier("slow")  # `make bench` is called by who changes the shaping, and tells at once if it fails
def test_a_point_is_measured_kept_and_not_measured_twice(machine_lock: None, tmp_path: Path) -> None:
    page = CLONE / "docs" / "benchmarks.md"
    before = page.read_bytes()
    assert bench(tmp_path).startswith("points to measure: 1,")
    path = tmp_path / "accuracy.json"
    kept = json.loads(path.read_text())
    (point,) = kept["points"]
    assert kept["benchmark"] == "accuracy" and point["machine"]["cores"] >= 1
    assert point["asked"] == {"rate_bit_s": 100e6, "rtt_s": 0.067, "probes": 50, "busy": False}
    assert 0 <= point["idle_ratio"] <= 1 and point["others_cores"] >= 0
    result = point["result"]
    assert result["probes"] == 50
    assert len(result["burst_rates_bit_s"]) == 6  # three, each way
    for key in ("burst_rate_bit_s", "flow_rate_bit_s", "goodput_bit_s"):
        assert 50e6 < result[key] < 110e6
    # one-way delays are of this link, not of some other path
    assert 0.0335 < result["forward_p50_s"] <= result["forward_p99_s"] < result["rtt_p99_s"]

    point["is_disturbed"] = False
    path.write_text(json.dumps(kept))
    assert bench(tmp_path).startswith("points to measure: 0,")
    assert page.read_bytes() == before
