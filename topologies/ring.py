"""Regions in a circle."""

from __future__ import annotations

from typing import Unpack

from testbed.core.parameters import Count, Duration, Rate
from testbed.core.spec.topology import Topology
from topologies.parameters import Impairments, Name, Names, Parameters
from topologies.parts import ASSUMED, LAN_RATE, alike, assemble


def build(
    *,
    name: Name = "ring",
    workers: Count = 4,
    regions: Names = ("north", "east", "south", "west"),
    rate: Rate = "200 Mbit/s",
    rtt: Duration = "40 ms",
    lan_rate: Rate = LAN_RATE,
    source: Name = ASSUMED,
    **impairments: Unpack[Impairments],
) -> Topology:
    """Return a network with a WAN link from each region to the next, the last to the first, all alike.

    A path to a far region passes through those between, the shorter way round. Two regions have one link.

    Args:
        regions: Names of the regions.
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
    pairs = list(zip(places, (*places[1:], *places[:1]), strict=True))
    return assemble(
        read, name, read.placed(workers, places), alike(pairs[: len(pairs) - (len(pairs) < 3)], wan), lan_rate
    )
