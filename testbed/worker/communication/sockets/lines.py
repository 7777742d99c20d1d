"""One direction of a channel: its connections, the threads that serve them, and messages cut into pieces."""

from __future__ import annotations

import math
import selectors
import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.core.costs.sockets import Nccl
from testbed.worker.communication.sockets.neighbours import Lane


@dataclass
class Slice:
    """One that is under way, and the bytes that are missing yet."""

    missing: int
    due_s: float = math.inf
    """End of what the host does with it; known once all of it has come."""


@dataclass
class Piece:
    """Bytes of a slice on one connection."""

    view: memoryview
    of: Slice


class Line:
    """One direction of a connection: pieces in their order."""

    def __init__(self, connection: socket.socket, event: int) -> None:
        self.connection, self.event = connection, event
        self.pieces = deque[Piece]()

    def run(self) -> None:
        """Send or receive what can be without waiting.

        Raises:
            ConnectionError: The neighbour has closed the connection.
        """
        try:
            while self.pieces:
                piece = self.pieces[0]
                if self.event == selectors.EVENT_WRITE:
                    count = self.connection.send(piece.view)
                elif not (count := self.connection.recv_into(piece.view)):
                    raise ConnectionError("the rank before has closed its connection")
                piece.view, piece.of.missing = piece.view[count:], piece.of.missing - count
                if not piece.view:
                    self.pieces.popleft()
        except BlockingIOError:
            pass


class Thread:
    """Connections that one thread of the library serves.

    It ends as many pieces as it has connections before it begins the next ones, even where a connection has ended its
    own: so the slowest of them holds the others up, and fewer bytes are under way.
    """

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines, self._room = lines, len(lines)
        self._waiting = deque[tuple[Line, Piece]]()

    def post(self, line: Line, piece: Piece) -> None:
        self._waiting.append((line, piece))
        self.go_on()

    def go_on(self) -> None:
        """Hand over to the connections what may be begun."""
        while self._waiting:
            if not self._room:
                if any(line.pieces for line in self._lines):
                    return
                self._room = len(self._lines)
            line, piece = self._waiting.popleft()
            line.pieces.append(piece)
            self._room -= 1


class Lines:
    """One direction of a channel: messages in pieces over its connections, round robin.

    Args:
        event: What its connections are watched for: selectors.EVENT_READ or EVENT_WRITE.
        library: Says how many threads serve the connections, and how small a piece may be.
    """

    def __init__(self, lane: Lane, event: int, library: Nccl) -> None:
        self.control = Line(lane.control, event)
        self._data = [Line(connection, event) for connection in lane.data]
        threads = min(library.threads, len(self._data))
        self._threads = [Thread(self._data[number::threads]) for number in range(threads)]
        self._piece_bytes, self._next = library.piece_bytes, 0

    @property
    def all(self) -> set[Line]:
        return {self.control, *self._data}

    def post(self, header: memoryview, body: memoryview) -> Slice:
        """Queue a message; return what says when it is through."""
        message = Slice(len(header) + len(body))
        self.control.pieces.append(Piece(header, message))
        if not self._data:
            self.control.pieces.append(Piece(body, message))
            return message
        width = max(self._piece_bytes, -(-len(body) // len(self._data)))
        for at in range(0, len(body), width):
            thread = self._threads[self._next % len(self._threads)]
            thread.post(self._data[self._next], Piece(body[at : at + width], message))
            self._next = (self._next + 1) % len(self._data)
        return message

    def go_on(self) -> None:
        """Begin the pieces that may be begun, after others have ended."""
        for thread in self._threads:
            thread.go_on()
