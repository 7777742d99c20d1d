"""Regions around a region in the middle."""

from __future__ import annotations

from typing import Unpack

from testbed.core.spec.topology import Topology
from topologies.parameters import Impairments, Parameters
from topologies.parts import ASSUMED, LAN_RATE, alike, assemble


def build(
    *,
    name: str = "hub_and_spoke",
    workers: int = 4,
    regions: tuple[str, ...] | list[str] = ("hub", "north", "east", "west"),
    rate: str = "200 Mbit/s",
    rtt: str = "40 ms",
    lan_rate: str = LAN_RATE,
    source: str = ASSUMED,
    **impairments: Unpack[Impairments],
) -> Topology:
    """Return a network with a WAN link from the first region, the hub, to each other one; the hub has workers too.

    The hub's workers reach every region in one link, and traffic between two others passes the hub. In `star` the
    centre is a router alone, and its links are the uplinks of sites.

    Args:
        regions: Names of regions, the hub first.
        rate: Rate of each WAN link, each way, as text with a unit.
        rtt: Round trip of each WAN link, as text with a unit.

    Raises:
        InputError: A parameter is wrong; every error at once.
    """
    read = Parameters()
    wan = read.wan(rate, rtt, source, impairments)
    places = read.regions(regions)
    pairs = [(hub, spoke) for hub in places[:1] for spoke in places[1:]]
    return assemble(read, name, read.placed(workers, places), alike(pairs, wan), lan_rate)
