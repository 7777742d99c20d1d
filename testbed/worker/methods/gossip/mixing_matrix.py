"""Averaging without a server: who exchanges with whom, the weights of it, and how fast it evens out differences.

| graph of P workers, R regions | neighbours of a worker | edges between regions, ranks in their order |
|---|---|---|
| ring        | the one before and the one after          | R, of two regions 2 |
| complete    | all others                                | sum of m_a m_b |
| exponential | those 1, 2, 4, 8 ... ranks before and after | between those two |
| regions     | all of its region, and ends of bridges    | R(R-1)/2, one of each pair |

In an exchange an edge carries one payload each way.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

RING, COMPLETE, EXPONENTIAL, REGIONS = "ring", "complete", "exponential", "regions"
GRAPHS = (RING, COMPLETE, EXPONENTIAL, REGIONS)
_SQUARINGS = 30
"""The norm of the 2^30th power of a matrix of 1000 rows tells its largest eigenvalue to 4e-9 of it."""

Neighbours = list[list[int]]
"""Of each rank, ascending, itself not among them."""
Weights = list[dict[int, float]]
"""Of each rank those with which it takes its neighbours' parameters and its own, by rank, ascending."""


def neighbours(graph: str, regions: Sequence[Sequence[int]]) -> Neighbours:
    """
    Args:
        graph: one of `GRAPHS`; all of them are connected.
        regions: the ranks of each region; all ranks from 0 on are in one.
    """
    workers = sum(map(len, regions))
    everyone = range(workers)
    found: list[set[int]] = [set() for _ in everyone]

    def join(a: int, b: int) -> None:
        if a != b:
            found[a].add(b)
            found[b].add(a)

    if graph == REGIONS:
        for index, members in enumerate(regions):
            for a in members:
                for b in members:
                    join(a, b)
            for other in range(index):
                join(_bridge_end(regions, index, other), _bridge_end(regions, other, index))
    else:
        for a in everyone:
            for hop in _hops(graph, workers):
                join(a, (a + hop) % workers)
    return [sorted(ranks) for ranks in found]


def metropolis_weights(graph: Neighbours) -> Weights:
    """W_ij = 1 / (1 + max(d_i, d_j)) of neighbours with d_i and d_j neighbours, W_ii what is left to 1: symmetric, rows
    and columns add up to 1, whatever the graph, and each rank knows its own row from its neighbours' degrees.

    Xiao, Boyd, Lall, "A scheme for robust distributed sensor fusion based on average consensus", IPSN 2005.
    """
    rows: Weights = []
    for rank, others in enumerate(graph):
        row = {other: 1 / (1 + max(len(others), len(graph[other]))) for other in others}
        row[rank] = 1 - math.fsum(row.values())
        rows.append(dict(sorted(row.items())))
    return rows


def spectral_gap(weights: Weights) -> float:
    """1 - max(|lambda_2|, |lambda_P|) of symmetric W: in one exchange the distance of all replicas from their mean
    becomes at most 1 less this gap of what it was. 1: they are the mean at once; near 0: about 1/gap exchanges.

    By Gelfand's formula: the largest |eigenvalue| of W - 11'/P is the limit of |(W - 11'/P)^m|^(1/m).
    """
    size = len(weights)
    power = [[row.get(column, 0.0) - 1 / size for column in range(size)] for row in weights]
    log_radius, exponent = 0.0, 1.0
    for squaring in range(_SQUARINGS + 1):
        norm = math.sqrt(math.fsum(value * value for row in power for value in row))
        if norm == 0:
            return 1.0
        log_radius += math.log(norm) / exponent
        power = [[value / norm for value in row] for row in power]
        if squaring < _SQUARINGS:
            power = _square(power)
            exponent *= 2
    return 1 - math.exp(log_radius)


def edges(graph: Neighbours) -> list[tuple[int, int]]:
    """Each once, the lower rank first."""
    return [(rank, other) for rank, others in enumerate(graph) for other in others if rank < other]


def wan_edges(graph: Neighbours, regions: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Those between two regions."""
    region_of = {rank: index for index, members in enumerate(regions) for rank in members}
    return [(a, b) for a, b in edges(graph) if region_of[a] != region_of[b]]


def _hops(graph: str, workers: int) -> list[int]:
    if graph == COMPLETE:
        return list(range(1, workers))
    if graph == EXPONENTIAL:
        return [2**power for power in range((workers - 1).bit_length())]
    return [1]


def _bridge_end(regions: Sequence[Sequence[int]], region: int, other: int) -> int:
    """The rank of `region` whose neighbour is in `other`: members take turns, so that none has all bridges."""
    members = regions[region]
    return members[(other - (other > region)) % len(members)]


def _square(matrix: list[list[float]]) -> list[list[float]]:
    """Of a symmetric one, whose rows are its columns."""
    return [[sum(map(operator.mul, row, column)) for column in matrix] for row in matrix]
