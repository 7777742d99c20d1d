"""A TCP flow's two ends, as processes inside nodes: `flow.py receive PORT`, `flow.py send ADDRESS PORT SECONDS BYTES`.

The sender stops after so many seconds or bytes, whichever is given (0: not). The receiver prints when it had the first
and the last byte, and samples of what it had received by when, on the machine's monotonic clock.
"""

from __future__ import annotations

import json
import socket
import sys
import time

_CHUNK_BYTES = 1 << 18
_SAMPLE_EVERY_S = 0.02
_CONNECT_TIMEOUT_S = 10.0


def receive(port: int) -> None:
    with socket.create_server(("0.0.0.0", port)) as server:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        connection, _ = server.accept()
    buffer = bytearray(_CHUNK_BYTES)
    received_bytes, first_s, last_s = 0, 0.0, 0.0
    samples: list[tuple[float, int]] = []
    while count := connection.recv_into(buffer):
        last_s = time.monotonic()
        first_s = first_s or last_s
        received_bytes += count
        if not samples or last_s - samples[-1][0] >= _SAMPLE_EVERY_S:
            samples.append((last_s, received_bytes))
    connection.close()
    found = {"first_s": first_s, "last_s": last_s, "received_bytes": received_bytes, "samples": samples}
    sys.stdout.write(json.dumps(found) + "\n")


def send(address: str, port: int, seconds: float, size_bytes: int) -> None:
    chunk = memoryview(bytes(_CHUNK_BYTES))
    started_s = time.monotonic()
    with socket.create_connection((address, port), timeout=_CONNECT_TIMEOUT_S) as connection:
        connection.settimeout(None)
        left = size_bytes or 1 << 62
        while left and not (seconds and time.monotonic() - started_s > seconds):
            left -= connection.send(chunk[: min(left, _CHUNK_BYTES)])
    sys.stdout.write(json.dumps({"started_s": started_s, "ended_s": time.monotonic()}) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(int(sys.argv[2]))
    else:
        send(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
