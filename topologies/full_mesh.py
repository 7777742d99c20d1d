"""Regions of which every two are joined by a WAN link of their own."""

from __future__ import annotations

from typing import Unpack

from testbed.core.spec.topology import Topology
from topologies.parameters import Impairments, Parameters
from topologies.parts import ASSUMED, LAN_RATE, alike, assemble, every_pair


def build(
    *,
    name: str = "full_mesh",
    workers: int = 4,
    regions: tuple[str, ...] | list[str] = ("north", "east", "south", "west"),
    rate: str = "200 Mbit/s",
    rtt: str = "80 ms",
    lan_rate: str = LAN_RATE,
    source: str = ASSUMED,
    **impairments: Unpack[Impairments],
) -> Topology:
    """A WAN link between every two regions, all alike; no path passes through a third region.

    Args:
        rate: of each WAN link, each way.
        rtt: of each WAN link, both ways together.

    Raises:
        InputError: with every fault at once.
    """
    read = Parameters()
    wan = read.wan(rate, rtt, source, impairments)
    places = read.regions(regions)
    return assemble(read, name, read.placed(workers, places), alike(every_pair(places), wan), lan_rate)
