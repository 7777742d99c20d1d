"""One region, in which the workers share a switch and no link is long."""

from __future__ import annotations

from testbed.core.parameters import Count, Rate
from testbed.core.spec.link_profile import MTU_BYTES
from testbed.core.spec.topology import Topology
from topologies.parameters import Cap, LanQueue, Mtu, Name, Parameters
from topologies.parts import LAN_RATE, assemble


def build(
    *,
    name: Name = "lan",
    workers: Count = 4,
    region: Name = "local",
    lan_rate: Rate = LAN_RATE,
    lan_queue: LanQueue = "",
    flow_cap: Cap = "",
    mtu: Mtu = MTU_BYTES,
) -> Topology:
    """Return one region with an access link for each worker: the baseline without a WAN.

    Args:
        region: Name of the region.
        lan_rate: Rate of a worker's access link.
        lan_queue: Queue of a worker's NIC; empty: at least 1000 packets. Empty is as in front of any NIC.
        flow_cap: Cap of one TCP connection; empty: none. As clouds cap them.
        mtu: MTU of all links; clouds have 9001.

    Raises:
        InputError: A parameter is wrong; every error at once.
    """
    read = Parameters(*([f"workers={workers}: must be at least 1"] if workers < 1 else []))
    return assemble(read, name, {region: workers}, (), lan_rate, lan_queue=lan_queue, flow_cap=flow_cap, mtu=mtu)
