"""Numbered packets, as processes inside nodes: `stream.py receive`, `stream.py send ADDRESS COUNT BYTES BUFFER`.

The sender waits for room in its link's queue, so nothing is lost before the shaper. The receiver prints the runs of
numbers that came, as [first, last], after a second without any.
"""

from __future__ import annotations

import json
import socket
import struct
import sys

_PORT = 62_100
_NUMBER = struct.Struct("!I")
_MAX_BYTES = 2048
_RECEIVE_BUFFER_BYTES = 32 << 20
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_FIRST_TIMEOUT_S, _TIMEOUT_S = 10.0, 1.0


def receive() -> None:
    runs: list[list[int]] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
        end.bind(("0.0.0.0", _PORT))
        end.settimeout(_FIRST_TIMEOUT_S)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        try:
            while True:
                (number,) = _NUMBER.unpack_from(end.recv(_MAX_BYTES))
                end.settimeout(_TIMEOUT_S)
                if runs and runs[-1][1] == number - 1:
                    runs[-1][1] = number
                else:
                    runs.append([number, number])
        except TimeoutError:
            sys.stdout.write(json.dumps(runs) + "\n")


def send(address: str, count: int, size_bytes: int, buffer_bytes: int) -> None:
    padding = bytes(size_bytes - _NUMBER.size)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, buffer_bytes // 2)  # the kernel doubles it
        for number in range(count):
            end.sendto(_NUMBER.pack(number) + padding, (address, _PORT))


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive()
    else:
        send(sys.argv[2], *(int(word) for word in sys.argv[3:6]))
