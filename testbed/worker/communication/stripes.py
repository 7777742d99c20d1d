"""A stream of bytes over several connections: so many bytes on one, as many on the next, in turn and both ways."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from testbed.core.costs.sockets import NCCL


class Stripes:
    """One end. Which connection has a byte follows from its place in the stream, so nothing is sent beside the bytes.

    Connections never block. They are `Stripes`' alone, and closed by it.
    """

    def __init__(self, connections: Sequence[socket.socket], piece_bytes: int = NCCL.piece_bytes) -> None:
        self._connections, self._piece_bytes = tuple(connections), piece_bytes
        self._sent_bytes = self._received_bytes = 0
        for connection in self._connections:
            connection.setblocking(False)

    @property
    def sends_on(self) -> socket.socket:
        """The connection that the next byte leaves on."""
        return self._at(self._sent_bytes)

    @property
    def receives_on(self) -> socket.socket:
        """The connection that the next byte comes from."""
        return self._at(self._received_bytes)

    def send(self, data: memoryview) -> int:
        """Send the beginning of `data`, and return how many bytes the kernel took, as `socket.send` does."""
        count = self.sends_on.send(data[: self._left(self._sent_bytes)])
        self._sent_bytes += count
        return count

    def receive(self, most: int) -> bytes:
        """Return what has come, at most so many bytes; nothing if the other end has closed it, as `socket.recv`."""
        found = self.receives_on.recv(min(most, self._left(self._received_bytes)))
        self._received_bytes += len(found)
        return found

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def _at(self, place: int) -> socket.socket:
        return self._connections[place // self._piece_bytes % len(self._connections)]

    def _left(self, place: int) -> int:
        """Return how many bytes from a place on are on the same connection; one connection alone has all."""
        return self._piece_bytes - place % self._piece_bytes if len(self._connections) > 1 else 1 << 62
