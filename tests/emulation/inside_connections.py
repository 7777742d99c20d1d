"""In fresh namespaces: ranks over two uplinks with a cap on each TCP connection, with one connection and with several.

Its argument is JSON: `topology` (words for `compose`), `cap_bit_s`, `connections`, `size_bytes`. Prints what each rank
said, and the bytes that left each node.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from testbed.orchestrator.config.config import compose
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.kernel.slowed_tcp import SlowedTcp, lack
from testbed.orchestrator.emulation.links.network import WORKER_INTERFACE, Network
from testbed.orchestrator.machine.clone import CLONE, environment

PROGRAM, LIMIT_S = Path(__file__).parent / "connecting.py", 120.0


def measured(network: Network, connections: int, size_bytes: int) -> dict[str, Any]:
    before = {port.key: port.read() for port in network.ports}
    with tempfile.TemporaryDirectory() as folder:
        tail = [f"{folder}/store", WORKER_INTERFACE, str(connections), str(size_bytes)]
        ranks = [
            network.workers[node.name].namespace.popen(
                [sys.executable, str(PROGRAM), str(rank), *tail], stdout=subprocess.PIPE, env=environment(), cwd=CLONE
            )
            for rank, node in enumerate(network.topology.nodes)
        ]
        said = [json.loads(rank.communicate(timeout=LIMIT_S)[0]) for rank in ranks]
    after = {port.key: port.read() for port in network.ports}
    sent = {key[1]: after[key].sent_bytes - before[key].sent_bytes for key in after}
    return {"said": said, "sent_bytes": sent}


def main() -> None:
    asked = json.loads(sys.argv[1])
    if reason := lack("cubic"):
        print(json.dumps({"lack": reason}))
        return
    topology = compose(asked["topology"]).topology
    with SlowedTcp("cubic", 1.0, asked["cap_bit_s"]) as control:
        settings = dataclasses.replace(tcp.profile("stock", topology), registered=control.name)
        with Network(topology, settings, "nfqueue", lambda _: None) as network:
            found = {count: measured(network, count, asked["size_bytes"]) for count in asked["connections"]}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
