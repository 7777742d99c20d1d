"""The mean of buckets in two halves: the first overlaps backward, the second the next forward."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from compressors.base import Compressor, Context, Exchange, Layout, Rounds
from testbed.core.topology import Topology
from testbed.worker.clock import WAITING, PhaseClock
from testbed.worker.collectives import ring, two_shot
from testbed.worker.collectives.choice import Collectives
from testbed.worker.collectives.transport import Peers, split
from testbed.worker.comm import Communicator, Pending
from testbed.worker.reducer import Reducer

Half = Callable[[Peers, Tensor], object]
HALVES: dict[str, tuple[Half, Half]] = {
    "ring": (ring.reduce_scatter, ring.all_gather),
    "two_shot": (
        two_shot.reduce_scatter,
        lambda peers, tensor: two_shot.all_gather(peers, split(tensor, peers.size)),
    ),
}
"""By collective: a genuine reduce-scatter, which sends half of the all-reduce's bytes, and the all-gather after it."""
_NO_LENGTH = 1e-6
"""What torch's `clip_grad_norm_` adds to a length, so that one of 0 has a scale."""


@dataclass
class _Job:
    rounds: Rounds
    exchange: Exchange
    pending: Pending
    elements: int
    is_halved: bool
    round: int = 1


class HalvedReducer:
    """`start` in backward, `turn` after it, `finish` of each bucket when it is needed: all in one order on all ranks.

    A compressor's last sum is split in reduce-scatter and all-gather. Of one that sends otherwise the first exchange
    overlaps backward, and what follows the next forward.

    Raises:
        ValueError: this collective has no halves.
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
        if collective not in HALVES:
            raise ValueError(f"collective={collective}: has no halves; those that have: {', '.join(HALVES)}")
        self.collectives = Collectives(comm, topology, collective)
        self._reducer = Reducer(compressor, comm, clock, topology, seed, self.collectives)
        self._first_half, self._second_half = HALVES[collective]
        self._comm, self._clock = comm, clock
        self._jobs: dict[int, _Job] = {}

    def context(self, layout: Layout, step: int) -> Context:
        return self._reducer.context(layout, step)

    def start(self, flat: Tensor, layout: Layout, step: int) -> None:
        """Compress `flat` and send the first half off; it holds the mean after `finish` of it."""
        rounds = self._reducer.rounds(flat, layout, step)
        with self._clock.codec("compress", layout.numel, 0), torch.no_grad():
            first = next(rounds, None)  # a compressor may have nothing to say in this step
        if first is None:
            return
        is_halved = self._has_halves(first)
        pending = self._half(first, self._first_half, "reduce_scatter") if is_halved else self._run(first)
        self._jobs[layout.bucket] = _Job(rounds, first, pending, layout.numel, is_halved)

    @property
    def has_halves(self) -> bool:
        """Whether sums are split here: alone there is nothing to split."""
        return self._comm.networked and self._comm.world_size > 1

    def clip(self, norm: float) -> None:
        """Scale the mean of all buckets down to this 2-norm, if it is longer: after the first halves, before `turn`.

        Each rank scales its parts of sums of float32, once a sum over ranks says how long the mean is.
        """
        shards = []
        for job in self._jobs.values():
            with self._clock.phase(WAITING):
                (tensor,) = job.pending.wait()
            shards.append(split(tensor, self._comm.world_size)[self._comm.rank])
        square = sum((shard.double().square().sum() for shard in shards), torch.zeros((), dtype=torch.float64))
        pending = self._run(Exchange(kind="all_reduce", data=[square.view(1)]))
        with self._clock.phase(WAITING):
            (total,) = pending.wait()
        length = float(total.sqrt()) / self._comm.world_size
        scale = min(1.0, norm / (length + _NO_LENGTH))
        for shard in shards:
            shard.mul_(scale)

    def turn(self, order: Iterable[int]) -> None:
        """Send the second halves off, in the order in which buckets will be finished.

        The thread that carries them takes one after another, so that a second half need not wait here for its first.
        """
        for index in order:
            job = self._jobs.get(index)
            if job is None:
                continue
            if job.is_halved:
                job.pending = self._half(job.exchange, self._second_half, "all_gather")
            elif not self._advance(job):
                del self._jobs[index]

    def finish(self, index: int) -> None:
        """Bring the bucket of that index to its end."""
        job = self._jobs.pop(index, None)
        while job is not None and self._advance(job):
            pass

    def _advance(self, job: _Job) -> bool:
        """Wait for the job's exchange and start the next; False where that was the last."""
        with self._clock.phase(WAITING):
            results = job.pending.wait()
        try:
            with self._clock.codec(job.exchange.then, job.elements, job.round), torch.no_grad():
                job.exchange = job.rounds.send(results)
        except StopIteration:
            return False
        job.pending = self._run(job.exchange)
        job.round += 1
        return True

    def _has_halves(self, exchange: Exchange) -> bool:
        is_last_sum = exchange.kind == "all_reduce" and exchange.op == "sum" and exchange.then == "decompress"
        return is_last_sum and self.has_halves

    def _run(self, exchange: Exchange) -> Pending:
        self._clock.mark()
        return self.collectives.run(exchange)

    def _half(self, exchange: Exchange, half: Half, what: str) -> Pending:
        (tensor,) = exchange.data

        def carry(peers: Peers) -> list[Tensor]:
            half(peers, tensor)
            return [tensor]

        self._clock.mark()
        return self._comm.submit(f"{what} of {tensor.nbytes} bytes by {self.collectives.name}", carry)
