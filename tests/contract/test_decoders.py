"""Decoders face bytes from a network: they answer or refuse by name, and never fall over."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compressors.base.compressor import Layout
from compressors.base.payload import PayloadError
from compressors.parts.frame import CODED, HEADER_BYTES, pack
from testbed.worker.laws.cases.malformed import MEMORY_BYTES, meet, memory_limit
from tests.contract.catalogue import CODECS, gradients, make
from tests.contract.lockstep import contexts

NUMEL = 300
LAYOUT = Layout(((NUMEL,),))
CONTEXT = contexts(LAYOUT, None, 1)[0]
PAYLOADS = {name: bytes(make(name).encode(gradients(LAYOUT, 1)[0], CONTEXT).tolist()) for name in CODECS}
FRAMED = {"sz3": "sz3", "zstd": "zstd", "int8_zstd": "zstd", "blosc2": "blosc2", "zfp": "zfp"}
"""Names of their codecs in the frame."""


def _tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def _decode(name: str, data: bytes) -> torch.Tensor:
    out = torch.full((NUMEL,), 7.0)
    make(name).decode(_tensor(data), out, CONTEXT)
    return out


@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=40)
@given(data=st.data())
def test_damaged_payloads_are_answered_or_refused(name: str, data: st.DataObject) -> None:
    damaged = bytearray(PAYLOADS[name])
    for position in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[position] ^= data.draw(st.integers(1, 255))
    with memory_limit(MEMORY_BYTES):
        meet(make(name), bytes(damaged), "damaged")


@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=40)
@given(data=st.binary(max_size=2000))
def test_random_bytes_are_answered_or_refused(name: str, data: bytes) -> None:
    with memory_limit(MEMORY_BYTES):
        meet(make(name), data, "random bytes")


@pytest.mark.parametrize("name", FRAMED)
@settings(max_examples=60)
@given(data=st.data())
def test_every_damage_to_a_framed_payload_is_noticed(name: str, data: st.DataObject) -> None:
    damaged = bytearray(PAYLOADS[name])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(PayloadError):
        _decode(name, bytes(damaged))


def test_topk_indices_outside_the_bucket_are_refused() -> None:
    values = torch.ones(3).view(torch.uint8)
    for indices in ([0, 1, NUMEL], [-1, 1, 2], [1, 1, 2], [2, 1, 0]):
        payload = torch.cat([values, torch.tensor(indices, dtype=torch.int32).view(torch.uint8)])
        with pytest.raises(PayloadError, match="do not ascend"):
            make("topk").decode(payload, torch.zeros(NUMEL), CONTEXT)


@pytest.mark.parametrize("name", FRAMED)
@settings(max_examples=100)
@given(data=st.data())
def test_a_stream_that_passes_its_checksum_is_answered_or_refused(name: str, data: st.DataObject) -> None:
    body = bytearray(PAYLOADS[name][HEADER_BYTES:])
    for position in data.draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=4)):
        body[position] ^= data.draw(st.integers(1, 255))
    try:
        out = _decode(name, bytes(pack(FRAMED[name], CODED, NUMEL, _tensor(bytes(body))).tolist()))
    except PayloadError:
        return
    assert out.shape == (NUMEL,)
