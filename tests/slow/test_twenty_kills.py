"""kill -9 at any moment of a run leaves nothing behind, twenty times over."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.emulation.endings import LONG
from tests.emulation.support import Longhaul, gone_within, host_state, listed

KILLS, LATEST_S = 20, 25.0


@pytest.mark.usefixtures("machine_lock")
def test_twenty_kills_leave_nothing(tmp_path: Path) -> None:
    """The moments are drawn by a seed: before the network is there, while it is measured, in warm-up, in training."""
    moments, before = random.Random(49), host_state()
    for number in range(KILLS):
        runs = tmp_path / str(number) / "runs"
        runs.parent.mkdir()
        run = Longhaul(runs, *LONG, "dilation=2")
        if number == 0:
            run.wait_for_step(1)  # its step was timed by then, which the runs after it need not do
        time.sleep(moments.uniform(0.2, LATEST_S))  # what the test is about
        run.kill_group()
        for path in runs.iterdir() if runs.exists() else ():
            gone_within(path.name)
        assert host_state() == before, f"kill {number}"
        if runs.exists():
            listed(runs)
