"""The simulator against what can be worked out by hand. TCP `stock` is not paced, which keeps the arithmetic short."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Sequence

import pytest

from compressors.base.compressor import Layout, Route
from compressors.fp16 import Float16
from testbed.analysis.simulator.model.constants import BBR_PACED, IDEAL, Constants
from testbed.analysis.simulator.model.network import Network
from testbed.analysis.simulator.model.step_plan import BucketPlan, StepPlan
from testbed.analysis.simulator.model.traffic import traffic
from testbed.analysis.simulator.timeline import period_skip
from testbed.analysis.simulator.timeline.rings import Ring
from testbed.analysis.simulator.timeline.steps import StepTimes, follow
from testbed.core.costs import collective
from testbed.core.costs.sockets import LIBRARIES, Cluster, Gloo
from testbed.core.device.host_costs import HostCosts
from testbed.core.device.profile import Collective
from testbed.core.spec.paths import WIRE_RATIO
from testbed.core.spec.topology import Topology
from tests.counting import counted
from topologies import full_mesh, hierarchical, lan, star, two_regions

RATE_BIT_S, RTT_S = 1e8, 0.05
SECOND_BYTE = 8 * WIRE_RATIO / RATE_BIT_S
NEXT_TO_NOTHING = 4


def wan(workers: int, rate: float = RATE_BIT_S, rtt_s: float = RTT_S) -> Topology:
    return two_regions.build(workers=workers, rate=f"{rate} bit/s", rtt=f"{rtt_s} s", lan_rate="10 Gbit/s")


def bucket(
    size: int, ready_s: float = 0.0, kind: str = "all_reduce", codec_s: tuple[float, ...] = (0, 0)
) -> BucketPlan:
    return BucketPlan(size // 4, ready_s, (Collective(kind=kind, size_bytes=size),) * (len(codec_s) - 1), codec_s)


def step_plan(buckets: Sequence[BucketPlan], backward_s: float = 0.0, algorithm: str = "gloo") -> StepPlan:
    return StepPlan(before_s=0.0, backward_s=backward_s, after_s=0.0, buckets=tuple(buckets), algorithm=algorithm)


def steps(plan: StepPlan, topology: Topology, constants: Constants = IDEAL, tcp: str = "stock") -> StepTimes:
    return follow(plan, Network(topology, constants, tcp=tcp))


def test_two_workers_one_link_one_bucket() -> None:
    """Each half of the ring is a notice, and half the bucket: a round trip and its bytes, twice."""
    size = 4_000_000
    found = steps(step_plan([bucket(size)]), wan(2))
    assert found.step_s == pytest.approx(2 * RTT_S + size * SECOND_BYTE, rel=1e-9)
    assert found.exposed_s == pytest.approx(found.step_s)


def test_one_worker_only_computes() -> None:
    found = steps(step_plan([bucket(4_000_000, codec_s=(0.01, 0.02))], backward_s=0.1), wan(2))
    alone = steps(step_plan([bucket(4_000_000, codec_s=(0.01, 0.02))], backward_s=0.1), lan.build(workers=1))
    assert alone.step_s == pytest.approx(0.13)
    assert alone.step_s < found.step_s


def test_a_ring_over_two_regions_takes_a_round_trip_in_each_of_its_rounds() -> None:
    """A rank that receives over the WAN says so first, hence whole round trips: P - 1 in each of two halves."""
    found = steps(step_plan([bucket(NEXT_TO_NOTHING)]), wan(4))
    assert found.step_s == pytest.approx(6 * RTT_S, rel=1e-4)


def test_two_buckets_share_a_link() -> None:
    """Without latency only bytes count, and those of both pass the same link."""
    size, slow = 4_000_000, wan(2, rtt_s=0)
    one, two = steps(step_plan([bucket(size)]), slow), steps(step_plan([bucket(size)] * 2), slow)
    assert two.step_s == pytest.approx(2 * one.step_s, rel=1e-9)
    assert two.step_s == pytest.approx(2 * size * SECOND_BYTE, rel=1e-9)


def test_latencies_of_two_collectives_overlap_and_those_of_a_third_wait() -> None:
    """gloo has two threads."""
    one, two, three = (steps(step_plan([bucket(NEXT_TO_NOTHING)] * n), wan(2)).step_s for n in (1, 2, 3))
    assert two == pytest.approx(one, rel=1e-4)
    assert three == pytest.approx(2 * one, rel=1e-4)


def test_an_all_to_all_is_one_notice_and_all_bytes_at_once() -> None:
    """Of each rank's input a quarter goes to each other rank, and half of all pairs cross the WAN in each direction."""
    size = 4_000_000
    found = steps(step_plan([bucket(size, kind="all_to_all")]), wan(4))
    assert found.step_s == pytest.approx(RTT_S + 4 * size / 4 * SECOND_BYTE, rel=1e-9)


def test_our_own_algorithms_take_their_closed_form_after_one_notice_each() -> None:
    """Buckets go one after another; two shots are a one-way delay each."""
    size = 4_000_000
    found = steps(step_plan([bucket(size)] * 2, algorithm="two_shot"), wan(4))
    form_s = collective.seconds("two_shot", "all_reduce", size, wan(4))
    assert found.step_s == pytest.approx(2 * (RTT_S / 2 + form_s), rel=1e-9)


@pytest.mark.parametrize(("kind", "over_the_wan"), [("all_gather", 2), ("all_reduce", 3)])
def test_a_message_of_our_ring_takes_each_hop_s_own_time(kind: str, over_the_wan: int) -> None:
    """Every second of four hops is over the WAN: of three in a row two at most, of six three. Notices come ahead."""
    found = steps(step_plan([bucket(NEXT_TO_NOTHING, kind=kind)], algorithm="ring"), wan(4))
    assert found.step_s == pytest.approx((1 + over_the_wan) * RTT_S / 2, rel=1e-3)


def test_our_ring_has_no_more_than_eight_messages_on_their_way_over_a_hop() -> None:
    """Of 64 ranks in two regions 63 messages pass each WAN hop, eight in a round trip; latency alone would be a notice
    and one and a half round trips."""
    plan = step_plan([bucket(NEXT_TO_NOTHING, kind="all_gather")], algorithm="ring")
    found = steps(plan, wan(64))
    assert 63 / 8 * RTT_S < found.step_s < (63 / 8 + 2) * RTT_S


@pytest.mark.parametrize("tcp", ["stock", "bbr"])
@pytest.mark.parametrize("kind", ["all_gather", "all_reduce"])
@pytest.mark.parametrize("size", [40_000, 4_000_000])
def test_where_hops_are_alike_our_ring_is_its_closed_form_after_one_notice(kind: str, tcp: str, size: int) -> None:
    topology = full_mesh.build(workers=4, rate="100 Mbit/s", rtt="80 ms")
    found = steps(step_plan([bucket(size, kind=kind)], algorithm="ring"), topology, tcp=tcp)
    hosts = Network(topology, IDEAL, tcp=tcp).hosts("ring", kind, size)
    form_s = collective.seconds("ring", kind, size, topology, hosts=hosts)
    notice_s = Network(topology, IDEAL).pairs.delay_s.max()
    assert found.step_s == pytest.approx(notice_s + form_s, rel=1e-6 if tcp == "stock" else 0.02)


def test_what_is_communicated_early_is_hidden() -> None:
    size = 1_000_000
    early = steps(step_plan([bucket(size, ready_s=0.1)], backward_s=2.0), wan(2))
    assert early.step_s == pytest.approx(2.0)
    assert early.exposed_s == 0
    late = steps(step_plan([bucket(size, ready_s=2.0)], backward_s=2.0), wan(2))
    assert late.step_s == pytest.approx(2.0 + 2 * RTT_S + size * SECOND_BYTE)


def test_further_rounds_follow_backward_and_their_codec_is_paid() -> None:
    """The second exchange is issued when the first is decoded, after all of backward."""
    rounds = bucket(NEXT_TO_NOTHING, codec_s=(0.01, 0.02, 0.03))
    found = steps(step_plan([rounds], backward_s=1.0), wan(2))
    assert found.step_s == pytest.approx(1.0 + 0.01 + 0.02 + 2 * RTT_S + 0.03, rel=1e-4)


def test_bursts_shorter_than_a_round_trip_are_paced_by_bbr() -> None:
    """Three rounds of a ring whose links have room: each message leaves in its part of what BBR paces a round by."""
    plan = step_plan([bucket(100_000, kind="all_gather")])
    free, paced = (steps(plan, wan(4, rate=1e10), tcp=tcp).step_s for tcp in ("stock", "bbr"))
    assert free == pytest.approx(3 * RTT_S, rel=0.02)
    assert 0 < paced - free < 4 * BBR_PACED * RTT_S


def test_bursts_of_our_own_algorithms_are_paced_too() -> None:
    """A gather between leaders is one burst; the smaller one that follows leaves as fast as the larger one did."""

    def longer_s(sizes: Sequence[int]) -> float:
        plan = step_plan([bucket(size, kind="all_gather") for size in sizes], algorithm="hierarchical")
        free, paced = (steps(plan, wan(4, rate=1e10), tcp=tcp).step_s for tcp in ("stock", "bbr"))
        return paced - free

    assert longer_s([100_000]) == pytest.approx(BBR_PACED * RTT_S, rel=0.02)
    assert longer_s([100_000, 25_000]) == pytest.approx(1.25 * BBR_PACED * RTT_S, rel=0.02)


@pytest.mark.parametrize("algorithm", ["gloo", "hierarchical", "two_shot"])
def test_long_transfers_are_not_paced(algorithm: str) -> None:
    plan = step_plan([bucket(20_000_000)], algorithm=algorithm)
    assert steps(plan, wan(2), tcp="bbr").step_s == pytest.approx(steps(plan, wan(2)).step_s, rel=1e-3)


def test_bytes_are_those_of_the_strategy() -> None:
    layout, workers = Layout(((1000, 100),)), 4
    codec = Float16()
    size = codec.payload_bytes(layout, None)  # type: ignore[arg-type]  # fixed
    found = traffic(step_plan([bucket(size)]), wan(workers), IDEAL)
    assert found.payload_bytes == codec.sent_bytes(layout, workers, Route.REDUCE_SUM)
    assert [link.wire_bytes for link in found.wan] == pytest.approx([2 * 3 / 4 * size * WIRE_RATIO] * 2)


def test_acknowledgements_go_the_other_way() -> None:
    found = traffic(step_plan([bucket(1_000_000)]), wan(2), Constants(acknowledged=0.01))
    assert [link.wire_bytes for link in found.wan] == pytest.approx([1_000_000 * (WIRE_RATIO + 0.01)] * 2)


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "all_to_all"])
@pytest.mark.parametrize("algorithm", ["gloo", "hierarchical", "two_shot"])
def test_more_rate_is_never_slower_nor_more_delay_faster(kind: str, algorithm: str) -> None:
    random.seed(7)
    for _ in range(10):
        workers, size = random.randint(2, 9), random.choice([100, 30_000, 2_000_000])
        plan = step_plan([bucket(size, kind=kind), bucket(size // 3, 0.01, kind)], 0.05, algorithm)
        by_rate = [steps(plan, wan(workers, rate=rate), tcp="tuned").step_s for rate in (1e7, 1e8, 1e9)]
        by_delay = [steps(plan, wan(workers, rtt_s=rtt_s), tcp="tuned").step_s for rtt_s in (0.0, 0.02, 0.2)]
        assert by_rate == sorted(by_rate, reverse=True)
        assert by_delay == sorted(by_delay)


def test_constants_lengthen_steps_as_they_say() -> None:
    plan, topology = step_plan([bucket(4_000_000)]), wan(2)
    ideal = steps(plan, topology).step_s
    slower = steps(plan, topology, Constants(goodput=0.5)).step_s
    assert slower - ideal == pytest.approx(4_000_000 * SECOND_BYTE, rel=1e-9)
    dilated = follow(plan, Network(topology, Constants(message_s=1e-3), dilation=10)).step_s
    assert 2e-4 <= dilated - ideal + 1e-12 <= 4e-4  # four messages in two turns, a tenth of a millisecond each


@pytest.mark.tier("all")
def test_a_thousand_workers_in_a_hundred_regions_take_seconds() -> None:
    """By what is called, which is the same on a slow machine: two collectives have two million messages."""
    regions = [f"c{index // 10}/r{index}" for index in range(100)]
    plan = step_plan([bucket(4_000_000 + 4 * index, 0.01 * index) for index in range(2)], backward_s=0.3)
    calls, step_s = {}, {}
    for workers in (100, 1000):
        topology = hierarchical.build(workers=workers, regions=regions, rtt="20 ms", backbone_rtt="80 ms")
        found, calls[workers] = counted(functools.partial(steps, plan, topology, tcp="tuned"))
        step_s[workers] = found.step_s
    assert calls[1000] < 12 * calls[100] and calls[1000] < 4_000_000
    assert step_s[1000] > 2 * 999 * 0.12  # both at once, the longest round trip each round


def test_rounds_that_are_left_out_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = step_plan([bucket(3_000_000), bucket(2_000_000, 0.01)], backward_s=0.1)
    topology = full_mesh.build(workers=64, regions=[f"r{index}" for index in range(8)])
    moved: list[int] = []
    monkeypatch.setattr(Ring, "move", _noting(Ring.move, moved))
    leapt = steps(plan, topology, Constants(message_s=1e-4), tcp="tuned")
    assert sum(moved) > 1000
    monkeypatch.setattr(period_skip, "MIN_RANKS", 65)
    whole = steps(plan, topology, Constants(message_s=1e-4), tcp="tuned")
    assert leapt.step_s == pytest.approx(whole.step_s, rel=1e-9)
    assert leapt.exposed_s == pytest.approx(whole.exposed_s, rel=1e-9)


def _noting(move: Callable[[Ring, int, float], None], moved: list[int]) -> Callable[[Ring, int, float], None]:
    def noted(ring: Ring, messages: int, shift_s: float) -> None:
        moved.append(messages)
        move(ring, messages, shift_s)

    return noted


@pytest.mark.parametrize("library", LIBRARIES)
def test_all_reduces_of_a_library_take_its_closed_form_one_after_another(library: str) -> None:
    size, topology = 40_000_000, full_mesh.build(workers=4, rate="1 Gbit/s", rtt="20 ms", lan_rate="10 Gbit/s")
    network = Network(topology, Constants(goodput=0.9), library=library)
    expected = Cluster(nodes=4, rate_bit_s=1e9, round_trip_s=0.02)
    assert network.cluster.rate_bit_s == pytest.approx(1e9) and network.has_hops_alike
    assert network.cluster.round_trip_s == pytest.approx(0.02, rel=0.02)
    one_s = LIBRARIES[library].all_reduce_s(size, expected)
    assert follow(step_plan([bucket(size), bucket(size)]), network).step_s == pytest.approx(2 * one_s, rel=0.02)


@pytest.mark.parametrize("algorithm", ["gloo", "ring", "two_shot", "nccl_ring"])
def test_larger_frames_carry_more_of_a_rate(algorithm: str) -> None:
    plan = step_plan([bucket(100_000_000)], algorithm=algorithm)
    usual, jumbo = (
        star.build(workers=2, rate="1 Gbit/s", rtt="0 s", lan_rate="10 Gbit/s", mtu=mtu) for mtu in (1500, 9001)
    )
    assert steps(plan, jumbo).step_s / steps(plan, usual).step_s == pytest.approx(9015 / 8949 * 1448 / 1514, rel=1e-6)


@pytest.mark.parametrize("algorithm", ["gloo", "ring", "two_shot"])
def test_connections_that_share_a_message_carry_as_much_as_their_caps_until_the_link_is_full(algorithm: str) -> None:
    """Two workers over 10 Gbit/s, 1 Gbit/s a connection: four take a quarter of the time, twenty that of the link."""
    capped = star.build(workers=2, rate="10 Gbit/s", rtt="0 s", lan_rate="10 Gbit/s", flow_cap="1 Gbit/s")
    free = star.build(workers=2, rate="10 Gbit/s", rtt="0 s", lan_rate="10 Gbit/s")
    plan = step_plan([bucket(400_000_000)], algorithm=algorithm)

    def step_s(topology: Topology, connections: int) -> float:
        return follow(plan, Network(topology, IDEAL, connections=connections)).step_s

    assert step_s(capped, 4) == pytest.approx(step_s(capped, 1) / 4, rel=1e-6)
    assert step_s(capped, 20) == pytest.approx(step_s(free, 1), rel=1e-6)
    assert step_s(free, 4) == pytest.approx(step_s(free, 1), rel=1e-6)


@pytest.mark.parametrize(("algorithm", "kind", "messages"), [("gloo", "all_reduce", 1), ("ring", "all_reduce", 2)])
def test_small_messages_go_in_fewer_parts_than_there_are_connections(algorithm: str, kind: str, messages: int) -> None:
    """A part has 64 KiB at least, and a connection 1 Gbit/s: 100 KiB go in one part and 200 KiB in three."""
    capped = star.build(workers=2, rate="32 Gbit/s", rtt="0 s", lan_rate="32 Gbit/s", flow_cap="1 Gbit/s")

    def step_s(kibibytes: int, connections: int) -> float:
        plan = step_plan([bucket(messages * kibibytes << 10, kind=kind)], algorithm=algorithm)
        return follow(plan, Network(capped, IDEAL, connections=connections)).step_s

    assert step_s(100, 16) == pytest.approx(step_s(100, 1), rel=1e-6)
    assert step_s(200, 16) == pytest.approx(step_s(200, 3), rel=1e-6) == pytest.approx(step_s(200, 1) / 3, rel=1e-6)


def test_parts_of_several_messages_share_links_however_many_each_has() -> None:
    """Two buckets, of one part and of three, are under way at once: together they take what their bytes need."""
    topology, sizes = star.build(workers=2, rate="100 Mbit/s", rtt="0 s", lan_rate="100 Mbit/s"), (100 << 10, 200 << 10)
    together, first, second = (
        follow(step_plan([bucket(size) for size in asked]), Network(topology, IDEAL, connections=16)).step_s
        for asked in (sizes, sizes[:1], sizes[1:])
    )
    assert together == pytest.approx(first + second, rel=1e-6)


def test_a_rank_has_one_thread_for_the_segments_that_have_come() -> None:
    """On a fast wire two segments come at once and take twice the host's time, in the simulation and in the form."""
    size, host_s, topology = 64 << 20, 5e-3, star.build(workers=4, rate="32 Gbit/s", rtt="0 s", lan_rate="32 Gbit/s")
    gloo = Gloo(host_s=host_s)
    network = Network(topology, IDEAL, host=HostCosts(segment_s=host_s), gloo=gloo)
    wanted_s = 2 * 3 / 4 * 64 * host_s
    assert follow(step_plan([bucket(size)], algorithm="gloo_ring"), network).step_s == pytest.approx(wanted_s, rel=0.01)
    assert gloo.all_reduce_s(size, network.cluster) == pytest.approx(wanted_s, rel=0.01)


def test_four_connections_of_gloo_wait_for_four_times_as_many_segments_at_once() -> None:
    """Each has two segments in flight a round trip, so where the round trip is long four carry four times as much."""
    size, far = 64 << 20, star.build(workers=2, rate="20 Gbit/s", rtt="100 ms", lan_rate="20 Gbit/s")

    def step_s(connections: int) -> float:
        return follow(step_plan([bucket(size)]), Network(far, IDEAL, connections=connections)).step_s

    assert 3 < step_s(1) / step_s(4) < 4


def test_a_host_that_starts_each_collective_puts_them_one_after_another() -> None:
    """gloo has two threads; a host that takes its time has one, and each collective waits for all before it."""
    plan, start_s = step_plan([bucket(NEXT_TO_NOTHING)] * 3), 0.007
    one_s = steps(step_plan([bucket(NEXT_TO_NOTHING)]), wan(2)).step_s
    host = HostCosts(collective_s=start_s)
    assert follow(plan, Network(wan(2), IDEAL, host=host)).step_s == pytest.approx(3 * (one_s + start_s), rel=1e-4)


@pytest.mark.parametrize("host_s", [0.0, 5e-3])
def test_a_ring_of_segments_is_gloo_s_and_the_host_takes_its_time_for_each(host_s: float) -> None:
    """Over 40 ms no ready message waits behind data: two segments go in each round trip, with what hosts take."""
    size, topology = 64 << 20, star.build(workers=4, rate="5 Gbit/s", rtt="20 ms", lan_rate="10 Gbit/s")
    host = HostCosts(segment_s=host_s)
    network = Network(topology, IDEAL, host=host, gloo=Gloo(host_s=host_s))
    found_s = follow(step_plan([bucket(size)], algorithm="gloo_ring"), network).step_s
    cluster = Cluster(nodes=4, rate_bit_s=5e9, round_trip_s=40e-3, window_bytes=math.inf)
    period_s = 40e-3 + cluster.carrying_s(1 << 20, 1) + host_s
    assert found_s == pytest.approx(2 * 3 / 4 * 64 / Gloo.in_flight * period_s, rel=0.01)
    if not host_s:
        assert found_s == pytest.approx(steps(step_plan([bucket(size)]), topology).step_s, rel=1e-9)
