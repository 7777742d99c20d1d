"""In fresh namespaces: watch a network, add an interface to a worker while it is watched, print what was recorded."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from testbed.orchestrator.config.config import compose
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.links.network import Network
from testbed.orchestrator.emulation.traffic.background import BackgroundTraffic
from testbed.orchestrator.observation.collector import Collector

ADDED = (
    "ip link add extra type veth peer name extra-peer",
    "ip link set extra up",
    "tc qdisc add dev extra root tbf rate 1mbit burst 5kb limit 10kb",
)
"""With a queue of its own, which the collector reads along with its own ones."""
WATCHED_S = 2.5
ASKED = 10
"""Times, of which the quickest counts: others use the machine too."""


def main() -> None:
    topology = compose(["topo=wan100m", "workers=2"]).topology
    events: list[dict[str, Any]] = []
    with Network(topology, tcp.profile("tuned", topology), "nfqueue", events.append) as network:
        background = BackgroundTraffic(network, (), 1.0, events.append)
        collector = Collector(network, {}, background, events.append, lambda link: 0)
        before = collector.foreign_interfaces()
        collector.start()
        namespace = network.workers["virginia-0"].namespace.path
        for command in ADDED:
            subprocess.run(["nsenter", f"--net={namespace}", *command.split()], check=True)
        target = str(network.plan.node_address("virginia-0"))
        source = network.workers["oregon-0"].namespace.path
        ping = ["ping", "-q", "-c", "5", "-i", "0.2", target]
        subprocess.run(["nsenter", f"--net={source}", *ping], stdout=sys.stderr, check=True)
        time.sleep(WATCHED_S)
        collector.stop()
        collector.close()
        again, took_s = [], []
        for _ in range(ASKED):
            started_s = time.perf_counter()
            again += collector.foreign_interfaces()
            took_s.append(time.perf_counter() - started_s)
        found = {"before": before, "again": again, "took_s": min(took_s), "failure": collector.failure_text}
    foreign = [event for event in events if event["event"] == "foreign_interface"]
    hosts = [event for event in events if event["event"] == "host"]
    sys.stdout.write(json.dumps({**found, "foreign": foreign, "hosts": hosts}) + "\n")


if __name__ == "__main__":
    main()
