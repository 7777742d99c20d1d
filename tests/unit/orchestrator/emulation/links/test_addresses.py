"""Addresses of any topology are unique, and every router knows the way of least delay to every region."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core.spec.topology import Node, Topology, symmetric
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.emulation.links.addresses import AddressPlan
from topologies.parts import access_links


def topology(delays_s: dict[tuple[str, str], float], nodes: int = 1) -> Topology:
    regions = tuple(dict.fromkeys(end for pair in delays_s for end in pair))
    placed = tuple(Node(name=f"{region}-{i}", region=region) for region in regions for i in range(nodes))
    wan = [
        symmetric(f"{a}-{b}", a, b, wan=True, rate_bit_s=1e6, rtt_s=2 * delay_s, source="test")
        for (a, b), delay_s in delays_s.items()
    ]
    access = access_links(placed, 1e9)
    return Topology(name="t", regions=regions, nodes=placed, links=(*wan, *access))


def test_regions_without_a_link_of_their_own_take_the_path_of_least_delay() -> None:
    plan = AddressPlan(topology({("a", "b"): 0.01, ("b", "c"): 0.01, ("a", "d"): 0.05, ("d", "c"): 0.05}))
    assert plan.next_links("a")["c"].name == "a-b"
    assert plan.next_links("c")["a"].name == "b-c"


def test_a_link_of_their_own_is_taken_even_where_a_detour_is_shorter() -> None:
    found = topology({("a", "b"): 0.01, ("b", "c"): 0.01, ("a", "c"): 0.05})
    plan = AddressPlan(found)
    assert plan.next_links("a")["c"].name == "a-c"
    assert plan.next_links("c")["a"].name == "a-c"
    assert found.farthest_rtt_s == pytest.approx(0.1)


@pytest.mark.parametrize("name", ["us3", "dtfm-world8", "gcp4", "aws8", "azure5", "ibm10"])
def test_in_a_measured_mesh_every_pair_uses_the_link_that_was_measured(name: str) -> None:
    found = compose([f"topo={name}"]).topology
    plan = AddressPlan(found)
    for region in found.regions:
        for other, link in plan.next_links(region).items():
            assert {link.a, link.b} == {region, other}


def test_without_delay_the_fewest_hops_win() -> None:
    plan = AddressPlan(topology({("a", "b"): 0.0, ("b", "c"): 0.0, ("a", "c"): 0.0}))
    assert plan.next_links("a")["c"].name == "a-c"


@pytest.mark.tier("all")
@given(st.integers(2, 9), st.integers(1, 200))
def test_no_two_ends_share_an_address(regions: int, nodes: int) -> None:
    ring = {(f"r{i}", f"r{(i + 1) % regions}"): 0.01 for i in range(regions if regions > 2 else 1)}
    plan = AddressPlan(topology(ring, nodes))
    ends = [end for pair in plan.access.values() for end in (pair.near, pair.far)]
    ends += [end for link in plan.wan.values() for pair in (link.a_side, link.b_side) for end in (pair.near, pair.far)]
    assert len(set(ends)) == len(ends)
    for node in plan.topology.nodes:
        assert plan.node_address(node.name) in plan.region_network[node.region]
    for region in plan.topology.regions:
        assert set(plan.next_links(region)) == set(plan.topology.regions) - {region}
