"""Sites around an exchange that has no workers."""

from __future__ import annotations

from typing import Unpack

from testbed.core.parameters import Count, Duration, Rate
from testbed.core.spec.topology import Topology
from topologies.parameters import Cap, Impairments, LanQueue, Name, Names, Parameters
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
    source: Name = ASSUMED,
    **impairments: Unpack[Impairments],
) -> Topology:
    """Return a network in which each site has one WAN link, its uplink, to a router without workers.

    All traffic of a site shares its uplink. If regions are data centres of which one is in the middle and trains too,
    `hub_and_spoke` is the family.

    Args:
        regions: Names of the sites; empty: each worker is a site.
        centre: Name of the router in the middle.
        rate: Rate of each uplink, each way.
        rtt: Round trip of each uplink; two sites are twice that apart.
        lan_rate: Rate of every worker's access link, each way.
        lan_queue: Queue of every worker's own network card; empty: as in front of any card, at least 1000 packets.
        flow_cap: Most that one TCP connection of a worker carries, as clouds cap them; empty: whatever its links do.
        source: Source of the figures.

    Raises:
        InputError: A parameter is wrong; every error at once.
    """
    read, card = Parameters(), Card(lan_queue=lan_queue, flow_cap=flow_cap)
    wan = read.wan(rate, rtt, source, impairments)
    places = read.regions(regions) if regions else tuple(f"site-{index}" for index in range(max(workers, 1)))
    if centre in places:
        read.add([f"topo.centre={centre}: is one of topo.regions too; the centre has no workers"])
    pairs = [(place, centre) for place in places]
    return assemble(read, name, read.placed(workers, places), alike(pairs, wan), lan_rate, transit=(centre,), **card)
