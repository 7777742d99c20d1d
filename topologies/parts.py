"""Parts of networks that families share: nodes in regions, access links, WAN links."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any, TypedDict

from testbed.core.spec.link_profile import MAX_MTU_BYTES, MIN_MTU_BYTES, MTU_BYTES, LinkProfile
from testbed.core.spec.topology import Link, Node, Topology, symmetric
from testbed.core.units import format_rate
from topologies.parameters import Parameters

ASSUMED = "assumed: round figures, made up as an example"
LAN_RATE = "2.5 Gbit/s"
"""Default rate of access links, which two cores can carry."""


class Card(TypedDict):
    """Properties of the workers' own cards, apart from their rate; empty: as any card has. All links have the MTU."""

    lan_queue: str | dict[str, str]
    flow_cap: str
    mtu: int


def nodes_in(workers: Mapping[str, int]) -> tuple[Node, ...]:
    """Return the nodes of each region, as many as `workers` says."""
    return tuple(
        Node(name=f"{region}-{index}", region=region) for region, count in workers.items() for index in range(count)
    )


def access_links(nodes: Iterable[Node], rate_bit_s: float, card: Mapping[str, Any] | None = None) -> tuple[Link, ...]:
    """Return one link from each node to its region; its delay is that of the kernel's own path.

    Args:
        card: Fields of `LinkProfile` of the node's own network card, where it differs from its region's.
    """
    source = f"assumed: a {format_rate(rate_bit_s)} network card; no delay added"
    both = LinkProfile(rate_bit_s=rate_bit_s, source=source)
    up = dataclasses.replace(both, **(card or {}))
    return tuple(
        Link(name=f"{node.name}-{node.region}", a=node.name, b=node.region, wan=False, forward=up, backward=both)
        for node in nodes
    )


def alike(pairs: Iterable[tuple[str, str]], profile: Mapping[str, Any]) -> tuple[Link, ...]:
    """Return WAN links between `pairs` of regions, all with the same profile."""
    return tuple(symmetric(f"{a}-{b}", a, b, wan=True, **profile) for a, b in pairs)


def every_pair(regions: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return tuple(combinations(regions, 2))


def assemble(
    read: Parameters,
    name: str,
    workers: Mapping[str, int],
    wan: Iterable[Link],
    lan_rate: str,
    transit: Iterable[str] = (),
    lan_queue: str | dict[str, str] = "",
    flow_cap: str = "",
    mtu: int = MTU_BYTES,
) -> Topology:
    """Return the topology, if `read` has found no error.

    Args:
        workers: Number of workers of each region that has any.
        transit: Regions that only pass packets on.
        lan_queue: Queue of each worker's own network card; empty: the shaper's.
        flow_cap: Most that one TCP connection of a worker carries; empty: whatever its links do.
        mtu: Largest IP packet of all links, in bytes.

    Raises:
        InputError: A parameter is wrong; every error at once.
    """
    lan_rate_bit_s = read.lan_rate(lan_rate)
    card: dict[str, Any] = dict(read.queue("topo.lan_queue", lan_queue, lan_rate_bit_s, 0.0)) if lan_queue else {}
    if flow_cap:
        card["flow_cap_bit_s"] = read.rate("topo.flow_cap", flow_cap)
    if not MIN_MTU_BYTES <= mtu <= MAX_MTU_BYTES:
        read.add([f"topo.mtu={mtu}: must be from {MIN_MTU_BYTES} to {MAX_MTU_BYTES} bytes"])
    read.raise_faults()
    nodes = nodes_in(workers)
    links = (*wan, *access_links(nodes, lan_rate_bit_s, card))
    if mtu != MTU_BYTES:
        links = tuple(_with_mtu(link, mtu) for link in links)
    return Topology(name=name, regions=(*workers, *transit), nodes=nodes, links=links)


def _with_mtu(link: Link, mtu_bytes: int) -> Link:
    forward, backward = (dataclasses.replace(one, mtu_bytes=mtu_bytes) for one in (link.forward, link.backward))
    return dataclasses.replace(link, forward=forward, backward=backward)
