"""Two regions joined by one WAN link."""

from __future__ import annotations

from typing import Unpack

from testbed.core.parameters import Count, Duration, Rate
from testbed.core.spec.link_profile import MTU_BYTES
from testbed.core.spec.topology import Topology
from topologies.matrices import DTFM
from topologies.parameters import Cap, Impairments, LanQueue, Mtu, Name, Names, Parameters
from topologies.parts import LAN_RATE, Card, alike, assemble

SOURCE = (
    f"RTT of Oregon-Virginia: {DTFM.text}; confirmed by Skyplane's 68.3 ms of early 2022 (us-west-2 - us-east-1)."
    " Rate: assumed, a round figure"
)


def build(
    *,
    name: Name = "two_regions",
    workers: Count = 4,
    regions: Names = ("oregon", "virginia"),
    rate: Rate = "1 Gbit/s",
    rtt: Duration = "67 ms",
    lan_rate: Rate = LAN_RATE,
    lan_queue: LanQueue = "",
    flow_cap: Cap = "",
    mtu: Mtu = MTU_BYTES,
    source: Name = SOURCE,
    **impairments: Unpack[Impairments],
) -> Topology:
    """Return two regions with one WAN link, workers in blocks, and an access link for each worker.

    Args:
        regions: Names of the regions. Each has at least one worker.
        rate: Rate of a WAN link.
        rtt: RTT of a WAN link.
        lan_rate: Rate of a worker's access link.
        lan_queue: Queue of a worker's NIC; empty: at least 1000 packets. Empty is as in front of any NIC.
        flow_cap: Cap of one TCP connection; empty: none. As clouds cap them.
        mtu: MTU of all links; clouds have 9001.
        source: Source of the figures.

    Raises:
        InputError: A parameter is wrong; every error at once.

    >>> build(workers=4).wan_links[0].forward.delay_s
    0.0335
    """
    read, card = Parameters(), Card(lan_queue=lan_queue, flow_cap=flow_cap, mtu=mtu)
    wan = read.wan(rate, rtt, source, impairments)
    if len(regions) != 2 or len(set(regions)) != 2:
        read.add([f"topo.regions={list(regions)}: this topology has exactly two different regions"])
        read.placed(workers, ("a", "b"))
        read.lan_rate(lan_rate)
        read.raise_faults()
    a, b = regions
    return assemble(read, name, read.placed(workers, (a, b)), alike([(a, b)], wan), lan_rate, **card)
