"""Collectives that reduce inside each region to its leader, exchange between leaders, and broadcast inside.

The WAN carries a tensor once for each region instead of once for each worker. A leader is the first rank of its region.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.worker.communication.collectives import chain, two_shot
from testbed.worker.communication.transport import Peers, Subset, exchange

Regions = Sequence[Sequence[int]]
"""The ranks of each region that has any."""


@dataclass(frozen=True)
class Place:
    """Place of a rank among regions."""

    inside: Peers
    """Ranks of its region; index 0 leads."""
    leaders: Peers | None
    """All leaders, if it is one of them."""
    region: int

    @classmethod
    def of(cls, peers: Peers, regions: Regions) -> Place:
        region = next(index for index, ranks in enumerate(regions) if peers.index in ranks)
        inside = Subset(peers, regions[region])
        leaders = Subset(peers, [ranks[0] for ranks in regions]) if inside.index == 0 else None
        return cls(inside, leaders, region)


def all_reduce(
    peers: Peers,
    tensor: Tensor,
    op: str,
    regions: Regions,
    among_leaders: Callable[[Peers, Tensor, str], None],
) -> None:
    """Reduce `tensor` in place.

    Args:
        among_leaders: All-reduce that crosses the WAN.
    """
    place = Place.of(peers, regions)
    chain.reduce(place.inside, tensor, op=op)
    if place.leaders is not None:
        among_leaders(place.leaders, tensor, op)
    chain.broadcast(place.inside, tensor)


def reduce_scatter(
    peers: Peers, tensor: Tensor, regions: Regions, among_leaders: Callable[[Peers, Tensor], Tensor]
) -> Tensor:
    """Sum as the first half of `all_reduce` does, and return each leader's part of `tensor`; nothing on others.

    Args:
        among_leaders: Reduce-scatter that crosses the WAN.
    """
    place = Place.of(peers, regions)
    chain.reduce(place.inside, tensor)
    return tensor.view(-1)[:0] if place.leaders is None else among_leaders(place.leaders, tensor)


def all_gather(peers: Peers, tensor: Tensor, regions: Regions, among_leaders: Callable[[Peers, Tensor], None]) -> None:
    """Do the second half: fill all of `tensor`, of which each leader's own part is right already."""
    place = Place.of(peers, regions)
    if place.leaders is not None:
        among_leaders(place.leaders, tensor)
    chain.broadcast(place.inside, tensor)


def all_gather_payloads(peers: Peers, payload: Tensor, sizes: Sequence[int], regions: Regions) -> list[Tensor]:
    """Return every rank's payload, of `sizes[rank]` bytes.

    Each region's payloads cross the WAN once for each other region.
    """
    place = Place.of(peers, regions)
    order = [rank for ranks in regions for rank in ranks]
    bundled = torch.empty(sum(sizes), dtype=payload.dtype)
    pieces = dict(zip(order, bundled.split([sizes[rank] for rank in order]), strict=True))
    if place.leaders is None:
        exchange(place.inside, [(0, payload)], [])
    else:
        pieces[peers.index].copy_(payload)
        members = regions[place.region]
        exchange(place.inside, [], [(index, pieces[rank]) for index, rank in enumerate(members) if index])
        bundles = bundled.split([sum(sizes[rank] for rank in ranks) for ranks in regions])
        two_shot.all_gather(place.leaders, bundles)
    chain.broadcast(place.inside, bundled)
    return [pieces[rank] for rank in range(peers.size)]
