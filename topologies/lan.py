"""One region: the workers share a switch, and no link is long."""

from __future__ import annotations

from testbed.core.errors import InputError
from testbed.core.topology import Node, Topology
from testbed.core.units import parse_rate_bit_s
from topologies.two_regions import access_links


def build(*, name: str = "lan", workers: int = 4, region: str = "local", lan_rate: str = "2.5 Gbit/s") -> Topology:
    """One region with an access link for each worker; the baseline without a WAN.

    Raises:
        InputError: with every fault at once.
    """
    faults: list[str] = []
    rate_bit_s = 0.0
    try:
        rate_bit_s = parse_rate_bit_s(lan_rate)
    except ValueError as error:
        faults.append(f"topo.lan_rate: {error}")
    if workers < 1:
        faults.append(f"workers={workers}: must be at least 1")
    if faults:
        raise InputError(*faults)
    nodes = tuple(Node(name=f"{region}-{index}", region=region) for index in range(workers))
    return Topology(name=name, regions=(region,), nodes=nodes, links=access_links(nodes, rate_bit_s))
