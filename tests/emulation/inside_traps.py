"""In fresh namespaces: one network of three links, looked at and used; prints what was found, and judges nothing.

Read by the system's own programs (ip, tc, iptables, ping), since what must be shown is what the kernel holds.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from testbed.core.record.run_directory import RUNTIME_ROOT
from testbed.core.spec.topology import Node, Topology, symmetric
from testbed.orchestrator.emulation.containers.runc_container import Container
from testbed.orchestrator.emulation.containers.sandbox import Sandbox
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.kernel.namespaces import own_sysfs
from testbed.orchestrator.emulation.links.network import Network
from testbed.orchestrator.emulation.links.node import NamespaceNode
from testbed.orchestrator.machine.clone import CLONE

PORT = 5000
EAST, WEST, SOUTH = (f"{name}-with-a-name-that-no-interface-could-bear" for name in ("east", "west", "south"))
FAST = {"rate_bit_s": 2.5e9, "rtt_s": 0.3}
NEAR = {"rate_bit_s": 10e6, "rtt_s": 0.002}
LOSSY = {"rate_bit_s": 50e6, "rtt_s": 0.02, "loss_ratio": 0.2}
TCP = "reno"
"""No host's own: were it not pinned, another one would be found."""
MANY, LOST_OF, TOO_MANY, ROOM = 3000, 1000, 500, 50
"""Datagrams: at once on the fast link; on the lossy one; on a delay line with room for so few."""
TRANSFER_BYTES = 300_000
SYSCTLS = (
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv6.conf.all.disable_ipv6",
)
CGROUPS = Path("/sys/fs/cgroup")
_SO_RCVBUFFORCE = 33
_IP_RECVERR = 11
"""With it a datagram that the sender's own queue drops is an error of the call that sent it."""
_REPORT_S = 2.5
"""Within so long a delay line reports what it has counted."""
_INSIDE = """
import json, os, socket
shm = os.statvfs("/dev/shm")
print(json.dumps({"interfaces": [n for _, n in socket.if_nameindex()], "shm_bytes": shm.f_blocks * shm.f_frsize}))
input()
"""


def topology() -> Topology:
    source = "assumed: a test"
    regions = (EAST, WEST, SOUTH)
    nodes = tuple(Node(name=f"{region}-0", region=region) for region in regions)
    wan = (
        symmetric("fast", EAST, WEST, wan=True, source=source, **FAST),
        symmetric("near", WEST, SOUTH, wan=True, source=source, **NEAR),
        symmetric("lossy", EAST, SOUTH, wan=True, source=source, **LOSSY),
    )
    access = (
        symmetric(f"{n.name}-access", n.name, n.region, wan=False, rtt_s=0.0, rate_bit_s=2.5e9, source=source)
        for n in nodes
    )
    return Topology(name="traps", regions=regions, nodes=nodes, links=(*wan, *access))


def looked_at(node: NamespaceNode) -> dict[str, Any]:
    """One namespace, as the system's programs see it."""
    command = node.namespace.command
    settings = command(["sysctl", *(key for key in SYSCTLS if Path("/proc/sys", *key.split(".")).exists())])
    pairs = [line.partition("=") for line in settings.splitlines()]
    return {
        "namespace": node.namespace.call(lambda: os.stat("/proc/thread-self/ns/net").st_ino),
        "links": json.loads(command(["ip", "-json", "-details", "link"])),
        "addresses": json.loads(command(["ip", "-json", "address"])),
        "neighbours": json.loads(command(["ip", "-json", "neighbour"])),
        "qdiscs": json.loads(command(["tc", "-json", "qdisc"])),
        "forward": command(["iptables", "-S", "FORWARD"]).splitlines(),
        "mangle": command(["iptables", "-t", "mangle", "-S"]).splitlines(),
        "sysctls": {key.strip(): " ".join(value.split()) for key, _, value in pairs},
    }


def shortest_round_trip_s(network: Network, source: str, target: str) -> float:
    """Return the shortest of twenty round trips in four seconds: half a second without cores leaves some in time.

    It is read from ping's last line, since from 100 ms on ping rounds each of them to a millisecond.
    """
    address = str(network.plan.node_address(f"{target}-0"))
    said = network.workers[f"{source}-0"].namespace.command(["ping", "-c", "20", "-i", "0.2", "-W", "2", address])
    assert " 0% packet loss" in said, said
    (shortest_ms,) = re.findall(r"min/avg/max/mdev = ([\d.]+)/", said)
    return float(shortest_ms) / 1e3


class Line:
    """Datagrams from one worker to another."""

    def __init__(self, network: Network, source: str, target: str) -> None:
        self.to = (str(network.plan.node_address(f"{target}-0")), PORT)
        self.sender = network.workers[f"{source}-0"].namespace.call(self._sender)
        self.receiver = network.workers[f"{target}-0"].namespace.call(self._receiver)

    @staticmethod
    def _sender() -> socket.socket:
        found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        found.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
        return found

    def _receiver(self) -> socket.socket:
        found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        found.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
        found.bind(self.to)
        return found

    def send(self, count: int) -> int:
        """Returns how many the sender's own queues refused."""
        refused = 0
        for _ in range(count):
            try:
                self.sender.sendto(bytes(100), self.to)
            except OSError:
                refused += 1
        return refused

    def arrived(self, quiet_s: float) -> int:
        """How many have come when none has for a while."""
        self.receiver.settimeout(quiet_s)
        count = 0
        while True:
            try:
                self.receiver.recv(2048)
            except TimeoutError:
                self.sender.close()
                self.receiver.close()
                return count
            count += 1


def kernel_queues(network: Network, link: str) -> list[list[int]]:
    """The middle node's NFQUEUEs as the kernel lists them."""
    path = Path("/proc/thread-self/net/netfilter/nfnetlink_queue")
    text = network.link_nodes[link].namespace.call(path.read_text)
    return [[int(word) for word in line.split()] for line in text.splitlines()]


def in_flight(network: Network) -> dict[str, Any]:
    line = Line(network, EAST, WEST)
    line.send(MANY)
    held = max(row[2] for row in kernel_queues(network, "fast"))
    return {"held": held, "arrived": line.arrived(0.6)}


def lost(network: Network) -> dict[str, Any]:
    line = Line(network, EAST, SOUTH)
    refused = line.send(LOST_OF)
    arrived = line.arrived(0.3)
    own = network.port(f"{EAST}-0-access", f"{EAST}-0").read().drops
    return {"refused": refused, "arrived": arrived, "drops_at_own_card": own}


def without_room(network: Network) -> dict[str, Any]:
    """A delay line told to hold few packets, behind the network's back."""
    profile = network.port("fast", WEST).profile
    network.shaper.change(("fast", WEST), profile, ROOM)
    line = Line(network, WEST, EAST)
    line.send(TOO_MANY)
    return {"arrived": line.arrived(0.6)}


def connection(network: Network) -> dict[str, Any]:
    """A transfer from west to south; which congestion control both ends had."""
    address = (str(network.plan.node_address(f"{SOUTH}-0")), PORT)
    server = network.workers[f"{SOUTH}-0"].namespace.call(lambda: socket.create_server(address))
    found = {}

    def receive() -> None:
        accepted, _ = server.accept()
        with accepted:
            found["accepted"] = congestion_control(accepted)
            while accepted.recv(1 << 20):
                pass

    receiver = threading.Thread(target=receive)
    receiver.start()
    with network.workers[f"{WEST}-0"].namespace.call(lambda: socket.create_connection(address)) as sender:
        found["opened"] = congestion_control(sender)
        sender.sendall(bytes(TRANSFER_BYTES))
    receiver.join()
    server.close()
    return found


def congestion_control(end: socket.socket) -> str:
    return end.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


def reported(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Each delay line's last event, when all have reported anew."""
    count = len(events)
    deadline_s = time.monotonic() + _REPORT_S
    while time.monotonic() < deadline_s:
        fresh = {(event["name"], event["from"]): event for event in events[count:]}
        if len(fresh) == 6:
            break
        time.sleep(0.05)
    return {f"{name} from {source}": event for (name, source), event in fresh.items()}


def contained(network: Network, work: Path, run_id: str) -> dict[str, Any]:
    """What a container of the east's worker sees, and what its cgroup allows it."""
    box, log = work / "box", work / "log"
    box.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=711", "box", str(box)], check=True)
    with socket.socket(socket.AF_UNIX) as telemetry:
        telemetry.bind(str(work / "t.sock"))
        sandbox = Sandbox(
            run_id=run_id, clone=CLONE, runs=CLONE / "runs", socket=work / "t.sock", work=box, memory_bytes=1 << 28
        )
        sandbox.rendezvous("w0").touch()
        container = Container(sandbox, sandbox.root, "w0", network.workers[f"{EAST}-0"].namespace.path, log)
        try:
            container.start(["sh", "-c", f"sleep 60 | {sys.executable} -c '{_INSIDE}'"], {"PATH": "/usr/bin:/bin"})
            quota = cpu_quota(container.name)
            deadline_s = time.monotonic() + 20
            while not log.read_text().endswith("}\n") and time.monotonic() < deadline_s:
                time.sleep(0.02)
        finally:
            container.kill()
            container.delete()
    return {**json.loads(log.read_text().splitlines()[-1]), "cpu_quota": quota}


def cpu_quota(cgroup: str) -> str:
    """ "none", or what the kernel says."""
    if (CGROUPS / "cgroup.controllers").exists():
        quota = (CGROUPS / cgroup / "cpu.max").read_text().split()[0]
    else:
        quota = (CGROUPS / "cpu" / cgroup / "cpu.cfs_quota_us").read_text().strip()
    return "none" if quota in ("max", "-1") else quota


def main() -> None:
    work, run_id = Path(sys.argv[1]), sys.argv[2]
    RUNTIME_ROOT.mkdir(parents=True, exist_ok=True)
    own_sysfs()
    chosen = topology()
    events: list[dict[str, Any]] = []

    def report(event: dict[str, Any]) -> None:
        events.append(event)

    with Network(chosen, tcp.profile(TCP, chosen), "nfqueue", report) as network:
        used = {
            "shortest_round_trip_s": {
                "fast": shortest_round_trip_s(network, EAST, WEST),
                "near": shortest_round_trip_s(network, WEST, SOUTH),
            },
            "in_flight": in_flight(network),
            "lost": lost(network),
            "congestion_control": connection(network),
            "without_room": without_room(network),
        }
        seen = {name: looked_at(node) for name, node in network.nodes.items()}
        found = {
            **used,
            "delay_lines": reported(events),
            "contained": contained(network, work, run_id),
            "seen": seen,
            "roles": {name: sorted(getattr(network, name)) for name in ("routers", "link_nodes", "workers")},
            "records": {f"{port.link.name} from {port.source}": port.to_json(1) for port in network.ports},
            "recorded_sysctls": network.sysctls,
        }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
