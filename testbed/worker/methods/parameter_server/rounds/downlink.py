"""What the server sends, and what clients have of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from testbed.worker.methods.parameter_server.bounds.rounds import BoundSchedule
from testbed.worker.methods.parameter_server.messages.coder import Coder
from testbed.worker.methods.parameter_server.messages.entries import Encoded
from testbed.worker.methods.parameter_server.messages.gated_coder import GatedCoder
from testbed.worker.methods.parameter_server.messages.lossless import RAW
from testbed.worker.methods.parameter_server.messages.plan import Plan
from testbed.worker.methods.parameter_server.messages.tensor_bounds import bounds_of
from testbed.worker.methods.parameter_server.messages.wire import Wire, is_compressed
from testbed.worker.methods.parameter_server.rounds.global_model import GlobalModel, Loss
from testbed.worker.methods.parameter_server.transport.frames import SERVER


class Downlink:
    """Mostly what has changed, or parameters within bounds, as tight as the schedule's probe asks for. A whole model,
    bit for bit, and hanging on nothing, begins a new epoch: clients forget what they kept of the last one.

    Args:
        coder: of all but whole models.
        probe: the loss of what the model is, on samples that nobody trains on.
    """

    def __init__(self, wire: Wire, coder: Coder, schedule: BoundSchedule, model: GlobalModel, probe: Loss) -> None:
        self._wire, self._coder, self._schedule = wire, coder, schedule
        self._model, self._probe = model, probe
        self._exact = Coder(wire.schema, coder.plan.whole)
        self.gate = coder if isinstance(coder, GatedCoder) else None
        self.reference: Sequence[Tensor] = model.values
        """What clients have: what was sent last, as they decode it."""
        self.epoch = 0
        """How many whole models there were."""
        self.losses: tuple[float | None, float | None] = (None, None)
        """Of the model before it was encoded, and of what clients make of it, where the probe was asked."""
        self.is_compressed = False
        """Whether anything of what was sent last is."""

    def whole(self, round_: int) -> Encoded:
        """The model as it is."""
        encoded = self._exact.encode(self._model.values, None, bounds=None, origin=self._wire.origin(SERVER, round_))
        assert encoded.tensors is not None, "asked for"
        self.reference, self.losses = encoded.tensors, (None, None)
        self.epoch, self.is_compressed = self.epoch + 1, is_compressed(encoded.entries)
        self._coder.forget()
        return encoded

    def introduction(self, round_: int) -> Encoded:
        """What the others have, of the epoch and payload of `latest`."""
        return introduction(self._wire, self._coder.plan, self.reference, round_)

    def whole_again(self, round_: int) -> Encoded:
        """What `whole` was, for a client that has not had it; of the same epoch."""
        return self._exact.encode(
            self.reference, None, bounds=None, origin=self._wire.origin(SERVER, round_), decoded=False
        )

    def latest(self, round_: int, update_rms: Sequence[float] | None) -> Encoded:
        """What clients need to have the model.

        Args:
            update_rms: root mean square of the last round's updates, by item; None: none is known, and nothing is lost.
        """
        schema, coder, schedule = self._wire.schema, self._coder, self._schedule
        is_change = coder.plan.payload == "delta"
        values = schema.delta(self._model.values, self.reference) if is_change else self._model.values
        measured = coder.measure(values, self.reference)
        asks = schedule.probes and coder.plan.bounded and not self._skips(round_, update_rms)
        loss = self._probe() if asks and not schedule.lossless else None
        origin = self._wire.origin(SERVER, round_)
        while True:
            bounds = None
            if not schedule.lossless and update_rms is not None:
                bounds = bounds_of(coder, schedule.basis, schedule.alpha, measured, self._model.values, update_rms)
            encoded = coder.encode(values, self.reference, bounds=bounds, origin=origin, measured=measured)
            assert encoded.tensors is not None, "asked for"
            found = schema.moved(self.reference, encoded.tensors) if is_change else encoded.tensors
            blurred = None if loss is None or bounds is None else self._model.loss_of(found, self._probe)
            if loss is None or blurred is None or schedule.accepts(loss, blurred):
                self.reference, self.losses = found, (loss, blurred)
                self.is_compressed = is_compressed(encoded.entries)
                return encoded
            schedule.violated()

    def state_dict(self) -> dict[str, Any]:
        own = {"reference": list(self.reference), "epoch": self.epoch, "losses": list(self.losses)}
        return own | {"is_compressed": self.is_compressed, "coder": self._coder.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.reference, self.epoch = state["reference"], state["epoch"]
        self.losses = (state["losses"][0], state["losses"][1])
        self.is_compressed = state["is_compressed"]
        self._coder.load_state_dict(state["coder"])

    def _skips(self, round_: int, update_rms: Sequence[float] | None) -> bool:
        """Whether the gate has it travel raw; not asked of what is lossless anyway."""
        if self.gate is None or update_rms is None or self._schedule.lossless:
            return False
        return self.gate.skips(round_)


def introduction(wire: Wire, plan: Plan, reference: Sequence[Tensor], round_: int) -> Encoded:
    """`reference`, what the others have, bit for bit, for a client that has nothing; of the payload of `plan`, as what
    the others are sent, so that differences can follow."""
    plain = Plan(direction="down", payload=plan.payload, codec=RAW)
    coder, origin = Coder(wire.schema, plain), wire.origin(SERVER, round_)
    return coder.encode(reference, None, bounds=None, origin=origin, decoded=False)
