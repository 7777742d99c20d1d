"""In fresh namespaces: one WAN link by netem, numbered packets from end to end, what arrived and when.

The first argument is JSON: {"profile": fields of LinkProfile, "phases": [{"set": fields, "down": true or false,
"tc": words, "count": packets, "size": bytes, "interval_s": seconds}]}; all but "count" are optional, "set" lasts. "tc"
replaces the qdisc behind the shaper's back.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time
from typing import Any

from testbed.core.errors import RunError
from testbed.core.spec.link_profile import LinkProfile
from testbed.core.spec.topology import Link, Node, Topology, symmetric
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.links.network import Network

PORT = 50_000
KEY = ("a-b", "a")
_PACKET = struct.Struct("!Id")
_SO_TIMESTAMPNS = 35
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_LATE_S = 1.0


def topology(**fields: Any) -> Topology:
    fields = {"rate_bit_s": 1e9, "source": "assumed: a test", **fields}
    there = LinkProfile(**fields)
    back = LinkProfile(rate_bit_s=1e9, delay_s=there.delay_s, source="assumed: a test")
    wan = Link(name="a-b", a="a", b="b", wan=True, forward=there, backward=back)
    access = symmetric("w", "w", "a", wan=False, rtt_s=0.0, rate_bit_s=1e9, source="assumed: a test")
    return Topology(name="one", regions=("a", "b"), nodes=(Node(name="w", region="a"),), links=(wan, access))


class Line:
    """A socket at each end."""

    def __init__(self, network: Network) -> None:
        pairs = network.plan.wan["a-b"]
        self.to = (str(pairs.b_side.near), PORT)
        self.sender = network.routers["a"].namespace.call(lambda: self._socket(str(pairs.a_side.near)))
        self.receiver = network.routers["b"].namespace.call(lambda: self._socket(self.to[0]))

    @staticmethod
    def _socket(address: str) -> socket.socket:
        found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        found.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        found.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
        found.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 64 << 20)
        found.bind((address, PORT))
        found.setblocking(False)
        return found

    def send(self, count: int, size: int, interval_s: float) -> list[tuple[int, float]]:
        """(number, delay) of each packet that arrived, as it arrived."""
        arrived: list[tuple[int, float]] = []
        filler = bytes(size - _PACKET.size)
        next_s = time.monotonic()
        for number in range(count):
            self.sender.sendto(_PACKET.pack(number, time.time()) + filler, self.to)
            if interval_s:
                next_s += interval_s
                self._receive(arrived, next_s)
        self._receive(arrived, time.monotonic() + _LATE_S)
        return arrived

    def _receive(self, arrived: list[tuple[int, float]], until_s: float) -> None:
        while True:
            wait_s = max(0.0, until_s - time.monotonic())
            if not select.select([self.receiver], [], [], wait_s)[0]:
                return
            data, ancillary, _, _ = self.receiver.recvmsg(2048, 64)
            number, sent_s = _PACKET.unpack_from(data)
            seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
            arrived.append((number, seconds + nanoseconds * 1e-9 - sent_s))


def _refusal(network: Network) -> str | None:
    """What the shaper says of what it finds in force."""
    hop = network.port(*KEY)
    try:
        network.shaper.verify(KEY, hop.profile, network.shaper.hops[KEY].limit_packets)
    except RunError as error:
        return str(error)
    return None


def main() -> None:
    asked = json.loads(sys.argv[1])
    fields = {"rate_bit_s": 1e9, "source": "assumed: a test", **asked["profile"]}
    events: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []
    chosen = topology(**fields)
    with Network(chosen, tcp.profile("tuned", chosen), "netem", events.append, seed=1) as network:
        line = Line(network)
        for phase in asked["phases"]:
            if "set" in phase:
                fields = {**fields, **phase["set"]}
                network.change("a-b", "a", LinkProfile(**fields))
            if "down" in phase:
                network.set_down("a-b", phase["down"])
            if "tc" in phase:
                link_node = network.link_nodes["a-b"].namespace
                link_node.command(
                    ["tc", "qdisc", "del", "dev", "to-b", "root"]
                )  # a change of netem keeps what it is not told
                link_node.command(["tc", "qdisc", "add", "dev", "to-b", "root", *phase["tc"]])
            arrived = line.send(phase["count"], phase.get("size", 100), phase.get("interval_s", 0.0))
            found.append(
                {
                    "arrived": arrived,
                    "read_back": network.shaper.read_one(KEY),
                    "report": network.shaper.report_of(KEY),
                    "refusal": _refusal(network),
                }
            )
        time.sleep(1.2)
        if network.shaper.failure:
            raise SystemExit(network.shaper.failure)
    kinds = {event["event"] for event in events}
    print(json.dumps({"phases": found, "events": sorted(kinds)}))


if __name__ == "__main__":
    main()
