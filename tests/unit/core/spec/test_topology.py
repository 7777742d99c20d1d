from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core.errors import InputError
from testbed.core.spec.link_profile import LinkProfile
from testbed.core.spec.topology import Link, Node, Topology, symmetric, workers_per_region
from topologies import two_regions

NODES = (Node(name="a-0", region="a"), Node(name="b-0", region="b"))


def wan(**changes: Any) -> Link:
    given = {"rate_bit_s": 1e8, "rtt_s": 0.08, "source": "assumed: a test", **changes}
    return symmetric("a-b", "a", "b", wan=True, **given)


def access(node: Node) -> Link:
    return symmetric(
        f"{node.name}-{node.region}",
        node.name,
        node.region,
        wan=False,
        rate_bit_s=1e9,
        rtt_s=0,
        source="assumed: a test",
    )


def topology(**changes: Any) -> Topology:
    fields: dict[str, Any] = {
        "name": "pair",
        "regions": ("a", "b"),
        "nodes": NODES,
        "links": (wan(), *map(access, NODES)),
        **changes,
    }
    return Topology(**fields)


def faults(**changes: Any) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        topology(**changes)
    return caught.value.faults


def test_a_round_trip_is_halved_once() -> None:
    link = wan(rtt_s=0.067)
    assert link.forward.delay_s == link.backward.delay_s == 0.0335
    assert link.rtt_s == 0.067


def test_directions_name_their_ends() -> None:
    slow = LinkProfile(rate_bit_s=1e6, source="assumed: a test")
    link = dataclasses.replace(wan(), backward=slow)
    assert [(start, end) for start, end, _ in link.directions()] == [("a", "b"), ("b", "a")]
    assert link.directions()[1][2] is slow


def test_links_are_told_apart() -> None:
    found = topology()
    assert [link.name for link in found.wan_links] == ["a-b"]
    assert [link.name for link in found.access_links] == ["a-0-a", "b-0-b"]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"rate_bit_s": 0.0}, "rate must be from 10000 to 3.2e+10 bit/s"),
        ({"rate_bit_s": -1.0}, "rate must be from 10000 to 3.2e+10 bit/s"),
        ({"rate_bit_s": math.nan}, "rate must be from 10000 to 3.2e+10 bit/s"),
        ({"rate_bit_s": math.inf}, "rate must be from 10000 to 3.2e+10 bit/s"),
        ({"rtt_s": -0.1}, "one-way delay must be from 0 to 5 s"),
        ({"rtt_s": 11.0}, "one-way delay must be from 0 to 5 s"),
        ({"rtt_s": math.nan}, "one-way delay must be from 0 to 5 s"),
        ({"jitter_s": 0.05}, "jitter must be from 0 to the delay"),
        ({"jitter_s": -0.001}, "jitter must be from 0 to the delay"),
        ({"loss_ratio": 1.0}, "loss must be from 0 to below 1"),
        ({"loss_ratio": -0.1}, "loss must be from 0 to below 1"),
        ({"loss_ratio": math.nan}, "loss must be from 0 to below 1"),
        ({"source": "  "}, "says no source for its numbers"),
    ],
)
def test_a_number_out_of_range_is_refused_in_both_directions(change: dict[str, Any], fault: str) -> None:
    found = faults(links=(wan(**change), *map(access, NODES)))
    assert [line.split(": ")[1] for line in found if fault in line] == ["link a-b from a to b", "link a-b from b to a"]


def test_a_negative_queue_is_refused() -> None:
    profile = LinkProfile(rate_bit_s=1e6, limit_bytes=-1, source="assumed: a test")
    assert any("queue limit" in line for line in profile.faults("here"))


def test_a_name_used_twice_is_refused() -> None:
    assert any("'a-0' is used more than once" in line for line in faults(nodes=(NODES[0], NODES[0], NODES[1])))
    assert any("'a' is used more than once" in line for line in faults(nodes=(Node(name="a", region="a"), *NODES)))


def test_an_end_that_does_not_exist_is_refused() -> None:
    stray = dataclasses.replace(wan(), name="a-c", b="c")
    assert any("'c', neither a region nor a node" in line for line in faults(links=(stray, *topology().links)))


def test_a_node_in_no_region_is_refused() -> None:
    lost = Node(name="c-0", region="c")
    assert any("in region 'c', which does not exist" in line for line in faults(nodes=(*NODES, lost)))


def test_a_part_without_a_path_is_refused() -> None:
    assert faults(links=tuple(map(access, NODES))) == ("topology pair: no path to 'b', 'b-0'; join them by a link",)


def test_every_fault_is_reported_at_once() -> None:
    bad = wan(rate_bit_s=0.0, loss_ratio=2.0)
    assert len(faults(links=(bad, access(NODES[0])))) == 5  # two in each direction, and b-0 has no link


def test_json_round_trip() -> None:
    built = two_regions.build(workers=5, rate="50 Mbit/s", rtt="120 ms", loss="0.1%")
    assert Topology.from_json(json.loads(json.dumps(built.to_json()))) == built


@given(workers=st.integers(min_value=2, max_value=40), rtt_ms=st.integers(min_value=0, max_value=2000))
def test_two_regions_holds_every_worker_and_the_round_trip(workers: int, rtt_ms: int) -> None:
    built = two_regions.build(workers=workers, rtt=f"{rtt_ms} ms")
    assert len(built.nodes) == workers == len(built.access_links)
    assert built.wan_links[0].rtt_s == pytest.approx(rtt_ms / 1000)
    regions = [node.region for node in built.nodes]
    assert regions == sorted(regions, key=built.regions.index), "ranks lie in blocks"


@given(regions=st.integers(min_value=1, max_value=32), more=st.integers(min_value=0, max_value=200))
def test_workers_are_spread_evenly_the_first_regions_larger(regions: int, more: int) -> None:
    blocks = workers_per_region(regions + more, regions)
    assert sum(blocks) == regions + more
    assert len(blocks) == regions
    assert max(blocks) - min(blocks) <= 1
    assert list(blocks) == sorted(blocks, reverse=True)


@pytest.mark.parametrize(("workers", "regions"), [(1, 2), (0, 1), (3, 0), (-1, 1)])
def test_an_empty_region_is_refused(workers: int, regions: int) -> None:
    with pytest.raises(ValueError, match=f"workers={workers}"):
        workers_per_region(workers, regions)
