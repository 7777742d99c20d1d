"""rtnetlink in batches: many requests in one message to the kernel, each acknowledged, none of them a process.

The socket is a plain one: pyroute2's own open another for each thread, in that thread's namespace.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import threading
from collections.abc import Iterator, Sequence

from testbed.core.errors import RunError
from testbed.orchestrator.emulation.kernel.namespaces import in_network_namespace
from testbed.orchestrator.emulation.kernel.netlink_requests import Request

_HEADER = struct.Struct("=IHHII")
"""Length, type, flags, sequence number, port."""
_F_REQUEST, _F_ACK, _F_ECHO, _F_DUMP = 0x1, 0x4, 0x8, 0x300
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_SOL_NETLINK, _NETLINK_CAP_ACK = 270, 10
_ANSWER_TIMEOUT_S = 20.0
_MAX_REQUESTS = 32
"""Requests in one message; their acknowledgements must fit in the socket's buffer."""
_RECEIVE_BYTES = 1 << 17
_SIOCGIFMTU, _IFREQ = 0x8921, struct.Struct("16si12x")


class RouteSocket:
    """A netlink route socket in the namespace at `path`; usable from any thread."""

    def __init__(self, path: str) -> None:
        self._socket = in_network_namespace(path, self._open)
        self._lock = threading.Lock()

    @staticmethod
    def _open() -> socket.socket:
        found = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        found.settimeout(_ANSWER_TIMEOUT_S)
        found.setsockopt(_SOL_NETLINK, _NETLINK_CAP_ACK, 1)  # an error need not bring the request back
        return found

    def send(self, requests: Sequence[Request], where: str) -> None:
        """Send all, in order.

        Raises:
            RunError: with the first one that the kernel refused, and `where`.
        """
        for start in range(0, len(requests), _MAX_REQUESTS):
            self._send(requests[start : start + _MAX_REQUESTS], where)

    def _send(self, requests: Sequence[Request], where: str) -> None:
        message = bytearray()
        for number, request in enumerate(requests):
            length, kind, flags, _, port = _HEADER.unpack_from(request.message)
            message += _HEADER.pack(length, kind, flags | _F_ACK, number, port) + request.message[_HEADER.size :]
            message += bytes(-len(message) % 4)
        waiting, refused = len(requests), ""
        with self._lock:
            self._socket.send(message)
            while waiting:
                for kind, number, answer in self._receive():
                    if kind != _NLMSG_ERROR:
                        continue
                    waiting -= 1
                    (error,) = struct.unpack_from("=i", answer, _HEADER.size)
                    if error and not refused:
                        refused = f"{where}: kernel refused `{requests[number].said}`: {os.strerror(-error)}"
        if refused:
            raise RunError(refused)

    def dump(self, kind: int, body_bytes: int) -> list[bytes]:
        """Every object of a kind, a message each; `body_bytes` of the request are 0."""
        request = _HEADER.pack(_HEADER.size + body_bytes, kind, _F_REQUEST | _F_DUMP, 1, 0) + bytes(body_bytes)
        found: list[bytes] = []
        with self._lock:
            self._socket.send(request)
            while True:
                for answer, _, message in self._receive():
                    if answer == _NLMSG_DONE:
                        return found
                    self._raise_error(answer, message)
                    found.append(message)

    def get(self, kind: int, body: bytes) -> bytes:
        """The one object that `body` asks for."""
        with self._lock:
            self._socket.send(_HEADER.pack(_HEADER.size + len(body), kind, _F_REQUEST | _F_ECHO, 1, 0) + body)
            ((answer, _, message),) = self._receive()
        self._raise_error(answer, message)
        return message

    @staticmethod
    def _raise_error(answer: int, message: bytes) -> None:
        if answer == _NLMSG_ERROR:
            (error,) = struct.unpack_from("=i", message, _HEADER.size)
            raise OSError(-error, f"netlink: {os.strerror(-error)}")

    def _receive(self) -> Iterator[tuple[int, int, bytes]]:
        """(type, sequence number, whole message) of what has come in one datagram."""
        data, offset = self._socket.recv(_RECEIVE_BYTES), 0
        while offset < len(data):
            length, kind, _, number, _ = _HEADER.unpack_from(data, offset)
            yield kind, number, data[offset : offset + length]
            offset += (length + 3) & ~3

    def close(self) -> None:
        self._socket.close()


def attributes(data: bytes) -> dict[int, bytes]:
    """Netlink attributes by type."""
    found, offset = {}, 0
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        if length < 4:
            break
        found[kind & 0x3FFF] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return found


def mtu_bytes_of(interface: str) -> int:
    """Return the largest IP packet of an interface of the caller's network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, _SIOCGIFMTU, _IFREQ.pack(interface.encode(), 0))
    return int(_IFREQ.unpack(answer)[1])
