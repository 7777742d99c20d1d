from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core.costs import collective
from testbed.core.errors import InputError
from testbed.core.spec.scale import scaled_topology
from testbed.core.spec.topology import Topology
from topologies import star
from topologies.parameters import PACKET_BYTES, Parameters, parse_queue, parse_queue_bytes


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1 BDP", 0),
        ("1.0 BDP", 0),
        ("2.5 BDP", 2_500_000),
        ("0.5BDP", 500_000),
        ("1 packet", 1514),
        ("1000 packets", 1_514_000),
        ("256 kB", 256_000),
        ("1 MiB", 2**20),
    ],
)
def test_a_queue_in_products_packets_or_bytes(text: str, size_bytes: int) -> None:
    assert parse_queue_bytes(text, 100e6, 0.080) == size_bytes


@pytest.mark.parametrize(
    "text", ["", "3", "BDP", "3 apples", "-1 packets", "0 packets", "100 B", "0", "0 BDP", True, None]
)
def test_what_is_no_queue_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="queue"):
        parse_queue_bytes(text, 100e6, 0.080)  # type: ignore[arg-type]


def test_a_link_without_delay_has_no_product() -> None:
    assert parse_queue_bytes("1 BDP", 1e9, 0.0) == 0
    with pytest.raises(ValueError, match="no such product"):
        parse_queue_bytes("2 BDP", 1e9, 0.0)


@given(st.integers(1, 10**6))
def test_packets_are_frames_of_1514_bytes(count: int) -> None:
    assert parse_queue_bytes(f"{count} packets", 1e6, 0.1) == count * PACKET_BYTES


def test_a_fault_is_kept_once() -> None:
    read = Parameters()
    assert [read.rate("topo.rate", "x") for _ in range(3)] == [1e4] * 3
    assert len(read.faults) == 1


def test_a_queue_like_tbfs_holds_latency_and_burst() -> None:
    assert parse_queue({"burst": "32 kB", "latency": "50 ms"}, 200e6, 0.080) == (1_282_000, 32_000)
    assert parse_queue("100 packets", 200e6, 0.080) == (151_400, 0)


@pytest.mark.parametrize(
    "value",
    [
        {"burst": "32 kB"},
        {"burst": "32 kB", "latency": "50 ms", "limit": "1 MB"},
        {"burst": "1 kB", "latency": "50 ms"},
        {"burst": "32 kB", "latency": "0s"},
        {"burst": "32", "latency": "50 ms"},
    ],
)
def test_a_queue_that_is_not_tbfs_is_refused(value: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"queue|unit|32"):
        parse_queue(value, 200e6, 0.080)


def test_the_workers_own_card_has_its_queue_and_the_switch_keeps_its_own() -> None:
    topology = star.build(lan_rate="200 Mbit/s", lan_queue={"burst": "32 kB", "latency": "50 ms"})
    for link in topology.access_links:
        assert (link.forward.limit_bytes, link.forward.burst_bytes) == (1_282_000, 32_000)
        assert (link.backward.limit_bytes, link.backward.burst_bytes) == (0, 0)


def test_a_topology_without_a_burst_is_recorded_as_before_there_was_one() -> None:
    plain, queued = star.build(), star.build(queue={"burst": "32 kB", "latency": "50 ms"})
    assert "burst_bytes" not in plain.to_json()["links"][0]["forward"]
    for topology in (plain, queued):
        assert Topology.from_json(topology.to_json()) == topology


def test_a_cap_of_flows_is_every_workers_and_slows_with_the_network() -> None:
    topology = star.build(flow_cap="5 Gbit/s")
    assert topology.flow_cap_bit_s == 5e9 and topology.dilated(4).flow_cap_bit_s == 1.25e9
    assert scaled_topology(topology, 10).flow_cap_bit_s == 5e8
    assert star.build().flow_cap_bit_s is None
    assert "flow_cap_bit_s" not in star.build().to_json()["links"][-1]["forward"]
    assert Topology.from_json(topology.to_json()) == topology
    with pytest.raises(InputError, match=r"topo\.flow_cap"):
        star.build(flow_cap="fast")


def test_a_message_takes_as_long_as_its_cap_asks_and_two_share_nothing() -> None:
    fast: dict[str, Any] = {"rate": "10 Gbit/s", "rtt": "1 ms", "lan_rate": "10 Gbit/s"}
    capped, free = star.build(**fast, flow_cap="5 Gbit/s"), star.build(**fast)
    one, other = (collective.seconds("gloo", "all_reduce", 268e6, topology) for topology in (capped, free))
    assert one == pytest.approx(2 * other, rel=0.03)
    slow = star.build(rate="1 Gbit/s", rtt="1 ms", flow_cap="5 Gbit/s")
    assert collective.seconds("gloo", "all_reduce", 1e7, slow) == collective.seconds(
        "gloo", "all_reduce", 1e7, star.build(rate="1 Gbit/s", rtt="1 ms")
    )


def test_an_mtu_is_every_links_and_carries_more_of_a_rate() -> None:
    usual, jumbo = star.build(rate="1 Gbit/s", rtt="0 s"), star.build(rate="1 Gbit/s", rtt="0 s", mtu=9001)
    assert {p.mtu_bytes for link in jumbo.links for _, _, p in link.directions()} == {9001} == {jumbo.mtu_bytes}
    one, other = (collective.seconds("gloo", "all_reduce", 1e8, topology) for topology in (usual, jumbo))
    assert other / one == pytest.approx((9015 / 8949) / (1514 / 1448))
    assert Topology.from_json(jumbo.to_json()) == jumbo and jumbo.dilated(4).mtu_bytes == 9001
    assert "mtu_bytes" not in usual.to_json()["links"][0]["forward"] and star.build(mtu=1500) == star.build()
    with pytest.raises(InputError, match=r"^topo\.mtu=100: must be from 576 to 9216 bytes$"):
        star.build(mtu=100)


def test_links_of_unlike_mtu_are_refused() -> None:
    jumbo = star.build(mtu=9001)
    with pytest.raises(InputError, match="links have MTUs of 1500, 9001; give all the same"):
        dataclasses.replace(jumbo, links=(*jumbo.links[1:], star.build().links[0]))


def test_a_burst_of_a_queue_holds_a_frame() -> None:
    queue = {"burst": "8 kB", "latency": "50 ms"}
    assert star.build(queue=queue).wan_links
    with pytest.raises(InputError, match="a burst of 8000 bytes holds no frame of 9015"):
        star.build(queue=queue, mtu=9001)
