"""How clients come in to a server: all of them before the first round, and whoever comes back before a later one."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from testbed.core.errors import Left, RunError
from testbed.core.frame_reading import Expected
from testbed.core.frames import SERVER, Buffer, Frame, Kind, Payload
from testbed.worker.comm import Communicator
from testbed.worker.server.lossless import RAW
from testbed.worker.server.plan import Plan
from testbed.worker.server.streams import Connection, Listener, Pace, connect, send
from testbed.worker.server.tensors import Coder
from testbed.worker.server.wire import Facts, Wire, entries_of

_PLACE = "parameter_server"
_PORT = struct.Struct("!H")


def put_down(comm: Communicator, port: int, key: bytes) -> None:
    """Where the server listens, and the run's key, for who comes back."""
    assert comm.meeting is not None, "ranks that have connected have met"
    comm.meeting.put(_PLACE, _PORT.pack(port) + key)


def look_up(comm: Communicator) -> tuple[int, bytes]:
    """(the server's port, the run's key).

    Raises:
        Left: nobody has put them down.
    """
    assert comm.meeting is not None, "who has come back is at the meeting"
    try:
        found = comm.meeting.get(_PLACE)
    except RuntimeError as error:
        raise Left(f"rank {comm.rank}: came back, and found no server: {error}") from error
    return _PORT.unpack_from(found)[0], found[_PORT.size :]


def knock(comm: Communicator, port: int, wire: Wire, *, pace: Pace, deadline_s: float) -> Connection:
    """Be let in as a client, at once or when the next round begins.

    Raises:
        Gone, Refused: there is no server.
    """
    number, expected = comm.rank - 1, wire.expected(Kind.MODEL)
    connection = connect(comm.address, port, own=number, deadline_s=deadline_s, charge=comm.charge)
    send(connection, wire.hello(number), expected, deadline_s=deadline_s, pace=pace)
    return connection


class Door:
    """The server's; open until `close`."""

    def __init__(self, comm: Communicator, wire: Wire, *, hello_s: float) -> None:
        """
        Args:
            hello_s: wall seconds that a newcomer has to say hello.

        Raises:
            RunError: nothing can listen at the server's address.
        """
        self._wire, self._whole = wire, WholeModel(wire)
        self._listener = Listener(comm.address, charge=comm.charge, hello_s=hello_s, most_newcomers=wire.clients)
        put_down(comm, self.port, wire.key)

    @property
    def port(self) -> int:
        return self._listener.port

    def let_all_in(self, seconds: float) -> dict[int, Connection]:
        """
        Args:
            seconds: on the wall, that they have to come.

        Raises:
            RunError: somebody did not; says who.
        """
        connections: dict[int, Connection] = {}
        deadline_s = time.monotonic() + seconds
        for _ in self._listener.admit(connections, self._wire.expected(Kind.HELLO), deadline_s=deadline_s):
            if len(connections) == self._wire.clients:
                return connections
        for connection in connections.values():
            connection.close()
        self.close()
        ranks = ", ".join(str(client + 1) for client in range(self._wire.clients) if client not in connections)
        raise RunError(f"the server waited {seconds:g} s of wall time for rank {ranks}, which did not come")

    def let_in(self, connections: dict[int, Connection], left: dict[str, str]) -> set[int]:
        """Who has come since the last time is in `connections` now, and no longer in `left`. Nobody is waited for.

        Returns:
            Their numbers. They know no model.
        """
        admitted = self._listener.admit(connections, self._wire.expected(Kind.HELLO), deadline_s=0.0)
        newcomers = {hello.sender for hello in admitted}
        for client in newcomers:
            left.pop(str(client), None)
        return newcomers

    def pack(self, round_: int, reference: Sequence[Tensor], alpha: float) -> list[Buffer]:
        """The frame by which newcomers get to know `reference`."""
        return self._whole.pack(round_, reference, alpha)

    def close(self) -> None:
        """May be called twice."""
        self._listener.close()


class WholeModel:
    """A model that hangs on nothing: all of it, bit for bit, whatever the run's codecs.

    It is what the others decode of the same round's broadcast, in the types in which that carries it, so that from then
    on the bits of all clients are the same.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._coder = Coder(wire.schema, Plan(direction="down", payload=wire.payload(Kind.MODEL), codec=RAW))

    @property
    def expected(self) -> Expected:
        """Of any round."""
        due = frozenset({(Kind.MODEL, Payload.PARAMS)})
        return replace(self._wire.expected(Kind.MODEL), due=due, codecs=frozenset({RAW}))

    def pack(self, round_: int, tensors: Sequence[Tensor], alpha: float) -> list[Buffer]:
        encoded = self._coder.encode(tensors, bounds=None, origin=self._wire.origin(SERVER, round_), decoded=False)
        facts = Facts(alpha=alpha)
        return self._wire.pack(Kind.MODEL, SERVER, round_, encoded, facts, payload=Payload.PARAMS)

    def unpack(self, frame: Frame) -> list[Tensor]:
        """
        Raises:
            PayloadError: by the name of the tensor.
        """
        return self._coder.decode(entries_of(frame), origin=self._wire.origin(SERVER, frame.round))
