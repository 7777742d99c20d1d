"""A ring over connections of its own: right sums on every rank, the bytes of a ring, and errors with a reason."""

from __future__ import annotations

import math
import selectors
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from compressors.base.compressor import Compressor
from compressors.none import Uncompressed
from compressors.topk import TopK
from testbed.core.costs.sockets import Cluster, Nccl
from testbed.worker.communication.collectives.algorithm_selection import sums_fault
from testbed.worker.communication.sockets.neighbours import Neighbours
from testbed.worker.communication.sockets.ring import SocketRing
from testbed.worker.communication.sockets.schedule import moves, share

WAIT_S = 20.0
SMALL = Nccl(chunk_bytes=256 * 1024, slice_bytes=128 * 1024, piece_bytes=16 * 1024)


class Board:
    """Values that threads of one process leave each other."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def put(self, name: str, value: bytes) -> None:
        with self._changed:
            self._values[name] = value
            self._changed.notify_all()

    def get(self, name: str) -> bytes:
        with self._changed:
            assert self._changed.wait_for(lambda: name in self._values, WAIT_S), f"no rank has put {name}"
            return self._values[name]


def on_all(size: int, library: Nccl, work: Callable[[SocketRing], Any], timeout_s: float = WAIT_S) -> list[Any]:
    """Return what `work` returns on each rank of a ring on loopback."""
    board = Board()

    def one(rank: int) -> Any:
        place: Any = {"rank": rank, "size": size, "interface": "lo", "timeout_s": WAIT_S}
        neighbours = Neighbours.meet(board, **place, channels=library.channels, sockets=library.sockets)
        try:
            return work(SocketRing(neighbours, rank=rank, size=size, library=library, timeout_s=timeout_s))
        finally:
            neighbours.close()

    with ThreadPoolExecutor(size) as ranks:
        return list(ranks.map(one, range(size)))


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("sockets", [0, 1, 16])
@pytest.mark.parametrize("numel", [1, 7, 100_003, 1_500_000])
def test_every_rank_has_the_sum(size: int, sockets: int, numel: int) -> None:
    library = Nccl(chunk_bytes=SMALL.chunk_bytes, slice_bytes=SMALL.slice_bytes, sockets=sockets)

    def work(ring: SocketRing) -> bool:
        for repeat in (1, 2):
            tensor = torch.arange(numel, dtype=torch.float32) % 97 + repeat * ring.rank
            ring.all_reduce(tensor)
            ranks = size * (size - 1) / 2
            if not torch.equal(tensor, size * (torch.arange(numel, dtype=torch.float32) % 97) + repeat * ranks):
                return False
        return True

    assert on_all(size, library, work) == [True] * size


def test_every_rank_has_the_maximum() -> None:
    def work(ring: SocketRing) -> list[float]:
        tensor = torch.tensor([float(ring.rank), -float(ring.rank)], dtype=torch.float64)
        ring.all_reduce(tensor, "max")
        return list(tensor.tolist())

    assert on_all(3, SMALL, work) == [[2.0, 0.0]] * 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_its_own_type(dtype: torch.dtype) -> None:
    def work(ring: SocketRing) -> list[float]:
        tensor = torch.full((2_000,), 0.5 * (ring.rank + 1), dtype=dtype)
        ring.all_reduce(tensor)
        return [float(tensor.min()), float(tensor.max())]

    assert on_all(3, SMALL, work) == [[3.0, 3.0]] * 3


@pytest.mark.parametrize(("size", "numel"), [(2, 400_000), (4, 1_000_003)])
def test_a_ring_sends_what_a_ring_sends(size: int, numel: int) -> None:
    def work(ring: SocketRing) -> int:
        sent: list[int] = []
        ring.all_reduce(torch.ones(numel), charge=sent.append)
        return sum(sent)

    assert sum(on_all(size, SMALL, work)) == 2 * (size - 1) * 4 * numel


def test_a_channel_passes_on_one_slice_after_another_and_the_host_takes_its_time_for_each() -> None:
    """Two ranks, one channel, chunks of two slices: each rank is sent one to be summed, and one to be known."""
    host_s, library = 0.05, Nccl(channels=1, sockets=2, chunk_bytes=1 << 18, slice_bytes=1 << 17, piece_bytes=1 << 14)

    def work(ring: SocketRing) -> tuple[float, bool]:
        tensor = torch.full((1 << 17,), float(ring.rank))
        began_s = time.monotonic()
        ring.all_reduce(tensor, host_s=host_s)
        return time.monotonic() - began_s, bool((tensor == 1.0).all())

    for taken_s, is_right in on_all(2, library, work):
        assert is_right and taken_s >= 2 * 2 * host_s


def test_a_channel_is_served_while_another_waits_for_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has come is taken at once, however short the host's time is, and however long."""

    def never(seconds: float) -> None:
        raise AssertionError(f"sleeps for {seconds:g} s, and serves nobody")

    ring = SocketRing(Neighbours([], []), rank=0, size=2, library=SMALL, timeout_s=WAIT_S)
    here, there = socket.socketpair()
    with here, there, selectors.EpollSelector() as selector:
        selector.register(here, selectors.EVENT_READ, "line")
        monkeypatch.setattr(time, "sleep", never)
        assert ring._ready(selector, time.monotonic() + 1e-3) == []
        there.send(b"x")
        for waits_s in (1e-3, WAIT_S):
            assert ring._ready(selector, time.monotonic() + waits_s) == ["line"]


def test_a_line_that_was_ready_and_is_so_no_more_is_waited_for_again() -> None:
    """The kernel may take back that a connection has room: between `select` and the selector's own answer."""

    class Forgetful(selectors.EpollSelector):
        forgets = 2

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            self.forgets -= 1
            return super().select(timeout) if self.forgets < 0 else []

    ring = SocketRing(Neighbours([], []), rank=0, size=2, library=SMALL, timeout_s=WAIT_S)
    here, there = socket.socketpair()
    with here, there, Forgetful() as selector:
        selector.register(here, selectors.EVENT_READ, "line")
        there.send(b"x")
        assert ring._ready(selector, math.inf) == ["line"]
        assert here.recv(1) == b"x"
        assert ring._ready(selector, time.monotonic() + 1e-3) == []
        ring.timeout_s = 0.05
        with pytest.raises(TimeoutError, match="nothing came"):
            ring._ready(selector, math.inf)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("size_bytes", [0, 1, 300_001])
def test_a_broadcast_goes_along_the_ring_from_the_first_rank_to_the_last(size: int, size_bytes: int) -> None:
    library = Nccl(sockets=3, chain_chunk_bytes=16 * 1024, piece_bytes=4 * 1024)
    wanted = torch.arange(size_bytes, dtype=torch.int64).to(torch.uint8)

    def work(ring: SocketRing) -> tuple[bool, int]:
        sent: list[int] = []
        tensor = wanted.clone() if ring.rank == 0 else torch.zeros(size_bytes, dtype=torch.uint8)
        for _ in range(2):
            ring.broadcast(tensor, sent.append)
        ring.all_reduce(torch.ones(10))  # what follows finds nothing left over
        return torch.equal(tensor, wanted), sum(sent)

    found = on_all(size, library, work)
    assert [is_right for is_right, _ in found] == [True] * size
    assert [sent for _, sent in found] == [2 * size_bytes] * (size - 1) + [0]


def test_a_chain_has_the_host_s_time_for_each_slice_as_its_closed_form_says() -> None:
    """Two channels have five slices each, and the last of three ranks has one after the rank before."""
    host_s, library = 0.03, Nccl(sockets=2, chain_chunk_bytes=16 * 1024, piece_bytes=4 * 1024)
    size_bytes = 10 * library.chain_chunk_bytes

    def work(ring: SocketRing) -> tuple[float, float]:
        began_s = time.monotonic()
        ring.broadcast(torch.ones(size_bytes, dtype=torch.uint8), host_s=host_s)
        return began_s, time.monotonic()

    cluster = Cluster(nodes=3, rate_bit_s=math.inf, round_trip_s=0.0)
    least_s = replace(library, host_s=host_s).broadcast_s(size_bytes, cluster)
    assert least_s == pytest.approx((5 - 1 + 2) * host_s)
    began_s, ended_s = zip(*on_all(3, library, work), strict=True)
    assert max(ended_s) - min(began_s) >= least_s


def test_a_neighbour_that_never_comes_is_told() -> None:
    def work(ring: SocketRing) -> str:
        if ring.rank == 1:
            return "left"
        with pytest.raises((TimeoutError, ConnectionError)) as told:
            ring.all_reduce(torch.ones(1_000_000))
        return str(told.value)

    said, left = on_all(2, SMALL, work, timeout_s=2.0)
    assert left == "left" and said


def test_sizes_that_differ_are_told_with_both() -> None:
    def work(ring: SocketRing) -> str:
        try:
            ring.all_reduce(torch.ones(1000 + 8 * ring.rank))
        except (ConnectionError, TimeoutError) as error:
            return str(error)
        return "nothing"

    assert any("bytes where" in said for said in on_all(2, SMALL, work, timeout_s=2.0))


@pytest.mark.parametrize("numel", [5, 4096, 1_000_000])
@pytest.mark.parametrize("size", [2, 5])
def test_each_element_goes_round_twice_and_is_sent_where_it_is_received(numel: int, size: int) -> None:
    plans = [
        list(moves(0, numel, rank=rank, size=size, chunk=65_536, slice_=32_768, least=8192)) for rank in range(size)
    ]
    for rank, plan in enumerate(plans):
        sent = [(move.start, move.stop) for move in plan if move.sends]
        received = [(move.start, move.stop) for move in plans[(rank + 1) % size] if move.receives]
        assert sent == received
        reduced = sum(move.stop - move.start for move in plan if move.reduces and move.receives)
        stored = sum(move.stop - move.start for move in plan if move.receives and not move.reduces)
        assert 0 <= numel - stored <= -(-numel // size) + size * 65_536 and reduced <= numel


def test_channels_share_a_tensor_without_a_gap() -> None:
    for numel in (1, 2, 1001):
        parts = [share(numel, channel, 4) for channel in range(4)]
        assert parts[0][0] == 0 and parts[-1][1] == numel
        assert all(before[1] == after[0] for before, after in pairwise(parts))


@pytest.mark.parametrize(("compressor", "faults"), [(Uncompressed(), 0), (TopK(), 1)])
def test_a_compressor_that_does_not_sum_is_refused(compressor: Compressor, faults: int) -> None:
    assert len(list(sums_fault("nccl_ring", compressor))) == faults
    assert not list(sums_fault("gloo", compressor))


def test_a_scaled_ring_sends_as_many_messages() -> None:
    def messages(library: Nccl, numel: int) -> int:
        chunk, slice_ = library.chunk_bytes // 4, library.slice_bytes // 4
        return len(list(moves(0, numel, rank=1, size=4, chunk=chunk, slice_=slice_, least=min(8192, slice_))))

    assert messages(Nccl().scaled(16), 4_000_000) == messages(Nccl(), 64_000_000)
    assert Nccl().scaled(1) == Nccl()
