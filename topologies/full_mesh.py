"""Regions with a WAN link between every two of them."""

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
    """Return a network with a WAN link between every two regions, all alike; no path passes a third region.

    Args:
        rate: Rate of each WAN link, each way, as text with a unit.
        rtt: Round trip of each WAN link, as text with a unit.

    Raises:
        InputError: A parameter is wrong; every error at once.
    """
    read = Parameters()
    wan = read.wan(rate, rtt, source, impairments)
    places = read.regions(regions)
    return assemble(read, name, read.placed(workers, places), alike(every_pair(places), wan), lan_rate)
