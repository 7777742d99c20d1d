"""What the tests of events files share: a small network, and entries compiled for it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from testbed.core.errors import InputError
from testbed.core.spec.link_profile import LinkProfile
from testbed.core.spec.schedule import Change
from testbed.core.spec.topology import Link, Node, Topology, symmetric
from testbed.orchestrator.config.events.compiler import compile_events, read_events

ACCESS = {"wan": False, "rtt_s": 0.0, "rate_bit_s": 1e9, "source": "assumed: test"}
REGIONS = ("us", "eu", "asia")
ENDLESS = math.inf


def wan(a: str, b: str, rtt_s: float = 0.08, **profile: Any) -> Link:
    values = {"rate_bit_s": 100e6, "jitter_s": 0.002, "source": "assumed: test", **profile}
    return symmetric(f"{a}-{b}", a, b, wan=True, rtt_s=rtt_s, **values)


def topology(*links: Link, regions: tuple[str, ...] = REGIONS) -> Topology:
    nodes = tuple(Node(name=f"{region}-{index}", region=region) for region in regions for index in range(2))
    access = tuple(symmetric(f"{node.name}-access", node.name, node.region, **ACCESS) for node in nodes)
    return Topology(name="test", regions=regions, nodes=nodes, links=(*links, *access))


MESH = topology(wan("us", "eu"), wan("us", "asia"), wan("eu", "asia"))
SLANTED = Link(
    name="us-eu",
    a="us",
    b="eu",
    wan=True,
    forward=LinkProfile(rate_bit_s=100e6, delay_s=0.03, source="assumed: test"),
    backward=LinkProfile(rate_bit_s=50e6, delay_s=0.01, source="assumed: test"),
)


def compiled(*entries: Any, network: Topology = MESH, workload: str = "digits") -> tuple[Change, ...]:
    return compile_events(read_events(list(entries)), network, workload)


def faults(*entries: Any, network: Topology = MESH, workload: str = "digits") -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        compiled(*entries, network=network, workload=workload)
    assert all("\n" not in fault for fault in caught.value.faults)
    return caught.value.faults


def said(changes: tuple[Change, ...]) -> list[tuple[float, str, str | None]]:
    return [(change.t_s, change.kind, change.link or change.node) for change in changes]
