"""A sweep that is killed in mid-run loses nothing: the next call goes on, and makes no completed run again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from testbed.core.record.run_directory import RunDir
from tests.emulation.support import END_TIMEOUT_S, START_TIMEOUT_S, gone_within, host_state
from tests.sweeping import Sweep, counted, found, hash_of, summaries

WORDS = (
    "--share",  # the test itself holds the machine
    *("topo=lan", "topo.lan_rate='1 Gbit/s'", "seed=range(2)", "workers=2", "metrics_port=0"),
    *(
        "workload=sensors",
        "steps=12",
        "evaluate_every=6",
        "batch_size=8",
        "device=paced",
        "device.step_s=0.2",
        "dilation=1",
    ),
)


def wait_until_training(sweep: Sweep, run: int) -> RunDir:
    """Until the n-th run of the folder trains."""

    def trains() -> bool:
        there = found(sweep.runs)
        return len(there) >= run and any(event["event"] == "step" for event in there[run - 1].read_events())

    sweep.wait_until(trains, START_TIMEOUT_S)
    return found(sweep.runs)[run - 1]


def statuses(runs: Path) -> list[str]:
    return [summary["status"] for summary in summaries(runs).values()]


@pytest.mark.tier("slow")  # five runs; tests/unit/orchestrator/search/sweep has the decisions, with runs made up
@pytest.mark.timeout(1800)
def test_a_sweep_goes_on_where_it_was_killed_and_where_it_was_stopped(machine_lock: None, tmp_path: Path) -> None:
    runs, before = tmp_path / "runs", host_state()
    sweep = Sweep(runs, *WORDS)
    killed = wait_until_training(sweep, 2)
    sweep.kill()
    gone_within(killed.run_id)
    assert statuses(runs) == ["completed"]
    first = found(runs)[0]

    sweep = Sweep(runs, *WORDS)
    stopped = wait_until_training(sweep, 3)
    sweep.signal_group(signal.SIGINT)
    assert sweep.wait(END_TIMEOUT_S) == 4
    gone_within(stopped.run_id)
    assert statuses(runs) == ["completed", "killed", "interrupted"]
    assert "stopped by SIGINT" in sweep.said

    sweep = Sweep(runs, *WORDS)
    # a busy machine makes runs invalid, which are then made once more
    assert sweep.wait(END_TIMEOUT_S) in (0, 5), sweep.said
    assert found(runs)[0].run_id == first.run_id and host_state() == before
    points = sweep.points()
    assert len(points) == 2 and all(point["state"] in ("done", "given up") for point in points)
    assert len(counted(runs)) == len(set(counted(runs))), "no run that counts was made again"
    assert {point["hash"] for point in points} == {hash_of(run) for run in found(runs)}
    made = len(found(runs))
    again = Sweep(runs, *WORDS)
    assert again.wait(END_TIMEOUT_S) in (0, 5) and len(found(runs)) == made
