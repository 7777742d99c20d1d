"""Drives any compressor over buckets: its rounds become collectives, its work is timed as compress or decompress."""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from compressors.base.compressor import SIZE_BYTES, Compressor, Context, Exchange, Layout, Rounds, choose_route
from compressors.base.payload import from_bytes, to_bytes
from testbed.core.spec.topology import Topology
from testbed.worker.communication.collectives.algorithm_selection import Collectives
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.link_meter import LinkMeter
from testbed.worker.communication.pending import Pending
from testbed.worker.device.clock import PhaseClock


@dataclass
class Job:
    """A bucket that is being reduced."""

    rounds: Rounds
    exchange: Exchange
    """Exchange in flight."""
    pending: Pending
    """Its result."""
    elements: int
    """Elements of the bucket."""
    round: int = 1
    """Number of exchanges so far."""


class Reducer:
    """Averages buckets over all ranks. `start` and `finish` are called in the same order on every rank.

    Only a bucket's first exchange overlaps what comes between `start` and `finish`. Later ones are issued in `finish`:
    when one ends differs from rank to rank, and an order of collectives that follows it would too.

    A compressor with `needs_link_stats` is told what links turn out to cost, not what was asked of them: one collective
    more in every few steps, which is payload, agrees on that.
    """

    def __init__(
        self,
        compressor: Compressor,
        comm: Communicator,
        clock: PhaseClock,
        topology: Topology,
        seed: int,
        collectives: Collectives | None = None,
    ) -> None:
        """
        Args:
            collectives: the algorithms that carry exchanges; None takes gloo's.
        """
        self.compressor = compressor
        self.comm = comm
        self.clock = clock
        self.seed = seed
        self._link = topology.slowest_hop
        measures = compressor.needs_link_stats and comm.world_size > 1
        self._meter = LinkMeter(self._link, comm, clock.dilation) if measures else None
        self._jobs: deque[Job] = deque()
        # Collectives that are gloo's pass everything on to the communicator.
        self._carry = comm.run if collectives is None or collectives.name == "gloo" else collectives.run

    def start(self, flat: Tensor, layout: Layout, step: int) -> None:
        """Compress `flat` and send it off; it holds the mean after `finish`, and is not to be touched before."""
        rounds = self.rounds(flat, layout, step)
        with self._codec("compress", layout.numel, 0), torch.no_grad():
            first = next(rounds, None)
        if self._meter is not None:
            self._meter.begin(step)
        if first is not None:  # otherwise the compressor sends nothing in this step
            self._keep(layout, Job(rounds, first, self._send(first, 0), layout.numel))

    def rounds(self, flat: Tensor, layout: Layout, step: int) -> Rounds:
        """Return the exchanges that reduce `flat`, questions for sizes among them."""
        rounds = self.compressor.rounds(flat, self.context(layout, step), out=flat)
        return self._with_sizes(rounds, layout)

    def _keep(self, layout: Layout, job: Job) -> None:
        self._jobs.append(job)

    def _send(self, exchange: Exchange, round_: int) -> Pending:
        if self._meter is not None:
            self._meter.count(exchange, round_)
        return self._carry(exchange)

    def finish(self) -> None:
        """Bring every bucket to its end, in the order of `start`, round by round."""
        while self._jobs:
            job = self._jobs.popleft()
            if self._advance(job):
                self._jobs.append(job)
        if self._meter is not None:
            self._measure(self._meter)

    def _advance(self, job: Job) -> bool:
        """Wait for the job's exchange and send the next one; return False if there is none."""
        results = job.pending.wait()
        try:
            with self._codec(job.exchange.then, job.elements, job.round), torch.no_grad():
                job.exchange = job.rounds.send(results)
        except StopIteration:
            return False
        job.pending = self._send(job.exchange, job.round)
        job.round += 1
        return True

    def _codec(self, name: str, elements: int, round_: int) -> AbstractContextManager[None]:
        """Return the phase of the compressor's work in a round."""
        return self.clock.codec(name, elements, round_)

    def _measure(self, meter: LinkMeter) -> None:
        question = meter.end()
        if question is None:
            return
        (agreed,) = self._carry(question).wait()
        meter.learn(agreed)

    def context(self, layout: Layout, step: int) -> Context:
        world_size = self.comm.world_size
        alpha_s, beta_s_byte = self._link if self._meter is None else self._meter.link
        return Context(
            layout=layout,
            route=choose_route(
                self.compressor, layout, world_size, alpha_s=alpha_s, beta_s_byte=beta_s_byte, step=step
            ),
            seed=self.seed,
            step=step,
            rank=self.comm.rank,
            world_size=world_size,
            alpha_s=alpha_s,
            beta_s_byte=beta_s_byte,
        )

    def _with_sizes(self, rounds: Rounds, layout: Layout) -> Rounds:
        """Put a question for sizes in front of each exchange that needs one; it is payload like all that is framing.

        Raises:
            CollectiveError: a size is none that a payload of this bucket can have.
        """
        try:
            exchange = next(rounds)
            while True:
                if exchange.kind != "all_reduce" and exchange.sizes is None:
                    ours = [_size_message(payload) for payload in exchange.data]
                    known = [SIZE_BYTES] * self.comm.world_size
                    theirs = yield Exchange(kind=exchange.kind, data=ours, sizes=known, then="compress")
                    exchange = replace(exchange, sizes=[self._read_size(m, layout, r) for r, m in enumerate(theirs)])
                exchange = rounds.send((yield exchange))
        except StopIteration:
            return

    def _read_size(self, message: Tensor, layout: Layout, rank: int) -> int:
        size, limit = int(from_bytes(message, torch.int64)), _largest_payload_bytes(layout)
        if not 0 <= size <= limit:
            cause = ValueError(
                f"rank {rank} announced {size} bytes for {layout.numel} elements, at most {limit} make sense"
            )
            raise self.comm.error("asking for the sizes of payloads", cause)
        return size


def _size_message(payload: Tensor) -> Tensor:
    return to_bytes(torch.tensor([len(payload)], dtype=torch.int64))


def _largest_payload_bytes(layout: Layout) -> int:
    """Twice the tensor, and a header. A size above it does not come from a compressor."""
    return 8 * layout.numel + 4096
