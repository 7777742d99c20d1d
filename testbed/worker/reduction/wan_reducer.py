"""The mean of buckets in which only what crosses the WAN is compressed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from torch import Tensor

from compressors.base.compressor import Compressor, Context, Layout
from testbed.core.costs.collective import ranks_of_regions
from testbed.core.spec.topology import Topology
from testbed.worker.communication.collectives import chain
from testbed.worker.communication.collectives.algorithm_selection import Collectives
from testbed.worker.communication.collectives.group import Group
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.pending import Pending
from testbed.worker.communication.transport import Peers
from testbed.worker.device.clock import PhaseClock
from testbed.worker.reduction.reducer import Reducer

_INSIDE, _LEADERS = 1, 2
_AMONG_LEADERS = {"hierarchical": "ring", "hierarchical_two_shot": "two_shot"}


class WanReducer:
    """Like `Reducer`: gradients are summed inside each region as they are, the leaders average the sums through the
    compressor, and pass the mean on inside as it is. Residuals are the leaders'.

    The sums inside overlap backward. What crosses the WAN follows in `finish`, one bucket after another: members take
    the means in that order.
    """

    def __init__(
        self,
        compressor: Compressor,
        comm: Communicator,
        clock: PhaseClock,
        topology: Topology,
        seed: int,
        collective: str,
    ) -> None:
        """
        Args:
            collective: hierarchical or hierarchical_two_shot.
        """
        regions = ranks_of_regions(topology)
        region = next(index for index, ranks in enumerate(regions) if comm.rank in ranks)
        leaders, members = [ranks[0] for ranks in regions], regions[region]
        self.leads = comm.rank == members[0]
        self.comm, self.clock = comm, clock
        self._inside = Group(comm, members, members.index(comm.rank), _INSIDE)
        between = topology.only(leaders)
        group = Group(comm, leaders, region, _LEADERS)
        carried = Collectives(group, between, _AMONG_LEADERS[collective])
        self._across = Reducer(compressor, group, clock, between, seed, carried)
        self._share = len(leaders) / comm.world_size
        """Leaders take a mean over regions; sums over them make it one over workers."""
        self._jobs: deque[tuple[Tensor, Layout, int, Pending]] = deque()

    def start(self, flat: Tensor, layout: Layout, step: int) -> None:
        """Send `flat` off; it holds the mean after `finish`, and is not to be touched before."""

        def reduce(peers: Peers) -> list[Tensor]:
            chain.reduce(peers, flat)
            return [flat]

        self._jobs.append((flat, layout, step, self._inside.submit(f"reduce of {flat.nbytes} bytes inside", reduce)))

    def finish(self) -> None:
        """Bring every bucket to its end, in the order of `start`."""
        passing: list[Pending] = []
        while self._jobs:
            flat, layout, step, pending = self._jobs.popleft()
            if self.leads:
                pending.wait()
                flat.mul_(self._share)
                self._across.start(flat, layout, step)
                self._across.finish()
            passing += [pending, self._inside.submit(*_broadcast(flat))]
        for pending in passing:
            pending.wait()

    def context(self, layout: Layout, step: int) -> Context:
        """Of the exchange between leaders."""
        return self._across.context(layout, step)


def _broadcast(flat: Tensor) -> tuple[str, Callable[[Peers], list[Tensor]]]:
    def broadcast(peers: Peers) -> list[Tensor]:
        chain.broadcast(peers, flat)
        return [flat]

    return f"broadcast of {flat.nbytes} bytes inside", broadcast
