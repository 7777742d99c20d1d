"""Decoders face bytes from a network: they answer or refuse by name, and never fall over."""

from __future__ import annotations

import zlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors.base import Layout
from compressors.payload import PayloadError
from compressors.sz3 import _HEADER as HEADER
from tests.contract.catalogue import CODECS, gradients, make
from tests.contract.lockstep import contexts

NUMEL = 300
LAYOUT = Layout(((NUMEL,),))
CONTEXT = contexts(LAYOUT, None, 1)[0]
PAYLOADS = {name: bytes(make(name).encode(gradients(LAYOUT, 1)[0], CONTEXT).tolist()) for name in CODECS}


def _tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def _decode(name: str, data: bytes) -> torch.Tensor:
    out = torch.full((NUMEL,), 7.0)
    make(name).decode(_tensor(data), out, CONTEXT)
    return out


@pytest.mark.parametrize("name", CODECS)
def test_a_payload_of_the_wrong_length_is_refused(name: str) -> None:
    whole = PAYLOADS[name]
    for data in (b"", whole[:1], whole[:-1], whole[: len(whole) // 2], whole + b"\0", whole * 2):
        with pytest.raises(PayloadError):
            _decode(name, data)


@pytest.mark.parametrize("name", CODECS)
def test_a_payload_of_another_shape_or_type_is_refused(name: str) -> None:
    out = torch.zeros(NUMEL)
    for payload in (_tensor(PAYLOADS[name]).view(1, -1), _tensor(PAYLOADS[name]).to(torch.int32)):
        with pytest.raises(PayloadError, match="1-D uint8"):
            make(name).decode(payload, out, CONTEXT)


@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_damaged_payloads_are_answered_or_refused(name: str, data: st.DataObject) -> None:
    damaged = bytearray(PAYLOADS[name])
    for position in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[position] ^= data.draw(st.integers(1, 255))
    try:
        out = _decode(name, bytes(damaged))
    except PayloadError:
        return
    assert out.shape == (NUMEL,)


@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.binary(max_size=2000))
def test_random_bytes_are_answered_or_refused(name: str, data: bytes) -> None:
    try:
        out = _decode(name, data)
    except PayloadError:
        return
    assert out.shape == (NUMEL,)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(position=st.integers(0, len(PAYLOADS["sz3"]) - 1), flip=st.integers(1, 255))
def test_every_damage_to_an_sz3_payload_is_noticed(position: int, flip: int) -> None:
    damaged = bytearray(PAYLOADS["sz3"])
    damaged[position] ^= flip
    with pytest.raises(PayloadError):
        _decode("sz3", bytes(damaged))


def test_topk_indices_outside_the_bucket_are_refused() -> None:
    values = torch.ones(3).view(torch.uint8)
    for indices in ([0, 1, NUMEL], [-1, 1, 2], [1, 1, 2], [2, 1, 0]):
        payload = torch.cat([values, torch.tensor(indices, dtype=torch.int32).view(torch.uint8)])
        with pytest.raises(PayloadError, match="do not ascend"):
            make("topk").decode(payload, torch.zeros(NUMEL), CONTEXT)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(data=st.data())
def test_an_sz3_stream_that_passes_its_checksum_is_answered_or_refused(data: st.DataObject) -> None:
    body = bytearray(PAYLOADS["sz3"][HEADER.size :])
    for position in data.draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=4)):
        body[position] ^= data.draw(st.integers(1, 255))
    magic, kind, numel, size, _ = HEADER.unpack_from(PAYLOADS["sz3"])
    checksum = zlib.crc32(body, zlib.crc32(HEADER.pack(magic, kind, numel, size, 0)))
    try:
        out = _decode("sz3", HEADER.pack(magic, kind, numel, size, checksum) + bytes(body))
    except PayloadError:
        return
    assert out.shape == (NUMEL,)
