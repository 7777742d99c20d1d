"""Every family for any number of regions: connected, addressable, workers in blocks, faults all at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core.errors import InputError
from testbed.core.spec.topology import Topology
from testbed.orchestrator.emulation.links.addresses import AddressPlan
from topologies import full_mesh, hierarchical, hub_and_spoke, lan, ring, star, two_regions


def names(count: int) -> list[str]:
    return [f"r{index}" for index in range(count)]


def below(continents: int) -> Callable[[int], list[str]]:
    return lambda count: [f"c{index % continents}/r{index}" for index in range(count)]


FAMILIES: dict[str, tuple[Callable[..., Topology], Callable[[int], list[str]], Callable[[int], int]]] = {
    "ring": (ring.build, names, lambda n: n if n > 2 else n - 1),
    "full_mesh": (full_mesh.build, names, lambda n: n * (n - 1) // 2),
    "hub_and_spoke": (hub_and_spoke.build, names, lambda n: n - 1),
    "star": (star.build, names, lambda n: n),
    "hierarchical": (hierarchical.build, below(3), lambda n: n + {1: 0, 2: 1}.get(n, 3)),
}


@pytest.mark.parametrize("family", FAMILIES)
@given(count=st.integers(1, 12), spare=st.integers(0, 5))
def test_a_family_of_any_size_is_connected_and_addressable(family: str, count: int, spare: int) -> None:
    build, regions, wan_links = FAMILIES[family]
    topology = build(workers=count + spare, regions=regions(count))  # which refuses what is not connected
    plan = AddressPlan(topology)
    assert all(len(plan.next_links(region)) == len(topology.regions) - 1 for region in topology.regions)
    assert len({plan.node_address(node.name) for node in topology.nodes}) == count + spare
    assert len(topology.wan_links) == wan_links(count)
    homes = [node.region for node in topology.nodes]
    assert homes == sorted(homes, key=topology.regions.index), "ranks lie in blocks"


def paths(topology: Topology, start: str) -> dict[str, float]:
    """Round trips along the routes that the routers take."""
    plan = AddressPlan(topology)

    def rtt_s(here: str, end: str) -> float:
        if here == end:
            return 0.0
        link = plan.next_links(here)[end]
        return link.rtt_s + rtt_s(link.b if link.a == here else link.a, end)

    return {region: pytest.approx(rtt_s(start, region)) for region in topology.regions}


def test_how_far_regions_are_apart() -> None:
    assert paths(full_mesh.build(rtt="80 ms"), "north") == {"north": 0, "east": 0.08, "south": 0.08, "west": 0.08}
    assert paths(ring.build(rtt="40 ms"), "north") == {"north": 0, "east": 0.04, "south": 0.08, "west": 0.04}
    assert paths(star.build(workers=2, rtt="50 ms"), "site-0") == {"site-0": 0, "site-1": 0.1, "exchange": 0.05}
    assert paths(hub_and_spoke.build(rtt="40 ms"), "north") == {"hub": 0.04, "north": 0, "east": 0.08, "west": 0.08}
    far = paths(hierarchical.build(rtt="20 ms", backbone_rtt="80 ms"), "oregon")
    assert (far["virginia"], far["frankfurt"]) == (0.04, 0.12)


def test_a_stars_centre_has_no_worker_and_a_hub_has() -> None:
    assert {node.region for node in star.build(workers=3).nodes} == {"site-0", "site-1", "site-2"}
    assert hub_and_spoke.build(workers=4).nodes[0].region == "hub"
    spread = star.build(workers=5, regions=["a", "b"], centre="x")
    assert [node.name for node in spread.nodes] == ["a-0", "a-1", "a-2", "b-0", "b-1"]


EVERYTHING = {
    "jitter": "2 ms",
    "jitter_distribution": "normal",
    "loss": "1%",
    "loss_burst_packets": 3,
    "bad_loss": "50%",
    "good_loss": "0.1%",
    "duplicate": "1%",
    "reorder": "2%",
    "queue": "100 packets",
}


@pytest.mark.parametrize("build", [two_regions.build, *(family[0] for family in FAMILIES.values())])
def test_every_family_takes_every_parameter(build: Callable[..., Topology]) -> None:
    topology = build(rate="10 Mbit/s", rtt="30 ms", lan_rate="1 Gbit/s", source="assumed: a test", **EVERYTHING)
    profile = topology.wan_links[0].forward
    assert (profile.rate_bit_s, profile.delay_s, profile.jitter_s) == (10e6, 0.015, 0.002)
    assert (profile.jitter_distribution, profile.loss_ratio, profile.loss_burst_packets) == ("normal", 0.01, 3)
    assert (profile.bad_loss_ratio, profile.good_loss_ratio) == (0.5, 0.001)
    assert (profile.duplicate_ratio, profile.reorder_ratio, profile.limit_bytes) == (0.01, 0.02, 151_400)
    assert profile.source.startswith("assumed: a test; as asked: jitter=2 ms, ")
    assert topology.access_links[0].forward.rate_bit_s == 1e9
    assert "1 Gbit/s network card" in topology.access_links[0].forward.source


@pytest.mark.parametrize("build", [two_regions.build, *(family[0] for family in FAMILIES.values())])
def test_all_faults_of_a_family_come_at_once(build: Callable[..., Topology]) -> None:
    wrong: dict[str, Any] = {"rate": "fast", "rtt": "9", "lan_rate": "3 Tbit/s", "loss": "2%%", "queue": "1 packet 2"}
    with pytest.raises(InputError) as caught:
        build(workers=0, regions=["a/a", "a/a"], **wrong, loss_burst_packets="many")
    keys = [fault.split(":")[0].split("=")[0] for fault in caught.value.faults]
    for key in ("topo.rate", "topo.rtt", "topo.lan_rate", "topo.loss", "topo.queue", "topo.loss_burst_packets"):
        assert keys.count(key) == 1, (key, keys)
    assert "workers" in keys and "topo.regions" in keys


def test_what_is_out_of_range_is_said_once_however_many_links() -> None:
    with pytest.raises(InputError) as caught:
        full_mesh.build(workers=10, regions=names(10), rate="50 Gbit/s", rtt="20 s")
    assert [fault.split(": ")[0] for fault in caught.value.faults] == ["topo, WAN links"] * 2


def test_hierarchical_regions_name_their_continent() -> None:
    with pytest.raises(InputError) as caught:
        hierarchical.build(regions=["oregon", "a/b/c", "europe/europe"], backbone_rate="0 Mbit/s")
    assert [fault.split(":")[0] for fault in caught.value.faults] == ["topo, backbone links", *["topo.regions"] * 2]


def test_lan_without_workers_is_refused() -> None:
    with pytest.raises(InputError, match="workers=0: must be at least 1"):
        lan.build(workers=0)
