"""How a server and its clients find each other: rank 0 listens, and tells the others where, and the run's key."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import torch

from testbed.core.errors import RunError
from testbed.core.frames import Kind
from testbed.worker.comm import Communicator
from testbed.worker.server.seats import NO_PACE
from testbed.worker.server.streams import Connection, Listener, connect, send
from testbed.worker.server.wire import Wire

NewWire = Callable[[bytes], Wire]
"""Of the run's key."""
_KEY_BYTES, _PORT_BYTES = 32, 2


def invite(comm: Communicator, new_wire: NewWire, wait_s: float) -> tuple[Wire, dict[int, Connection]]:
    """Be the server: the connections of all clients, by their numbers.

    Args:
        wait_s: wall seconds.

    Raises:
        RunError: not all have come by then; names who has not.
    """
    key, clients = os.urandom(_KEY_BYTES), comm.world_size - 1
    wire = new_wire(key)
    connections: dict[int, Connection] = {}
    with Listener(comm.address, charge=comm.charge, hello_s=wait_s, most_newcomers=clients) as listener:
        told = key + listener.port.to_bytes(_PORT_BYTES, "big")
        comm.broadcast(torch.frombuffer(bytearray(told), dtype=torch.uint8), control=True).wait()
        for _ in listener.admit(connections, wire.expected(Kind.HELLO), deadline_s=time.monotonic() + wait_s):
            if len(connections) == clients:
                break
    if missing := set(range(clients)) - set(connections):
        for connection in connections.values():
            connection.close()
        ranks = ", ".join(str(client + 1) for client in sorted(missing))
        raise RunError(f"the server waited {wait_s:g} s of wall time for rank {ranks}, which did not come")
    return wire, connections


def come(comm: Communicator, new_wire: NewWire, wait_s: float) -> tuple[Wire, Connection]:
    """Be a client, and say hello.

    Args:
        wait_s: as of `invite`.

    Raises:
        Gone, Refused: the server is not there, or does not listen, by then.
    """
    told = torch.zeros(_KEY_BYTES + _PORT_BYTES, dtype=torch.uint8)
    comm.broadcast(told, control=True).wait()
    heard = bytes(told.tolist())
    wire, port = new_wire(heard[:_KEY_BYTES]), int.from_bytes(heard[_KEY_BYTES:], "big")
    number, deadline_s = comm.rank - 1, time.monotonic() + wait_s
    connection = connect(comm.address, port, own=number, deadline_s=deadline_s, charge=comm.charge)
    send(connection, wire.hello(number), wire.expected(Kind.MODEL), deadline_s=deadline_s, pace=NO_PACE)
    return wire, connection
