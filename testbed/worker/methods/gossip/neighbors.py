"""Payloads to and from a rank's neighbours on a graph, point to point; nobody else gets a byte."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from compressors.base.compressor import SIZE_BYTES, Exchange, Layout
from compressors.base.payload import from_bytes, to_bytes
from testbed.core.spec.topology import Topology
from testbed.worker.communication.collectives.algorithm_selection import Collectives
from testbed.worker.communication.communicator import Communicator
from testbed.worker.device.clock import PhaseClock

_PAIRWISE = "two_shot"
"""Of an all-to-all a message for each pair of ranks, and none where it would be empty; gloo's own sends those too."""

_HEADER_BYTES = 4096
"""A payload of more than these and twice the tensor does not come from a compressor."""


class Neighbourhood:
    """All ranks call `swap` equally often; one waits for its own neighbours alone, and may be ahead of others."""

    def __init__(self, comm: Communicator, clock: PhaseClock, topology: Topology, neighbours: Collection[int]) -> None:
        self._comm, self._clock = comm, clock
        self._others = sorted(neighbours)
        self._collectives = Collectives(comm, topology, _PAIRWISE)

    def swap(self, payload: Tensor, layout: Layout, *, fixed_size: bool) -> dict[int, Tensor]:
        """Everyone's payload, by rank, ascending, this rank's own among them.

        Args:
            payload: uint8; not to be changed meanwhile.
            fixed_size: those of all ranks are as long; otherwise neighbours tell each other sizes first, as payload.

        Raises:
            CollectiveError: it failed, took too long, or a size is none that a payload of `layout` can have.
        """
        if not self._comm.networked:  # a rehearsal: as if all sent the same
            return dict.fromkeys(sorted([self._comm.rank, *self._others]), payload)
        sizes = dict.fromkeys(self._others, len(payload))
        if not fixed_size:
            ours = to_bytes(torch.tensor([len(payload)], dtype=torch.int64))
            told = self._exchange(ours, dict.fromkeys(self._others, SIZE_BYTES))
            sizes = {rank: self._read_size(message, layout, rank) for rank, message in told.items()}
        arrived = self._exchange(payload, sizes)
        return dict(sorted({**arrived, self._comm.rank: payload}.items()))

    def _exchange(self, payload: Tensor, sizes: dict[int, int]) -> dict[int, Tensor]:
        """Send `payload` to all neighbours, and get `sizes` bytes from each."""
        if not self._others:
            return {}
        nothing, ranks = payload[:0], range(self._comm.world_size)
        exchange = Exchange(
            kind="all_to_all",
            data=[payload if rank in sizes else nothing for rank in ranks],
            sizes=[sizes.get(rank, 0) for rank in ranks],
        )
        arrived = self._collectives.run(exchange).wait()
        return {rank: arrived[rank] for rank in sizes}

    def _read_size(self, message: Tensor, layout: Layout, rank: int) -> int:
        size, limit = int(from_bytes(message, torch.int64)), 8 * layout.numel + _HEADER_BYTES
        if not 0 <= size <= limit:
            cause = ValueError(f"rank {rank} announced {size} bytes for {layout.numel} elements, at most {limit}")
            raise self._comm.error("asking neighbours for the sizes of payloads", cause)
        return size
