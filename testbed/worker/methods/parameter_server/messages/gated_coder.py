"""A sender's coder that sends raw what compression would bring no faster to its receivers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor

from testbed.core.record.events import server as events
from testbed.core.record.events.base import StepEvent
from testbed.worker.methods.parameter_server.bounds.break_even import Gate
from testbed.worker.methods.parameter_server.messages.coder import Coder, Measured
from testbed.worker.methods.parameter_server.messages.entries import Encoded
from testbed.worker.methods.parameter_server.messages.plan import Plan
from testbed.worker.methods.parameter_server.messages.schema import Schema
from testbed.worker.methods.parameter_server.messages.tensor_codecs import Origin
from testbed.worker.methods.parameter_server.messages.wire import coded_bytes
from testbed.worker.methods.parameter_server.transport.connection import Connection
from testbed.worker.methods.parameter_server.transport.elapsed import Elapsed
from testbed.worker.methods.parameter_server.transport.transfer_meter import TransferMeter


@dataclass(frozen=True)
class _Sent:
    """Of a message that was compressed, and is under way."""

    size_bytes: int
    compress_s: float


class GatedCoder(Coder):
    """Whoever sends decides, since it alone knows what encoding takes and, from acknowledgements, what the link does;
    what decoding takes at the other end comes in the header of the next frame from there.

    A round: `encode`, again if its bounds were not accepted; `sends`; and `arrived` once an answer is there. All
    seconds are emulated, those of links and of codecs alike.

    What a schedule of bounds wants lossless stays so, is not asked about, and says nothing of the codec; of its
    transfer the link is measured.
    """

    def __init__(
        self,
        schema: Schema,
        plan: Plan,
        gate: Gate,
        *,
        dilation: float,
        record: Callable[[StepEvent], None],
        meter: TransferMeter | None = None,
    ) -> None:
        """
        Args:
            gate: its own.
            record: is given each decision.
            meter: of the link that it sends over.
        """
        super().__init__(schema, plan)
        self._gate, self._dilation, self._record = gate, dilation, record
        self._meter = meter or TransferMeter(dilation)
        self._bare = Coder(schema, _bare(plan))
        self._raw_bytes = sum(item.numel * item.carried(plan.payload).itemsize for item in schema.items)
        self._decided: tuple[int, bool] | None = None
        self._compress_s = 0.0
        self._size_bytes: int | None = None
        """Of what was encoded last, if it was compressed."""
        self._sent: _Sent | None = None
        self._is_warm = False
        self._last: events.Gate | None = None
        """The last decision."""

    def skips(self, round_: int) -> bool:
        """Whether this round's message is not worth compressing; decided when first asked."""
        if self._decided is None or self._decided[0] != round_:
            decision = self._gate.decide(self._raw_bytes)
            self._decided = round_, not decision.compress
            self._last = events.Gate(round=round_, direction=self.plan.direction, **asdict(decision))
            self._record(self._last)
        return self._decided[1]

    def encode(
        self,
        values: Sequence[Tensor],
        reference: Sequence[Tensor] | None = None,
        *,
        bounds: Mapping[str, float | None] | None,
        origin: Origin,
        measured: Sequence[Measured] | None = None,
        decoded: bool = True,
    ) -> Encoded:
        """As `Coder.encode`; where there are bounds and it is not worth it, all travels raw."""
        self._size_bytes = None
        if bounds is not None and self.skips(origin.round):
            self._bare.residuals = self.residuals  # what was left out before goes along, and nothing is left out now
            return self._bare.encode(values, reference, bounds=None, origin=origin, measured=measured, decoded=decoded)
        elapsed = Elapsed(self._dilation)
        encoded = super().encode(values, reference, bounds=bounds, origin=origin, measured=measured, decoded=decoded)
        if bounds is not None:
            self._compress_s += elapsed.seconds()
            self._size_bytes = coded_bytes(encoded.entries)
        return encoded

    def counted(self, work: Callable[[], float]) -> Callable[[], float]:
        """`work`, which is done for the sake of compression alone, and takes its time."""

        def timed() -> float:
            elapsed = Elapsed(self._dilation)
            found = work()
            self._compress_s += elapsed.seconds()
            return found

        return timed

    def sends(self, connections: Iterable[Connection]) -> None:
        """What was encoded last is about to be sent."""
        self._sent = None if self._size_bytes is None else _Sent(self._size_bytes, self._compress_s)
        self._compress_s, self._size_bytes = 0.0, None
        self._meter.begin(connections)

    def arrived(self, decode_s: float) -> None:
        """What was sent last is with all its receivers.

        Args:
            decode_s: that they took to decode it; 0 where they do not say.
        """
        sent, self._sent = self._sent, None
        if (transfer := self._meter.end()) is not None:
            self._gate.observe_transfer(*transfer)
        if sent is None or not (decode_s > 0 and sent.compress_s > 0):
            return
        if self._is_warm:
            self._gate.observe_codec(self._raw_bytes, sent.size_bytes, sent.compress_s, decode_s)
        self._is_warm = True  # the first one also started processes and loaded libraries, at both ends

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "gate": self._gate.state_dict(), "last": self._last and asdict(self._last)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._gate.load_state_dict(state["gate"])
        if state["last"] is not None:
            # Its rank may have ended before this was sent; sent again, the record keeps the first.
            self._last = events.Gate(**state["last"])
            self._record(self._last)


def can_gate(plan: Plan) -> bool:
    """Whether it compresses anything at all."""
    return plan.codec != "raw"


def _bare(plan: Plan) -> Plan:
    """The same payload, by nothing but what costs no time, which any receiver of `plan` takes too."""
    return replace(plan, codec=plan.codec if plan.coder is not None else "raw", lossless="raw")
