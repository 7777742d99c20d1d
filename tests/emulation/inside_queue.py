"""In fresh namespaces: a burst of datagrams into an idle link with a queue like tbf's; prints what came of it.

Its arguments are the place of the queue, "card" (the sender's own) or "switch" (the router behind it), and the words of
the topology, whose first WAN link and first worker are used.
"""

from __future__ import annotations

import json
import socket
import sys
import time

from testbed.orchestrator.config.config import compose
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.links.network import Network

PORT, DATAGRAM_BYTES, COUNT = 50_000, 1472, 300
HEADERS_BYTES = 42
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
QUIET_S = 1.0


def _socket(address: str) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in (_SO_SNDBUFFORCE, _SO_RCVBUFFORCE):
        found.setsockopt(socket.SOL_SOCKET, option, 16 << 20)
    found.bind((address, PORT))
    return found


def main() -> None:
    where, *words = sys.argv[1:]
    topology = compose(words).topology
    with Network(topology, tcp.profile("stock", topology), "nfqueue", lambda _: None) as network:
        link, node = topology.wan_links[0], topology.nodes[0].name
        to = str(network.plan.wan[link.name].b_side.near)
        receiver = network.routers[link.b].namespace.call(lambda: _socket(to))
        sender = network.workers[node].namespace.call(lambda: _socket(str(network.plan.node_address(node))))
        (port,) = (
            port
            for port in network.ports
            if port.source == (node if where == "card" else link.a) and (where == "card" or port.link.name == link.name)
        )
        before, began_s = port.read(), time.monotonic()
        for _ in range(COUNT):
            sender.sendto(bytes(DATAGRAM_BYTES), (to, PORT))
        receiver.settimeout(QUIET_S)
        arrived, last_s = 0, 0.0
        try:
            while receiver.recv(2048):
                arrived, last_s = arrived + 1, time.monotonic() - began_s
        except TimeoutError:
            pass
        found = port.to_json(1.0)["read_back"]
        drops = port.read().drops - before.drops
        print(json.dumps({"arrived": arrived, "last_s": last_s, "drops": drops, "read_back": found, "sent": COUNT}))


if __name__ == "__main__":
    main()
