"""Regions in a circle."""

from __future__ import annotations

from typing import Unpack

from testbed.core.spec.topology import Topology
from topologies.parameters import Impairments, Parameters
from topologies.parts import ASSUMED, LAN_RATE, alike, assemble


def build(
    *,
    name: str = "ring",
    workers: int = 4,
    regions: tuple[str, ...] | list[str] = ("north", "east", "south", "west"),
    rate: str = "200 Mbit/s",
    rtt: str = "40 ms",
    lan_rate: str = LAN_RATE,
    source: str = ASSUMED,
    **impairments: Unpack[Impairments],
) -> Topology:
    """Return a network with a WAN link from each region to the next, the last to the first, all alike.

    A path to a far region passes through those between, the shorter way round. Two regions have one link.

    Args:
        rate: Rate of each WAN link, each way, as text with a unit.
        rtt: Round trip of each WAN link, as text with a unit.

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
