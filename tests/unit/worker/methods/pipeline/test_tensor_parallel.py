"""Layers that ranks share: their sums take the host's time, as other collectives do."""

from __future__ import annotations

from collections.abc import Callable

import torch

from testbed.core.device.host_costs import NO_COSTS
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.host import Done, Host
from testbed.worker.device.clock import PhaseClock
from testbed.worker.methods.pipeline.tensor_parallel import Shards


class CountingHost(Host):
    """Counts the collectives that it starts."""

    starts = 0

    def starting(self, work: Callable[[], Done], share: float = 1.0) -> Callable[[], Done]:
        self.starts += 1
        return super().starting(work, share)


def test_the_host_starts_each_sum_over_shards() -> None:
    comm, host = Communicator(0, 2, timeout_s=1), CountingHost(NO_COSTS)
    comm.host = host
    shards = Shards(comm, PhaseClock(), [0], 1)
    for _ in range(3):
        assert shards.sum(torch.ones(2)).tolist() == [1.0, 1.0]
    assert host.starts == 3
