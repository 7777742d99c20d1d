"""A weight of the first stage that the last one uses too: its gradients are summed over both.

Megatron-LM and DeepSpeed reduce it over both stages, then over the replicas of each. Here the last stage sends its part
to the first, which averages over replicas, and sends back what came of it: as many bytes between both, and none between
the replicas of the last. Each shard has the whole weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from testbed.core.parallelism.plan import Plan
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.transport import Waitable
from testbed.worker.device.clock import WAITING, PhaseClock
from testbed.worker.model.pieces import Piece


class TiedWeight:
    """One rank's end. Values are those of a replay, whose gradients mean nothing: they travel, and are not added."""

    def __init__(
        self, weight: nn.Parameter, own: int, other: int, comm: Communicator, clock: PhaseClock, channel: int
    ) -> None:
        """Take this rank's end.

        Args:
            own: its stage, the first or the last.
            other: the rank that has the other end.
        """
        self.weight, self._is_first, self._other = weight, own == 0, other
        self._comm, self._clock, self._peers = comm, clock, comm.peers(channel)
        self._buffer = torch.empty(0)
        self._coming: Waitable | None = None
        self._sent: Waitable | None = None

    @classmethod
    def of(
        cls, plan: Plan, pieces: Sequence[Piece], comm: Communicator, clock: PhaseClock, channel: int
    ) -> TiedWeight | None:
        """Return this rank's end; None where the model has no such weight, or both stages are of one rank."""
        weight = pieces[-1].tied
        position, replica, shard = plan.coordinates(comm.rank)
        ends = {0: 0, plan.pp - 1: plan.stages - 1}
        if weight is None or len(ends) == 1 or position not in ends:
            return None
        other = plan.rank(plan.pp - 1 - position, replica, shard)
        return cls(weight, ends[position], other, comm, clock, channel)

    def begin(self) -> None:
        """A step begins: whatever comes may come."""
        self._buffer = torch.empty(self.weight.numel())
        self._coming = self._peers.receive(self._other, self._buffer)

    def backward_done(self) -> None:
        """All gradients of this rank's stages are there."""
        if not self._is_first:
            self._send(self.weight.detach().reshape(-1))

    def arrive(self) -> None:
        """Wait for what the other one sends; once a step."""
        if self._coming is not None:
            coming, self._coming = self._coming, None
            self._waited(coming)

    def finish(self) -> None:
        """Gradients are averaged over replicas: the first stage sends them back, and the last waits for them."""
        self.arrive()
        if self._is_first:
            self._send(self._buffer)
        if self._sent is not None:
            self._waited(self._sent)

    def _send(self, values: Tensor) -> None:
        self._clock.mark()
        with self._named():
            self._sent = self._peers.send(self._other, values)

    def _waited(self, work: Waitable) -> None:
        end = self._comm.stopwatch.start()
        try:
            with self._clock.phase(WAITING), self._named():
                work.wait()
        finally:
            end()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """
        Raises:
            CollectiveError: the other rank did not take part.
        """
        try:
            yield
        except RuntimeError as error:
            what = f"the gradient of a weight that first and last stage share, with rank {self._other}"
            raise self._comm.error(what, error) from error
