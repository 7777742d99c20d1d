"""All-to-all between pairs, everything under way at once."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from testbed.worker.collectives.transport import Peers, exchange, others, places


def all_to_all(peers: Peers, payloads: Sequence[Tensor], sizes: Sequence[int]) -> list[Tensor]:
    """Send `payloads[r]` to rank r, and return what each rank sent, of `sizes[r]` bytes."""
    received = places(payloads[0], sizes)
    received[peers.index].copy_(payloads[peers.index])
    exchange(
        peers,
        [(to, payloads[to]) for to in others(peers)],
        [(source, received[source]) for source in others(peers)],
    )
    return received
