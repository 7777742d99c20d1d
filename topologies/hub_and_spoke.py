"""Regions around a region in the middle."""

from __future__ import annotations

from typing import Unpack

from testbed.core.parameters import Count, Duration, Rate
from testbed.core.spec.topology import Topology
from topologies.parameters import Impairments, Name, Names, Parameters
from topologies.parts import ASSUMED, LAN_RATE, alike, assemble


def build(
    *,
    name: Name = "hub_and_spoke",
    workers: Count = 4,
    regions: Names = ("hub", "north", "east", "west"),
    rate: Rate = "200 Mbit/s",
    rtt: Duration = "40 ms",
    lan_rate: Rate = LAN_RATE,
    source: Name = ASSUMED,
    **impairments: Unpack[Impairments],
) -> Topology:
    """Return a network with a WAN link from the first region, the hub, to each other one; the hub has workers too.

    The hub's workers reach every region in one link, and traffic between two others passes the hub. In `star` the
    centre is a router alone, and its links are the uplinks of sites.

    Args:
        regions: Names of the regions, the hub first.
        rate: Rate of a WAN link.
        rtt: RTT of a WAN link.
        lan_rate: Rate of a worker's access link.
        source: Source of the figures.

    Raises:
        InputError: A parameter is wrong; every error at once.
    """
    read = Parameters()
    wan = read.wan(rate, rtt, source, impairments)
    places = read.regions(regions)
    pairs = [(hub, spoke) for hub in places[:1] for spoke in places[1:]]
    return assemble(read, name, read.placed(workers, places), alike(pairs, wan), lan_rate)
