"""The server's part of a round: it sends the model to all clients, and averages what they make of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch import Tensor, nn

from compressors.payload import PayloadError
from testbed.core.bound_rounds import BoundSchedule, RoundFacts
from testbed.core.error_bounds import mean_update_rms
from testbed.core.errors import RunError
from testbed.core.frame_refusals import Refusal, Refused
from testbed.core.frames import SERVER, Frame, Kind
from testbed.worker.clock import WAITING, PhaseClock
from testbed.worker.server import bounding
from testbed.worker.server.average import Average
from testbed.worker.server.connection import Gone
from testbed.worker.server.decoders import Decoded, Decoders
from testbed.worker.server.entries import Encoded, Entry
from testbed.worker.server.gated import GatedCoder
from testbed.worker.server.heard import Heard, decode_s
from testbed.worker.server.streams import Connection, Pace, gather, scatter
from testbed.worker.server.tensors import Coder
from testbed.worker.server.wire import Facts, Wire, coded_bytes, entries_of
from testbed.worker.stopwatch import Stopwatch

MOST_RESTORES = 3
Tensors = list[Tensor]
Probe = Callable[[], float]
"""The model's loss on samples that are kept for that."""


class Server:
    """What stays of a server from one round to the next.

    Args:
        connections: of all clients, by their numbers; who sends what cannot be used, or nothing, is taken out of them.
        decoders: threads beside this one that decode what clients send; see `Decoders`.
        round_s: wall seconds that a round's messages may be waited for, or be under way, each way.
    """

    def __init__(
        self,
        model: nn.Module,
        wire: Wire,
        up: Coder,
        down: Coder,
        *,
        schedule: BoundSchedule,
        probe: Probe,
        connections: dict[int, Connection],
        pace: Pace,
        round_s: float,
        clock: PhaseClock,
        stopwatch: Stopwatch,
        decoders: int = 0,
    ) -> None:
        self._model, self._wire, self._up, self._down = model, wire, up, down
        self._gate = down if isinstance(down, GatedCoder) else None
        self._decoders, self._decode_s = Decoders(decoders, clock), 0.0
        self.schedule, self._probe, self.connections = schedule, probe, connections
        self._pace, self._round_s, self._clock, self._stopwatch = pace, round_s, clock, stopwatch
        self.values: Tensors = wire.schema.take(model)
        """What has been averaged last."""
        self.reference: Tensors = self.values
        """What clients have: what was sent last, as they decode it."""
        self._began = self._good = self.values
        self._bounded = up.plan.bounded or down.plan.bounded
        """Whether the schedule of bounds has anything to say."""
        self._update_rms: list[float] = []
        """Of each item, in the last round."""
        self._clients = 0
        self._losses: tuple[float | None, float | None] = (None, None)
        self._left: dict[str, str] = {}
        """Clients that are out, and why."""
        self._note: dict[str, Any] = {}
        self.notes: list[dict[str, Any]] = []
        """Of rounds that have ended, for the record."""

    def begin(self, round_: int, *, is_last: bool = False) -> None:
        """Send the model to all clients.

        Args:
            is_last: what all ranks end with, so that it goes lossless.

        Raises:
            RunError: there is no client any more, or the training diverges again and again.
        """
        schedule = self.schedule
        if schedule.restores > MOST_RESTORES:
            raise RunError(
                f"round {round_}: the training has diverged {schedule.restores} times in a row, the last time with all"
                " that is sent lossless; compression does not cause it: lower the learning rate"
            )
        if schedule.restore:
            self._put(self._good)
        self._began = self.values
        with self._clock.phase("compress"):
            encoded, found = self._encoded(round_, lossless=is_last or schedule.lossless)
            alphas = self._alphas()
            pieces = {
                alpha: self._wire.pack(Kind.MODEL, SERVER, round_, encoded, Facts(alpha=alpha, decode_s=self._decode_s))
                for alpha in set(alphas.values())
            }
        self._clock.mark()
        if self._gate is not None:
            self._gate.sends(self.connections.values())
        for alpha, frame in pieces.items():
            those = {client: self.connections[client] for client in alphas if alphas[client] == alpha}
            for client, end in self._waiting(scatter(those, frame, deadline_s=self._deadline_s(), pace=self._pace)):
                if isinstance(end, Refused | Gone):
                    self._let_go(client, end)
        self.reference = found
        self._note = {
            "event": "round",
            "round": round_,
            "alpha": schedule.alpha if self._bounded else None,
            "model_bytes": coded_bytes(encoded.entries),
        }
        self._require_clients()

    def collect(self, round_: int) -> None:
        """Average what clients send, and make it the model.

        Raises:
            RunError: nobody has sent anything that can be used.
        """
        average = Average(self._wire.schema, list(self.connections))
        found: dict[int, Heard] = {}
        expected = self._wire.expected(Kind.UPDATE, round_)
        coming = gather(self.connections, expected, deadline_s=self._deadline_s(), pace=self._pace)
        for client, end in self._decoders.each(self._waiting(coming), partial(self._decode, round_)):
            with self._clock.phase("decompress"):
                try:
                    if not isinstance(end, Decoded):
                        raise end
                    average.add(client, end.frame.samples, end.tensors)
                except (Refused, Gone, PayloadError, ValueError) as error:
                    self._let_go(client, error)
                    continue
            found[client] = Heard.of(end)
        self._require_clients()
        with self._clock.phase("optimizer"):
            mean = average.mean()
            is_change = self._up.plan.payload == "delta"
            # moved from what has been averaged, not from what clients have: what a broadcast loses comes with the next
            self._put(self._wire.schema.moved(self.values, mean) if is_change else mean)
        if self._gate is not None:
            self._gate.arrived(max(one.model_decode_s for one in found.values()))
        self._decode_s = decode_s(found.values(), self._decoders.count)
        self._end(round_, average, found)

    def take_over(self) -> None:
        """The model becomes what clients have."""
        self._put(self.reference)

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()
        self._decoders.close()

    def take_notes(self) -> list[dict[str, Any]]:
        taken, self.notes = self.notes, []
        return taken if self._gate is None else [*self._gate.take_notes(), *taken]

    def state_dict(self) -> dict[str, Any]:
        return {
            "values": self.values,
            "began": self._began,
            "note": self._note,
            "reference": self.reference,
            "good": self._good,
            "update_rms": self._update_rms,
            "clients": self._clients,
            "losses": list(self._losses),
            "left": self._left,
            "notes": self.notes,
            "down": self._down.state_dict(),
            "schedule": self.schedule.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._put(state["values"])
        self._began, self._note = state["began"], state["note"]
        self.reference, self._good = state["reference"], state["good"]
        self._update_rms, self._clients = state["update_rms"], state["clients"]
        self._losses = (state["losses"][0], state["losses"][1])
        self._left, self.notes = state["left"], state["notes"]
        self._down.load_state_dict(state["down"])
        self.schedule.load_state_dict(state["schedule"])

    def _encoded(self, round_: int, *, lossless: bool) -> tuple[Encoded, Tensors]:
        """What to send, and what clients make of it; as tight as the schedule's probe asks for."""
        schema, coder, schedule = self._wire.schema, self._down, self.schedule
        is_change = coder.plan.payload == "delta"
        values = schema.delta(self.values, self.reference) if is_change else self.values
        measured = coder.measure(values, self.reference)
        asks = schedule.probes and coder.plan.bounded
        if self._gate is not None and self._update_rms and not lossless:
            asks = asks and not self._gate.skips(round_)
        loss = self._probe() if asks and not lossless else None
        while True:
            bounds = None
            if not lossless and not schedule.lossless and self._update_rms:
                bounds = bounding.down(coder, schedule, measured, self.values, self._update_rms, self._clients)
            origin = self._wire.origin(SERVER, round_)
            encoded = coder.encode(values, self.reference, bounds=bounds, origin=origin, measured=measured)
            assert encoded.tensors is not None, "asked for"
            found = schema.moved(self.reference, encoded.tensors) if is_change else encoded.tensors
            if loss is None or bounds is None:
                self._losses = loss, None
                return encoded, found
            blurred = self._loss_of(found)
            if schedule.accepts(loss, blurred):
                self._losses = loss, blurred
                return encoded, found
            schedule.violated()

    def _decode(self, round_: int, client: int, frame: Frame) -> tuple[list[Entry], Tensors]:
        entries = entries_of(frame)
        return entries, self._up.decode(entries, self.reference, origin=self._wire.origin(client, round_))

    def _loss_of(self, tensors: Tensors) -> float:
        schema = self._wire.schema
        schema.put(self._model, tensors)
        try:
            return self._probe()
        finally:
            schema.put(self._model, self.values)

    def _alphas(self) -> dict[int, float]:
        """Of each client; 0: what it sends is to be lossless."""
        clients = sorted(self.connections)
        if self.schedule.lossless_uplink:
            return dict.fromkeys(clients, 0.0)
        weights = [1 / len(clients)] * len(clients)
        return dict(zip(clients, self.schedule.client_alphas(weights), strict=True))

    def _end(self, round_: int, average: Average, found: dict[int, Heard]) -> None:
        samples = [int(average.weights[client]) for client in sorted(found)]
        by_item = zip(*(found[client].update_rms for client in sorted(found)), strict=True)
        self._update_rms = [mean_update_rms(each, samples) for each in by_item]
        self._clients = len(found)
        train_loss = math.fsum(average.weights[one] * found[one].train_loss for one in found) / sum(samples)
        facts = RoundFacts(
            round=round_,
            train_loss=train_loss,
            probe_loss=self._losses[0],
            probe_loss_encoded=self._losses[1],
            finite=all(math.isfinite(one) for one in self._update_rms),
        )
        self.schedule.advance(facts)
        if self.schedule.good:
            self._good = self._began
        self.notes.append(
            self._note
            | {"clients": len(found), "train_loss": train_loss}
            | {"update_bytes": sum(one.coded_bytes for one in found.values())}
            | {"left": dict(self._left), "bound": self.schedule.note() if self._bounded else None}
        )

    def _put(self, tensors: Tensors) -> None:
        """What is averaged is kept in each tensor's own type, which is what is evaluated and sent."""
        self._wire.schema.put(self._model, tensors)
        self.values = self._wire.schema.take(self._model)

    def _waiting(self, coming: Iterator[Any]) -> Iterator[Any]:
        """Each as it comes; what is done between two of them is no waiting."""
        while True:
            end = self._stopwatch.start()
            with self._clock.phase(WAITING):
                found = next(coming, None)
            end()
            if found is None:
                return
            yield found

    def _let_go(self, client: int, why: Exception) -> None:
        """It is out for the rest of the run; if it can still be told why, it is."""
        connection = self.connections.pop(client)
        self._left[str(client)] = str(why)
        if not connection.closed and not isinstance(why, Gone):
            refused = Refused(Refusal.TENSOR, found=str(why), asked="what its table says")
            connection.refuse(refused, self._wire.expected(Kind.UPDATE))
        connection.close()

    def _require_clients(self) -> None:
        if not self.connections:
            raise RunError("no client is left", *(f"client {one}: {why}" for one, why in self._left.items()))

    def _deadline_s(self) -> float:
        return time.monotonic() + self._round_s
