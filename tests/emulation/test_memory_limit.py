"""A worker whose container may have less memory than its training takes is killed, and told so by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulation.support import Longhaul, gone_within, host_state

NODE = "site-2-0"
LITTLE = "20 MB"
"""A worker in training has taken 76 MB of its own and more."""
ASKED = ("topo=star", "workload=digits", "workers=3", "steps=2", "strategy=federated", "strategy.clients=4")


@pytest.mark.timeout(900)
def test_a_node_with_too_little_memory_is_named_with_its_limit(machine_lock: None, tmp_path: Path) -> None:
    before = host_state()
    longhaul = Longhaul(tmp_path / "runs", *ASKED, f"memory_limit={{{NODE}: {LITTLE}}}")
    status = longhaul.wait()
    run = longhaul.run
    gone_within(run.run_id)
    assert host_state() == before
    told = f"on {NODE} was killed for memory (the limit is {LITTLE}, see memory_limit)"
    found = [event for event in run.read_events() if event["event"] in ("fault", "left")]
    # before the first step nobody goes on without it; later the others do
    assert told in longhaul.said or any(
        event["node"] == NODE and "was killed for memory" in event["message"] for event in found
    ), (status, longhaul.said)
