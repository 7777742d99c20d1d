"""A client's part of a round: it takes the model, trains, and sends what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from testbed.worker.device.clock import WAITING, PhaseClock
from testbed.worker.device.stopwatch import Stopwatch
from testbed.worker.methods.parameter_server.membership.reconnection import Reconnection
from testbed.worker.methods.parameter_server.messages.coder import Coder
from testbed.worker.methods.parameter_server.messages.gated_coder import GatedCoder
from testbed.worker.methods.parameter_server.messages.tensor_bounds import bounds_of
from testbed.worker.methods.parameter_server.messages.wire import Facts, Wire, coded_bytes, entries_of, is_compressed
from testbed.worker.methods.parameter_server.rounds.exchanges import Answering, Exchanging
from testbed.worker.methods.parameter_server.rounds.update_source import Source
from testbed.worker.methods.parameter_server.transport.elapsed import Elapsed
from testbed.worker.methods.parameter_server.transport.frames import Buffer, Frame, Kind
from testbed.worker.methods.parameter_server.transport.streams import Connection, Gone, receive, send
from testbed.worker.methods.parameter_server.transport.transfers import NO_PACE

Done = TypeVar("Done")


class Client:
    """What stays of a client from one round to the next.

    Args:
        number: from 0, its sender's.
        down: of all models but whole ones.
        training: what its updates come from.
        basis: of the schedule of bounds.
        patience_s: wall seconds that a message may be waited for, or be under way. The server decides who is late: it
            may wait for another client as long as it will, and has to encode, too.
        reconnection: to a server that takes the place of one that is gone; None: there will be none.
        exchanging: what else this client and the server say to each other in a round; None: nothing.
    """

    def __init__(
        self,
        number: int,
        model: nn.Module,
        wire: Wire,
        up: Coder,
        down: Coder,
        training: Source,
        *,
        basis: str,
        connection: Connection,
        patience_s: float,
        clock: PhaseClock,
        stopwatch: Stopwatch,
        reconnection: Reconnection | None = None,
        exchanging: Exchanging | None = None,
    ) -> None:
        self.number, self._model, self._wire, self._up, self._down = number, model, wire, up, down
        self._exact = Coder(wire.schema, down.plan.whole)
        self._training, self._basis = training, basis
        self._connection, self._patience_s = connection, patience_s
        self._clock, self._stopwatch = clock, stopwatch
        self.reference: Sequence[Tensor] = wire.schema.take(model)
        """What the server has sent last, as it was decoded: the same bits on all clients, and known to the server."""
        self._epoch: int | None = 0
        """Of that; None: of any, until the first model is there."""
        self._alpha = 0.0
        self._first: Frame | None = None
        """What came before its round was begun."""
        self.coded_bytes = 0
        """What the tensors of the last update took as coded."""
        self._gate = up if isinstance(up, GatedCoder) else None
        self._decode_s = 0.0
        """Emulated seconds that decoding the model took; 0 where nothing of it was compressed."""
        self._reconnection = reconnection
        self._held: int | None = None
        """The round of the model that was received last; None: none was."""
        self._packed: list[Buffer] | None = None
        """What came of that model: kept, since a server that comes in place of another wants it again."""
        self._owed: list[Buffer] | None = None
        """The same, until it is sent."""
        self._exchanging = exchanging
        self._answering = Answering(wire, number, connection, patience_s, clock, stopwatch)

    def come_back(self) -> int:
        """Wait to be let in; the round that begins then. What comes first hangs on nothing, whatever is sent later."""
        self._forget_model()
        self._epoch = None
        self._first = self._receive(None)
        return self._first.round

    def begin_any(self) -> int:
        """`begin` the round of the model that comes next, whichever that is."""
        self._first = self._receive(None)
        round_ = self._first.round
        self.begin(round_)
        return round_

    def begin(self, round_: int) -> None:
        """Exchange what comes before the model, but of the round in which this client comes back, and `_take` it."""
        if self._exchanging is not None and self._first is None:
            self._exchanging.before(round_, self._answering)
        self._take(round_)

    def _take(self, round_: int) -> None:
        """Wait for the model, and take it over. One that is whole begins a new epoch: what was kept is forgotten."""
        first, self._first = self._first, None
        frame = first or self._receive(round_)
        if self._gate is not None:
            self._gate.arrived(frame.decode_s)
        schema, entries = self._wire.schema, entries_of(frame)
        is_whole = self._wire.is_whole(frame, self._epoch)
        with self._clock.phase("decompress"):
            coder, reference = (self._exact, None) if is_whole else (self._down, self.reference)
            elapsed = Elapsed(self._clock.dilation)
            found = coder.decode(entries, reference, origin=self._wire.origin(frame.sender, round_))
            self._decode_s = elapsed.seconds() if is_compressed(entries) else 0.0
        with self._clock.phase("optimizer"):
            is_change = coder.plan.payload == "delta"
            self.reference = schema.moved(self.reference, found) if is_change else found
            schema.put(self._model, self.reference)
            self._epoch = frame.epoch
            if is_whole:
                self._up.forget()
                self._training.forget()
            self._training.begin()
        self._alpha = frame.alpha

    def end(self, round_: int) -> None:
        """Send what came of the training."""
        schema, coder = self._wire.schema, self._up
        with self._clock.phase("compress"):
            values = self._training.result(schema, self.reference)
            if self._exchanging is not None:
                values = self._exchanging.clear(values, self.reference)
            measured = coder.measure(values, self.reference)
            ranged = schema.take(self._model) if coder.plan.payload == "delta" else values
            squares = self._training.gradient_squares
            bounds = (
                bounds_of(coder, self._basis, self._alpha, measured, ranged, squares=squares) if self._alpha else None
            )
            encoded = coder.encode(
                values,
                self.reference,
                bounds=bounds,
                origin=self._wire.origin(self.number, round_),
                measured=measured,
                decoded=False,
            )
            self.coded_bytes = coded_bytes(encoded.entries)
            assert self._epoch is not None, "a model came first"
            samples, train_loss = self._training.samples, self._training.mean_loss
            facts = Facts(epoch=self._epoch, samples=samples, train_loss=train_loss, decode_s=self._decode_s)
            self._owed = self._wire.pack(Kind.UPDATE, self.number, round_, encoded, facts)
            self._packed = None if self._reconnection is None else self._owed
        self._clock.mark()
        if self._gate is not None:
            self._gate.sends([self._connection])
        end = self._stopwatch.start()
        with self._clock.phase(WAITING):
            self._with_a_server(self._send_owed)
        end()
        if self._exchanging is not None:
            self._exchanging.after(round_, self._answering)

    def take_last(self, round_: int) -> None:
        """Take over the model that all end with."""
        self._take(round_)
        self.close()

    def close(self) -> None:
        self._connection.close()

    def _receive(self, round_: int | None) -> Frame:
        expected, end = self._wire.expected(Kind.MODEL, round_, self._epoch), self._stopwatch.start()

        def next_model() -> Frame:
            self._send_owed()
            return receive(self._connection, expected, deadline_s=self._deadline_s(), pace=NO_PACE)

        with self._clock.phase(WAITING):
            frame = self._with_a_server(next_model)
        end()
        self._held, self._packed = frame.round, None
        return frame

    def _send_owed(self) -> None:
        if self._owed is not None:
            expected = self._wire.expected(Kind.MODEL)
            send(self._connection, self._owed, expected, deadline_s=self._deadline_s(), pace=NO_PACE)
            self._owed = None

    def _with_a_server(self, talk: Callable[[], Done]) -> Done:
        """`talk`; again with the one that takes the place of a server that is gone in the midst of it.

        Either that one has the model that this client has, and wants what came of it; or it has the next one, and sends
        it so that it hangs on nothing.
        """
        while True:
            try:
                return talk()
            except Gone as gone:
                if self._reconnection is None or gone.reason is not None or gone.bye:
                    raise
                self._connection.close()
                self._connection, round_ = self._reconnection.find(self._held, self._epoch, gone)
            self._owed = self._packed if round_ == self._held else None
            if round_ != self._held:
                self._held = None
                self._forget_model()

    def _forget_model(self) -> None:
        """What comes next hangs on nothing; its epoch is that of what the others have."""
        self.reference = [torch.zeros_like(one) for one in self.reference]

    def _deadline_s(self) -> float:
        return time.monotonic() + self._patience_s
