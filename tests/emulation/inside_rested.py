"""In fresh namespaces: datagrams at once over a link that has rested, some times; prints when they came."""

from __future__ import annotations

import json
import socket
import struct
import sys
import time

from testbed.orchestrator.config.config import compose
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.links.network import Network

TIMES, DATAGRAMS, PAYLOAD_BYTES = 15, 80, 1472
_PORT = 5000
_RESTS_S, _PATIENCE_S = 0.3, 2.0
_BUFFER_BYTES = 8 << 20
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 32, 33, 35


def _end(forced: int) -> socket.socket:
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end.setsockopt(socket.SOL_SOCKET, forced, _BUFFER_BYTES)
    end.settimeout(_PATIENCE_S)
    return end


def _arrival_s(end: socket.socket) -> float:
    """Return the kernel's stamp of the next datagram."""
    _, ancillary, _, _ = end.recvmsg(PAYLOAD_BYTES, 64)
    seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
    return float(seconds + nanoseconds * 1e-9)


def main() -> None:
    topology = compose(["topo=two_regions", "workers=2", *sys.argv[1:]]).topology
    first, last = (node.name for node in topology.nodes)
    bursts = []
    with Network(topology, tcp.profile("tuned", topology), "nfqueue", lambda _: None) as network:
        sender = network.workers[first].namespace.call(lambda: _end(_SO_SNDBUFFORCE))
        receiver = network.workers[last].namespace.call(lambda: _end(_SO_RCVBUFFORCE))
        receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        receiver.bind(("0.0.0.0", _PORT))
        address = str(network.plan.access[last].far), _PORT
        for _ in range(TIMES):
            time.sleep(_RESTS_S)
            for _ in range(DATAGRAMS):
                sender.sendto(bytes(PAYLOAD_BYTES), address)
            bursts.append([_arrival_s(receiver) for _ in range(DATAGRAMS)])
        sender.close()
        receiver.close()
    sys.stdout.write(json.dumps(bursts) + "\n")


if __name__ == "__main__":
    main()
