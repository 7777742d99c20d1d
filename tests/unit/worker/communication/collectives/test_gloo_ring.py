"""A ring that sends as gloo's all-reduce: its sums, its bytes, its segments, and the host's time for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from compressors.none import Uncompressed
from compressors.topk import TopK
from testbed.core.costs.sockets import GLOO, MIB, Gloo
from testbed.core.device.host_costs import HostCosts
from testbed.worker.communication.collectives import gloo_ring
from testbed.worker.communication.collectives.algorithm_selection import sums_fault
from testbed.worker.communication.host import Host
from tests.unit.worker.memory_peers import MemoryPeers, on_all

SMALL = Gloo(segment_bytes=4096)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("numel", [0, 1, 7, 840, 100_003])
@pytest.mark.parametrize("op", ["sum", "max"])
def test_every_rank_has_the_same_result_for_a_ring_s_bytes(size: int, numel: int, op: str) -> None:
    def reduce(peers: MemoryPeers) -> torch.Tensor:
        tensor = torch.arange(numel, dtype=torch.float32) % 97 * (peers.index + 1)
        gloo_ring.all_reduce(peers, tensor, op, SMALL)
        return tensor

    totals, sent = on_all(size, reduce)
    factor = size * (size + 1) / 2 if op == "sum" else size
    for total in totals:
        assert torch.equal(total, factor * (torch.arange(numel, dtype=torch.float32) % 97))
    assert sum(sum(to.values()) for to in sent) == 2 * (size - 1) * 4 * numel
    assert all(set(to) <= {(rank - 1) % size} for rank, to in enumerate(sent)), "gloo sends to the rank before"


class Watched(MemoryPeers):
    """Notes what is sent and received, in order."""

    def __init__(self, peers: MemoryPeers) -> None:
        self.__dict__ = peers.__dict__
        self.sizes: list[int] = []
        self.most, self.under_way = 0, 0

    def send(self, to: int, tensor: torch.Tensor):  # type: ignore[no-untyped-def]
        self.sizes.append(tensor.nbytes)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        sent, outer = super().send(to, tensor), self

        class Counted:
            def wait(self) -> None:
                outer.under_way -= 1
                sent.wait()

        return Counted()


@pytest.mark.parametrize(("size", "mebibytes"), [(2, 5), (4, 1)])
def test_segments_are_gloo_s_and_two_are_under_way(size: int, mebibytes: int) -> None:
    def reduce(peers: MemoryPeers) -> tuple[list[int], int]:
        watched = Watched(peers)
        gloo_ring.all_reduce(watched, torch.ones(mebibytes * MIB // 4))
        return watched.sizes, watched.most

    found, _ = on_all(size, reduce)
    count = GLOO.segments(mebibytes * MIB, size)
    for sizes, most in found:
        assert len(sizes) == 2 * (size - 1) * count // size
        assert max(sizes) <= -(-mebibytes * MIB // count) + 4 <= MIB + 4 and most == 2


def test_the_host_s_time_passes_once_for_each_segment() -> None:
    taken = dict.fromkeys(range(3), 0)

    class Counting(Host):
        def __init__(self, rank: int) -> None:
            super().__init__(HostCosts(segment_s=1.0))
            self._rank = rank

        @contextmanager
        def segment(self) -> Iterator[None]:
            yield
            taken[self._rank] += 1

    on_all(3, lambda peers: gloo_ring.all_reduce(peers, torch.ones(6000), "sum", SMALL, Counting(peers.index)))
    assert list(taken.values()) == [2 * 2 * SMALL.segments(24_000, 3) // 3] * 3


def test_a_compressor_that_does_not_sum_is_refused() -> None:
    assert not list(sums_fault("gloo_ring", Uncompressed()))
    (fault,) = sums_fault("gloo_ring", TopK())
    assert "carries sums alone" in fault
