"""A strategy's skeleton, as `longhaul new` writes it, in a whole run; the other kinds are in tests/emulation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.core.errors import EXIT_COMPLETED, EXIT_INVALID
from tests.slow.support import run

STEPS = 8


@pytest.mark.needs_root
@pytest.mark.timeout(700)
def test_a_strategy_begun_from_its_skeleton_trains_over_a_wan(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)  # processes of nodes are nobody's
    done = run(f".venv/bin/longhaul new strategy my_strategy --folder {tmp_path}", 120)
    assert done.returncode == EXIT_COMPLETED, done.stderr
    asked = f"topo=wan100m strategy={tmp_path}/my_strategy.yaml steps={STEPS} evaluate_every=4 metrics_port=0"
    done = run(f".venv/bin/longhaul run {asked} --share --json --runs {tmp_path}/runs", 500)
    assert done.returncode in (EXIT_COMPLETED, EXIT_INVALID), done.stderr[-3000:]
    summary = json.loads(done.stdout)
    assert (summary["status"], summary["steps"], summary["strategy"]) == ("completed", STEPS, "my_strategy")
    assert summary["bytes"]["payload"] > 0
    assert not any("parameters" in reason for reason in summary["reasons"]), "all ranks end with one model"
