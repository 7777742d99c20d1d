"""In fresh namespaces: a network whose routes say TCP's least retransmission time-out; print what the kernel says.

The kernel here may have the sysctl too; it keeps the built-in 200 ms, so that what is found is the routes' doing.
"""

from __future__ import annotations

import json
import re
import socket
import sys
from dataclasses import dataclass

from testbed.orchestrator.config.config import compose
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.links.network import Network
from testbed.orchestrator.emulation.links.node import NamespaceNode
from testbed.orchestrator.emulation.links.wires import least_time_outs_s

PORT = 29_500


@dataclass(frozen=True)
class Profile(tcp.TcpProfile):
    """As on a kernel before 6.11."""

    route_s: float | None = None

    @property
    def route_rto_min_s(self) -> float | None:
        return self.route_s


def time_out_ms(network: Network) -> float:
    """Of a connection over an access link and back, which has been used."""
    first, second = network.workers.values()
    address = str(network.plan.node_address("local-1"))
    listener = second.namespace.call(lambda: socket.create_server(("", PORT)))
    with listener, first.namespace.call(lambda: socket.create_connection((address, PORT), timeout=60)) as sending:
        receiving, _ = listener.accept()
        with receiving:
            for _ in range(5):
                sending.sendall(b"x")
                receiving.recv(1)
            found = re.search(r"\brto:([\d.]+)", ss(first))
            assert found
            return float(found[1])


def ss(node: NamespaceNode) -> str:
    return node.namespace.command(["ss", "--tcp", "--info", "--no-header", f"( dport = :{PORT} )"])


def main() -> None:
    route_s = float(sys.argv[1]) or None
    topology = compose(["topo=lan", "workers=2"]).topology
    profile = tcp.profile("tuned", topology)
    asked = Profile(profile.name, profile.congestion_control, profile.buffer_bytes, route_s=route_s)
    with Network(topology, asked, "nfqueue", lambda event: None) as network:
        (worker, _) = network.workers.values()
        found = {
            "said": worker.namespace.command(["ip", "route", "show", "default"]).strip(),
            "read_back": {name: least_time_outs_s(node.route_socket) for name, node in network.nodes.items()},
            "time_out_ms": time_out_ms(network),
        }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
