"""Graphs, their weights and how fast they even out differences: by hand, by closed forms, and for every graph."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from testbed.worker.methods.gossip.mixing_matrix import (
    COMPLETE,
    EXPONENTIAL,
    GRAPHS,
    REGIONS,
    RING,
    Neighbours,
    Weights,
    edges,
    metropolis_weights,
    neighbours,
    spectral_gap,
    wan_edges,
)

PLACES = [(1,), (2,), (1, 1), (3,), (4,), (2, 2), (3, 2), (5, 1), (1, 2, 3), (4, 4), (3, 3, 3), (2, 2, 2, 2), (16, 16)]


def regions(workers: tuple[int, ...]) -> list[list[int]]:
    ranks = iter(range(sum(workers)))
    return [list(itertools.islice(ranks, count)) for count in workers]


def dense(weights: Weights) -> np.ndarray:
    matrix = np.zeros((len(weights), len(weights)))
    for rank, row in enumerate(weights):
        for other, weight in row.items():
            matrix[rank, other] = weight
    return matrix


@pytest.mark.parametrize(
    ("graph", "workers", "expected"),
    [
        (RING, (4,), [[1, 3], [0, 2], [1, 3], [0, 2]]),
        (RING, (2,), [[1], [0]]),
        (COMPLETE, (3,), [[1, 2], [0, 2], [0, 1]]),
        (EXPONENTIAL, (7,), [[1, 2, 3, 4, 5, 6]] + [sorted({0, 1, 2, 3, 4, 5, 6} - {rank}) for rank in range(1, 7)]),
        (REGIONS, (3, 2), [[1, 2, 3], [0, 2], [0, 1], [0, 4], [3]]),
        # bridges to two other regions end at two members
        (REGIONS, (2, 2, 2), [[1, 2], [0, 4], [0, 3], [2, 5], [1, 5], [3, 4]]),
        (REGIONS, (1, 1, 1), [[1, 2], [0, 2], [0, 1]]),
        *[(graph, (1,), [[]]) for graph in GRAPHS],
    ],
)
def test_who_exchanges_with_whom(graph: str, workers: tuple[int, ...], expected: Neighbours) -> None:
    assert neighbours(graph, regions(workers)) == expected


def test_hops_double_in_the_exponential_graph() -> None:
    found = neighbours(EXPONENTIAL, regions((16,)))
    assert found[0] == [1, 2, 4, 8, 12, 14, 15]
    assert found[5] == sorted((5 + hop) % 16 for hop in found[0])


def test_weights_of_a_ring_by_hand() -> None:
    third = pytest.approx(1 / 3)
    assert metropolis_weights(neighbours(RING, regions((4,))))[0] == {0: third, 1: third, 3: third}


def test_weights_of_an_irregular_graph_by_hand() -> None:
    """A triangle of 1, 2 and 3, and 0 that hangs on 1."""
    found = metropolis_weights([[1], [0, 2, 3], [1, 3], [1, 2]])
    expected = [
        [3 / 4, 1 / 4, 0, 0],
        [1 / 4, 1 / 4, 1 / 4, 1 / 4],
        [0, 1 / 4, 5 / 12, 1 / 3],
        [0, 1 / 4, 1 / 3, 5 / 12],
    ]
    assert dense(found) == pytest.approx(np.array(expected), abs=1e-15)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("workers", PLACES)
def test_every_graph_is_connected_and_its_weights_are_doubly_stochastic(graph: str, workers: tuple[int, ...]) -> None:
    weights = metropolis_weights(neighbours(graph, regions(workers)))
    matrix = dense(weights)
    assert np.array_equal(matrix, matrix.T)
    assert matrix.sum(0) == pytest.approx(1) and matrix.sum(1) == pytest.approx(1)
    assert matrix.min() >= 0
    eigenvalues = np.sort(np.abs(np.linalg.eigvalsh(matrix)))
    expected = 1 - eigenvalues[-2] if len(eigenvalues) > 1 else 1
    assert spectral_gap(weights) == pytest.approx(expected, abs=1e-7)
    assert expected > 0
    assert all(list(row) == sorted(row) for row in weights)


@pytest.mark.parametrize("workers", [2, 3, 5, 8, 64])
def test_the_complete_graph_has_the_mean_at_once(workers: int) -> None:
    assert spectral_gap(metropolis_weights(neighbours(COMPLETE, regions((workers,))))) == pytest.approx(1)


@pytest.mark.parametrize("workers", [3, 4, 5, 8, 9, 33])
def test_the_gap_of_a_ring_by_cosines(workers: int) -> None:
    eigenvalues = [1 / 3 + 2 / 3 * math.cos(2 * math.pi * k / workers) for k in range(1, workers)]
    found = spectral_gap(metropolis_weights(neighbours(RING, regions((workers,)))))
    assert found == pytest.approx(1 - max(map(abs, eigenvalues)), abs=1e-8)


def test_what_is_not_connected_never_agrees() -> None:
    assert spectral_gap(metropolis_weights([[1], [0], [3], [2]])) == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize(
    ("graph", "workers", "across", "all_edges"),
    [
        (RING, (4, 4), 2, 8),
        (REGIONS, (4, 4), 1, 13),
        (COMPLETE, (4, 4), 16, 28),
        # with many regions a ring crosses fewer borders, each region's two
        (RING, (3, 3, 3, 3), 4, 12),
        (REGIONS, (3, 3, 3, 3), 6, 18),
    ],
)
def test_edges_between_regions(graph: str, workers: tuple[int, ...], across: int, all_edges: int) -> None:
    places = regions(workers)
    found = neighbours(graph, places)
    assert len(wan_edges(found, places)) == across
    assert len(edges(found)) == len(set(edges(found))) == all_edges == sum(map(len, found)) / 2


def test_no_rank_has_all_bridges_of_its_region() -> None:
    places = regions((3, 3, 3, 3))
    ends = [rank for edge in wan_edges(neighbours(REGIONS, places), places) for rank in edge]
    assert sorted(ends) == list(range(12))
