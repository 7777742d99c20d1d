"""The frame around payloads of varying size: what was packed comes out, and nothing else does."""

from __future__ import annotations

import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors.base.payload import NonFiniteError, PayloadError
from compressors.parts.frame import CODED, HEADER_BYTES, RAW, ZERO, finite_root_mean_square, pack, pack_smaller, unpack


def _bytes(data: bytes) -> torch.Tensor:
    return torch.tensor(list(data), dtype=torch.uint8)


@given(body=st.binary(max_size=300), numel=st.integers(0, 2**32 - 1), kind=st.integers(1, 9))
@settings(max_examples=100)
def test_what_is_packed_comes_out(body: bytes, numel: int, kind: int) -> None:
    payload = pack("codec", kind, numel, _bytes(body))
    assert len(payload) == HEADER_BYTES + len(body)
    found, out = unpack(payload, "codec", numel, len(body), kinds=(kind,))
    assert (found, bytes(out.tolist())) == (kind, body)


def test_the_header_is_as_documented() -> None:
    payload = bytes(pack("zstd", RAW, 7, _bytes(b"abc")).tolist())
    assert payload[:24] == b"LHF\x01zstd\0\0\0\0" + struct.pack("<III", RAW, 7, 3)
    assert payload[28:] == b"abc"


def test_the_shorter_of_two_is_packed() -> None:
    raw = torch.ones(4)
    assert unpack(pack_smaller("c", 4, _bytes(b"short"), raw), "c", 4, 16)[0] == CODED
    kind, body = unpack(pack_smaller("c", 4, _bytes(bytes(16)), raw), "c", 4, 16)
    assert kind == RAW and torch.equal(body.view(torch.float32), raw)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (pack("zstd", RAW, 8, _bytes(b"abcd")), r"for 8 elements: was made by b'zstd'$"),
        (pack("sz3", RAW, 9, _bytes(b"abcd")), r"for 8 elements: carries 9$"),
        (pack("sz3", RAW, 8, _bytes(b"abcde")), r"5 bytes are more than the 4 it can need$"),
        (pack("sz3", 3, 8, _bytes(b"abcd")), r"is of kind 3, which is none of sz3's$"),
        (pack("sz3", ZERO, 8, _bytes(b"abcd")), r"is said to be zeros, found 4 bytes$"),
        (pack("sz3", RAW, 8, _bytes(b"abcd"))[:-1], r"its header says 4 bytes follow, found 3$"),
        (pack("sz3", RAW, 8, _bytes(b"abcd"))[:20], r"20 bytes are less than its header of 28$"),
        (torch.zeros(40, dtype=torch.uint8), r"begins with b'\\x00\\x00\\x00', version 0; expected b'LHF', 1$"),
        (torch.zeros(40, dtype=torch.int8), r"^a payload is a 1-D uint8 tensor, found 1-D torch.int8$"),
    ],
)
def test_what_is_wrong_is_named(payload: torch.Tensor, message: str) -> None:
    with pytest.raises(PayloadError, match=message):
        unpack(payload, "sz3", 8, 4)


def test_every_flipped_bit_is_noticed() -> None:
    payload = pack("sz3", RAW, 8, _bytes(b"abcd"))
    for position in range(len(payload)):
        for bit in range(8):
            damaged = payload.clone()
            damaged[position] ^= 1 << bit
            with pytest.raises(PayloadError):
                unpack(damaged, "sz3", 8, 4)


def test_what_a_frame_cannot_count_is_refused() -> None:
    with pytest.raises(ValueError, match="a frame counts to 4294967295"):
        pack("sz3", ZERO, 2**32)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_a_root_mean_square_neither_overflows_nor_vanishes(scale: float) -> None:
    assert finite_root_mean_square(torch.full((100,), scale), "c") == pytest.approx(scale, rel=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_there_is_no_root_mean_square_of_what_is_not_finite(bad: float) -> None:
    with pytest.raises(NonFiniteError, match=r"^zfp: the bucket holds NaN or infinity"):
        finite_root_mean_square(torch.tensor([1.0, bad]), "zfp")
