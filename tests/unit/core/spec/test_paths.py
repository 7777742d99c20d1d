"""Which directed links a message takes."""

from __future__ import annotations

from itertools import pairwise

import pytest

from testbed.core.spec.paths import Paths
from testbed.core.spec.topology import Link, Node, Topology, symmetric

REGIONS = ("a", "b", "c", "hub")
NODES = tuple(Node(name=f"{region}0", region=region) for region in REGIONS[:3])


def _link(name: str, a: str, b: str, *, wan: bool) -> Link:
    return symmetric(name, a, b, wan=wan, rtt_s=0.02, rate_bit_s=1e8, source="assumed: a test")


PATHS = Paths(
    Topology(
        name="test",
        regions=REGIONS,
        nodes=NODES,
        links=(
            _link("a-b", "a", "b", wan=True),
            _link("a-hub", "a", "hub", wan=True),
            _link("hub-c", "hub", "c", wan=True),
            *(_link(f"{node.name}-up", node.name, node.region, wan=False) for node in NODES),
        ),
    )
)


@pytest.mark.parametrize(
    ("source", "target", "places"),
    [
        (0, 1, ["a0", "a", "b", "b0"]),
        (1, 0, ["b0", "b", "a", "a0"]),
        (0, 2, ["a0", "a", "hub", "c", "c0"]),
        (2, 1, ["c0", "c", "hub", "a", "b", "b0"]),
    ],
)
def test_each_link_of_a_path_begins_where_the_one_before_it_ends(source: int, target: int, places: list[str]) -> None:
    assert [(one.source, one.target) for one in PATHS.between(source, target)] == list(pairwise(places))


def test_ranks_of_one_region_do_not_leave_it() -> None:
    assert [(one.source, one.target) for one in PATHS.between(0, 0)] == [("a0", "a"), ("a", "a0")]
