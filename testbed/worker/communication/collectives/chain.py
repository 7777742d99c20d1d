"""Broadcast from and reduction to one root along a chain of ranks, in chunks, so that all links work at once.

gloo's own broadcast is a tree that passes on a tensor once it is whole.
"""

from __future__ import annotations

import torch
from torch import Tensor

from testbed.core.costs.collective import CHAIN_CHUNK_BYTES, chain_chunks
from testbed.worker.communication.transport import Arrivals, Peers, Waitable, combine, wait_all


def broadcast(peers: Peers, tensor: Tensor, root: int = 0, chunk_bytes: float = CHAIN_CHUNK_BYTES) -> None:
    """Overwrite `tensor` with the root's."""
    chunks, place = _chunks(peers, tensor, chunk_bytes), (peers.index - root) % peers.size
    following = (peers.index + 1) % peers.size
    arrivals = chunks if place == 0 else Arrivals(peers, (peers.index - 1) % peers.size, chunks)
    sends: list[Waitable] = []
    for chunk in arrivals:
        if place < peers.size - 1:
            sends.append(peers.send(following, chunk))
    wait_all(sends)


def reduce(
    peers: Peers, tensor: Tensor, root: int = 0, op: str = "sum", chunk_bytes: float = CHAIN_CHUNK_BYTES
) -> None:
    """Reduce into the root's `tensor`; those of the others hold partial results afterwards."""
    chunks, place = _chunks(peers, tensor, chunk_bytes), (peers.index - root) % peers.size
    last = place == peers.size - 1
    arrivals = () if last else Arrivals(peers, (peers.index + 1) % peers.size, map(torch.empty_like, chunks))
    incoming, sends = iter(arrivals), list[Waitable]()
    for chunk in chunks:
        if not last:
            combine(chunk, next(incoming), op)
        if place > 0:
            sends.append(peers.send((peers.index - 1) % peers.size, chunk))
    wait_all(sends)


def _chunks(peers: Peers, tensor: Tensor, chunk_bytes: float) -> list[Tensor]:
    count = chain_chunks(tensor.nbytes, peers.size, chunk_bytes)
    flat = tensor.view(-1)
    return list(flat.split(-(-len(flat) // count))) if len(flat) else []
