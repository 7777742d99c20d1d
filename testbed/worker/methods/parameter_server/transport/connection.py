"""One end of a TCP connection that carries frames; it never blocks, and counts every byte."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from testbed.core.errors import RunError
from testbed.worker.methods.parameter_server.transport.frame_errors import Refusal, Refused
from testbed.worker.methods.parameter_server.transport.frame_parser import Expected
from testbed.worker.methods.parameter_server.transport.frames import SERVER, Frame, Kind

_MAX_BUFFERS = 64
"""Of one write; the kernel takes up to 1024."""
_MAX_BYTES = 2**20
"""Of one read: others have their turn before more is taken."""
_MAX_DISCARDED_BYTES = 2**20

Charge = Callable[[int], None]
"""Called with the bytes that were sent, as `Communicator.charge` is."""


class Gone(RunError):
    """The other end is not there any more, or said that it leaves.

    Attributes:
        reason: the one it gave, where it refused what it was sent.
        bye: it left in good order.
    """

    def __init__(self, line: str, *, reason: Refusal | None = None, bye: bool = False) -> None:
        self.reason, self.bye = reason, bye
        super().__init__(line)


class Connection:
    """Used by one thread. Whoever is told that the other end is `Gone` closes it."""

    def __init__(self, sock: socket.socket, *, own: int, peer: int | None, charge: Charge) -> None:
        """
        Args:
            own: the number of this end, the sender of refusals.
            peer: that of the other end; None until it has said it.
        """
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket, self.own, self.peer = sock, own, peer
        self._charge = charge
        self.sent_bytes = 0
        self.received_bytes = 0

    @property
    def closed(self) -> bool:
        return self.socket.fileno() < 0

    @property
    def address(self) -> str:
        """Of this end: a number, at which others find it who find the other end."""
        found: str = self.socket.getsockname()[0]
        return found

    @property
    def name(self) -> str:
        if self.peer is None:
            return "a newcomer"
        return "the server" if self.peer == SERVER else f"client {self.peer}"

    def read(self, into: memoryview) -> int:
        """How many bytes of `into` are filled; 0 where nothing is there yet.

        Raises:
            Gone: nothing more will come.
        """
        try:
            count = self.socket.recv_into(into[:_MAX_BYTES])
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise self.gone(error.strerror or str(error)) from None
        if not count:
            raise self.gone("it closed the connection")
        self.received_bytes += count
        return count

    def write(self, views: Sequence[memoryview]) -> int:
        """How many bytes the kernel took of the first of `views`.

        Raises:
            Gone: nothing more can be sent.
        """
        try:
            count = self.socket.sendmsg(views[:_MAX_BUFFERS])
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise self.gone(error.strerror or str(error)) from None
        self.sent_bytes += count
        self._charge(count)
        return count

    def refuse(self, refused: Refused, expected: Expected) -> None:
        """Tell the other end why, if there is room to do so without waiting, and close.

        Not to be called between the parts of a frame that is being sent.
        """
        frame = Frame(
            kind=Kind.REFUSAL,
            sender=self.own,
            schema_hash=expected.schema.hash,
            round=expected.round or 0,
            epoch=expected.epoch or 0,
            reason=refused.reason,
            text=str(refused),
        )
        try:
            self.write([memoryview(piece) for piece in frame.pack(expected.key)])
            self.socket.shutdown(socket.SHUT_WR)
            self._discard()
        except (Gone, OSError):
            pass  # it is not there to be told
        self.close()

    def close(self) -> None:
        """May be called twice."""
        self.socket.close()

    def gone(self, cause: str) -> Gone:
        return Gone(f"connection of {self.name} is over: {cause}")

    def _discard(self) -> None:
        """Of what has come; closed over unread bytes, a connection is reset, and the other end may never read why."""
        scratch = memoryview(bytearray(2**16))
        discarded = 0
        while discarded < _MAX_DISCARDED_BYTES and (count := self.read(scratch)):
            discarded += count
