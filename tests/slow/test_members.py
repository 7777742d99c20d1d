"""Every compressor of the catalogue trains in containers over an emulated WAN."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.core.errors import EXIT_COMPLETED, EXIT_INVALID
from tests.slow.support import ROOT, run

pytestmark = pytest.mark.needs_root
NAMES = sorted(path.stem for path in (ROOT / "experiments" / "conf" / "compressor").glob("*.yaml"))
STEPS = 6


@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", NAMES)
def test_a_compressor_runs_over_a_wan(name: str, tmp_path: Path) -> None:
    # At a given dilation no pilot runs: it takes as long as the steps do, and other tests are about it.
    asked = f"topo=wan100m compressor={name} steps={STEPS} evaluate_every={STEPS} dilation=2 metrics_port=0"
    done = run(f".venv/bin/longhaul run {asked} --json --runs {tmp_path}/runs", 180)
    assert done.returncode in (EXIT_COMPLETED, EXIT_INVALID), done.stderr[-3000:]
    summary = json.loads(done.stdout)
    assert summary["status"] == "completed" and summary["steps"] == STEPS
    assert 0 < summary["bytes"]["payload"] <= 1.2 * summary["bytes"]["dense"]
    assert summary["metric"]["value"] > 0.1  # of ten digits
