"""How clients come in to a server: all of them before the first round, and whoever comes back before a later one.

Rank 0 listens, tells the others where, and the run's key, and puts both down at the meeting of all ranks for those who
come later. Servers of regions put down where they listen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator

import torch

from testbed.core.errors import Left, RunError
from testbed.worker.communication.communicator import Communicator
from testbed.worker.methods.parameter_server.membership.addresses import look_up
from testbed.worker.methods.parameter_server.membership.assignment import ROOT
from testbed.worker.methods.parameter_server.membership.invitation import INVITATION_BYTES, KEY_BYTES, Invitation
from testbed.worker.methods.parameter_server.messages.wire import Wire
from testbed.worker.methods.parameter_server.transport.frame_errors import Refusal, Refused
from testbed.worker.methods.parameter_server.transport.frame_parser import Expected
from testbed.worker.methods.parameter_server.transport.frames import Frame, Kind
from testbed.worker.methods.parameter_server.transport.streams import Connection, Listener, connect, send
from testbed.worker.methods.parameter_server.transport.transfers import NO_PACE

NewWire = Callable[[bytes], Wire]
"""Of the run's key."""


class Admission:
    """The server's; open until `close`."""

    def __init__(
        self,
        comm: Communicator,
        wire: Wire,
        *,
        hello_s: float,
        address: str = "",
        clients: Collection[int] | None = None,
    ) -> None:
        """
        Args:
            hello_s: wall seconds that a newcomer has to say hello.
            address: this server's; empty: it is rank 0.
            clients: numbers of those that are its own; None: all. Others are refused.

        Raises:
            RunError: nothing can listen at the server's address.
        """
        self._wire, self._clients = wire, sorted(range(wire.clients) if clients is None else clients)
        address = address or comm.address
        self._listener = Listener(address, charge=comm.charge, hello_s=hello_s, most_newcomers=wire.clients)

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def expected(self) -> Expected:
        """Of a hello."""
        return self._wire.expected(Kind.HELLO)

    def let_all_in(self, wait_s: float) -> dict[int, Connection]:
        """The connections of all clients, by their numbers.

        Args:
            wait_s: wall seconds that they have to come.

        Raises:
            RunError: somebody did not; names who.
        """
        connections: dict[int, Connection] = {}
        for _ in self.hellos(connections, wait_s):
            if len(connections) == len(self._clients):
                return connections
        for connection in connections.values():
            connection.close()
        self.close()
        ranks = ", ".join(str(client + 1) for client in self._clients if client not in connections)
        raise RunError(f"the server waited {wait_s:g} s of wall time for rank {ranks}, which did not come")

    def hellos(self, connections: dict[int, Connection], wait_s: float = 0.0) -> Iterator[Frame]:
        """Put those who have come since the last time, or come within `wait_s` of the wall, into `connections`; what
        each has said. Who is not one of its own is refused."""
        deadline_s = time.monotonic() + wait_s
        for hello in self._listener.admit(connections, self.expected, deadline_s=deadline_s):
            if hello.sender in self._clients:
                yield hello
            else:
                asked = f"one of {', '.join(map(str, self._clients))}"
                refused = Refused(Refusal.SENDER, found=hello.sender, asked=asked)
                connections.pop(hello.sender).refuse(refused, self.expected)

    def close(self) -> None:
        """May be called twice."""
        self._listener.close()


def invite(
    comm: Communicator, new_wire: NewWire, wait_s: float, clients: Collection[int] | None = None
) -> tuple[Wire, Admission]:
    """Be the server.

    Args:
        wait_s: wall seconds that a newcomer has to say hello.
        clients: as of `Admission`.
    """
    key = os.urandom(KEY_BYTES)
    wire = new_wire(key)
    admission = Admission(comm, wire, hello_s=wait_s, clients=clients)
    invitation = Invitation(key=key, port=admission.port)
    assert comm.rendezvous is not None, "ranks that have connected have met"
    invitation.put_down(comm.rendezvous)
    told = torch.frombuffer(bytearray(invitation.pack()), dtype=torch.uint8)
    comm.broadcast(told, control=True).wait()
    return wire, admission


def invite_again(comm: Communicator, new_wire: NewWire, round_: int, wait_s: float) -> tuple[Wire, Admission]:
    """Be the server in place of one that is gone, with its key.

    Args:
        round_: that it had begun.

    Raises:
        RunError: no server was there before.
    """
    assert comm.rendezvous is not None, "who has come back is at the meeting"
    try:
        last = Invitation.looked_up(comm.rendezvous)
    except RuntimeError as error:
        raise RunError(f"rank 0 came back, and no server was there before: {error}") from error
    wire = new_wire(last.key)
    admission = Admission(comm, wire, hello_s=wait_s)
    Invitation(key=last.key, port=admission.port, life=last.life + 1, round=round_).put_down(comm.rendezvous)
    return wire, admission


def come(comm: Communicator, new_wire: NewWire, wait_s: float, server: int = ROOT) -> tuple[Wire, Connection]:
    """Be a client, and say hello: be let in at once, or, having come back, when the next round begins.

    Args:
        wait_s: wall seconds.
        server: rank of the one that it is a client of.

    Raises:
        Gone, Refused: the server is not there, or does not listen, by then.
        Left: having come back: nobody has said where it is.
    """
    heard = looked_up(comm) if comm.is_back else _told(comm)
    wire = new_wire(heard.key)
    address, port = (comm.address, heard.port) if server == ROOT else look_up(comm, wire.key, server)
    number, deadline_s = comm.rank - 1, time.monotonic() + wait_s
    connection = connect(address, port, own=number, deadline_s=deadline_s, charge=comm.charge)
    send(connection, wire.hello(number), wire.expected(Kind.MODEL), deadline_s=deadline_s, pace=NO_PACE)
    return wire, connection


def _told(comm: Communicator) -> Invitation:
    told = torch.zeros(INVITATION_BYTES, dtype=torch.uint8)
    comm.broadcast(told, control=True).wait()
    return Invitation.unpack(bytes(told.tolist()))


def looked_up(comm: Communicator) -> Invitation:
    """The latest invitation of a server.

    Raises:
        Left: there is none.
    """
    assert comm.rendezvous is not None, "who has come back is at the meeting"
    try:
        return Invitation.looked_up(comm.rendezvous)
    except RuntimeError as error:
        raise Left(f"rank {comm.rank}: came back, and found no server: {error}") from error
