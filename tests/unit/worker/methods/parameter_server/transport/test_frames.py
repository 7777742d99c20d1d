"""Frames between clients and a server: what is packed is read again, and whatever else comes is refused by name."""

from __future__ import annotations

import contextlib
import dataclasses
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.worker.methods.parameter_server.transport.frame_errors import REFUSALS, Refusal, Refused
from testbed.worker.methods.parameter_server.transport.frame_parser import Expected, parse, read_body, read_header
from testbed.worker.methods.parameter_server.transport.frames import (
    ENTRY_BYTES,
    HEADER_BYTES,
    MAC_BYTES,
    SERVER,
    Coded,
    Frame,
    Kind,
    Payload,
    authentication_code,
    frame_bytes,
)
from testbed.worker.methods.parameter_server.transport.tensor_schema import Schema, TensorSpec, schema_hash

KEY = b"k" * 32
SCHEMA = Schema.of([TensorSpec("weight", (3, 2), "float32"), TensorSpec("bias", (3,), "bfloat16")])  # 24 and 6 bytes
EXPECTED = Expected(
    schema=SCHEMA,
    key=KEY,
    due=frozenset({(Kind.UPDATE, Payload.DELTA)}),
    senders=range(5),
    codecs=frozenset({"none", "sz3"}),
    round=7,
    epoch=6,
)
BIAS = Coded(index=0, codec="none", raw_bytes=6, data=b"bias..")
WEIGHT = Coded(index=1, codec="sz3", bound=1e-3, update_rms=0.5, raw_bytes=24, data=b"weight")
UPDATE = Frame(
    kind=Kind.UPDATE,
    sender=3,
    schema_hash=SCHEMA.hash,
    round=7,
    epoch=6,
    payload=Payload.DELTA,
    tensors=(WEIGHT, BIAS),  # in any order
    samples=100,
    alpha=0.3,
    train_loss=1.25,
    decode_s=0.5,
)
WHERE = {"version": 4, "kind": 5, "payload": 6, "reason": 7, "tensors": 20, "payload_bytes": 24}


def _packed(frame: Frame = UPDATE, key: bytes = KEY) -> bytes:
    return b"".join(frame.pack(key))


def _but(**changed: Any) -> bytes:
    return _packed(dataclasses.replace(UPDATE, **changed))


def _one_tensor(**changed: Any) -> bytes:
    return _but(tensors=(dataclasses.replace(WEIGHT, **changed), BIAS))


def _patched(field: str, value: bytes) -> bytes:
    """With the right code: by somebody who has the key."""
    data = bytearray(_packed()[:-MAC_BYTES])
    data[WHERE[field] : WHERE[field] + len(value)] = value
    return bytes(data) + authentication_code(KEY, [data])


def _reason(data: bytes, expected: Expected = EXPECTED) -> Refusal:
    with pytest.raises(Refused) as caught:
        parse(data, expected)
    assert len(caught.value.faults) == 1 and "{" not in str(caught.value)
    return caught.value.reason


def test_what_is_packed_is_read_again() -> None:
    assert parse(_packed(), EXPECTED) == UPDATE
    hello = Frame(kind=Kind.HELLO, sender=4, schema_hash=SCHEMA.hash, text="back again, ü")
    assert parse(_packed(hello), dataclasses.replace(EXPECTED, due=frozenset({(Kind.HELLO, Payload.NOTHING)}))) == hello


@given(
    data=st.tuples(st.binary(max_size=40), st.binary(max_size=40)),
    numbers=st.tuples(*[st.floats(0, 1e300)] * 3),
    loss=st.floats(allow_nan=False, allow_infinity=False),
    samples=st.integers(0, 2**64 - 1),
)
@settings(max_examples=50, deadline=None, derandomize=True)
def test_sizes_are_known_beforehand(
    data: tuple[bytes, bytes], numbers: tuple[float, float, float], loss: float, samples: int
) -> None:
    alpha, bound, update_rms = numbers
    weight = dataclasses.replace(WEIGHT, bound=bound, update_rms=update_rms, data=memoryview(data[0]))
    tensors = (dataclasses.replace(BIAS, data=data[1]), weight)
    frame = dataclasses.replace(UPDATE, tensors=tensors, alpha=alpha, train_loss=loss, samples=samples)
    packed = _packed(frame)
    assert len(packed) == frame_bytes(2, sum(map(len, data))) == 112 + 52 * 2 + sum(map(len, data))
    assert parse(packed, EXPECTED) == frame


def test_the_format_is_as_documented() -> None:
    packed = _packed()
    assert packed[:24] == b"LHMS" + bytes([1, 3, 2, 0]) + struct.pack("!4I", 3, 7, 6, 2)
    assert packed[24:64] == struct.pack("!Q", 12) + SCHEMA.hash
    assert packed[64:96] == struct.pack("!Qddd", 100, 0.3, 1.25, 0.5)
    assert packed[96:148] == struct.pack("!I16sddQQ", 1, b"sz3", 1e-3, 0.5, 24, 6)
    assert packed[200:-16] == b"weightbias.."
    assert packed[-16:] == authentication_code(KEY, [packed[:100], packed[100:-16]])
    assert (HEADER_BYTES, ENTRY_BYTES, frame_bytes(2, 30)) == (96, 52, 112 + 2 * 52 + 30)


def test_tensors_are_neither_copied_when_packed_nor_when_read() -> None:
    tensor = bytearray(b"weight")
    pieces = dataclasses.replace(UPDATE, tensors=(dataclasses.replace(WEIGHT, data=tensor), BIAS)).pack(KEY)
    tensor[0:1] = b"W"
    assert bytes(pieces[1]) == b"Weight"
    received = bytearray(_packed())
    frame = parse(received, EXPECTED)
    received[200:201] = b"W"
    assert bytes(frame.tensors[0].data) == b"Weight"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n" * 20, Refusal.MAGIC),
        (_patched("version", b"\x02"), Refusal.VERSION),
        (_packed()[: HEADER_BYTES - 1], Refusal.LENGTH),
        (_packed()[:-1], Refusal.LENGTH),
        (_packed() + b"\0", Refusal.LENGTH),
        (_patched("payload_bytes", struct.pack("!Q", 10 * 10**9)), Refusal.LENGTH),
        (_patched("tensors", struct.pack("!I", 3)), Refusal.LENGTH),
        (_patched("kind", b"\x63"), Refusal.KIND),
        (_patched("payload", b"\x63"), Refusal.KIND),
        (_patched("reason", b"\x01"), Refusal.KIND),
        (_patched("reason", b"\x63"), Refusal.KIND),
        (_but(kind=Kind.MODEL), Refusal.KIND),
        (_but(payload=Payload.GRAD), Refusal.KIND),
        (_but(schema_hash=schema_hash([])), Refusal.SCHEMA),
        (_but(round=6), Refusal.ROUND),
        (_but(round=8), Refusal.ROUND),
        (_but(epoch=5), Refusal.EPOCH),
        (_but(sender=5), Refusal.SENDER),
        (_but(sender=SERVER), Refusal.SENDER),
        (_packed(key=b"x" * 32), Refusal.MAC),
        (_one_tensor(codec="pickle"), Refusal.CODEC),
        (_one_tensor(codec="sz3 "), Refusal.CODEC),
        (_one_tensor(index=0), Refusal.TABLE),
        (_one_tensor(index=2), Refusal.TABLE),
        (_but(tensors=(BIAS,)), Refusal.TABLE),
        (_but(tensors=()), Refusal.TABLE),
        (_one_tensor(raw_bytes=25), Refusal.TABLE),
        (_one_tensor(data=bytes(24 + 4097)), Refusal.TABLE),
        (_one_tensor(bound=float("inf")), Refusal.NUMBER),
        (_one_tensor(bound=-1.0), Refusal.NUMBER),
        (_one_tensor(update_rms=float("nan")), Refusal.NUMBER),
        (_but(alpha=float("nan")), Refusal.NUMBER),
        (_but(train_loss=float("nan")), Refusal.NUMBER),
    ],
)
def test_every_fault_has_its_name(data: bytes, reason: Refusal) -> None:
    assert _reason(data) is reason


@pytest.mark.parametrize("claimed_bytes", [5, 7, 2**64 - 1])
def test_coded_sizes_must_add_up_to_the_payload(claimed_bytes: int) -> None:
    data = bytearray(_packed()[:-MAC_BYTES])
    data[132:140] = struct.pack("!Q", claimed_bytes)
    assert _reason(bytes(data) + authentication_code(KEY, [data])) is Refusal.TABLE


def test_faults_are_looked_for_in_one_order() -> None:
    """Each frame has all the faults of those after it, of which it is the first."""
    worst = [
        _but(tensors=(dataclasses.replace(WEIGHT, codec="pickle", raw_bytes=9, bound=-1.0),)),
        _packed(dataclasses.replace(UPDATE, tensors=()), b"x" * 32),
        _packed(dataclasses.replace(UPDATE, tensors=(), sender=9), b"x" * 32),
        _packed(dataclasses.replace(UPDATE, tensors=(), sender=9, epoch=1), b"x" * 32),
        _packed(dataclasses.replace(UPDATE, tensors=(), sender=9, epoch=1, round=1), b"x" * 32),
        _packed(dataclasses.replace(UPDATE, tensors=(), sender=9, epoch=1, round=1, schema_hash=bytes(32)), b"x" * 32),
    ]
    found = [_reason(data) for data in worst]
    assert found == [Refusal.CODEC, Refusal.MAC, Refusal.SENDER, Refusal.EPOCH, Refusal.ROUND, Refusal.SCHEMA]


def test_whole_parameters_may_have_a_schema_of_their_own_and_hang_on_nothing() -> None:
    halves = Schema.of([TensorSpec("weight", (3, 2), "float16"), TensorSpec("bias", (3,), "bfloat16")])
    either = dataclasses.replace(
        EXPECTED, due=frozenset({(Kind.UPDATE, Payload.DELTA), (Kind.UPDATE, Payload.PARAMS)}), whole=halves
    )
    weight = dataclasses.replace(WEIGHT, raw_bytes=12)
    whole = dataclasses.replace(
        UPDATE, payload=Payload.PARAMS, schema_hash=halves.hash, epoch=9, tensors=(weight, BIAS)
    )
    assert parse(_packed(whole), either) == whole and parse(_packed(), either) == UPDATE
    for frame, reason in (
        (dataclasses.replace(whole, schema_hash=SCHEMA.hash), Refusal.SCHEMA),
        (dataclasses.replace(UPDATE, schema_hash=halves.hash), Refusal.SCHEMA),
        (dataclasses.replace(whole, tensors=(WEIGHT, BIAS)), Refusal.TABLE),
        (dataclasses.replace(UPDATE, epoch=9), Refusal.EPOCH),
    ):
        with pytest.raises(Refused) as caught:
            parse(_packed(frame), either)
        assert caught.value.reason is reason


def test_the_header_alone_refuses_what_must_not_be_received_and_says_how_much_comes() -> None:
    for data in (_patched("payload_bytes", struct.pack("!Q", 10**10)), _but(round=6), _but(sender=4)):
        with pytest.raises(Refused, match=r"10000000000 bytes for 2|round 6|from 4"):
            read_header(data[:HEADER_BYTES], EXPECTED.only(3))
    header = read_header(_packed()[:HEADER_BYTES], EXPECTED)
    assert HEADER_BYTES + header.body_bytes == len(_packed())
    assert read_body(header, _packed()[HEADER_BYTES:], EXPECTED) == UPDATE


def test_a_refusal_and_a_bye_may_come_at_any_time_and_a_refusal_from_an_end_with_another_model() -> None:
    refusal = Frame(kind=Kind.REFUSAL, sender=3, schema_hash=bytes(32), round=1, reason=Refusal.SCHEMA, text="no")
    assert parse(_packed(refusal), EXPECTED) == refusal
    assert _reason(_packed(dataclasses.replace(refusal, reason=None))) is Refusal.KIND
    bye = Frame(kind=Kind.BYE, sender=3, schema_hash=SCHEMA.hash)
    assert parse(_packed(bye), EXPECTED) == bye
    assert _reason(_packed(dataclasses.replace(bye, schema_hash=bytes(32)))) is Refusal.SCHEMA
    assert _reason(_packed(refusal, b"x" * 32)) is Refusal.MAC


def test_whole_parameters_hang_on_no_reference() -> None:
    due = frozenset({(Kind.UPDATE, Payload.PARAMS)})
    data = _but(payload=Payload.PARAMS, epoch=5)
    assert parse(data, dataclasses.replace(EXPECTED, due=due)).epoch == 5


def test_reasons_have_codes_of_their_own() -> None:
    assert sorted(REFUSALS) == list(range(1, len(Refusal) + 1))


def test_the_right_code_is_never_told() -> None:
    with pytest.raises(Refused) as caught:
        parse(_packed(key=b"x" * 32), EXPECTED)
    assert _packed()[-MAC_BYTES:].hex() not in str(caught.value) and KEY.hex() not in repr(EXPECTED)


@given(position=st.integers(0, len(_packed()) - 1), change=st.integers(1, 255))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_any_byte_that_changes_on_the_way_is_noticed(position: int, change: int) -> None:
    data = bytearray(_packed())
    data[position] ^= change
    _reason(bytes(data))


@given(
    start=st.integers(4, len(_packed())),
    noise=st.binary(max_size=300),
    end=st.integers(0, len(_packed())),
    signed=st.booleans(),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_whatever_comes_is_read_or_refused_and_takes_no_memory(
    start: int, noise: bytes, end: int, signed: bool
) -> None:
    data = _packed()[:start] + noise + _packed()[end:]
    if signed:
        data += authentication_code(KEY, [data])
    tracemalloc.start()
    with contextlib.suppress(Refused):
        parse(data, EXPECTED)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 200_000


@given(patches=st.lists(st.tuples(st.integers(4, 191), st.binary(min_size=1, max_size=9)), min_size=1, max_size=4))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_a_header_and_table_of_somebody_with_the_key_are_read_or_refused(patches: list[tuple[int, bytes]]) -> None:
    data = bytearray(_packed()[:-MAC_BYTES])
    for position, noise in patches:
        data[position : position + len(noise)] = noise
    del data[len(_packed()) - MAC_BYTES :]
    try:
        frame = parse(bytes(data) + authentication_code(KEY, [data]), EXPECTED)
    except Refused:
        return
    assert frame.kind in (Kind.REFUSAL, Kind.BYE) or {tensor.index for tensor in frame.tensors} == {0, 1}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"round": -1}, "fields cannot hold"),
        ({"samples": 2**64}, "fields cannot hold"),
        ({"text": "beside tensors"}, "without tensors"),
        ({"payload": Payload.NOTHING}, "payload=NOTHING"),
        ({"payload": Payload.NOTHING, "tensors": (), "text": "x" * 4097}, "at most 4096"),
        ({"tensors": (dataclasses.replace(WEIGHT, codec="a_name_of_17_long"),)}, "codec=a_name"),
        ({"tensors": (dataclasses.replace(WEIGHT, codec="ü"),)}, "codec=ü"),
    ],
)
def test_what_a_frame_cannot_hold_is_refused_when_it_is_packed(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _but(**changed)


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="key of 15 bytes"):
        dataclasses.replace(EXPECTED, key=b"x" * 15)
