"""A burst of a foreign process spoils some steps of a run; they are left out, and the rest is judged as ever."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.core.errors import EXIT_COMPLETED
from testbed.core.record.spoiled_steps import DISTURBING_FOREIGN, DISTURBING_STEAL
from tests.emulation.support import Longhaul
from tests.machine import ENDS_WITH_TESTS

STEPS, STEP_S, DILATION = 60, 0.2, 2.0
BURST_S = 2.0
SPEC = (
    "topo=wan100m",
    "workload=digits",
    "evaluate_every=1000",
    "compressor=topk",
    "device=paced",
    f"device.step_s={STEP_S}",
)
BUSY = f"import time\nend_s = time.monotonic() + {BURST_S}\nwhile time.monotonic() < end_s: pass"


@pytest.mark.usefixtures("machine_lock")
def test_a_run_beside_a_burst_leaves_its_steps_out_and_says_who_it_was(tmp_path: Path) -> None:
    run = Longhaul(tmp_path / "runs", *SPEC, f"steps={STEPS}", f"dilation={DILATION:g}")
    run.wait_for_step(STEPS // 2)
    before_s = time.time()
    subprocess.run([*ENDS_WITH_TESTS, sys.executable, "-c", BUSY], check=True)
    after_s = time.time()
    status = run.wait()
    summary, events = run.summary(), list(run.run.read_events())
    left_out = summary["left_out"]
    assert 1 <= left_out["count"] == len(left_out["steps"]) <= STEPS // 10
    assert "a process outside of the run took up to" in left_out["reasons"][0]
    assert f"{left_out['count']} of {STEPS} steps left out" in run.said

    start_s = json.loads(run.run.provenance.read_text())["start_unix_s"]
    ends = {event["step"]: start_s + DILATION * event["t_s"] for event in events if event["event"] == "step"}
    others = [
        event
        for event in events
        if event["event"] == "host"
        and not before_s <= start_s + DILATION * event["t_s"] <= after_s + 2
        and (event["steal_s"] > DISTURBING_STEAL or (event["foreign_cpu_s"] or 0) > DISTURBING_FOREIGN)
    ]
    if not others:  # nobody else used the machine
        assert all(before_s < ends[step] < after_s + 2 + 2 * DILATION * STEP_S for step in left_out["steps"])
        assert (status, summary["verdict"], summary["reasons"]) == (EXIT_COMPLETED, "valid", [])
