"""Frames between a server and its clients: to one, to many, from many, and how a client comes in or back.

Everything has a deadline, in seconds of `time.monotonic`, and nothing waits beyond it. Whoever sends garbage, stalls or
dies is `Refused` or `Gone`, its connection is closed, and the others' frames arrive; it may connect again.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType

from testbed.core.errors import RunError
from testbed.worker.methods.parameter_server.transport.connection import Charge, Connection, Gone
from testbed.worker.methods.parameter_server.transport.frame_errors import Refusal, Refused
from testbed.worker.methods.parameter_server.transport.frame_parser import Expected
from testbed.worker.methods.parameter_server.transport.frames import SERVER, Buffer, Frame
from testbed.worker.methods.parameter_server.transport.transfers import Pace, Receiving, Sending, attempt, drive

__all__ = ["SERVER", "Connection", "Gone", "Listener", "Pace", "connect", "gather", "receive", "scatter", "send"]


def gather(
    connections: Mapping[int, Connection], expected: Expected, *, deadline_s: float, pace: Pace
) -> Iterator[tuple[int, Frame | Refused | Gone]]:
    """One frame of each client, in the order in which they are whole; the kernel goes on receiving others' meanwhile.

    What is no frame comes once too: a client is never missing. Its connection is closed then. The tensors of a frame
    are views of a buffer of its own. The deadline is put off by the caller's time between two frames.

    Args:
        expected: of all; each client's sender must be the peer of its connection.
    """
    receiving = {client: Receiving(connection, expected) for client, connection in connections.items()}
    return drive(receiving, deadline_s=deadline_s, pace=pace)


def scatter(
    connections: Mapping[int, Connection], frames: Mapping[int, Sequence[Buffer]], *, deadline_s: float, pace: Pace
) -> Iterator[tuple[int, int | Refused | Gone]]:
    """Send a frame to each client, all at once: a slow one delays no other.

    Args:
        frames: for each client what `Frame.pack` gives; pieces must stay as they are until all have ended.

    Yields:
        A client, and how many bytes the kernel took for it, or why its connection is over.
    """
    sending = {client: Sending(connections[client], pieces) for client, pieces in frames.items()}
    return drive(sending, deadline_s=deadline_s, pace=pace)


def send(connection: Connection, pieces: Sequence[Buffer], expected: Expected, *, deadline_s: float, pace: Pace) -> int:
    """Send one frame; how many bytes it has.

    Args:
        expected: what a refusal is held to, with which the other end may break it off.

    Raises:
        Refused: it took too long.
        Gone: the connection is over; `reason` is the other end's, if it gave one.
    """
    transfer = Sending(connection, pieces, expected if connection.peer is None else expected.only(connection.peer))
    ((_, end),) = drive({0: transfer}, deadline_s=deadline_s, pace=pace)
    if isinstance(end, Refused | Gone):
        raise end
    return end


def receive(connection: Connection, expected: Expected, *, deadline_s: float, pace: Pace) -> Frame:
    """
    Raises:
        Refused: what came cannot be taken, or nothing did in time.
        Gone: the connection is over; `reason` is the other end's, if it gave one.
    """
    ((_, end),) = gather({0: connection}, expected, deadline_s=deadline_s, pace=pace)
    if isinstance(end, Refused | Gone):
        raise end
    return end


def connect(
    address: str,
    port: int,
    *,
    own: int,
    deadline_s: float,
    charge: Charge,
    peer: int = SERVER,
    retry_s: float = 0.2,
) -> Connection:
    """A connection to a server, which may not be there yet, or not again.

    Args:
        address: a number, of IPv4 or IPv6.
        retry_s: wall seconds between an attempt that failed and the next.

    Raises:
        Gone: nobody answered by the deadline.
    """
    while True:
        sock = socket.socket(_family(address), socket.SOCK_STREAM)
        try:
            sock.settimeout(max(deadline_s - time.monotonic(), 1e-3))
            sock.connect((address, port))
            if sock.getsockname() != sock.getpeername():  # where nobody listens, a free port may be given, and met
                return Connection(sock, own=own, peer=peer, charge=charge)
            cause = "it would have been a connection to itself"
        except OSError as error:
            cause = error.strerror or str(error)
        sock.close()
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise Gone(f"no server at {address} port {port} by the deadline: {cause}")
        time.sleep(min(retry_s, left_s))


class Listener:
    """Where clients come in. A newcomer is a client once it has said hello; until then it delays nobody."""

    def __init__(
        self,
        address: str,
        port: int = 0,
        *,
        charge: Charge,
        hello_s: float,
        most_newcomers: int,
        own: int = SERVER,
    ) -> None:
        """
        Args:
            port: 0: a free one, which `port` then is.
            hello_s: wall seconds that a newcomer has to say hello.
            most_newcomers: of a further one the oldest gives way.

        Raises:
            RunError: the address and port cannot be had.
        """
        self._own, self._charge, self._hello_s, self._most = own, charge, hello_s, most_newcomers
        self._newcomers: dict[Receiving, float] = {}
        self._socket = socket.socket(_family(address), socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((address, port))
            self._socket.listen(socket.SOMAXCONN)
        except OSError as error:
            self._socket.close()
            raise RunError(f"cannot listen at {address} port {port}: {error.strerror or error}") from error
        self._socket.setblocking(False)
        self.address: str
        self.port: int
        self.address, self.port = self._socket.getsockname()[:2]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ, None)

    def admit(self, connections: dict[int, Connection], expected: Expected, *, deadline_s: float) -> Iterator[Frame]:
        """Put whoever says hello into `connections`, and yield its hello. Newcomers that said none yet are kept.

        A client that comes back takes the place of its older connection, which is refused; so not to be called while
        something is sent over `connections`. The caller stops asking once it has enough.

        Args:
            expected: of a hello. Its `senders` are those who may come.
            deadline_s: once it is past, who is there already is let in, and nobody waited for.

        Raises:
            RunError: the process may open no more files.
        """
        while True:
            now_s = time.monotonic()
            wake_s = min([deadline_s, *self._newcomers.values()])
            for item, _ in self._selector.select(max(0.0, wake_s - now_s)):
                for newcomer in self._accept(expected) if item.data is None else [item.data]:
                    if (hello := self._hello(newcomer)) is not None:
                        _admit(connections, newcomer, hello)
                        yield hello
            for newcomer, until_s in list(self._newcomers.items()):
                if time.monotonic() >= until_s:
                    attempt(newcomer, newcomer.expire)
                    self._forget(newcomer)
            if now_s >= deadline_s:
                return

    def close(self) -> None:
        """Those who were let in stay."""
        for newcomer in self._newcomers:
            newcomer.connection.close()
        self._newcomers.clear()
        self._selector.close()
        self._socket.close()

    def __enter__(self) -> Listener:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self, expected: Expected) -> Iterator[Receiving]:
        """Those who wait to be, a few at a time: a flood of them must not keep the others."""
        for _ in range(self._most):
            try:
                sock, _address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                line = f"cannot take a further connection: {error.strerror}; allow more open files (ulimit -n)"
                raise RunError(line) from error
            if len(self._newcomers) >= self._most:
                self._forget(next(iter(self._newcomers)))
            newcomer = Receiving(Connection(sock, own=self._own, peer=None, charge=self._charge), expected)
            self._newcomers[newcomer] = time.monotonic() + self._hello_s
            self._selector.register(sock, newcomer.event, newcomer)
            yield newcomer

    def _hello(self, newcomer: Receiving) -> Frame | None:
        if newcomer not in self._newcomers:  # it gave way
            return None
        end = attempt(newcomer, newcomer.step)
        if isinstance(end, Frame):
            del self._newcomers[newcomer]
            self._selector.unregister(newcomer.connection.socket)
            return end
        if end is not None:
            self._forget(newcomer)
        return None

    def _forget(self, newcomer: Receiving) -> None:
        del self._newcomers[newcomer]
        self._selector.unregister(newcomer.connection.socket)
        newcomer.connection.close()


def _admit(connections: dict[int, Connection], newcomer: Receiving, hello: Frame) -> None:
    connection = newcomer.connection
    connection.peer = hello.sender
    older = connections.get(hello.sender)
    if older is not None and not older.closed:
        older.refuse(Refused(Refusal.REPLACED, found=hello.sender, asked="that"), newcomer.expected)
    connections[hello.sender] = connection


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
