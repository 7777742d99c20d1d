"""Frames as others have sent them, who are not trusted: whatever the bytes, nothing but `Refused` is raised.

The header alone says how much is to come and whether it is wanted: what is too long, of another model, of another
round, or from somebody else is refused before any of it is received, and no more is ever allocated than the schema
allows. Whether decoded values are finite and within their bounds is for whoever decodes them.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from dataclasses import dataclass, field, replace

from testbed.worker.methods.parameter_server.transport.frame_errors import REFUSALS, Refusal, Refused
from testbed.worker.methods.parameter_server.transport.frames import (
    ENTRY,
    ENTRY_BYTES,
    HEADER,
    HEADER_BYTES,
    MAC_BYTES,
    MAGIC,
    MAX_EXTRA_BYTES,
    MAX_TEXT_BYTES,
    NO_REASON,
    VERSION,
    Buffer,
    Coded,
    Frame,
    Kind,
    Payload,
    authentication_code,
)
from testbed.worker.methods.parameter_server.transport.tensor_schema import Schema

MIN_KEY_BYTES = 16
_ANY_TIME = frozenset({(Kind.REFUSAL, Payload.NOTHING), (Kind.BYE, Payload.NOTHING)})
_OF_A_ROUND = (Kind.MODEL, Kind.UPDATE, Kind.ASK, Kind.ANSWER)
_HANGS_ON_A_REFERENCE = (Payload.DELTA, Payload.GRAD)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a frame is held to."""

    schema: Schema
    """Of tensors in what is due."""
    key: bytes = field(repr=False)
    """The run's, of 16 to 64 bytes, with which all frames are coded."""
    due: frozenset[tuple[Kind, Payload]]
    """A refusal and a goodbye always are."""
    senders: range
    codecs: frozenset[str] = frozenset()
    round: int | None = None
    """Of models, updates, and what is exchanged beside them; None: any."""
    epoch: int | None = None
    """Of deltas and gradients, since whole parameters hang on nothing; None: any."""
    whole: Schema | None = None
    """Of parameters, where it is not that of what else is due: halves change by more than halves hold."""

    def __post_init__(self) -> None:
        if not MIN_KEY_BYTES <= len(self.key) <= hashlib.blake2b.MAX_KEY_SIZE:
            raise ValueError(
                f"key of {len(self.key)} bytes: must have at least {MIN_KEY_BYTES}"
                f" and at most {hashlib.blake2b.MAX_KEY_SIZE}"
            )

    def schema_of(self, payload: int) -> Schema:
        return self.schema if self.whole is None or payload != Payload.PARAMS else self.whole

    def only(self, sender: int) -> Expected:
        return replace(self, senders=range(sender, sender + 1))


@dataclass(frozen=True)
class Header:
    """One that has been found to be good, and what is to follow it."""

    raw: bytes
    frame: Frame
    """As yet without tensors and text."""
    tensors: int
    payload_bytes: int

    @property
    def body_bytes(self) -> int:
        return self.tensors * ENTRY_BYTES + self.payload_bytes + MAC_BYTES


def read_header(data: Buffer, expected: Expected) -> Header:
    """Of the first `HEADER_BYTES` of a frame. Faults are looked for in the order of `Refusal`, up to SENDER.

    Raises:
        Refused: nothing of what follows may be received.
    """
    if len(data) < HEADER_BYTES:
        raise Refused(Refusal.LENGTH, found=f"{len(data)} bytes", asked=f"{HEADER_BYTES} or more")
    raw = bytes(data[:HEADER_BYTES])
    magic, version, kind, payload, reason, sender, round_, epoch, *rest = HEADER.unpack(raw)
    tensors, payload_bytes, schema_hash, samples, alpha, train_loss, decode_s = rest
    if magic != MAGIC:
        raise Refused(Refusal.MAGIC, found=magic, asked=MAGIC)
    if version != VERSION:
        raise Refused(Refusal.VERSION, found=version, asked=VERSION)
    _check_length(tensors, payload_bytes, payload != Payload.NOTHING, expected.schema_of(payload))
    _check_kind(kind, payload, reason, expected)
    frame = Frame(
        kind=Kind(kind),
        sender=sender,
        schema_hash=schema_hash,
        round=round_,
        epoch=epoch,
        payload=Payload(payload),
        samples=samples,
        alpha=alpha,
        train_loss=train_loss,
        decode_s=decode_s,
        reason=REFUSALS.get(reason),
    )
    _check_place(frame, expected)
    return Header(raw, frame, tensors, payload_bytes)


def read_body(header: Header, body: Buffer, expected: Expected) -> Frame:
    """The frame of a header and the `header.body_bytes` behind it, of which its tensors are views.

    Raises:
        Refused: from MAC on, in the order of `Refusal`.
    """
    view = memoryview(body)
    if len(view) != header.body_bytes:
        found, asked = f"{len(view)} bytes behind its header", f"the {header.body_bytes} announced"
        raise Refused(Refusal.LENGTH, found=found, asked=asked)
    signed, code = view[:-MAC_BYTES], view[-MAC_BYTES:]
    if not hmac.compare_digest(authentication_code(expected.key, [header.raw, signed]), code):
        raise Refused(Refusal.MAC, found=code.hex(), asked="the run's key")
    table, payload = signed[: header.tensors * ENTRY_BYTES], signed[header.tensors * ENTRY_BYTES :]
    if header.frame.payload is Payload.NOTHING:
        frame = replace(header.frame, text=bytes(payload).decode(errors="replace"))
    else:
        schema = expected.schema_of(header.frame.payload)
        frame = replace(header.frame, tensors=_tensors(table, payload, schema, expected.codecs))
    _check_numbers(frame)
    return frame


def parse(data: Buffer, expected: Expected) -> Frame:
    """The frame that `data` is, the whole of it.

    Raises:
        Refused: any reason up to NUMBER.
    """
    return read_body(read_header(data, expected), memoryview(data)[HEADER_BYTES:], expected)


def _check_length(tensors: int, payload_bytes: int, has_tensors: bool, schema: Schema) -> None:
    """What is announced must have room in what the schema, or a text, may take."""
    most_tensors = len(schema) if has_tensors else 0
    most_bytes = schema.raw_bytes + most_tensors * MAX_EXTRA_BYTES if has_tensors else MAX_TEXT_BYTES
    if tensors > most_tensors or payload_bytes > most_bytes:
        found = f"{payload_bytes} bytes for {tensors} tensors"
        raise Refused(Refusal.LENGTH, found=found, asked=f"at most {most_bytes} bytes for {most_tensors}")


def _check_kind(kind: int, payload: int, reason: int, expected: Expected) -> None:
    allowed = expected.due | _ANY_TIME
    if (kind, payload) not in allowed:
        due = " or ".join(_kind_text(*pair) for pair in sorted(expected.due))
        raise Refused(Refusal.KIND, found=_kind_text(kind, payload), asked=due or "nothing but a refusal or a bye")
    if (reason in REFUSALS) != (kind == Kind.REFUSAL) or (reason != NO_REASON and reason not in REFUSALS):
        found = f"{_kind_text(kind, payload)} for reason {reason}"
        raise Refused(Refusal.KIND, found=found, asked="a known reason in a refusal, and none elsewhere")


def _kind_text(kind: int, payload: int) -> str:
    names = [
        known(value).name.lower() if value in known.__members__.values() else f"unknown {value}"
        for known, value in ((Kind, kind), (Payload, payload))
    ]
    return f"{names[0]} of {names[1]}"


def _check_place(frame: Frame, expected: Expected) -> None:
    """The model, round, reference and sender. A refusal may be because of the first three, and passes."""
    wanted = expected.schema_of(frame.payload).hash
    if frame.kind is not Kind.REFUSAL and frame.schema_hash != wanted:
        raise Refused(Refusal.SCHEMA, found=frame.schema_hash.hex()[:16], asked=wanted.hex()[:16])
    if frame.kind in _OF_A_ROUND and expected.round not in (None, frame.round):
        raise Refused(Refusal.ROUND, found=frame.round, asked=expected.round)
    if frame.payload in _HANGS_ON_A_REFERENCE and expected.epoch not in (None, frame.epoch):
        raise Refused(Refusal.EPOCH, found=frame.epoch, asked=expected.epoch)
    if frame.sender not in expected.senders:
        first, last = expected.senders.start, expected.senders.stop - 1
        asked = first if first == last else f"one of {first} to {last}"
        raise Refused(Refusal.SENDER, found=frame.sender, asked=asked)


def _tensors(table: memoryview, payload: memoryview, schema: Schema, codecs: frozenset[str]) -> tuple[Coded, ...]:
    allowed = {codec.encode(): codec for codec in codecs}
    tensors, start = [], 0
    for index, codec, bound, update_rms, raw_bytes, coded_bytes in ENTRY.iter_unpack(table):
        name = codec.rstrip(b"\0")
        if name not in allowed:
            raise Refused(Refusal.CODEC, found=name, asked=", ".join(sorted(codecs)) or "none")
        tensors.append(
            Coded(
                index=index,
                codec=allowed[name],
                bound=bound,
                update_rms=update_rms,
                raw_bytes=raw_bytes,
                data=payload[start : start + coded_bytes],
            )
        )
        start += coded_bytes
        _check_entry(tensors[-1], coded_bytes, schema)
    if len({tensor.index for tensor in tensors}) != len(schema) or len(tensors) != len(schema):
        found = f"{len(tensors)} entries for tensors {[tensor.index for tensor in tensors]}"
        raise Refused(Refusal.TABLE, found=found, asked=f"each of {len(schema)} tensors once")
    if start != len(payload):
        found, asked = f"{start} coded bytes in sum", f"as many as the payload, {len(payload)}"
        raise Refused(Refusal.TABLE, found=found, asked=asked)
    return tuple(tensors)


def _check_entry(tensor: Coded, coded_bytes: int, schema: Schema) -> None:
    if tensor.index >= len(schema):
        raise Refused(Refusal.TABLE, found=f"a tensor {tensor.index}", asked=f"those below {len(schema)}")
    raw_bytes = schema.tensors[tensor.index].raw_bytes
    if tensor.raw_bytes != raw_bytes:
        found = f"tensor {tensor.index} of {tensor.raw_bytes} raw bytes"
        raise Refused(Refusal.TABLE, found=found, asked=f"one of {raw_bytes}")
    if coded_bytes > raw_bytes + MAX_EXTRA_BYTES:
        found = f"tensor {tensor.index} in {coded_bytes} bytes"
        raise Refused(Refusal.TABLE, found=found, asked=f"at most {raw_bytes + MAX_EXTRA_BYTES}")


def _check_numbers(frame: Frame) -> None:
    magnitudes = [("alpha", frame.alpha), ("decode seconds", frame.decode_s)]
    for tensor in frame.tensors:
        magnitudes += [(f"bound of tensor {tensor.index}", tensor.bound)]
        magnitudes += [(f"update RMS of tensor {tensor.index}", tensor.update_rms)]
    for name, value in magnitudes:
        if not 0 <= value < math.inf:
            raise Refused(Refusal.NUMBER, found=f"{name} {value}", asked="finite and at least 0")
    if not math.isfinite(frame.train_loss):
        raise Refused(Refusal.NUMBER, found=f"train loss {frame.train_loss}", asked="finite")
