"""How long networks take to come up and go down: ours, plain Mininet's of the same shape, ours with containers.

The shape is a star: every node has one rate-limited link, to a router (ours) or a bridge (Mininet's).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mininet.link import TCLink
from mininet.net import Mininet
from mininet.nodelib import LinuxBridge

from experiments.common import sources
from experiments.common.benchmark import Point
from testbed.core.record.run_directory import RUNTIME_ROOT
from testbed.core.spec.topology import Node, Topology
from testbed.orchestrator.emulation.containers.runc_container import Container
from testbed.orchestrator.emulation.containers.sandbox import Sandbox
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.links.network import Network
from testbed.orchestrator.machine.cleanup import leftovers
from testbed.orchestrator.machine.clone import CLONE
from topologies.parts import access_links

NODES = (8, 32, 64, 128)
REPEATS = 3
_MININET_S_PER_NODE = 0.2
_BW_MBIT_S = 100
_STARTS_AT_ONCE = 4
"""As many containers as a run starts at a time."""


def points(*, quick: bool) -> list[Point]:
    """The systems take turns, so that a slow minute of the machine strikes both."""
    if quick:
        return [Point({"system": system, "nodes": 8, "repeat": 0}, 3) for system in ("longhaul", "mininet")]
    return [
        *(
            Point({"system": system, "nodes": nodes, "repeat": repeat}, seconds)
            for repeat in range(REPEATS)
            for nodes in NODES
            for system, seconds in (("longhaul", 3), ("mininet", 3 + _MININET_S_PER_NODE * nodes))
        ),
        *(Point({"system": "longhaul", "nodes": 1000, "repeat": repeat}, 15) for repeat in range(REPEATS)),
        *(
            Point({"system": "longhaul with containers", "nodes": nodes, "repeat": repeat}, 4 + nodes / 8)
            for repeat in range(REPEATS)
            for nodes in NODES
        ),
    ]


def depends_on(**_: Any) -> Iterator[Path]:
    return sources.of_network("testbed.orchestrator.emulation.containers.runc_container")


def measure(system: str, nodes: int, repeat: int) -> dict[str, Any]:
    if system == "mininet":
        return _mininet(nodes)
    return _longhaul(nodes, with_containers="containers" in system, run_id=f"bench-{uuid.uuid4().hex[:8]}")


def _longhaul(count: int, *, with_containers: bool, run_id: str) -> dict[str, Any]:
    nodes = tuple(Node(name=f"n{index}", region="hub") for index in range(count))
    topology = Topology(name="hub", regions=("hub",), nodes=nodes, links=access_links(nodes, _BW_MBIT_S * 1e6))
    started_s = time.monotonic()
    with (
        Network(topology, tcp.profile("tuned", topology), "nfqueue", lambda _: None) as network,
        _work(run_id) if with_containers else contextlib.nullcontext() as work,
    ):
        network_s = time.monotonic() - started_s
        containers = _containers(network, run_id, work) if work else []
        up_s = time.monotonic() - started_s
        running = sum(container.exit_code() is None for container in containers)
        started_s = time.monotonic()
        _remove(containers)
    return {
        "network_up_s": network_s,
        "up_s": up_s,
        "down_s": time.monotonic() - started_s,
        "containers": running,
        "left": len(leftovers(run_id)),
    }


@contextlib.contextmanager
def _work(run_id: str) -> Iterator[Path]:
    """A directory in memory, in place of a run's."""
    work = RUNTIME_ROOT / run_id
    work.mkdir(parents=True)
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=711", "longhaul", str(work)], check=True)
        yield work
    finally:
        subprocess.run(["umount", "--lazy", str(work)], check=False)
        work.rmdir()


def _containers(network: Network, run_id: str, work: Path) -> list[Container]:
    """As a run starts them, with `sleep` in place of a worker."""
    socket = work / "socket"
    socket.touch()
    sandbox = Sandbox(run_id, CLONE, work / "runs", socket, work / "box", 1 << 28)
    root = sandbox.root
    for name in network.workers:
        sandbox.rendezvous(name).touch()
    containers = [
        Container(sandbox, root, name, node.namespace.path, work / f"{name}.log")
        for name, node in network.workers.items()
    ]
    try:
        with ThreadPoolExecutor(_STARTS_AT_ONCE) as pool:
            list(
                pool.map(
                    lambda one: one.start(["sleep", "1000"], {"PATH": f"{sys.prefix}/bin:/usr/bin:/bin"}), containers
                )
            )
    except BaseException:
        _remove(containers)
        raise
    return containers


def _remove(containers: list[Container]) -> None:
    for container in containers:
        container.kill()
    with ThreadPoolExecutor(_STARTS_AT_ONCE) as pool:
        list(pool.map(Container.delete, containers))


class Bridge(LinuxBridge):  # type: ignore[misc]
    """Mininet's, with `ip` in place of `brctl`, which is no dependency of Mininet's: as many commands."""

    def start(self, _controllers: object) -> None:
        self.cmd("ip link add", self, "type bridge")
        for interface in self.intfList():
            if self.name in interface.name:
                self.cmd("ip link set dev", interface, "master", self)
        self.cmd("ip link set dev", self, "up")

    def stop(self, deleteIntfs: bool = True) -> None:
        self.cmd("ip link del", self)
        super(LinuxBridge, self).stop(deleteIntfs)

    @classmethod
    def setup(cls) -> None:
        pass


def _mininet(count: int) -> dict[str, Any]:
    Mininet.inited = True  # its own set-up raises limits and sysctls of the host
    started_s = time.monotonic()
    net = Mininet(topo=None, controller=None, build=False, switch=Bridge, link=TCLink)
    switch = net.addSwitch("s1")
    for index in range(count):
        net.addLink(net.addHost(f"h{index}"), switch, bw=_BW_MBIT_S)
    net.start()
    up_s = time.monotonic() - started_s
    limited = net.hosts[-1].cmd(f"tc qdisc show dev h{count - 1}-eth0")
    started_s = time.monotonic()
    net.stop()
    return {"up_s": up_s, "down_s": time.monotonic() - started_s, "is_limited": "htb" in limited}
