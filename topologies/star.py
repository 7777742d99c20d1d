"""Sites around an exchange that has no workers."""

from __future__ import annotations

from typing import Unpack

from testbed.core.parameters import Count, Duration, Rate
from testbed.core.spec.link_profile import MTU_BYTES
from testbed.core.spec.topology import Topology
from topologies.parameters import Cap, Impairments, LanQueue, Mtu, Name, Names, Parameters
from topologies.parts import ASSUMED, LAN_RATE, Card, alike, assemble


def build(
    *,
    name: Name = "star",
    workers: Count = 4,
    regions: Names = (),
    centre: Name = "exchange",
    rate: Rate = "200 Mbit/s",
    rtt: Duration = "40 ms",
    lan_rate: Rate = LAN_RATE,
    lan_queue: LanQueue = "",
    flow_cap: Cap = "",
    mtu: Mtu = MTU_BYTES,
    source: Name = ASSUMED,
    **impairments: Unpack[Impairments],
) -> Topology:
    """Return a network in which each site has one WAN link, its uplink, to a router without workers.

    All traffic of a site shares its uplink. If regions are data centres of which one is in the middle and trains too,
    `hub_and_spoke` is the family.

    Args:
        regions: Names of the sites; empty: each worker is one.
        centre: Name of the router in the middle.
        rate: Rate of an uplink.
        rtt: RTT of an uplink; half that of two sites.
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
    places = read.regions(regions) if regions else tuple(f"site-{index}" for index in range(max(workers, 1)))
    if centre in places:
        read.add([f"topo.centre={centre}: is one of topo.regions too; the centre has no workers"])
    pairs = [(place, centre) for place in places]
    return assemble(read, name, read.placed(workers, places), alike(pairs, wan), lan_rate, transit=(centre,), **card)
