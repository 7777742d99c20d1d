"""What both ends of a parameter server agree on: how tensors of a round become frames, and frames tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.worker.methods.parameter_server.messages import lossless
from testbed.worker.methods.parameter_server.messages.entries import Encoded, Entry
from testbed.worker.methods.parameter_server.messages.plan import Plan
from testbed.worker.methods.parameter_server.messages.schema import Schema
from testbed.worker.methods.parameter_server.messages.tensor_codecs import Origin
from testbed.worker.methods.parameter_server.transport.frame_parser import Expected
from testbed.worker.methods.parameter_server.transport.frames import SERVER, Buffer, Coded, Frame, Kind, Payload
from testbed.worker.methods.parameter_server.transport.tensor_schema import Schema as ListedSchema
from testbed.worker.methods.parameter_server.transport.tensor_schema import TensorSpec

_PAYLOADS = {"params": Payload.PARAMS, "delta": Payload.DELTA, "grad": Payload.GRAD}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a frame says beside its tensors."""

    epoch: int = 0
    samples: int = 0
    alpha: float = 0.0
    train_loss: float = 0.0
    decode_s: float = 0.0


class Wire:
    """Of one run.

    Args:
        key: the run's. Ranks are told it in the clear, over the run's own network: it keeps out mistakes and whoever
            does not listen there.
        clients: how many there are; their senders are 0 and up.
        seed: of the run.
    """

    def __init__(self, schema: Schema, key: bytes, up: Plan, down: Plan, *, clients: int, seed: int) -> None:
        self.schema, self.key, self.clients, self.seed = schema, key, clients, seed
        self._plans = {Kind.UPDATE: up, Kind.MODEL: down}
        self._listed = {
            kind: ListedSchema.of(TensorSpec(*row) for row in schema.listed(payload))
            for kind, payload in ((Kind.HELLO, "params"), (Kind.UPDATE, up.payload), (Kind.MODEL, down.payload))
        }

    def expected(self, kind: Kind, round_: int | None = None, epoch: int | None = None) -> Expected:
        """Of a frame of that kind, a hello, a model or an update, in a round and an epoch. A model may be whole."""
        plan = self._plans.get(kind)
        payload = Payload.NOTHING if plan is None else _PAYLOADS[plan.payload]
        is_model = kind is Kind.MODEL
        return Expected(
            schema=self._listed[kind],
            key=self.key,
            due=frozenset({(kind, payload), *([(kind, Payload.PARAMS)] if is_model else [])}),
            senders=range(SERVER, SERVER + 1) if is_model else range(self.clients),
            codecs=frozenset() if plan is None else plan.names,
            round=round_,
            epoch=epoch,
            whole=self._listed[Kind.HELLO] if is_model else None,
        )

    def is_whole(self, frame: Frame, epoch: int | None) -> bool:
        """Whether a model is a whole one, for a client of this epoch."""
        if frame.payload is not Payload.PARAMS:
            return False
        return frame.epoch != epoch or _PAYLOADS[self._plans[Kind.MODEL].payload] is not Payload.PARAMS

    def hello(self, sender: int, held: int | None = None, epoch: int = 0) -> list[Buffer]:
        """
        Args:
            held: the round of the model that the sender has, for a server that takes the place of the one it had it
                from; None: none.
            epoch: of that.
        """
        number, hash_ = 0 if held is None else held + 1, self._listed[Kind.HELLO].hash
        return Frame(kind=Kind.HELLO, sender=sender, schema_hash=hash_, round=number, epoch=epoch).pack(self.key)

    def pack(
        self, kind: Kind, sender: int, round_: int, encoded: Encoded, facts: Facts, *, whole: bool = False
    ) -> list[Buffer]:
        """A model or an update; its tensors are not copied."""
        return Frame(
            kind=kind,
            sender=sender,
            schema_hash=self._listed[Kind.HELLO if whole else kind].hash,
            round=round_,
            epoch=facts.epoch,
            payload=Payload.PARAMS if whole else _PAYLOADS[self._plans[kind].payload],
            tensors=tuple(_coded(entry) for entry in encoded.entries),
            samples=facts.samples,
            alpha=facts.alpha,
            train_loss=facts.train_loss,
            decode_s=facts.decode_s,
        ).pack(self.key)

    def origin(self, sender: int, round_: int) -> Origin:
        """Of a message; the server's sender is one above the clients'."""
        number = self.clients if sender == SERVER else sender
        return Origin(seed=self.seed, round=round_, sender=number, world_size=self.clients + 1)


def entries_of(frame: Frame) -> list[Entry]:
    """Of a frame that was received; they share its memory."""
    return [
        Entry.received(
            index=one.index,
            codec=one.codec,
            bound=one.bound,
            update_rms=one.update_rms,
            raw_bytes=one.raw_bytes,
            data=memoryview(one.data),
        )
        for one in frame.tensors
    ]


def coded_bytes(entries: Sequence[Entry]) -> int:
    return sum(entry.coded_bytes for entry in entries)


def is_compressed(entries: Sequence[Entry]) -> bool:
    """Whether any went through a codec, and not as it is or not at all."""
    return any(not entry.exact or entry.codec == lossless.ZSTD for entry in entries)


def _coded(entry: Entry) -> Coded:
    return Coded(
        index=entry.index,
        codec=entry.codec,
        bound=entry.bound,
        update_rms=entry.update_rms,
        raw_bytes=entry.raw_bytes,
        data=entry.data,
    )
