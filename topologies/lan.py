"""One region, in which the workers share a switch and no link is long."""

from __future__ import annotations

from testbed.core.spec.topology import Topology
from topologies.parameters import Parameters
from topologies.parts import LAN_RATE, assemble


def build(*, name: str = "lan", workers: int = 4, region: str = "local", lan_rate: str = LAN_RATE) -> Topology:
    """Return one region with an access link for each worker: the baseline without a WAN.

    Raises:
        InputError: A parameter is wrong; every error at once.
    """
    read = Parameters(*([f"workers={workers}: must be at least 1"] if workers < 1 else []))
    return assemble(read, name, {region: workers}, (), lan_rate)
