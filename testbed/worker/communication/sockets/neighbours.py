"""TCP connections of a rank to the next one of a ring, and from the one before: some for each channel."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

_SIOCGIFADDR = 0x8915
_HELLO = struct.Struct("!HH")
"""Channel, and number of the connection in it; the control connection is the first."""


class Board(Protocol):
    """Values of all ranks by name, such as a `Rendezvous`."""

    def put(self, name: str, value: bytes) -> None: ...

    def get(self, name: str) -> bytes: ...


@dataclass(frozen=True)
class Lane:
    """Connections of one channel to one neighbour."""

    control: socket.socket
    """Carries the size of each message, and the data too if there are no other connections."""
    data: tuple[socket.socket, ...]

    @property
    def all(self) -> tuple[socket.socket, ...]:
        return (self.control, *self.data)


class Neighbours:
    """Connections of one rank, open until `close`; buffers are the kernel's to choose."""

    def __init__(self, outgoing: list[Lane], incoming: list[Lane]) -> None:
        self.outgoing, self.incoming = outgoing, incoming

    @classmethod
    def meet(
        cls, board: Board, *, rank: int, size: int, interface: str, channels: int, sockets: int, timeout_s: float
    ) -> Neighbours:
        """Connect to the next rank and wait for the one before.

        Args:
            board: Place where ranks find each other's addresses.
            interface: Network interface whose address the others use.
            channels: Number of rings.
            sockets: Data connections of each channel; 0: data share the control connection.

        Raises:
            OSError: A neighbour cannot be reached, or did not come in time.
        """
        with socket.create_server((_address_of(interface), 0), backlog=channels * (sockets + 1)) as server:
            server.settimeout(timeout_s)
            host, port = server.getsockname()
            board.put(f"ring/{rank}", f"{host} {port}".encode())
            host, _, port_text = board.get(f"ring/{(rank + 1) % size}").decode().partition(" ")
            with contextlib.ExitStack() as stack:
                ours = {
                    (channel, number): stack.enter_context(_connected(host, int(port_text), channel, number, timeout_s))
                    for channel in range(channels)
                    for number in range(sockets + 1)
                }
                theirs = dict(_accepted(server, len(ours), stack.enter_context, timeout_s))
                stack.pop_all()
        return cls(_lanes(ours, channels, sockets), _lanes(theirs, channels, sockets))

    def close(self) -> None:
        for lane in (*self.outgoing, *self.incoming):
            for connection in lane.all:
                connection.close()


def _address_of(interface: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
    return socket.inet_ntoa(answer[20:24])


def _connected(host: str, port: int, channel: int, number: int, timeout_s: float) -> socket.socket:
    found = socket.create_connection((host, port), timeout_s)
    found.sendall(_HELLO.pack(channel, number))
    return _ready(found)


def _accepted(
    server: socket.socket, count: int, keep: Callable[[socket.socket], socket.socket], timeout_s: float
) -> Iterator[tuple[tuple[int, int], socket.socket]]:
    for _ in range(count):
        found = keep(server.accept()[0])
        found.settimeout(timeout_s)
        hello = found.recv(_HELLO.size, socket.MSG_WAITALL)
        if len(hello) != _HELLO.size:
            raise ConnectionError("the rank before closed a connection before it said which one it is")
        channel, number = _HELLO.unpack(hello)
        yield (channel, number), _ready(found)


def _ready(connection: socket.socket) -> socket.socket:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setblocking(False)
    return connection


def _lanes(found: dict[tuple[int, int], socket.socket], channels: int, sockets: int) -> list[Lane]:
    return [
        Lane(found[channel, 0], tuple(found[channel, number] for number in range(1, sockets + 1)))
        for channel in range(channels)
    ]
