"""Links measured: factors that follow what exchanges took, and ranks that change their compressor in the same step."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from compressors.adaptive import Adaptive
from compressors.base import alpha_beta
from compressors.base.compressor import Exchange, Layout
from compressors.base.feedback import ErrorFeedback
from compressors.none import Uncompressed
from compressors.policy import Policy
from compressors.topk import TopK
from testbed.core.spec.topology import Topology
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.link_meter import EVERY_STEPS, LinkMeter
from testbed.worker.communication.pending import Pending
from testbed.worker.device.clock import PhaseClock
from testbed.worker.device.stopwatch import Stopwatch
from testbed.worker.reduction.reducer import Reducer
from testbed.worker.script.ddp_hook import NO_LINKS
from tests.waiting import HANG_S, in_background, joined
from topologies import two_regions

LAYOUT = Layout(((300, 400),))
ALPHA_S, BETA_S_BYTE = 0.01, 1e-7


class Told(Stopwatch):
    """Says what the test makes it say."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def so_far_s(self) -> float:
        return self.seconds


@dataclass
class World:
    """Ranks in threads; an exchange takes what the link costs, and longer on all ranks but one, which was the last."""

    size: int
    alpha_s: float
    beta_s_byte: float

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(self.size, timeout=HANG_S)
        self.posted: list[Any] = [None] * self.size


class Rank(Communicator):
    def __init__(self, rank: int, world: World) -> None:
        super().__init__(rank, world.size, timeout_s=20)
        self.world, self.watch = world, Told()
        self.stopwatch = self.watch
        self.sent: list[tuple[str, int]] = []

    def run(self, exchange: Exchange) -> Pending:
        world, size = self.world, self.world.size
        data = [tensor.clone() for tensor in exchange.data]
        world.posted[self.rank] = data
        world.barrier.wait()
        everyone = list(world.posted)
        world.barrier.wait()
        nbytes = sum(tensor.nbytes for tensor in data)
        self.sent.append((exchange.kind, nbytes))
        alpha_s, beta_s_byte = world.alpha_s, world.beta_s_byte
        if exchange.kind == "all_reduce":
            stacked = torch.stack([theirs[0] for theirs in everyone])
            result = [stacked.sum(dim=0) if exchange.op == "sum" else stacked.amax(dim=0)]
            self.watch.seconds += alpha_beta.all_reduce_s(nbytes, size, alpha_s, beta_s_byte)
        elif exchange.kind == "all_gather":
            result = [theirs[0] for theirs in everyone]
            self.watch.seconds += alpha_beta.all_gather_s(nbytes, size, alpha_s, beta_s_byte)
        else:
            result = [theirs[self.rank] for theirs in everyone]
            self.watch.seconds += alpha_beta.all_to_all_s(nbytes, size, alpha_s, beta_s_byte)
        self.watch.seconds += 0.5 * self.rank  # waits for rank 0, which is late
        return self._done(result)


def _on_all(world: World, work: Callable[[Rank], Any]) -> tuple[list[Rank], list[Any]]:
    ranks = [Rank(rank, world) for rank in range(world.size)]
    results: list[Any] = [None] * world.size

    def run(rank: Rank) -> None:
        results[rank.rank] = work(rank)

    joined(*(in_background(functools.partial(run, rank), f"of rank {rank.rank}") for rank in ranks))
    assert all(result is not None for result in results)
    return ranks, results


def _candidates() -> Adaptive:
    return Adaptive(candidates=[{"compressor": Uncompressed()}, {"compressor": TopK()}], within=10)


def _train(world: World, topology: Topology, steps: int, changes: dict[int, float]) -> list[list[bool]]:
    """Of each rank, in which steps gradients went as they are."""

    def work(rank: Rank) -> list[bool]:
        reducer = Reducer(ErrorFeedback(_candidates()), rank, PhaseClock(), topology, seed=0)
        generator = torch.Generator().manual_seed(rank.rank)
        dense = []
        for step in range(steps):
            world.beta_s_byte = changes.get(step, world.beta_s_byte)
            flat = torch.randn(LAYOUT.numel, generator=generator)
            before = len(rank.sent)
            reducer.start(flat, LAYOUT, step)
            reducer.finish()
            sent = rank.sent[before:]
            assert (("all_reduce", 12) in sent) == (step % EVERY_STEPS == EVERY_STEPS - 1)
            dense.append(sent[0] == ("all_reduce", 4 * LAYOUT.numel))
        return dense

    return _on_all(world, work)[1]


def _asked() -> Topology:
    """As many workers as there are ranks; half the time of a dense exchange is latency."""
    return two_regions.build(workers=3, rate="1 Gbit/s", rtt="2 ms")


@pytest.mark.tier("all")
def test_all_ranks_change_in_the_same_step_when_the_link_slows_and_when_it_recovers() -> None:
    alpha_s, beta_s_byte = _asked().slowest_hop
    world = World(3, alpha_s, beta_s_byte)
    slowed = next(s for s in (10.0**n for n in range(9)) if _candidates().pick(LAYOUT, 3, 0, alpha_s, s * beta_s_byte))
    assert slowed > 1, "on what is asked gradients go as they are"
    by_rank = _train(world, _asked(), 400, {15: 10 * slowed * beta_s_byte, 50: beta_s_byte})
    assert by_rank[0] == by_rank[1] == by_rank[2]
    dense = by_rank[0]
    assert all(dense[:20])
    assert not any(dense[40:50])
    assert all(dense[380:])
    changes = [step for step in range(1, 400) if dense[step] != dense[step - 1]]
    assert changes and all(step % EVERY_STEPS == 0 for step in changes)


@pytest.mark.parametrize("slower", [1.0, 300.0])
def test_without_a_topology_bytes_count_until_links_are_measured(slower: float) -> None:
    """Then what few bytes took is known, but not of what."""
    world = World(2, slower * ALPHA_S, slower * BETA_S_BYTE)

    def work(rank: Rank) -> tuple[float, float]:
        reducer = Reducer(ErrorFeedback(_candidates()), rank, PhaseClock(), NO_LINKS, seed=0)
        assert reducer.context(LAYOUT, 0).beta_s_byte == 0
        for step in range(200):
            reducer.start(torch.ones(LAYOUT.numel), LAYOUT, step)
            reducer.finish()
        context = reducer.context(LAYOUT, 0)
        return context.alpha_s, context.beta_s_byte

    ranks, links = _on_all(world, work)
    assert links[0] == links[1]
    assert ranks[0].sent[0] == ("all_gather", 8 * 1200)
    kind, sent_bytes = ranks[0].sent[-2]  # the last is an agreement
    cost = alpha_beta.all_gather_s if kind == "all_gather" else alpha_beta.all_reduce_s
    assert cost(sent_bytes, 2, *links[0]) == pytest.approx(
        cost(sent_bytes, 2, world.alpha_s, world.beta_s_byte), rel=1e-3
    )


@pytest.mark.parametrize("times", [(1.0, 1.0), (1.0, 7.0), (5.0, 1.0), (0.3, 0.2)])
def test_factors_come_to_what_the_link_is(times: tuple[float, float]) -> None:
    comm = Rank(0, World(2, ALPHA_S, BETA_S_BYTE))
    meter = LinkMeter((ALPHA_S, BETA_S_BYTE), comm, dilation=4.0)
    assert meter.link == (ALPHA_S, BETA_S_BYTE)
    for window in range(80):
        numel = (1000, 1_000_000)[window % 2]
        for step in range(EVERY_STEPS):
            meter.begin(window * EVERY_STEPS + step)
            exchange = Exchange(kind="all_reduce", data=[torch.empty(numel)])
            meter.count(exchange, 0)
            meter.count(exchange, 0)
            seconds = 2 * ALPHA_S * times[0] + 2 * 4 * numel * BETA_S_BYTE * times[1]
            comm.watch.seconds += 4.0 * seconds  # on the wall
            question = meter.end()
        assert question is not None
        meter.learn(question.data[0])
    assert meter.link == pytest.approx((ALPHA_S * times[0], BETA_S_BYTE * times[1]), rel=0.2)


def test_what_takes_no_time_teaches_nothing() -> None:
    meter = LinkMeter((ALPHA_S, BETA_S_BYTE), Rank(0, World(2, 0, 0)), dilation=1.0)
    meter.learn(torch.tensor([2.0, 1e6, 0.0]))
    meter.learn(torch.tensor([0.0, 0.0, -3.0]))
    assert meter.link == (ALPHA_S, BETA_S_BYTE)
    for _ in range(100):
        meter.learn(torch.tensor([2.0, 1e6, -1e-30]))
    assert all(0 < found <= asked for found, asked in zip(meter.link, (ALPHA_S, BETA_S_BYTE), strict=True))


def test_only_who_wants_the_link_measured_pays_for_it() -> None:
    assert not ErrorFeedback(TopK()).needs_link_stats
    assert ErrorFeedback(_candidates()).needs_link_stats
    assert Policy(otherwise=Adaptive(candidates=[{"compressor": Int} for Int in [TopK()]])).needs_link_stats
    world = World(2, ALPHA_S, BETA_S_BYTE)

    def work(rank: Rank) -> bool:
        reducer = Reducer(Uncompressed(), rank, PhaseClock(), _asked(), seed=0)
        flat: Tensor = torch.ones(LAYOUT.numel)
        for step in range(2 * EVERY_STEPS):
            reducer.start(flat, LAYOUT, step)
            reducer.finish()
        context = reducer.context(LAYOUT, 0)
        assert (context.alpha_s, context.beta_s_byte) == _asked().slowest_hop
        return True

    ranks, _ = _on_all(world, work)
    assert [len(rank.sent) for rank in ranks] == [2 * EVERY_STEPS] * 2


def test_a_stopwatch_says_what_it_saw_so_far_whatever_is_taken() -> None:
    watch = Stopwatch()
    end = watch.start()
    end()
    first = watch.so_far_s()
    assert watch.take_s() == first
    assert watch.so_far_s() == first
    end = watch.start()
    assert watch.take_s() >= 0
    end()
    assert watch.so_far_s() >= first
