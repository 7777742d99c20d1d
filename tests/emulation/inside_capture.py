"""In fresh namespaces: a link, one TCP transfer over it for some seconds, captured; prints the queues' own counters.

Arguments: topology, capture mode, directory, seconds, most bytes of a file.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from pathlib import Path

from testbed.orchestrator.config.config import compose
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.links.network import Network
from testbed.orchestrator.emulation.measuring.capture import Capture

PORT = 5000
CHUNK = bytes(1 << 16)


def transfer(network: Network, seconds: float) -> None:
    """From the first worker to the last, until everything has arrived."""
    first, *_, last = network.workers
    address = (str(network.plan.node_address(last)), PORT)
    server = network.workers[last].namespace.call(lambda: socket.create_server(address))

    def receive() -> None:
        connection, _ = server.accept()
        with connection:
            while connection.recv(1 << 20):
                pass

    receiver = threading.Thread(target=receive)
    receiver.start()
    with network.workers[first].namespace.call(lambda: socket.create_connection(address)) as sender:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            sender.sendall(CHUNK)
    receiver.join()
    server.close()
    time.sleep(0.3)  # the last acknowledgements


def main() -> None:
    topology = compose([f"topo={sys.argv[1]}", "workers=2"]).topology
    with Network(topology, tcp.profile("tuned", topology), "nfqueue", lambda _: None) as network:
        ports = [port for port in network.ports if port.link.wan]
        with Capture(network, Path(sys.argv[3]), sys.argv[2], int(sys.argv[5])) as capture:
            before = {port.source: port.read() for port in ports}
            transfer(network, float(sys.argv[4]))
            after = {port.source: port.read() for port in ports}
            failure = capture.failure
        counted = {
            source: {
                "bytes": now.sent_bytes - before[source].sent_bytes,
                "packets": now.packets - before[source].packets,
            }
            for source, now in after.items()
        }
    sys.stdout.write(json.dumps({"counted": counted, "failure": failure}) + "\n")


if __name__ == "__main__":
    main()
