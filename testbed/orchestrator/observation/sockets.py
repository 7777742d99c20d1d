"""TCP_INFO of every connection in a namespace, over sock_diag."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.orchestrator.emulation.kernel.namespaces import in_network_namespace

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
ANSWER_TIMEOUT_S = 10.0
"""Seconds after which the kernel has not answered: a reader that waits for ever would keep its run from ending."""
_TCP_ESTABLISHED = 1
_INET_DIAG_INFO, _INET_DIAG_CONG = 2, 4
_MESSAGE_BYTES = 72
"""Of struct inet_diag_msg; attributes follow."""
# offsets in struct tcp_info
_RTT_US, _TOTAL_RETRANSMITTED, _BYTES_ACKED, _MIN_RTT_US = 68, 100, 120, 148


@dataclass(frozen=True)
class Connection:
    rtt_s: float
    min_rtt_s: float
    retransmitted: int
    delivered_bytes: int
    congestion_control: str


class ConnectionReader:
    """Reads the established connections of the network namespace at `path`."""

    def __init__(self, path: str) -> None:
        self._socket = in_network_namespace(
            path, lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
        )

    def read(self) -> list[Connection]:
        extensions = 1 << (_INET_DIAG_INFO - 1) | 1 << (_INET_DIAG_CONG - 1)
        body = struct.pack("=BBBxI48x", socket.AF_INET, socket.IPPROTO_TCP, extensions, 1 << _TCP_ESTABLISHED)
        header = struct.pack("=IHHII", 16 + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0)
        self._socket.settimeout(ANSWER_TIMEOUT_S)
        self._socket.send(header + body)
        return list(self._answers())

    def _answers(self) -> Iterator[Connection]:
        while True:
            data, offset = self._socket.recv(1 << 17), 0
            while offset < len(data):
                length, kind = struct.unpack_from("=IH", data, offset)
                if kind == _NLMSG_DONE:
                    return
                if kind == _NLMSG_ERROR:  # nothing follows it
                    (code,) = struct.unpack_from("=i", data, offset + 16)
                    raise OSError(-code, f"connections cannot be read: {os.strerror(-code)}")
                connection = _decode(data[offset + 16 + _MESSAGE_BYTES : offset + length])
                if connection is not None:
                    yield connection
                offset += (length + 3) & ~3

    def close(self) -> None:
        self._socket.close()


def _decode(attributes: bytes) -> Connection | None:
    info, congestion, offset = b"", "", 0
    while offset + 4 <= len(attributes):
        length, kind = struct.unpack_from("=HH", attributes, offset)
        value = attributes[offset + 4 : offset + length]
        if kind == _INET_DIAG_INFO:
            info = value
        elif kind == _INET_DIAG_CONG:
            congestion = value.rstrip(b"\0").decode()
        offset += (length + 3) & ~3
    if len(info) < _MIN_RTT_US + 4:
        return None
    (rtt_us,) = struct.unpack_from("=I", info, _RTT_US)
    (retransmitted,) = struct.unpack_from("=I", info, _TOTAL_RETRANSMITTED)
    (acked,) = struct.unpack_from("=Q", info, _BYTES_ACKED)
    (min_rtt_us,) = struct.unpack_from("=I", info, _MIN_RTT_US)
    return Connection(rtt_us * 1e-6, min_rtt_us * 1e-6, retransmitted, acked, congestion)
