"""Closed forms over regions, against figures worked out by hand."""

from __future__ import annotations

import pytest

from testbed.core.costs import collective
from testbed.core.spec.paths import INITIAL_WINDOW_BYTES, WIRE_RATIO, Hosts, Paths, concurrent_s
from testbed.core.spec.topology import Link, Node, Topology, symmetric

WAN_S, B = 0.05, 1_200_000
WAN, LAN = 8e6, 8e8
"""1 and 100 bytes a microsecond."""


def _topology(workers: dict[str, int], pairs: list[tuple[str, str]], transit: tuple[str, ...] = ()) -> Topology:
    nodes = tuple(Node(name=f"{region}{i}", region=region) for region, count in workers.items() for i in range(count))
    links: list[Link] = [
        symmetric(f"{a}-{b}", a, b, wan=True, rtt_s=2 * WAN_S, rate_bit_s=WAN, source="assumed: a test")
        for a, b in pairs
    ]
    links += [
        symmetric(f"{n.name}-up", n.name, n.region, wan=False, rtt_s=0.0, rate_bit_s=LAN, source="assumed: a test")
        for n in nodes
    ]
    return Topology(name="test", regions=(*workers, *transit), nodes=nodes, links=tuple(links))


TWO = _topology({"a": 3, "b": 1}, [("a", "b")])
MESH = _topology({"a": 2, "b": 2, "c": 2}, [("a", "b"), ("a", "c"), ("b", "c")])
HUB = _topology({"a": 2, "b": 2, "c": 2}, [("a", "h"), ("b", "h"), ("c", "h")], ("h",))


def _wire_s(size_bytes: float, rate_bit_s: float = WAN) -> float:
    return 8 * WIRE_RATIO * size_bytes / rate_bit_s


def test_bytes_between_regions_by_hand() -> None:
    # P = 6, R = 3, and of an all-reduce B: a ring hop carries 2 * 5/6 B, between leaders 2 * 2/3 B.
    forth, back = {("a", "b"), ("b", "c"), ("c", "a")}, {("b", "a"), ("c", "b"), ("a", "c")}
    assert collective.wan_bytes("ring", "all_reduce", B, MESH) == pytest.approx(dict.fromkeys(forth, 2_000_000))
    assert collective.wan_bytes("gloo", "all_reduce", B, MESH) == pytest.approx(dict.fromkeys(back, 2_000_000))
    assert collective.wan_bytes("hierarchical", "all_reduce", B, MESH) == pytest.approx(dict.fromkeys(forth, 1_600_000))
    direct = collective.wan_bytes("hierarchical_two_shot", "all_reduce", B, MESH)
    assert direct == pytest.approx(dict.fromkeys(forth | back, 800_000))
    # 2 x 2 pairs of workers, 1/6 B twice
    assert collective.wan_bytes("two_shot", "all_reduce", B, MESH) == pytest.approx(
        dict.fromkeys(forth | back, 1_600_000)
    )
    # a region's two payloads once, or of each of its workers to each of the others'
    assert collective.wan_bytes("hierarchical", "all_gather", 100, MESH) == dict.fromkeys(forth | back, 200)
    assert collective.wan_bytes("two_shot", "all_gather", 100, MESH) == dict.fromkeys(forth | back, 400)
    assert collective.wan_bytes("ring", "all_gather", 100, MESH) == dict.fromkeys(forth, 500)
    assert collective.wan_bytes("ring", "all_to_all", 600, MESH) == dict.fromkeys(forth | back, 400)


def test_uneven_regions_and_one_region() -> None:
    assert collective.wan_bytes("two_shot", "all_reduce", B, TWO) == {("a", "b"): 1_800_000, ("b", "a"): 1_800_000}
    assert collective.wan_bytes("hierarchical", "all_reduce", B, TWO) == {("a", "b"): B, ("b", "a"): B}
    assert collective.wan_bytes("hierarchical", "all_gather", 100, TWO) == {("a", "b"): 300, ("b", "a"): 100}
    alone = _topology({"a": 4}, [])
    assert all(collective.wan_bytes(name, "all_reduce", B, alone) == {} for name in collective.ALGORITHMS)
    assert collective.seconds("two_shot", "all_reduce", B, _topology({"a": 1}, [])) == 0


def test_links_that_pairs_share_carry_their_sum() -> None:
    pairs = collective.wan_bytes("hierarchical_two_shot", "all_reduce", B, HUB)
    assert collective.link_bytes(pairs, HUB) == pytest.approx(
        {(f"{r}-h", end): 1_600_000 for r in "abc" for end in (r, "h")}
    )
    assert collective.link_bytes(pairs, MESH) == pytest.approx(
        {(link.name, end): 800_000 for link in MESH.wan_links for end in (link.a, link.b)}
    )


def test_bytes_of_all_ranks() -> None:
    for name in collective.ALGORITHMS:
        assert collective.sent_bytes(name, "all_reduce", B, MESH) == 10 * B
        assert collective.sent_bytes(name, "all_to_all", 600, MESH) == 3000
    assert collective.sent_bytes("ring", "all_gather", 100, MESH) == 30 * 100
    # 3 to leaders, 3 x 2 bundles of 2, all 6 to 3 members
    assert collective.sent_bytes("hierarchical", "all_gather", 100, MESH) == (3 + 12 + 18) * 100


def test_seconds_by_hand() -> None:
    # ten rounds of 1/6 B over the WAN, one message a link
    assert collective.seconds("ring", "all_reduce", B, MESH) == pytest.approx(10 * (WAN_S + _wire_s(B / 6)))
    # a leader's chunk: two ranks inside pass a tensor in one piece, once each way; four rounds of 1/3 B
    inside_s = 2 * _wire_s(B, LAN)
    across_s = 4 * (WAN_S + _wire_s(B / 3))
    assert collective.seconds("hierarchical", "all_reduce", B, MESH) == pytest.approx(inside_s + across_s)
    direct_s = inside_s + 2 * (WAN_S + _wire_s(B / 3))
    assert collective.seconds("hierarchical_two_shot", "all_reduce", B, MESH) == pytest.approx(direct_s)
    # over a hub each link carries what a region sends to both others, and the way is two links long
    direct_s = inside_s + 2 * (2 * WAN_S + _wire_s(2 * B / 3))
    assert collective.seconds("hierarchical_two_shot", "all_reduce", B, HUB) == pytest.approx(direct_s)
    assert collective.seconds("two_shot", "all_reduce", B, MESH) == pytest.approx(2 * (WAN_S + _wire_s(4 * B / 6)))
    assert collective.seconds("two_shot", "all_to_all", B, MESH) == pytest.approx(WAN_S + _wire_s(4 * B / 6))
    gathered_s = _wire_s(100, LAN) + WAN_S + _wire_s(200) + _wire_s(600, LAN)
    assert collective.seconds("hierarchical", "all_gather", 100, MESH) == pytest.approx(gathered_s)


def test_a_chain_works_in_chunks_and_messages_may_cost_something() -> None:
    lan = _topology({"a": 4}, [])
    size = 8 * collective.CHAIN_CHUNK_BYTES
    # eight chunks over three hops, twice
    steps = 2 * (8 + 2)
    expected_s, hosts = steps * (_wire_s(collective.CHAIN_CHUNK_BYTES, LAN) + 1e-4), Hosts(message_s=1e-4)
    assert collective.seconds("hierarchical", "all_reduce", size, lan, hosts=hosts) == pytest.approx(expected_s)
    assert collective.chain_chunks(collective.CHAIN_CHUNK_BYTES, 4) == collective.chain_chunks(10 * size, 2) == 1


def test_bursts_leave_as_slowly_as_hosts_pace_them() -> None:
    """Two of three messages of a ring leave in each round trip, so each takes half as long as one that comes alone."""
    rtt_s, size = 2 * WAN_S, 30_000.0
    carried_s, wan = _wire_s(size), _topology({"a": 1, "b": 1, "c": 1, "d": 1}, [*zip("abcd", "bcda", strict=True)])
    paced = Hosts(paced=0.5)
    alone_s = WAN_S + 0.5 * (rtt_s + carried_s)
    assert concurrent_s([(Paths(wan).between(0, 1), size)], paced) == pytest.approx(alone_s)
    one_s = WAN_S + 0.5 * (rtt_s + carried_s) / 2
    assert collective.seconds("ring", "all_gather", size, wan, hosts=paced) == pytest.approx(3 * one_s)
    # what leaves slower than it is paced is as before
    unpaced_s = collective.seconds("ring", "all_gather", 100 * B, wan)
    assert collective.seconds("ring", "all_gather", 100 * B, wan, hosts=paced) == unpaced_s


def test_small_bursts_are_paced_by_the_largest_or_by_the_initial_window() -> None:
    path, rtt_s, size = Paths(TWO).between(0, 3), 2 * WAN_S, 2 * INITIAL_WINDOW_BYTES

    def leaves_s(size_bytes: float, largest: float = 1.0) -> float:
        return concurrent_s([(path, size_bytes)], Hosts(paced=0.5, largest=largest)) - WAN_S

    assert leaves_s(size) == pytest.approx(0.5 * (rtt_s + _wire_s(size)))
    assert leaves_s(size / 2, largest=2) == pytest.approx(0.5 * (rtt_s + _wire_s(size / 2)) / 2)
    tenth = INITIAL_WINDOW_BYTES / 10
    assert leaves_s(tenth) == leaves_s(tenth, largest=5) == pytest.approx(0.5 * (rtt_s + _wire_s(tenth)) / 10)


def test_the_cheapest_follows_the_network_and_the_size() -> None:
    assert collective.cheapest("all_reduce", B, MESH) == "hierarchical_two_shot"
    assert collective.cheapest("all_reduce", 60, MESH) in ("two_shot", "hierarchical_two_shot")
    assert collective.cheapest("all_reduce", 100 * B, _topology({"a": 4}, [])) == "gloo"
    assert collective.cheapest("all_gather", B, MESH).startswith("hierarchical")
    with pytest.raises(ValueError, match="tree all_reduce: known are gloo"):
        collective.seconds("tree", "all_reduce", B, MESH)


def test_a_link_of_their_own_is_taken_even_where_a_detour_is_shorter() -> None:
    long = symmetric("long", "a", "b", wan=True, rtt_s=1.0, rate_bit_s=WAN, source="assumed: a test")
    network = _topology({"a": 1, "b": 1, "c": 1}, [("a", "c"), ("c", "b")])
    assert [link.name for link in Paths(network).between_regions("a", "b")] == ["a-c", "c-b"]
    direct = Topology(name="t", regions=network.regions, nodes=network.nodes, links=(*network.links, long))
    assert [link.name for link in Paths(direct).between(0, 1)] == ["a0-up", "long", "b0-up"]
    assert concurrent_s([(Paths(direct).between(0, 1), 0)]) == 0
