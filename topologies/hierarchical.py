"""Regions of continents, which a backbone joins."""

from __future__ import annotations

from typing import Unpack

from testbed.core.parameters import Count, Duration, Rate
from testbed.core.spec.topology import Topology
from topologies.parameters import Impairments, Name, Names, Parameters
from topologies.parts import ASSUMED, LAN_RATE, alike, assemble, every_pair

_REGIONS = ("america/oregon", "america/virginia", "europe/dublin", "europe/frankfurt")


def build(
    *,
    name: Name = "hierarchical",
    workers: Count = 4,
    regions: Names = _REGIONS,
    rate: Rate = "500 Mbit/s",
    rtt: Duration = "20 ms",
    backbone_rate: Rate = "200 Mbit/s",
    backbone_rtt: Duration = "80 ms",
    lan_rate: Rate = LAN_RATE,
    source: Name = ASSUMED,
    **impairments: Unpack[Impairments],
) -> Topology:
    """Return a network with a WAN link from each region to its continent's exchange and between every two exchanges.

    An exchange is a router without workers. All traffic from one continent to another shares one backbone link.

    Args:
        regions: Names of the regions, each as continent/region.
        rate: Rate between regions and exchanges.
        rtt: RTT between regions and exchanges. Two regions of a continent are twice that apart.
        backbone_rate: Rate between exchanges.
        backbone_rtt: RTT between exchanges.
        lan_rate: Rate of a worker's access link.
        source: Source of the figures.

    Raises:
        InputError: A parameter is wrong; every error at once.
    """
    read = Parameters()
    regional = read.wan(rate, rtt, source, impairments)
    backbone = read.wan(backbone_rate, backbone_rtt, source, impairments, prefix="backbone_")
    parts = [str(region).split("/") for region in regions]
    if wrong := [str(region) for region, part in zip(regions, parts, strict=True) if len(part) != 2 or not all(part)]:
        read.add([f"topo.regions: {', '.join(wrong)}: must be continent/region, as in america/oregon"])
    places = read.regions([part[-1] for part in parts])
    continents = dict.fromkeys(part[0] for part in parts)
    if both := [place for place in places if place in continents and len(parts[places.index(place)]) == 2]:
        read.add([f"topo.regions: {', '.join(both)}: is both a continent and a region"])
    links = (
        *alike([(place, part[0]) for place, part in zip(places, parts, strict=True)], regional),
        *alike(every_pair(continents), backbone),
    )
    return assemble(read, name, read.placed(workers, places), links, lan_rate, transit=continents)
