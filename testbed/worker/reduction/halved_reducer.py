"""The mean of buckets in two halves: the first overlaps backward, the second the next forward."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Exchange, Layout
from testbed.core.spec.topology import Topology
from testbed.worker.communication.collectives import hierarchical, ring, two_shot
from testbed.worker.communication.collectives.algorithm_selection import Collectives
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.pending import Pending
from testbed.worker.communication.transport import Peers, split
from testbed.worker.device.clock import PhaseClock
from testbed.worker.reduction.reducer import Job, Reducer

FirstHalf = Callable[[Peers, Tensor], Tensor]
"""Gives the part of the sum that this rank has now."""
SecondHalf = Callable[[Peers, Tensor], None]
Halves = tuple[FirstHalf, SecondHalf]
_RING: Halves = (ring.reduce_scatter, ring.all_gather)
_TWO_SHOT: Halves = (
    two_shot.reduce_scatter,
    lambda peers, tensor: two_shot.all_gather(peers, split(tensor, peers.size)),
)
HALVES = {"ring": _RING, "two_shot": _TWO_SHOT, "hierarchical": _RING, "hierarchical_two_shot": _TWO_SHOT}
"""Halves by collective: a genuine reduce-scatter, with half of the all-reduce's bytes, and the all-gather after it.
Hierarchical ones have those among leaders."""
_NO_LENGTH = 1e-6
"""What torch's `clip_grad_norm_` adds to a length, so that one of 0 has a scale."""


class HalvedReducer(Reducer):
    """Reducer that sends the halves of all-reduces apart, all in one order on all ranks.

    `start` in backward sends the first half of a bucket, `turn` after it the second, and `finish_one` waits for the
    mean when it is needed. A compressor's last sum is split in reduce-scatter and all-gather. If a compressor sends
    otherwise, its first exchange overlaps backward, and the others the next forward. A compressor with
    `needs_link_stats` gets no figures of links.
    """

    def __init__(
        self,
        compressor: Compressor,
        comm: Communicator,
        clock: PhaseClock,
        topology: Topology,
        seed: int,
        collectives: Collectives,
    ) -> None:
        """Take the parts of the run.

        Args:
            collectives: Collectives with a name in `HALVES`.
        """
        super().__init__(compressor, comm, clock, topology, seed, collectives)
        self._name = collectives.name
        self._first_half, self._second_half = halves_of(collectives)
        self._under_way: dict[int, Job] = {}

    @property
    def has_halves(self) -> bool:
        """True if sums are split here: alone there is nothing to split."""
        return self.comm.networked and self.comm.world_size > 1

    def _keep(self, layout: Layout, job: Job) -> None:
        self._under_way[layout.bucket] = job

    def _send(self, exchange: Exchange, round_: int) -> Pending:
        is_first_half = round_ == 0 and self._is_halved(exchange)
        return self._submit_first(*exchange.data) if is_first_half else super()._send(exchange, round_)

    def clip(self, norm: float) -> None:
        """Scale the mean of all buckets down to this 2-norm, if it is longer: after the first halves, before `turn`.

        Each rank scales its parts of sums of float32, once a sum over ranks says how long the mean is. Where only
        leaders have parts, those of the others are empty.
        """
        shards = []
        for job in self._under_way.values():
            shards += job.pending.wait()
        square = sum((shard.double().square().sum() for shard in shards), torch.zeros((), dtype=torch.float64))
        (total,) = self._carry(Exchange(kind="all_reduce", data=[square.view(1)])).wait()
        length = float(total.sqrt()) / self.comm.world_size
        scale = min(1.0, norm / (length + _NO_LENGTH))
        for shard in shards:
            shard.mul_(scale)

    def turn(self, order: Iterable[int]) -> None:
        """Send the second halves off, in the order in which buckets will be finished.

        The thread that carries them takes one after another, so that a second half need not wait here for its first.
        """
        for index in order:
            job = self._under_way.get(index)
            if job is not None and self._is_halved(job.exchange):
                job.pending = self._submit_second(*job.exchange.data)
            elif job is not None and not self._advance(job):
                del self._under_way[index]

    def finish_one(self, index: int) -> None:
        """Bring the bucket of that index to its end."""
        job = self._under_way.pop(index, None)
        while job is not None and self._advance(job):
            pass

    def _is_halved(self, exchange: Exchange) -> bool:
        is_last_sum = exchange.kind == "all_reduce" and exchange.op == "sum" and exchange.then == "decompress"
        return is_last_sum and self.has_halves

    def _submit_first(self, tensor: Tensor) -> Pending:
        return self._submit("reduce_scatter", tensor, lambda peers: [self._first_half(peers, tensor)])

    def _submit_second(self, tensor: Tensor) -> Pending:
        def gather(peers: Peers) -> list[Tensor]:
            self._second_half(peers, tensor)
            return [tensor]

        return self._submit("all_gather", tensor, gather)

    def _submit(self, what: str, tensor: Tensor, half: Callable[[Peers], list[Tensor]]) -> Pending:
        return self.comm.submit(f"{what} of {tensor.nbytes} bytes by {self._name}", half, share=0.5)


def halves_of(collectives: Collectives) -> Halves:
    """Return both halves of a collective, among all its ranks: bit for bit and byte for byte its all-reduce."""
    first, second = HALVES[collectives.name]
    if not collectives.name.startswith("hierarchical"):
        return first, second
    return (
        functools.partial(hierarchical.reduce_scatter, regions=collectives.regions, among_leaders=first),
        functools.partial(hierarchical.all_gather, regions=collectives.regions, among_leaders=second),
    )
