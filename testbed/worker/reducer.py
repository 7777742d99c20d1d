"""Drives any compressor over buckets: its rounds become collectives, its work is timed as compress or decompress."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from compressors.base import Compressor, Context, Exchange, Layout, Rounds, choose_route
from testbed.core.topology import Topology
from testbed.worker.clock import WAITING, PhaseClock
from testbed.worker.comm import Communicator, Pending


@dataclass(frozen=True)
class _SizeQuery:
    sizes: list[int]


@dataclass
class _Job:
    rounds: Generator[Exchange | _SizeQuery, list[Tensor], None]
    pending: Pending
    next_phase: str


def slowest_hop(topology: Topology) -> tuple[float, float]:
    """(alpha_s, beta_s_byte) of the slowest link: what one message costs, and each of its bytes."""
    profiles = [profile for link in topology.links for _, _, profile in link.directions()]
    if not profiles:
        return 0.0, 0.0
    return max(p.delay_s for p in profiles), 8 / min(p.rate_bit_s for p in profiles)


class Reducer:
    """Averages buckets over all ranks. `start` and `finish` are called in the same order on every rank."""

    def __init__(
        self, compressor: Compressor, comm: Communicator, clock: PhaseClock, topology: Topology, seed: int
    ) -> None:
        self.compressor = compressor
        self.comm = comm
        self.clock = clock
        self.seed = seed
        self._alpha_s, self._beta_s_byte = slowest_hop(topology)
        self._jobs: deque[_Job] = deque()

    def start(self, flat: Tensor, layout: Layout, step: int) -> None:
        """Compress `flat` and send it off; it holds the mean after `finish`, and is not to be touched before."""
        context = self.context(layout, step)
        rounds = _ask_sizes(self.compressor.rounds(flat, context, out=flat), self.comm.world_size)
        with self.clock.phase("compress"), torch.no_grad():
            first = next(rounds)
        self._jobs.append(_Job(rounds, self._issue(first), _phase_after(first)))

    def finish(self) -> None:
        """Bring every bucket to its end, in the order of `start`, round by round."""
        while self._jobs:
            job = self._jobs.popleft()
            with self.clock.phase(WAITING):
                results = job.pending.wait()
            try:
                with self.clock.phase(job.next_phase), torch.no_grad():
                    following = job.rounds.send(results)
            except StopIteration:
                continue
            job.pending, job.next_phase = self._issue(following), _phase_after(following)
            self._jobs.append(job)

    def context(self, layout: Layout, step: int) -> Context:
        world_size = self.comm.world_size
        route = choose_route(self.compressor, layout, world_size, alpha_s=self._alpha_s, beta_s_byte=self._beta_s_byte)
        return Context(
            layout=layout, route=route, seed=self.seed, step=step, rank=self.comm.rank, world_size=world_size
        )

    def _issue(self, exchange: Exchange | _SizeQuery) -> Pending:
        if isinstance(exchange, _SizeQuery):
            return self.comm.exchange_sizes(exchange.sizes)
        return self.comm.run(exchange)


def _phase_after(exchange: Exchange | _SizeQuery) -> str:
    return "compress" if isinstance(exchange, _SizeQuery) else exchange.then


def _ask_sizes(rounds: Rounds, world_size: int) -> Generator[Exchange | _SizeQuery, list[Tensor], None]:
    """Put a question for sizes in front of each exchange that needs one."""
    try:
        exchange = next(rounds)
        while True:
            if exchange.kind != "all_reduce" and exchange.sizes is None:
                ours = [len(payload) for payload in exchange.data]
                (theirs,) = yield _SizeQuery(ours if exchange.kind == "all_to_all" else ours * world_size)
                exchange = replace(exchange, sizes=theirs.tolist())
            exchange = rounds.send((yield exchange))
    except StopIteration:
        return
