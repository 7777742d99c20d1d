"""The algorithms over ranks in memory: results, equal bits, and each byte between two regions by the closed forms."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from torch import Tensor

from compressors.base.compressor import Exchange, Route
from testbed.core.costs.collective import ALGORITHMS, cheapest, sent_bytes, wan_bytes
from testbed.core.spec.scale import shared_topology
from testbed.core.spec.topology import Link, Node, Topology, symmetric
from testbed.worker.communication.collectives import algorithm_selection, chain, ring, two_shot
from testbed.worker.communication.collectives.algorithm_selection import COLLECTIVES, Collectives
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.connections import Connections
from tests.unit.worker.memory_peers import MemoryPeers, on_all
from topologies import two_regions

REGIONS = [(4,), (1, 1), (3, 1), (3, 2, 1), (1, 4, 2, 1)]
OWN = [name for name in ALGORITHMS if name != "gloo"]


def topology(workers: tuple[int, ...]) -> Topology:
    names = [f"r{index}" for index in range(len(workers))]
    nodes = tuple(
        Node(name=f"{region}-{i}", region=region) for region, n in zip(names, workers, strict=True) for i in range(n)
    )
    profile = {"rate_bit_s": 1e8, "source": "assumed: a test"}
    links: list[Link] = [
        symmetric(f"{a}-{b}", a, b, wan=True, rtt_s=0.02, **profile) for i, a in enumerate(names) for b in names[:i]
    ]
    links += [symmetric(f"{node.name}-up", node.name, node.region, wan=False, rtt_s=0.0, **profile) for node in nodes]
    return Topology(name="test", regions=tuple(names), nodes=nodes, links=tuple(links))


class Direct(Communicator):
    """Runs a collective of our own on peers in memory, at once."""

    def __init__(self, peers: MemoryPeers) -> None:
        super().__init__(peers.index, peers.size, timeout_s=1)
        self.peers = peers

    def submit(self, what, collective, *, share=1.0):  # type: ignore[no-untyped-def]
        return self._done(collective(self.peers))


def between_regions(sent: list[Counter[int]], network: Topology) -> dict[tuple[str, str], float]:
    found = Counter[tuple[str, str]]()
    for rank, to in enumerate(sent):
        for other, size in to.items():
            a, b = network.nodes[rank].region, network.nodes[other].region
            if a != b:
                found[a, b] += size
    return dict(found)


def tensor_of(rank: int, numel: int, dtype: torch.dtype) -> Tensor:
    values = torch.randn(numel, generator=torch.Generator().manual_seed(rank))
    return values.to(dtype) if dtype.is_floating_point else (values * 100).to(dtype)


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("workers", REGIONS)
@pytest.mark.parametrize("numel", [0, 3, 840])
def test_sums_are_right_and_the_same_bits_everywhere(name: str, workers: tuple[int, ...], numel: int) -> None:
    network, size = topology(workers), sum(workers)
    for dtype, op in ((torch.float32, "sum"), (torch.float16, "sum"), (torch.int32, "sum"), (torch.float32, "max")):
        given = [tensor_of(rank, numel, dtype) for rank in range(size)]

        def reduce(peers: MemoryPeers, given: list[Tensor] = given, op: str = op) -> Tensor:
            exchange = Exchange(kind="all_reduce", data=[given[peers.index].clone()], op=op)  # type: ignore[arg-type]
            (total,) = Collectives(Direct(peers), network, name).run(exchange).wait()
            return total

        totals, sent = on_all(size, reduce)
        wide = torch.stack(given).to(torch.float64 if dtype.is_floating_point else torch.int64)
        expected = wide.sum(0) if op == "sum" else wide.amax(0)
        tolerance = 2e-2 if dtype is torch.float16 else 1e-5
        assert torch.allclose(totals[0].to(expected.dtype), expected, rtol=tolerance, atol=tolerance)
        assert all(torch.equal(total, totals[0]) for total in totals)
        tensor_bytes = numel * given[0].element_size()
        assert sum(sum(to.values()) for to in sent) == sent_bytes(name, "all_reduce", tensor_bytes, network)
        found, theory = between_regions(sent, network), wan_bytes(name, "all_reduce", tensor_bytes, network)
        # Parts differ by one element, of which two messages carry one in each pair of ranks.
        slack = 2 * given[0].element_size() * size * size
        assert all(abs(found.get(pair, 0) - theory.get(pair, 0)) <= slack for pair in found.keys() | theory.keys())
        if numel % math.lcm(size, len(workers)) == 0:
            assert found == pytest.approx(theory)


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("workers", [w for w in REGIONS if len(w) > 1])
def test_bytes_between_regions_are_the_closed_forms_to_the_byte(name: str, workers: tuple[int, ...]) -> None:
    network, size = topology(workers), sum(workers)
    numel = 7 * math.lcm(size, len(workers))

    def reduce(peers: MemoryPeers) -> None:
        Collectives(Direct(peers), network, name).run(Exchange(kind="all_reduce", data=[torch.ones(numel)])).wait()

    def gather(peers: MemoryPeers) -> None:
        exchange = Exchange(kind="all_gather", data=[torch.ones(9, dtype=torch.uint8)], sizes=[9] * size)
        Collectives(Direct(peers), network, name).run(exchange).wait()

    def scatter(peers: MemoryPeers) -> None:
        data = [torch.ones(5, dtype=torch.uint8)] * size
        Collectives(Direct(peers), network, name).run(Exchange(kind="all_to_all", data=data, sizes=[5] * size)).wait()

    for kind, collective, held in (
        ("all_reduce", reduce, 4 * numel),
        ("all_gather", gather, 9),
        ("all_to_all", scatter, 5 * size),
    ):
        _, sent = on_all(size, collective)
        assert between_regions(sent, network) == pytest.approx(wan_bytes(name, kind, held, network)), kind
        assert sum(sum(to.values()) for to in sent) == sent_bytes(name, kind, held, network), kind


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("workers", REGIONS)
def test_payloads_of_unequal_sizes_arrive(name: str, workers: tuple[int, ...]) -> None:
    network, size = topology(workers), sum(workers)
    sizes = [(rank * 37) % 5 * 1000 for rank in range(size)]

    def both(peers: MemoryPeers) -> tuple[list[list[int]], list[list[int]]]:
        collectives = Collectives(Direct(peers), network, name)
        mine = torch.full((sizes[peers.index],), peers.index, dtype=torch.uint8)
        gathered = collectives.run(Exchange(kind="all_gather", data=[mine], sizes=sizes)).wait()
        data = [torch.full((peers.index + to,), peers.index, dtype=torch.uint8) for to in range(size)]
        ours = [peers.index + source for source in range(size)]
        received = collectives.run(Exchange(kind="all_to_all", data=data, sizes=ours)).wait()
        return [p.tolist() for p in gathered], [p.tolist() for p in received]

    answers, _ = on_all(size, both)
    for rank, (gathered, received) in enumerate(answers):
        assert gathered == [[source] * sizes[source] for source in range(size)]
        assert received == [[source] * (source + rank) for source in range(size)]


def test_auto_chooses_by_what_each_connection_has_of_a_message() -> None:
    """As plans and simulations do; with a cap for each connection it is not what one alone would choose."""
    network = two_regions.build(workers=6, rate="10 Gbit/s", lan_rate="10 Gbit/s", rtt="20 ms", flow_cap="1 Gbit/s")
    comm = Communicator(0, 6, timeout_s=1)
    comm.connections = Connections(8)
    alone, differ = shared_topology(network, 8), 0
    for size in (1 << power for power in range(10, 28)):
        chosen = Collectives(comm, network, "auto").planned(Route.REDUCE_SUM, size)
        assert chosen == cheapest("all_reduce", size / 8, alone)
        differ += chosen != cheapest("all_reduce", size, network)
    assert differ


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("numel", [0, 1, 100, 500_000])
def test_chains_from_and_to_any_root(size: int, numel: int) -> None:
    for root in range(size):

        def both(peers: MemoryPeers, root: int = root) -> tuple[Tensor, Tensor]:
            summed, copied = torch.full((numel,), float(peers.index + 1)), torch.full((numel,), float(peers.index))
            chain.reduce(peers, summed, root)
            chain.broadcast(peers, copied, root)
            return summed, copied

        answers, sent = on_all(size, both)
        assert (answers[root][0] == size * (size + 1) / 2).all()
        assert all((copied == root).all() for _, copied in answers)
        assert [sum(to.values()) for to in sent].count(4 * numel) == (
            size if size == 2 or numel == 0 else 2 * (size > 1)
        )
        assert sum(sum(to.values()) for to in sent) == 2 * (size - 1) * 4 * numel


@pytest.mark.parametrize("size", [1, 2, 4, 5])
def test_half_a_ring_sends_what_a_half_should(size: int) -> None:
    numel = 1000 * size

    def half(peers: MemoryPeers) -> tuple[Tensor, Tensor]:
        tensor = torch.arange(float(numel)) * (peers.index + 1)
        part = ring.reduce_scatter(peers, tensor).clone()
        whole = torch.full((numel,), float(peers.index))
        ring.all_gather(peers, whole)
        return part, whole

    answers, sent = on_all(size, half)
    factor = size * (size + 1) / 2
    assert torch.equal(torch.cat([part for part, _ in answers]), torch.arange(float(numel)) * factor)
    assert all(torch.equal(whole, torch.arange(float(size)).repeat_interleave(1000)) for _, whole in answers)
    assert [sum(to.values()) for to in sent] == [2 * (size - 1) * 4000] * size


def test_an_unknown_collective_and_one_without_regions_are_refused() -> None:
    comm = Communicator(0, 3, 1.0)
    with pytest.raises(ValueError, match=f"collective=tree: unknown; known: {', '.join(COLLECTIVES)}"):
        Collectives(comm, topology((2, 1)), "tree")
    with pytest.raises(ValueError, match="collective=ring: needs the region of each worker, found 3 workers"):
        Collectives(comm, topology((2, 2)), "ring")
    Collectives(comm, Topology(name="unknown", regions=(), nodes=(), links=()), "gloo")


def test_two_shot_sums_in_the_order_of_ranks_and_pairs_exchange_at_once() -> None:
    given = [torch.tensor([1e8, 1e8]), torch.tensor([1.0, 1.0]), torch.tensor([-1e8, -1e8])]

    def reduce(peers: MemoryPeers) -> Tensor:
        tensor = given[peers.index].clone()
        two_shot.all_reduce(peers, tensor)
        return tensor

    totals, _ = on_all(3, reduce)
    assert all(torch.equal(total, (given[0] + given[1]) + given[2]) for total in totals)
    answers, _ = on_all(
        2, lambda peers: algorithm_selection.all_to_all(peers, [torch.tensor([peers.index])] * 2, [1, 1])
    )
    assert [[int(p) for p in answer] for answer in answers] == [[0, 1], [0, 1]]
