"""A client's part of a round: it takes the model, trains, and sends what came of it."""

from __future__ import annotations

import time
from typing import Any

from torch import nn

from testbed.core.frames import Kind
from testbed.worker.clock import WAITING, PhaseClock
from testbed.worker.server import bounding
from testbed.worker.server.gated import GatedCoder
from testbed.worker.server.spent import Spent
from testbed.worker.server.streams import Connection, Pace, receive, send
from testbed.worker.server.tensors import Coder
from testbed.worker.server.wire import Facts, Wire, entries_of
from testbed.worker.stopwatch import Stopwatch

_PATIENCE = 3


class Client:
    """What stays of a client from one round to the next.

    Args:
        number: from 0, its sender's.
        basis: of the schedule of bounds.
        round_s: wall seconds that a message may be waited for, or be under way.
    """

    def __init__(
        self,
        number: int,
        model: nn.Module,
        wire: Wire,
        up: Coder,
        down: Coder,
        *,
        basis: str,
        connection: Connection,
        pace: Pace,
        round_s: float,
        clock: PhaseClock,
        stopwatch: Stopwatch,
    ) -> None:
        self.number, self._model, self._wire, self._up, self._down = number, model, wire, up, down
        self._basis, self._connection, self._pace, self._round_s = basis, connection, pace, round_s
        self._clock, self._stopwatch = clock, stopwatch
        self.reference = wire.schema.take(model)
        """What the server has sent last, as it was decoded: the same bits on all clients, and known to the server."""
        self._alpha = 0.0
        self._gate = up if isinstance(up, GatedCoder) else None
        self._decode_s = 0.0

    def begin(self, round_: int) -> None:
        """Wait for the model, and take it over."""
        expected, end = self._wire.expected(Kind.MODEL, round_), self._stopwatch.start()
        with self._clock.phase(WAITING):
            frame = receive(self._connection, expected, deadline_s=self._deadline_s(), pace=self._pace)
        end()
        if self._gate is not None:
            self._gate.arrived(frame.decode_s)
        schema = self._wire.schema
        with self._clock.phase("decompress"):
            origin, spent = self._wire.origin(frame.sender, round_), Spent(self._clock.dilation)
            found = self._down.decode(entries_of(frame), self.reference, origin=origin)
            self._decode_s = spent.seconds()
        with self._clock.phase("optimizer"):
            is_change = self._down.plan.payload == "delta"
            self.reference = schema.moved(self.reference, found) if is_change else found
            schema.put(self._model, self.reference)
        self._alpha = frame.alpha

    def end(self, round_: int, *, samples: int, train_loss: float) -> None:
        """Send what the model has become."""
        schema, coder = self._wire.schema, self._up
        with self._clock.phase("compress"):
            parameters = schema.take(self._model)
            values = schema.delta(parameters, self.reference) if coder.plan.payload == "delta" else parameters
            measured = coder.measure(values, self.reference)
            bounds = bounding.up(coder, self._basis, self._alpha, measured, parameters) if self._alpha else None
            encoded = coder.encode(
                values,
                self.reference,
                bounds=bounds,
                origin=self._wire.origin(self.number, round_),
                measured=measured,
                decoded=False,
            )
            facts = Facts(samples=samples, train_loss=train_loss, decode_s=self._decode_s)
            pieces = self._wire.pack(Kind.UPDATE, self.number, round_, encoded, facts)
        self._clock.mark()
        if self._gate is not None:
            self._gate.sends([self._connection])
        expected, end = self._wire.expected(Kind.MODEL), self._stopwatch.start()
        with self._clock.phase(WAITING):
            send(self._connection, pieces, expected, deadline_s=self._deadline_s(), pace=self._pace)
        end()

    def close(self) -> None:
        self._connection.close()

    def take_notes(self) -> list[dict[str, Any]]:
        return [] if self._gate is None else self._gate.take_notes()

    def state_dict(self) -> dict[str, Any]:
        return {"reference": self.reference, "alpha": self._alpha, "up": self._up.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.reference, self._alpha = state["reference"], state["alpha"]
        self._up.load_state_dict(state["up"])

    def _deadline_s(self) -> float:
        """The server decides who is late: it may wait for another client as long as it will, and has to encode, too."""
        return time.monotonic() + _PATIENCE * self._round_s
