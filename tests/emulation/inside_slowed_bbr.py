"""For each dilation among the arguments, a flow on loopback: how often its window shrank to BBR's least one."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
import time

from testbed.orchestrator.emulation.kernel.slowed_bbr import SlowedBbr, lack

FLOW_S, START_S = 4.0, 0.5
SND_CWND = 80
"""Offset in Linux's `struct tcp_info`."""
LEAST_PACKETS = 4
"""In flight while BBR measures the round trip."""


def pauses(dilation: float) -> int:
    """Count the moments at which the window was BBR's least one, after the connection has started."""
    with SlowedBbr(dilation) as bbr, socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as sender:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, bbr.name.encode())
        sender.connect(server.getsockname())
        receiver = server.accept()[0]
        readers = [threading.Thread(target=_drain, args=(receiver,)), threading.Thread(target=_fill, args=(sender,))]
        for reader in readers:
            reader.start()
        begin_s, found = time.monotonic(), 0
        while (now_s := time.monotonic() - begin_s) < FLOW_S:
            time.sleep(0.002)
            (window,) = struct.unpack_from("<I", sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), SND_CWND)
            found += now_s > START_S and window <= LEAST_PACKETS
        sender.shutdown(socket.SHUT_RDWR)
        for reader in readers:
            reader.join()
        receiver.close()
        return found


def _drain(receiver: socket.socket) -> None:
    while receiver.recv(1 << 16):
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
    if (reason := lack()) is not None:
        print(json.dumps({"lack": reason}))
        return
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    before = names()
    found = {dilation: pauses(float(dilation)) for dilation in sys.argv[1:]}
    print(json.dumps({"pauses": found, "left": [name for name in names() if name not in before]}))


main()
