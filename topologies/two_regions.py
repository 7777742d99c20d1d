"""Two regions joined by one WAN link."""

from __future__ import annotations

from typing import Unpack

from testbed.core.spec.topology import Topology
from topologies.matrices import DTFM
from topologies.parameters import Impairments, Parameters
from topologies.parts import LAN_RATE, alike, assemble

SOURCE = (
    f"RTT of Oregon-Virginia: {DTFM.text}; confirmed by Skyplane's 68.3 ms of early 2022 (us-west-2 - us-east-1)."
    " Rate: assumed, a round figure"
)


def build(
    *,
    name: str = "two_regions",
    workers: int = 4,
    regions: tuple[str, ...] | list[str] = ("oregon", "virginia"),
    rate: str = "1 Gbit/s",
    rtt: str = "67 ms",
    lan_rate: str = LAN_RATE,
    source: str = SOURCE,
    **impairments: Unpack[Impairments],
) -> Topology:
    """Return two regions with one WAN link, workers in blocks, and an access link for each worker.

    Args:
        workers: Number of workers, at least one for each region.
        rate: Rate of the WAN link, each way, as text with a unit.
        rtt: Round trip of the WAN link, as text with a unit.
        lan_rate: Rate of every worker's access link, each way, as text with a unit.

    Raises:
        InputError: A parameter is wrong; every error at once.

    >>> build(workers=4).wan_links[0].forward.delay_s
    0.0335
    """
    read = Parameters()
    wan = read.wan(rate, rtt, source, impairments)
    if len(regions) != 2 or len(set(regions)) != 2:
        read.add([f"topo.regions={list(regions)}: this topology has exactly two different regions"])
        read.placed(workers, ("a", "b"))
        read.lan_rate(lan_rate)
        read.raise_faults()
    a, b = regions
    return assemble(read, name, read.placed(workers, (a, b)), alike([(a, b)], wan), lan_rate)
