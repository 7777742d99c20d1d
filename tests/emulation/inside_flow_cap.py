"""In fresh namespaces: bytes that connections of one worker carry in a while, with a cap on each; prints them.

Its argument is JSON: `cap_bit_s`, `dilations`, `connections`, `seconds`.
"""

from __future__ import annotations

import dataclasses
import json
import socket
import sys
import threading
import time
from typing import Any

from testbed.core.spec.topology import Node, Topology, symmetric
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.kernel.slowed_tcp import SlowedTcp, lack
from testbed.orchestrator.emulation.links.network import Network

RATE_BIT_S = 1e9
SETTLE_S = 0.5


def _rates_bit_s(network: Network, connections: int, seconds: float) -> list[float]:
    """Return the payload that arrives a second of each connection, once it has settled."""
    address = str(network.plan.wan["a-b"].b_side.near)
    server = network.routers["b"].namespace.call(lambda: socket.create_server((address, 0)))
    ends = []
    for _ in range(connections):
        sender = network.workers["w"].namespace.call(socket.socket)
        sender.connect(server.getsockname())
        ends.append((sender, server.accept()[0]))
    counts = [0] * connections

    def fill(sender: socket.socket) -> None:
        try:
            while True:
                sender.sendall(bytes(1 << 16))
        except OSError:
            return

    def drain(index: int, receiver: socket.socket) -> None:
        while count := len(receiver.recv(1 << 18)):
            counts[index] += count

    threads = [threading.Thread(target=fill, args=(sender,)) for sender, _ in ends]
    threads += [threading.Thread(target=drain, args=(index, receiver)) for index, (_, receiver) in enumerate(ends)]
    for thread in threads:
        thread.start()
    time.sleep(SETTLE_S)
    before, began_s = list(counts), time.monotonic()
    time.sleep(seconds)
    after, taken_s = list(counts), time.monotonic() - began_s
    for sender, _ in ends:
        sender.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join()
    return [8 * (a - b) / taken_s for a, b in zip(after, before, strict=True)]


def measured(base: str, asked: dict[str, Any], dilation: float) -> list[float]:
    wan = symmetric("a-b", "a", "b", wan=True, rtt_s=0.004, rate_bit_s=RATE_BIT_S, source="assumed: a test")
    access = symmetric("w", "w", "a", wan=False, rtt_s=0.0, rate_bit_s=RATE_BIT_S, source="assumed: a test")
    topology = Topology(name="one", regions=("a", "b"), nodes=(Node(name="w", region="a"),), links=(wan, access))
    slowed, profile = topology.dilated(dilation), {"cubic": "stock", "bbr": "tuned"}[base]
    with SlowedTcp(base, dilation, asked["cap_bit_s"]) as control:
        settings = dataclasses.replace(tcp.profile(profile, slowed, dilation), registered=control.name)
        with Network(slowed, settings, "nfqueue", lambda _: None) as network:
            found = _rates_bit_s(network, asked["connections"], asked["seconds"])
    return [dilation * rate for rate in found]


def main() -> None:
    asked = json.loads(sys.argv[1])
    if reason := lack("cubic") or lack("bbr"):
        print(json.dumps({"lack": reason}))
        return
    print(json.dumps({b: {k: measured(b, asked, k) for k in asked["dilations"]} for b in ("cubic", "bbr")}))


if __name__ == "__main__":
    main()
