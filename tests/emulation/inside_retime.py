"""In fresh namespaces: a network that gets the terms of another dilation while it is up; print what is found then."""

from __future__ import annotations

import json
import sys

from testbed.orchestrator.config.config import compose
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.links.network import Network
from testbed.orchestrator.emulation.links.wires import least_time_outs_s
from testbed.orchestrator.emulation.measuring.prober import Prober
from tests.emulation.inside_least_time_out import Profile


def main() -> None:
    shaper, *dilations = sys.argv[1], *map(float, sys.argv[2:])
    topology = compose(["topo=wan100m", "workers=2"]).topology
    found = []
    with Network(topology, _profile(topology, 1.0), shaper, lambda event: None) as network:
        for dilation in dilations:
            network.retime(topology.dilated(dilation), _profile(topology, dilation))
            with Prober(network, lambda event: None) as prober:
                measured = prober.measure("idle", access=False)
            found.append(
                {
                    "ports": [port.to_json(dilation) for port in network.ports],
                    "rtt_s": measured.rtt_s,
                    "bursts": list(measured.bursts.values()),
                    "time_outs_s": [least_time_outs_s(node.route_socket) for node in network.nodes.values()],
                    "tcp_rmem": network.sysctls["oregon-0"]["net.ipv4.tcp_rmem"],
                }
            )
    sys.stdout.write(json.dumps(found) + "\n")


def _profile(topology: object, dilation: float) -> Profile:
    """As on a kernel whose routes say the least time-out."""
    made = tcp.profile("tuned", topology.dilated(dilation), dilation)  # type: ignore[attr-defined]
    return Profile(made.name, made.congestion_control, made.buffer_bytes, dilation, route_s=0.2 * dilation)


if __name__ == "__main__":
    main()
