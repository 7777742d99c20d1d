"""Exchanges within a round: what a server and its clients say to each other beside models and updates.

A frame of kind ASK or ANSWER, of tensors as they are, of a schema that both ends know: its form. So what holds of
models and updates holds of these: nothing longer is received, its code is checked, it is of this round, each client has
a deadline, and whose answer cannot be taken is out, and told why.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from torch import Tensor

from testbed.core.errors import RunError
from testbed.worker.device.clock import WAITING, PhaseClock
from testbed.worker.device.stopwatch import Stopwatch
from testbed.worker.methods.parameter_server.membership.clients import ConnectedClients
from testbed.worker.methods.parameter_server.messages.lossless import RAW
from testbed.worker.methods.parameter_server.messages.wire import Wire
from testbed.worker.methods.parameter_server.transport.connection import Connection
from testbed.worker.methods.parameter_server.transport.frame_errors import Refusal, Refused
from testbed.worker.methods.parameter_server.transport.frame_parser import Expected
from testbed.worker.methods.parameter_server.transport.frames import SERVER, Buffer, Coded, Frame, Kind, Payload
from testbed.worker.methods.parameter_server.transport.streams import receive, send
from testbed.worker.methods.parameter_server.transport.tensor_schema import Schema
from testbed.worker.methods.parameter_server.transport.transfers import NO_PACE

Said = Mapping[str, bytes]
"""Of each tensor of a form its bytes, as many as the form has it."""


class Asking:
    """The server's end, to clients that have a seat."""

    def __init__(self, wire: Wire, connected: ConnectedClients, clock: PhaseClock) -> None:
        self._wire, self._connected, self._clock = wire, connected, clock

    @property
    def clients(self) -> list[int]:
        """Those that are there."""
        return self._connected.clients

    @property
    def dilation(self) -> float:
        return self._clock.dilation

    def work(self, name: str) -> AbstractContextManager[None]:
        """A phase in which it computes."""
        return self._clock.phase(name)

    def ask(self, round_: int, form: Schema, said: Mapping[int, Said]) -> None:
        """Say something to each of these clients, or to those of them that are still there."""
        there = self._connected.clients
        frames = {
            client: _packed(self._wire, Kind.ASK, SERVER, round_, form, one)
            for client, one in said.items()
            if client in there
        }
        self._connected.send(frames)

    def answers(self, round_: int, form: Schema, clients: Collection[int]) -> Iterator[tuple[int, Said | str]]:
        """What each of these clients says, as it comes; a text: it has no answer, and why. Whose cannot be taken, or
        does not come, is out."""
        expected = _expected(self._wire, Kind.ANSWER, form, round_)
        for client, frame in self._connected.frames(expected, clients):
            try:
                yield client, _said(frame, form)
            except Refused as refused:
                self._connected.let_go(client, refused, expected)

    def refuse(self, client: int, round_: int, form: Schema, *, found: object, asked: object) -> None:
        """What it has said cannot be: it is out."""
        refused = Refused(Refusal.NUMBER, found=found, asked=asked)
        self._connected.let_go(client, refused, _expected(self._wire, Kind.ANSWER, form, round_))


class Answering:
    """A client's end.

    Args:
        patience_s: wall seconds that an ask may be waited for, or an answer be under way.
    """

    def __init__(
        self,
        wire: Wire,
        number: int,
        connection: Connection,
        patience_s: float,
        clock: PhaseClock,
        stopwatch: Stopwatch,
    ) -> None:
        self._wire, self._number, self._connection = wire, number, connection
        self._patience_s, self._clock, self._stopwatch = patience_s, clock, stopwatch

    def work(self, name: str) -> AbstractContextManager[None]:
        """A phase in which it computes."""
        return self._clock.phase(name)

    def answer(self, round_: int, form: Schema, said: Said | str) -> None:
        """
        Args:
            said: a text: there is no answer, and why.

        Raises:
            Refused, Gone: the server is not there, or does not listen.
        """
        pieces = _packed(self._wire, Kind.ANSWER, self._number, round_, form, said)
        expected = _expected(self._wire, Kind.ASK, form, round_)
        self._clock.mark()
        with self._waiting():
            send(self._connection, pieces, expected, deadline_s=self._deadline_s(), pace=NO_PACE)

    def asked(self, round_: int, form: Schema) -> Said:
        """
        Raises:
            Refused, Gone: the server has not said anything of that form in time, or leaves.
        """
        expected = _expected(self._wire, Kind.ASK, form, round_)
        with self._waiting():
            frame = receive(self._connection, expected, deadline_s=self._deadline_s(), pace=NO_PACE)
        found = _said(frame, form)
        assert not isinstance(found, str), "only answers may have none"
        return found

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Something is under way."""
        end = self._stopwatch.start()
        try:
            with self._clock.phase(WAITING):
                yield
        finally:
            end()

    def _deadline_s(self) -> float:
        return time.monotonic() + self._patience_s


class Exchanging(Protocol):
    """A client's part."""

    def before(self, round_: int, answering: Answering) -> None:
        """What is exchanged before the round's model comes. Not of a round in which this client has come back."""

    def clear(self, values: Sequence[Tensor], reference: Sequence[Tensor]) -> list[Tensor]:
        """Of what came of a round's training, what its update is to have.

        Args:
            values: as of `testbed.worker.methods.parameter_server.rounds.update_source.Source.result`; not changed.
            reference: what the server has sent.
        """

    def after(self, round_: int, answering: Answering) -> None:
        """What is exchanged once the round's update is sent."""


def _expected(wire: Wire, kind: Kind, form: Schema, round_: int) -> Expected:
    due = {(kind, Payload.DATA)}
    if kind is Kind.ANSWER:
        due.add((kind, Payload.NOTHING))
    return Expected(
        schema=form,
        key=wire.key,
        due=frozenset(due),
        senders=range(SERVER, SERVER + 1) if kind is Kind.ASK else range(wire.clients),
        codecs=frozenset([RAW]),
        round=round_,
    )


def _packed(wire: Wire, kind: Kind, sender: int, round_: int, form: Schema, said: Said | str) -> list[Buffer]:
    if isinstance(said, str):
        frame = Frame(kind=kind, sender=sender, schema_hash=form.hash, round=round_, text=said)
        return frame.pack(wire.key)
    for spec in form.tensors:
        if len(said[spec.name]) != spec.raw_bytes:
            raise RunError(f"{kind.name.lower()} {spec.name}: {len(said[spec.name])} bytes, not {spec.raw_bytes}")
    tensors = tuple(
        Coded(index=index, codec=RAW, raw_bytes=spec.raw_bytes, data=said[spec.name])
        for index, spec in enumerate(form.tensors)
    )
    return Frame(
        kind=kind, sender=sender, schema_hash=form.hash, round=round_, payload=Payload.DATA, tensors=tensors
    ).pack(wire.key)


def _said(frame: Frame, form: Schema) -> Said | str:
    """
    Raises:
        Refused: a tensor has another number of bytes than it says.
    """
    if frame.payload is Payload.NOTHING:
        return frame.text or "it does not say why"
    found = {}
    for one in frame.tensors:
        if len(one.data) != one.raw_bytes:
            told = f"tensor {one.index} in {len(one.data)} bytes"
            raise Refused(Refusal.TABLE, found=told, asked=f"one of {one.raw_bytes}, as it is")
        found[form.tensors[one.index].name] = bytes(one.data)
    return found
