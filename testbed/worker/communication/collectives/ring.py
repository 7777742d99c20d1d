"""Ring: every rank sends to the next only. Both halves are genuine: each sends (P-1)/P of the tensor.

Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from testbed.worker.communication.transport import Arrivals, Peers, combine, places, split, wait_all


def all_reduce(peers: Peers, tensor: Tensor, op: str = "sum") -> None:
    """Reduce `tensor` in place.

    The receives of the second half are posted during the first, into parts that are still being summed: the result of
    a part comes only after this rank's share of it has been sent and used.
    """
    pieces = split(tensor, peers.size)
    arrivals = iter(_arrivals(peers, itertools.chain(_scratch(peers, pieces), _gathered(peers, pieces))))
    _reduce(peers, pieces, arrivals, op)
    _pass_on(peers, pieces, arrivals)


def reduce_scatter(peers: Peers, tensor: Tensor, op: str = "sum") -> Tensor:
    """Reduce this rank's part of `tensor`, and return it; the other parts hold partial results afterwards.

    A part sets out at the rank after its owner, and is summed in the order of the ring.
    """
    pieces = split(tensor, peers.size)
    _reduce(peers, pieces, iter(_arrivals(peers, _scratch(peers, pieces))), op)
    return pieces[peers.index]


def all_gather(peers: Peers, tensor: Tensor) -> None:
    """Fill all parts of `tensor` but this rank's own, which is right already."""
    pieces = split(tensor, peers.size)
    _pass_on(peers, pieces, iter(_arrivals(peers, _gathered(peers, pieces))))


def all_gather_payloads(peers: Peers, payload: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Every rank's payload, of `sizes[rank]` bytes."""
    pieces = places(payload, sizes)
    pieces[peers.index].copy_(payload)
    _pass_on(peers, pieces, iter(_arrivals(peers, _gathered(peers, pieces))))
    return pieces


def _arrivals(peers: Peers, targets: Iterable[Tensor]) -> Arrivals:
    return Arrivals(peers, (peers.index - 1) % peers.size, targets)


def _scratch(peers: Peers, pieces: Sequence[Tensor]) -> Iterator[Tensor]:
    for step in range(peers.size - 1):
        yield torch.empty_like(pieces[(peers.index - step - 2) % peers.size])


def _gathered(peers: Peers, pieces: Sequence[Tensor]) -> Iterator[Tensor]:
    for step in range(peers.size - 1):
        yield pieces[(peers.index - step - 1) % peers.size]


def _reduce(peers: Peers, pieces: Sequence[Tensor], arrivals: Iterator[Tensor], op: str) -> None:
    size, following = peers.size, (peers.index + 1) % peers.size
    sends = []
    for step in range(size - 1):
        sends.append(peers.send(following, pieces[(peers.index - step - 1) % size]))
        combine(pieces[(peers.index - step - 2) % size], next(arrivals), op)
    wait_all(sends)


def _pass_on(peers: Peers, pieces: Sequence[Tensor], arrivals: Iterator[Tensor]) -> None:
    following = (peers.index + 1) % peers.size
    sends = []
    for step in range(peers.size - 1):
        sends.append(peers.send(following, pieces[(peers.index - step) % peers.size]))
        next(arrivals)
    wait_all(sends)
