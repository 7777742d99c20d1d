"""A client's part of a round: it takes the model, trains, and sends what came of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from testbed.core.frames import Frame, Kind
from testbed.worker.clock import WAITING, PhaseClock
from testbed.worker.server.bounding import bounds_of
from testbed.worker.server.gated import GatedCoder
from testbed.worker.server.source import Source
from testbed.worker.server.spent import Spent
from testbed.worker.server.streams import Connection, receive, send
from testbed.worker.server.tensors import Coder
from testbed.worker.server.transfers import NO_PACE
from testbed.worker.server.wire import Facts, Wire, coded_bytes, entries_of, is_compressed
from testbed.worker.stopwatch import Stopwatch


class Client:
    """What stays of a client from one round to the next.

    Args:
        number: from 0, its sender's.
        down: of all models but whole ones.
        training: what its updates come from.
        basis: of the schedule of bounds.
        patience_s: wall seconds that a message may be waited for, or be under way. The server decides who is late: it
            may wait for another client as long as it will, and has to encode, too.
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

    def come_back(self) -> int:
        """Wait to be let in; the round that begins then. What comes first hangs on nothing, whatever is sent later."""
        self.reference = [torch.zeros_like(one) for one in self.reference]
        self._epoch = None
        self._first = self._receive(None)
        return self._first.round

    def begin(self, round_: int) -> None:
        """Wait for the model, and take it over. One that is whole begins a new epoch: what was kept is forgotten."""
        first, self._first = self._first, None
        frame = first or self._receive(round_)
        if self._gate is not None:
            self._gate.arrived(frame.decode_s)
        schema, entries = self._wire.schema, entries_of(frame)
        is_whole = self._wire.is_whole(frame, self._epoch)
        with self._clock.phase("decompress"):
            coder, reference = (self._exact, None) if is_whole else (self._down, self.reference)
            spent = Spent(self._clock.dilation)
            found = coder.decode(entries, reference, origin=self._wire.origin(frame.sender, round_))
            self._decode_s = spent.seconds() if is_compressed(entries) else 0.0
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
            measured = coder.measure(values, self.reference)
            ranged = schema.take(self._model) if coder.plan.payload == "delta" else values
            bounds = bounds_of(coder, self._basis, self._alpha, measured, ranged) if self._alpha else None
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
            pieces = self._wire.pack(Kind.UPDATE, self.number, round_, encoded, facts)
        self._clock.mark()
        if self._gate is not None:
            self._gate.sends([self._connection])
        expected, end = self._wire.expected(Kind.MODEL), self._stopwatch.start()
        with self._clock.phase(WAITING):
            send(self._connection, pieces, expected, deadline_s=self._deadline_s(), pace=NO_PACE)
        end()

    def take_last(self, round_: int) -> None:
        """Take over the model that all end with."""
        self.begin(round_)
        self.close()

    def close(self) -> None:
        self._connection.close()

    def take_notes(self) -> list[dict[str, Any]]:
        return [] if self._gate is None else self._gate.take_notes()

    def state_dict(self) -> dict[str, Any]:
        own = {"reference": list(self.reference), "epoch": self._epoch, "alpha": self._alpha}
        return own | {"up": self._up.state_dict(), "training": self._training.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.reference, self._epoch, self._alpha = state["reference"], state["epoch"], state["alpha"]
        self._up.load_state_dict(state["up"])
        self._training.load_state_dict(state["training"])

    def _receive(self, round_: int | None) -> Frame:
        expected, end = self._wire.expected(Kind.MODEL, round_, self._epoch), self._stopwatch.start()
        with self._clock.phase(WAITING):
            frame = receive(self._connection, expected, deadline_s=self._deadline_s(), pace=NO_PACE)
        end()
        return frame

    def _deadline_s(self) -> float:
        return time.monotonic() + self._patience_s
