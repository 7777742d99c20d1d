"""Regions with a WAN link between every two of them."""

from __future__ import annotations

from typing import Unpack

from testbed.core.parameters import Count, Duration, Rate
from testbed.core.spec.link_profile import MTU_BYTES
from testbed.core.spec.topology import Topology
from topologies.parameters import Cap, Impairments, LanQueue, Mtu, Name, Names, Parameters
from topologies.parts import ASSUMED, LAN_RATE, Card, alike, assemble, every_pair


def build(
    *,
    name: Name = "full_mesh",
    workers: Count = 4,
    regions: Names = ("north", "east", "south", "west"),
    rate: Rate = "200 Mbit/s",
    rtt: Duration = "80 ms",
    lan_rate: Rate = LAN_RATE,
    lan_queue: LanQueue = "",
    flow_cap: Cap = "",
    mtu: Mtu = MTU_BYTES,
    source: Name = ASSUMED,
    **impairments: Unpack[Impairments],
) -> Topology:
    """Return a network with a WAN link between every two regions, all alike; no path passes a third region.

    Args:
        regions: Names of the regions.
        rate: Rate of a WAN link.
        rtt: RTT of a WAN link.
        lan_rate: Rate of a worker's access link.
        lan_queue: Queue of a worker's NIC; empty: at least 1000 packets. Empty is as in front of any NIC.
        flow_cap: Cap of one TCP connection; empty: none. As clouds cap them.
        mtu: MTU of all links; clouds have 9001.
        source: Source of the figures.

    Raises:
        InputError: A parameter is wrong; every error at once.
    """
    read, card = Parameters(), Card(lan_queue=lan_queue, flow_cap=flow_cap, mtu=mtu)
    wan = read.wan(rate, rtt, source, impairments)
    places = read.regions(regions)
    return assemble(read, name, read.placed(workers, places), alike(every_pair(places), wan), lan_rate, **card)
