"""Replicas of ranks in memory that come nearer to each other: the formulas, the bytes, and nobody else's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, Layout
from testbed.worker.communication.pending import CollectiveError
from testbed.worker.device.clock import PhaseClock
from testbed.worker.methods.gossip import mixing_matrix
from testbed.worker.methods.gossip.consensus import Averaging, Choco, Consensus
from testbed.worker.methods.gossip.neighbors import Neighbourhood
from testbed.worker.plugins.factory import build
from tests.distributed.harness import part
from tests.unit.worker.communication.collectives.test_collectives import Direct, topology
from tests.unit.worker.memory_peers import MemoryPeers, on_all

NUMEL = 400
LAYOUT = Layout(((NUMEL,),))
REGIONS = (3, 2)
RANKS = sum(REGIONS)
PLACES = [[0, 1, 2], [3, 4]]
Make = Callable[[Neighbourhood, dict[int, float], PhaseClock], Consensus]


def _replicas() -> list[Tensor]:
    return [torch.randn(NUMEL, generator=torch.Generator().manual_seed(rank)) for rank in range(RANKS)]


def _compressor(name: str, **params: float) -> Compressor:
    found: Compressor = build("compressor", part("compressor", name, params), Compressor)
    return found


def _context(rank: int, step: int) -> Context:
    return Context(layout=LAYOUT, route=None, seed=0, step=step, rank=rank, world_size=RANKS)


def _mixed(graph: str, make: Make, exchanges: int = 1) -> tuple[list[Tensor], list[Counter[int]]]:
    """Replicas after so many exchanges, and what each rank sent to each other."""
    near = mixing_matrix.neighbours(graph, PLACES)
    weights = mixing_matrix.metropolis_weights(near)
    replicas = _replicas()

    def mix(peers: MemoryPeers) -> Tensor:
        rank, clock = peers.index, PhaseClock()
        neighbourhood = Neighbourhood(Direct(peers), clock, topology(REGIONS), near[rank])
        consensus = make(neighbourhood, weights[rank], clock)
        for step in range(exchanges):
            consensus.mix(replicas[rank], _context(rank, step))
        return replicas[rank]

    return on_all(RANKS, mix)


def _averaging(gamma: float = 1.0) -> Make:
    return lambda near, weights, clock: Averaging(near, weights, gamma, clock)


def _choco(gamma: float, name: str, **params: float) -> Make:
    def make(near: Neighbourhood, weights: dict[int, float], clock: PhaseClock) -> Consensus:
        compressor = _compressor(name, **params)
        return Choco(near, weights, gamma, clock, compressor=compressor, first=torch.zeros(NUMEL))

    return make


def _matrix(graph: str) -> Tensor:
    rows = mixing_matrix.metropolis_weights(mixing_matrix.neighbours(graph, PLACES))
    return torch.tensor([[row.get(column, 0.0) for column in range(RANKS)] for row in rows], dtype=torch.float64)


def _apart(replicas: Sequence[Tensor]) -> float:
    stacked = torch.stack(list(replicas))
    return float((stacked - stacked.mean(0)).norm())


@pytest.mark.parametrize("graph", mixing_matrix.GRAPHS)
@pytest.mark.parametrize("gamma", [1.0, 0.3])
def test_parameters_are_averaged_with_neighbours_alone(graph: str, gamma: float) -> None:
    given, matrix = torch.stack(_replicas()).double(), _matrix(graph)
    replicas, sent = _mixed(graph, _averaging(gamma), exchanges=2)
    once = (1 - gamma) * torch.eye(RANKS, dtype=torch.float64) + gamma * matrix
    assert torch.allclose(torch.stack(replicas).double(), once @ once @ given, atol=1e-6)
    for rank, others in enumerate(mixing_matrix.neighbours(graph, PLACES)):
        assert sent[rank] == dict.fromkeys(others, 2 * 4 * NUMEL)


def test_on_the_complete_graph_all_have_the_same_bits() -> None:
    replicas, _ = _mixed(mixing_matrix.COMPLETE, _averaging())
    assert all(torch.equal(replica, replicas[0]) for replica in replicas)


@pytest.mark.parametrize("graph", mixing_matrix.GRAPHS)
def test_distances_fall_as_the_spectral_gap_has_it(graph: str) -> None:
    before = _apart(_replicas())
    gap = mixing_matrix.spectral_gap(mixing_matrix.metropolis_weights(mixing_matrix.neighbours(graph, PLACES)))
    after = _apart(_mixed(graph, _averaging(), exchanges=6)[0])
    assert after <= before * (1 - gap) ** 6 + 1e-5


@pytest.mark.parametrize("graph", [mixing_matrix.RING, mixing_matrix.REGIONS])
def test_choco_of_all_entries_is_plain_averaging(graph: str) -> None:
    ours, _ = _mixed(graph, _choco(1.0, "topk", density=1.0), exchanges=4)
    plain, _ = _mixed(graph, _averaging(), exchanges=4)
    assert torch.allclose(torch.stack(ours), torch.stack(plain), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "params", "gamma"),
    [
        ("topk", {"density": 0.1}, 0.4),
        ("int4", {}, 1.0),
        ("qsgd", {}, 0.7),
        ("threshold", {"threshold": 1.5}, 0.3),
        ("deepreduce_bloom", {}, 0.3),  # whose decoding hangs on who has encoded
    ],
)
def test_choco_with_every_copy_kept_as_the_paper_has_it(name: str, params: dict[str, float], gamma: float) -> None:
    """One in which nobody saves memory: a copy of each replica, the same for all that have it."""
    found, _ = _mixed(mixing_matrix.REGIONS, _choco(gamma, name, **params), exchanges=5)
    weights = mixing_matrix.metropolis_weights(mixing_matrix.neighbours(mixing_matrix.REGIONS, PLACES))
    replicas, compressors = _replicas(), [_compressor(name, **params) for _ in range(RANKS)]
    copies = [torch.zeros(NUMEL) for _ in range(RANKS)]
    for step in range(5):
        for rank, (compressor, copy) in enumerate(zip(compressors, copies, strict=True)):
            payload = compressor.encode(replicas[rank] - copy, _context(rank, step))
            compressor.decode(payload, copy, _context(rank, step), add=True)
        for rank, replica in enumerate(replicas):
            moves = [weight * (copies[other] - copies[rank]) for other, weight in weights[rank].items()]
            replica += gamma * torch.stack(moves).sum(0)
    assert torch.allclose(torch.stack(found), torch.stack(replicas), atol=1e-5)


def test_choco_agrees_in_the_end_on_the_mean_of_the_beginning() -> None:
    given = torch.stack(_replicas())
    few, sent = _mixed(mixing_matrix.RING, _choco(0.3, "topk", density=0.1), exchanges=20)
    many, _ = _mixed(mixing_matrix.RING, _choco(0.3, "topk", density=0.1), exchanges=150)
    assert _apart(many) < 0.05 * _apart(few) < 0.05 * _apart(list(given))
    assert torch.allclose(torch.stack(many).mean(0), given.mean(0), atol=1e-5)
    assert sent[0] == {1: 20 * 8 * NUMEL // 10, 4: 20 * 8 * NUMEL // 10}


def test_of_payloads_that_differ_in_length_neighbours_are_told_it_first() -> None:
    """In eight bytes; without an entry above the threshold a payload has four, of their count."""
    _, sent = _mixed(mixing_matrix.RING, _choco(0.3, "threshold", threshold=1e6, relative=False), exchanges=3)
    _, more = _mixed(mixing_matrix.RING, _choco(0.3, "threshold", threshold=1.5), exchanges=3)
    assert sent[0] == {1: 3 * 12, 4: 3 * 12}
    assert more[0][1] == more[0][4] > 3 * 12 and len({counter.total() for counter in more}) > 1


def test_a_size_that_no_payload_has_is_refused() -> None:
    honest, lying = torch.zeros(3, dtype=torch.uint8), torch.zeros(8193, dtype=torch.uint8)

    def swap(peers: MemoryPeers) -> None:
        near = Neighbourhood(Direct(peers), PhaseClock(), topology(REGIONS), {0, 1} - {peers.index})
        if peers.index == 0:
            with pytest.raises(CollectiveError, match="rank 1 announced 8193 bytes for 400 elements, at most 7296"):
                near.swap(honest, LAYOUT, fixed_size=False)
            peers.send(1, honest)  # for the other one to come to its end
            peers.receive(1, lying.clone()).wait()
        elif peers.index == 1:
            near.swap(lying, LAYOUT, fixed_size=False)

    on_all(RANKS, swap)
