"""A server and its clients on loopback, for the tests of what passes between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from testbed.worker.methods.parameter_server.transport.frame_errors import Refused
from testbed.worker.methods.parameter_server.transport.frame_parser import Expected
from testbed.worker.methods.parameter_server.transport.frames import SERVER, Coded, Frame, Kind, Payload
from testbed.worker.methods.parameter_server.transport.streams import (
    Connection,
    Gone,
    Listener,
    Pace,
    connect,
    gather,
    receive,
    send,
)
from testbed.worker.methods.parameter_server.transport.tensor_schema import Schema, TensorSpec
from tests.waiting import HANG_S

GARBAGE = b"GET / HTTP/1.1\r\nHost: longhaul\r\n\r\n" * 1000
KEY = b"k" * 32
HOST = "127.0.0.1"
SMALL = Schema.of([TensorSpec("weight", (4,), "float32")])
MEDIUM = Schema.of([TensorSpec("weight", (5000,), "float32")])
"""Which the kernel keeps, but which is long in coming one byte at a time."""
LARGE = Schema.of([TensorSpec("weight", (8 * 2**20,), "float32")])
"""More than the kernel keeps of a connection at both ends."""
PATIENCE_S = HANG_S / 2
"""Of everybody, for what is to happen: who has waited in vain says so before a test that waits for it does."""
PACE = Pace(least_bytes_s=1000, window_s=PATIENCE_S)
STRICT = Pace(least_bytes_s=10_000, window_s=0.3)


def expected_of(kind: Kind, schema: Schema = SMALL, senders: range = range(8), round_: int = 7) -> Expected:
    payload = Payload.NOTHING if kind is Kind.HELLO else Payload.PARAMS
    due = frozenset({(kind, payload)})
    return Expected(schema=schema, key=KEY, due=due, senders=senders, codecs=frozenset({"none"}), round=round_)


def frame_of(kind: Kind, sender: int, schema: Schema = SMALL, round_: int = 7) -> Frame:
    if kind in (Kind.HELLO, Kind.BYE):
        return Frame(kind=kind, sender=sender, schema_hash=schema.hash)
    data = bytes([sender % 256]) * schema.raw_bytes
    tensor = Coded(index=0, codec="none", raw_bytes=schema.raw_bytes, data=data)
    return Frame(
        kind=kind, sender=sender, schema_hash=schema.hash, round=round_, payload=Payload.PARAMS, tensors=(tensor,)
    )


def packed(frame: Frame, key: bytes = KEY) -> bytes:
    return b"".join(frame.pack(key))


def soon() -> float:
    """Far off for what is to happen, so that a test that hangs fails."""
    return time.monotonic() + PATIENCE_S


class Net:
    """A server, and clients that have joined it."""

    def __init__(self, schema: Schema = SMALL, hello_s: float = PATIENCE_S, most_newcomers: int = 16) -> None:
        self.schema = schema
        self.sent = {SERVER: 0}
        self.listener = Listener(HOST, charge=self.charge(SERVER), hello_s=hello_s, most_newcomers=most_newcomers)
        self.server: dict[int, Connection] = {}
        self.clients: dict[int, Connection] = {}

    def charge(self, who: int) -> Callable[[int], None]:
        self.sent.setdefault(who, 0)

        def add(count: int) -> None:
            self.sent[who] += count

        return add

    def connect(self, client: int) -> Connection:
        return connect(HOST, self.listener.port, own=client, deadline_s=soon(), charge=self.charge(client))

    def hail(self, client: int) -> Connection:
        """As far as the client can: it waits to be let in."""
        connection = self.connect(client)
        hello = frame_of(Kind.HELLO, client, self.schema)
        send(connection, hello.pack(KEY), self.from_server, deadline_s=soon(), pace=PACE)
        return connection

    def join(self, *clients: int) -> None:
        for client in clients:
            if client in self.clients:
                self.clients[client].close()
            self.clients[client] = self.hail(client)
        self.admit(len(clients))

    def admit(self, count: int) -> list[int]:
        hellos = self.listener.admit(self.server, expected_of(Kind.HELLO, self.schema), deadline_s=soon())
        return [hello.sender for _, hello in zip(range(count), hellos, strict=False)]

    @property
    def from_server(self) -> Expected:
        return expected_of(Kind.MODEL, self.schema, range(SERVER, SERVER + 1))

    def update(self, client: int, round_: int = 7) -> None:
        pieces = frame_of(Kind.UPDATE, client, self.schema, round_).pack(KEY)
        send(self.clients[client], pieces, self.from_server, deadline_s=soon(), pace=PACE)

    def gather(
        self,
        *,
        round_: int = 7,
        deadline_s: float | None = None,
        pace: Pace = PACE,
    ) -> Iterator[tuple[int, Frame | Refused | Gone]]:
        expected = expected_of(Kind.UPDATE, self.schema, round_=round_)
        until_s = soon() if deadline_s is None else deadline_s
        return gather(self.server, expected, deadline_s=until_s, pace=pace)

    def told(self, client: int) -> Gone:
        """How the client learns that its connection is over."""
        with pytest.raises(Gone) as caught:
            receive(self.clients[client], self.from_server, deadline_s=soon(), pace=PACE)
        return caught.value

    def close(self) -> None:
        self.listener.close()
        for connection in (*self.server.values(), *self.clients.values()):
            connection.close()
