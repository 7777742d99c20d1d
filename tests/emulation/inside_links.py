"""In fresh namespaces: build a topology, measure its links idle and beside busy processes, print what was found."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from testbed.orchestrator.config.config import compose
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.links.network import Network
from testbed.orchestrator.emulation.measuring.prober import Prober

BUSY_PROCESSES = 2 * (os.cpu_count() or 2)


def main() -> None:
    topology = compose([f"topo={sys.argv[1]}", *sys.argv[2:]]).topology
    events: list[dict[str, object]] = []
    found = {}
    with (
        Network(topology, tcp.profile("tuned", topology), "nfqueue", events.append) as network,
        Prober(network, events.append) as prober,
    ):
        for stage in ("idle", "busy"):
            hogs = [
                subprocess.Popen([sys.executable, "-c", "while True: pass"])
                for _ in range(BUSY_PROCESSES if stage == "busy" else 0)
            ]
            measured = prober.measure(stage, access=stage == "idle")
            found[stage] = {
                "rtt_s": measured.rtt_s,
                "bursts": list(measured.bursts.values()),
                "faults": measured.faults(network.ports),
                "steal_ratio": measured.steal_ratio,
            }
            for hog in hogs:
                hog.kill()
    sys.stdout.write(json.dumps({**found, "delay_lines": [e for e in events if e["event"] == "delay_line"]}) + "\n")


if __name__ == "__main__":
    main()
