"""How a client finds the server that takes the place of one that is gone."""

from __future__ import annotations

import time

from testbed.worker.communication.communicator import Communicator
from testbed.worker.methods.parameter_server.membership.admission import NewWire, come, looked_up
from testbed.worker.methods.parameter_server.membership.invitation import Invitation
from testbed.worker.methods.parameter_server.messages.wire import Wire
from testbed.worker.methods.parameter_server.transport.frames import Kind
from testbed.worker.methods.parameter_server.transport.streams import Connection, Gone, connect, send
from testbed.worker.methods.parameter_server.transport.transfers import NO_PACE

_RETRY_S = 0.2
_TRIES = 10
"""In the time that there is: a server that was found may be gone again, and yet another in its place."""


class Reconnection:
    """Looks at the meeting for another invitation than the one by which the client has come last.

    A server that lives and has put the client out without the client's hearing why makes none: the client is out then,
    after `wait_s`.

    Args:
        wait_s: wall seconds that another server is waited for.
        told: the invitation that the client has followed; None: none yet.
    """

    def __init__(self, comm: Communicator, wire: Wire, wait_s: float, told: Invitation | None) -> None:
        self._comm, self._wire, self._wait_s, self._told = comm, wire, wait_s, told

    def find(self, held: int | None, epoch: int | None, gone: Gone | None = None) -> tuple[Connection, int]:
        """A connection over which hello has been said, and the round at which the server is.

        Args:
            held: the round of the model that the client has; None: it has none.
            epoch: of that; None: of any.
            gone: how the last server was lost.

        Raises:
            Gone: there was no other server in time.
        """
        deadline_s = time.monotonic() + self._wait_s
        while True:
            told = looked_up(self._comm)
            if told != self._told:
                try:
                    connection = self._hello(told, held, epoch, deadline_s)
                except Gone as error:
                    gone = gone or error
                else:
                    self._told = told
                    return connection, told.round
            if time.monotonic() >= deadline_s:
                raise Gone(f"{gone}; and no server came in its place within {self._wait_s:g} s of wall time")
            time.sleep(_RETRY_S)

    def _hello(self, told: Invitation, held: int | None, epoch: int | None, deadline_s: float) -> Connection:
        """
        Raises:
            Gone: nobody is there, or not any more.
        """
        number, until_s = self._comm.rank - 1, min(deadline_s, time.monotonic() + self._wait_s / _TRIES)
        address, charge = self._comm.address, self._comm.charge
        connection = connect(address, told.port, own=number, deadline_s=until_s, charge=charge, retry_s=_RETRY_S)
        hello = self._wire.hello(number, held, epoch or 0)
        try:
            send(connection, hello, self._wire.expected(Kind.MODEL), deadline_s=deadline_s, pace=NO_PACE)
        except Gone:
            connection.close()
            raise
        return connection


def come_to_stay(
    comm: Communicator, new_wire: NewWire, wait_s: float, outage_s: float
) -> tuple[Wire, Connection, Reconnection]:
    """Be a client that stays one when the server is gone for a while; as of `admission.come`.

    Args:
        outage_s: wall seconds that another server is waited for.
    """
    if comm.is_back:
        wire = new_wire(looked_up(comm).key)
        reconnection = Reconnection(comm, wire, outage_s, None)
        return wire, reconnection.find(None, None)[0], reconnection
    wire, connection = come(comm, new_wire, wait_s)
    return wire, connection, Reconnection(comm, wire, outage_s, looked_up(comm))
