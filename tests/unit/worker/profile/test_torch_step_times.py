"""torch's own strategies are measured too: they bind to a process group, though nothing is to be sent."""

from __future__ import annotations

from testbed.orchestrator.config.config import compose
from testbed.worker.profile import step_times


def test_torchs_own_strategy_is_measured_alone() -> None:
    found = step_times.measure(compose(["strategy=torch_ddp", "workers=3"]))
    assert found.backward_s > 0
    assert found.collectives == ()  # it has no buckets of ours
