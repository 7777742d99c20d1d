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
"""By collective: a genuine reduce-scatter, which sends half of the all-reduce's bytes, and the all-gather after it;
of hierarchical ones those among leaders."""
_NO_LENGTH = 1e-6
"""What torch's `clip_grad_norm_` adds to a length, so that one of 0 has a scale."""


class HalvedReducer(Reducer):
    """`start` in backward, `turn` after it, `finish_one` when a bucket is needed: all in one order on all ranks.

    A compressor's last sum is split in reduce-scatter and all-gather. Of one that sends otherwise the first exchange
    overlaps backward, and what follows the next forward. A compressor with `needs_link_stats` does not get any.
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
        """
        Args:
            collectives: of a name in `HALVES`.
        """
        super().__init__(compressor, comm, clock, topology, seed, collectives)
        self._name = collectives.name
        self._first_half, self._second_half = halves_of(collectives)
        self._under_way: dict[int, Job] = {}

    @property
    def has_halves(self) -> bool:
        """Whether sums are split here: alone there is nothing to split."""
        return self.comm.networked and self.comm.world_size > 1

    def start(self, flat: Tensor, layout: Layout, step: int) -> None:
        """Compress `flat` and send the first half off; it holds the mean after `finish_one` of it."""
        if (job := self._begin(flat, layout, step)) is not None:
            self._under_way[layout.bucket] = job

    def clip(self, norm: float) -> None:
        """Scale the mean of all buckets down to this 2-norm, if it is longer: after the first halves, before `turn`.

        Each rank scales its parts of sums of float32, once a sum over ranks says how long the mean is. Where only
        leaders have parts, those of the others are empty.
        """
        shards = []
        for job in self._under_way.values():
            shards += job.pending.wait()
        square = sum((shard.double().square().sum() for shard in shards), torch.zeros((), dtype=torch.float64))
        (total,) = self._run(Exchange(kind="all_reduce", data=[square.view(1)]), 0).wait()
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

    def _send(self, first: Exchange) -> Pending:
        return self._submit_first(*first.data) if self._is_halved(first) else super()._send(first)

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
        return self.comm.submit(f"{what} of {tensor.nbytes} bytes by {self._name}", half)


def halves_of(collectives: Collectives) -> Halves:
    """Of a name in `HALVES`, among all its ranks: bit for bit and byte for byte they make up its all-reduce."""
    first, second = HALVES[collectives.name]
    if not collectives.name.startswith("hierarchical"):
        return first, second
    return (
        functools.partial(hierarchical.reduce_scatter, regions=collectives.regions, among_leaders=first),
        functools.partial(hierarchical.all_gather, regions=collectives.regions, among_leaders=second),
    )
