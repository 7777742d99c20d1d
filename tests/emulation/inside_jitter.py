"""In fresh namespaces: a link with jitter by the delay line, probed and filled some times; prints what was found."""

from __future__ import annotations

import json
import sys
import time

from testbed.orchestrator.config.config import compose
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.links.network import Network
from testbed.orchestrator.emulation.measuring.prober import Prober

TIMES = 6


def main() -> None:
    topology = compose(["topo=wan100m", *sys.argv[1:]]).topology
    (link,) = topology.wan_links
    events: list[dict[str, object]] = []
    delays_s: list[float] = []
    faults: list[str] = []
    with (
        Network(topology, tcp.profile("tuned", topology), "nfqueue", events.append) as network,
        Prober(network, events.append) as prober,
    ):
        for _ in range(TIMES):
            measured = prober.measure("idle", access=False)
            delays_s += measured.delay_s[link.name, link.a]
            faults += measured.faults(network.ports)
        time.sleep(1.1)  # until the delay line has told of the last packets
    lines = [e for e in events if e["event"] == "delay_line" and e["from"] == link.a]
    sys.stdout.write(json.dumps({"delays_s": delays_s, "faults": faults, "delay_lines": lines}) + "\n")


if __name__ == "__main__":
    main()
