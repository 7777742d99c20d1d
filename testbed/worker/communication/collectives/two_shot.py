"""Two shots: every rank sends each other one its part, reduces its own, and sends the result to all.

Two messages' latency whatever the number of ranks, and every pair of them uses a path of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from testbed.worker.communication.transport import Peers, combine, exchange, others, places, split, wait_all


def all_reduce(peers: Peers, tensor: Tensor, op: str = "sum") -> None:
    """Reduce `tensor` in place, each part in the order of ranks."""
    pieces = split(tensor, peers.size)
    mine = pieces[peers.index]
    terms = [mine if rank == peers.index else torch.empty_like(mine) for rank in range(peers.size)]
    first = [peers.receive(rank, terms[rank]) for rank in others(peers)]
    # Posted now, so that no notice is waited for between the shots: it comes after this rank's share has been used.
    second = [peers.receive(rank, pieces[rank]) for rank in others(peers)]
    sends = [peers.send(to, pieces[to]) for to in others(peers)]
    wait_all(first)
    mine.copy_(_total(terms, op))
    sends += [peers.send(to, mine) for to in others(peers)]
    wait_all([*second, *sends])


def reduce_scatter(peers: Peers, tensor: Tensor, op: str = "sum") -> Tensor:
    """Reduce this rank's part of `tensor`, in the order of ranks, and return it; the other parts stay as they were."""
    pieces = split(tensor, peers.size)
    mine = pieces[peers.index]
    terms = [mine if rank == peers.index else torch.empty_like(mine) for rank in range(peers.size)]
    exchange(
        peers,
        [(to, pieces[to]) for to in others(peers)],
        [(source, terms[source]) for source in others(peers)],
    )
    mine.copy_(_total(terms, op))
    return mine


def all_gather(peers: Peers, pieces: Sequence[Tensor]) -> None:
    """Fill the pieces of all other ranks; this rank's own is right already."""
    exchange(
        peers,
        [(to, pieces[peers.index]) for to in others(peers)],
        [(source, pieces[source]) for source in others(peers)],
    )


def all_gather_payloads(peers: Peers, payload: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Every rank's payload, of `sizes[rank]` bytes."""
    pieces = places(payload, sizes)
    pieces[peers.index].copy_(payload)
    all_gather(peers, pieces)
    return pieces


def _total(terms: Sequence[Tensor], op: str) -> Tensor:
    total = terms[0].clone()
    for term in terms[1:]:
        combine(total, term, op)
    return total
