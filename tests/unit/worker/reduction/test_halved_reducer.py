"""Two halves over ranks in memory: to the bit and to the byte what the whole all-reduce is."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from compressors.base.compressor import Exchange
from testbed.core.costs import collective
from testbed.worker.communication.collectives.algorithm_selection import Collectives
from testbed.worker.reduction.halved_reducer import HALVES, halves_of
from tests.unit.worker.communication.collectives.test_collectives import REGIONS, Direct, tensor_of, topology
from tests.unit.worker.memory_peers import MemoryPeers, on_all


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("workers", REGIONS)
@pytest.mark.parametrize("numel", [0, 3, 841, 200_003])
def test_both_together_are_the_whole(name: str, workers: tuple[int, ...], numel: int) -> None:
    network, size = topology(workers), sum(workers)

    def whole(peers: MemoryPeers) -> Tensor:
        given = tensor_of(peers.index, numel, torch.float32)
        (total,) = Collectives(Direct(peers), network, name).run(Exchange(kind="all_reduce", data=[given])).wait()
        return total

    def halves(peers: MemoryPeers) -> tuple[Tensor, Tensor, int]:
        first, second = halves_of(Collectives(Direct(peers), network, name))
        tensor = tensor_of(peers.index, numel, torch.float32)
        part = first(peers, tensor).clone()
        sent = sum(peers.sent.values())
        second(peers, tensor)
        return part, tensor, sent

    totals, sent = on_all(size, whole)
    answers, sent_in_halves = on_all(size, halves)
    assert all(torch.equal(tensor, totals[0]) for _, tensor, _ in answers)
    assert torch.equal(torch.cat([part for part, _, _ in answers]), totals[0])  # each element belongs to one rank
    assert sent_in_halves == sent
    first_halves = sum(first for _, _, first in answers)
    assert 2 * first_halves == sum(sum(to.values()) for to in sent)
    assert 2 * first_halves == collective.sent_bytes(name, "all_reduce", 4 * numel, network)
    leaders = [ranks[0] for ranks in collective.ranks_of_regions(network)]
    holders = leaders if name.startswith("hierarchical") else range(size)
    if numel >= size:
        assert [rank for rank, (part, _, _) in enumerate(answers) if len(part)] == list(holders)
