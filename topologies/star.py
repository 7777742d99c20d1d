"""Sites around an exchange that has no workers."""

from __future__ import annotations

from typing import Unpack

from testbed.core.spec.topology import Topology
from topologies.parameters import Impairments, Parameters
from topologies.parts import ASSUMED, LAN_RATE, alike, assemble


def build(
    *,
    name: str = "star",
    workers: int = 4,
    regions: tuple[str, ...] | list[str] = (),
    centre: str = "exchange",
    rate: str = "200 Mbit/s",
    rtt: str = "40 ms",
    lan_rate: str = LAN_RATE,
    source: str = ASSUMED,
    **impairments: Unpack[Impairments],
) -> Topology:
    """Each site has one WAN link, its uplink, to a router without workers: all that a site sends shares its uplink.

    Where regions are data centres of which one is in the middle and trains too, `hub_and_spoke` is the family.

    Args:
        regions: the sites; empty: each worker is a site of its own.
        centre: the router in the middle.
        rate: of each uplink, each way.
        rtt: of each uplink, both ways together: two sites are twice that apart.

    Raises:
        InputError: with every fault at once.
    """
    read = Parameters()
    wan = read.wan(rate, rtt, source, impairments)
    places = read.regions(regions) if regions else tuple(f"site-{index}" for index in range(max(workers, 1)))
    if centre in places:
        read.add([f"topo.centre={centre}: is one of topo.regions too; the centre has no workers"])
    pairs = [(place, centre) for place in places]
    return assemble(read, name, read.placed(workers, places), alike(pairs, wan), lan_rate, transit=(centre,))
