"""In fresh namespaces: flows by congestion controls in emulated seconds, and what of their windows tells of those.

Its argument is JSON: `bbr` and `cubic`, the dilations of flows by each.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
import time
from itertools import pairwise

from testbed.core.spec.link_profile import LinkProfile
from testbed.core.spec.topology import Link, Node, Topology, symmetric
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.kernel.slowed_tcp import BASES, SlowedTcp, lack
from testbed.orchestrator.emulation.links.network import Network

FLOW_S, START_S = 4.0, 0.5
SND_CWND = 80
"""Offset in Linux's `struct tcp_info`."""
LEAST_PACKETS = 4
"""In flight while BBR measures the round trip."""
RATE_BIT_S, QUEUE_BYTES, RTT_S = 100e6, 500_000, 0.010
SHRINKS_TO, RECOVERY_S = 0.85, 0.1
"""CUBIC's window after a loss is 0.7 of that before, where it gets within two round trips."""
_SHAPED = "nfqueue", lambda _: None
Sample = tuple[float, int]
"""Seconds since the flow began, and its window in packets."""


def windows(name: str, server: socket.socket, sender: socket.socket) -> list[Sample]:
    """Return the windows of a flow that sends all it can by the congestion control `name`; close both sockets."""
    with server, sender:
        sender.connect(server.getsockname())
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())  # a route's own would win before
        receiver = server.accept()[0]
        ends = [threading.Thread(target=_drain, args=(receiver,)), threading.Thread(target=_fill, args=(sender,))]
        for end in ends:
            end.start()
        begin_s, found = time.monotonic(), list[Sample]()
        while (now_s := time.monotonic() - begin_s) < FLOW_S:
            time.sleep(0.002)
            (window,) = struct.unpack_from("<I", sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), SND_CWND)
            found.append((now_s, window))
        sender.shutdown(socket.SHUT_RDWR)
        for end in ends:
            end.join()
        receiver.close()
        return found


def pauses(dilation: float) -> int:
    """Count the moments at which BBR's window was its least one, after the connection has started."""
    with SlowedTcp("bbr", dilation) as bbr:
        found = windows(bbr.name, socket.create_server(("127.0.0.1", 0)), socket.socket())
    return sum(at_s > START_S and window <= LEAST_PACKETS for at_s, window in found)


def growths(dilation: float) -> list[dict[str, float]]:
    """Return how long CUBIC's window took from each loss to the next, and what it was, behind a switch that drops."""
    there = LinkProfile(rate_bit_s=RATE_BIT_S, delay_s=RTT_S / 2, limit_bytes=QUEUE_BYTES, source="assumed: a test")
    wan = Link(name="a-b", a="a", b="b", wan=True, forward=there, backward=there)
    access = symmetric("w", "w", "a", wan=False, rtt_s=0.0, rate_bit_s=1e9, source="assumed: a test")
    topology = Topology(name="one", regions=("a", "b"), nodes=(Node(name="w", region="a"),), links=(wan, access))
    with SlowedTcp("cubic", dilation) as cubic, Network(topology, tcp.profile("stock", topology), *_SHAPED) as network:
        address = str(network.plan.wan["a-b"].b_side.near)
        server = network.routers["b"].namespace.call(lambda: socket.create_server((address, 0)))
        found = windows(cubic.name, server, network.workers["w"].namespace.call(socket.socket))
    losses, most = list[Sample](), 0
    for at_s, window in found:
        most = max(most, window)
        if window < SHRINKS_TO * most:
            if not losses or at_s - losses[-1][0] > RECOVERY_S:
                losses.append((at_s, most))
            most = window
    return [{"s": b[0] - a[0], "packets": a[1]} for a, b in pairwise(losses)]


def _drain(receiver: socket.socket) -> None:
    while receiver.recv(1 << 16):
        if receiver.getsockname()[0] == "127.0.0.1":
            time.sleep(0.001)


def _fill(sender: socket.socket) -> None:
    try:
        while True:
            sender.sendall(bytes(1 << 16))
    except OSError:
        return


def names() -> list[str]:
    with open("/proc/sys/net/ipv4/tcp_available_congestion_control") as file:
        return file.read().split()


def main() -> None:
    asked = json.loads(sys.argv[1])
    if reasons := [reason for base in BASES if (reason := lack(base)) is not None]:
        print(json.dumps({"lack": "; ".join(reasons)}))
        return
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    before = names()
    found = {
        "pauses": {dilation: pauses(dilation) for dilation in asked.get("bbr", [])},
        "growths": {dilation: growths(dilation) for dilation in asked.get("cubic", [])},
    }
    print(json.dumps({**found, "left": [name for name in names() if name not in before]}))


main()
