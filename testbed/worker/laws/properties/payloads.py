"""Laws of payloads: what they are, what they decode to, and what becomes of bytes that are none."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from compressors.base.compressor import Layout
from compressors.base.payload import PayloadError
from compressors.parts.frame import resealed
from testbed.worker.laws.cases.lockstep import contexts
from testbed.worker.laws.cases.malformed import (
    CONTEXT,
    MEMORY_BYTES,
    NUMEL,
    bytes_of,
    huge_counts,
    meet,
    memory_limit,
    mutated,
    sound_payloads,
    tensor_of,
)
from testbed.worker.laws.cases.registry import LAYOUT, Case, LawBroken, gradients, law, require, require_equal

DAMAGED = 150
"""Payloads of one compressor that are damaged at random, always the same."""


@law(
    "payload",
    "A payload is 1-D uint8, shares no memory with the tensor, and does not depend on its stride.",
    "point_to_point",
)
def payload_is_bytes(case: Case) -> None:
    for numel in (1, 2, 255, 256, 257, 4096):
        codec, layout = case.make(), Layout(((numel,),))
        context = contexts(layout, None, 1)[0]
        dense = gradients(layout, 1)[0]
        spread = torch.stack([dense, -dense], dim=1)[:, 0]
        payload = codec.encode(dense, context)
        require(payload.dtype == torch.uint8 and payload.dim() == 1, f"is {payload.dim()}-D {payload.dtype}")
        require_equal(case.make().encode(spread, context), payload, f"{numel} elements, with stride 2")
        kept = dense.clone()
        payload.zero_()
        require_equal(dense, kept, f"{numel} elements, after its payload was overwritten")


@law("decode", "Decoding adds and scales in any float, and leaves the payload as it is.", "point_to_point")
def decode_adds_and_scales(case: Case) -> None:
    context, tensor = contexts(LAYOUT, None, 1)[0], gradients(LAYOUT, 1)[0]
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        codec = case.make()
        payload = codec.encode(tensor.to(dtype), context)
        before = payload.clone()
        plain, scaled, added = (torch.full((LAYOUT.numel,), x, dtype=dtype) for x in (7.0, 7.0, 1.0))
        codec.decode(payload, plain, context)
        codec.decode(payload, scaled, context, scale=0.5)
        codec.decode(payload, added, context, add=True, scale=-2.0)
        require_equal(payload, before, f"{dtype}: the payload after it was decoded")
        require(plain.any(), f"{dtype}: all zeros")
        _require_linear(plain, scaled, added)


def _require_linear(plain: Tensor, scaled: Tensor, added: Tensor) -> None:
    info, x = torch.finfo(plain.dtype), plain.double()
    off = (scaled.double() - x * 0.5).abs()
    require(
        (off <= 2 * info.eps * x.abs() * 0.5 + info.tiny).all(), f"{plain.dtype}, scale=0.5: {float(off.max()):g} off"
    )
    # In 1 - 2 x, x counts with the rounding it had as `plain`.
    off = (added.double() - (1 - 2 * x)).abs()
    allowed = 2 * info.eps * (1 + 2 * x.abs()) + info.tiny
    require((off <= allowed).all(), f"{plain.dtype}, add=True, scale=-2: {float(off.max()):g} off")


@law("strided-output", "Decoding into a tensor that is not contiguous gives the same.", "point_to_point")
def strided_output(case: Case) -> None:
    codec, context = case.make(), contexts(LAYOUT, None, 1)[0]
    payload = codec.encode(gradients(LAYOUT, 1)[0], context)
    dense, spread = torch.zeros(LAYOUT.numel), torch.zeros(LAYOUT.numel, 2)
    codec.decode(payload, dense, context)
    try:
        codec.decode(payload, spread[:, 0], context)
    except PayloadError:
        raise
    except ValueError:
        return
    require_equal(spread[:, 0], dense, "an output with stride 2")


@law("unaligned", "A payload that lies at any address of memory decodes to the same.", "point_to_point")
def unaligned(case: Case) -> None:
    codec, context = case.make(), contexts(LAYOUT, None, 1)[0]
    payload = codec.encode(gradients(LAYOUT, 1)[0], context)
    expected, found = torch.zeros(LAYOUT.numel), torch.zeros(LAYOUT.numel)
    codec.decode(payload, expected, context)
    for offset in (1, 3, 5):
        moved = torch.cat([torch.zeros(offset, dtype=torch.uint8), payload])[offset:]
        codec.decode(moved, found, context)
        require_equal(found, expected, f"{offset} bytes further")


@law("wrong-length", "A payload of the wrong length is refused by PayloadError.", "point_to_point")
def wrong_length(case: Case) -> None:
    codec = case.make()
    whole = sound_payloads(codec)[0]
    with memory_limit(MEMORY_BYTES):
        for data in (b"", whole[:1], whole[:-1], whole[: len(whole) // 2], whole + b"\0", whole * 2, whole * 1000):
            refusal = meet(codec, data, f"{len(data)} bytes in place of {len(whole)}")
            require(refusal is not None, f"{len(data)} bytes in place of {len(whole)} are taken")


@law("wrong-type", "What is no 1-D uint8 tensor is refused by PayloadError.", "point_to_point")
def wrong_type(case: Case) -> None:
    codec = case.make()
    payload = tensor_of(sound_payloads(codec)[0])
    for wrong in (payload.view(1, -1), payload.to(torch.int32), payload.float(), payload[0]):
        try:
            codec.decode(wrong, torch.zeros(NUMEL), CONTEXT)
        except PayloadError:
            continue
        raise LawBroken(f"a payload that is {wrong.dim()}-D {wrong.dtype} is taken")


@law("other-size", "A payload for more or fewer elements is answered in the right size, or refused.", "point_to_point")
def other_size(case: Case) -> None:
    codec = case.make()
    sound_payloads(codec)
    for numel in (0, 1, NUMEL - 1, NUMEL + 1, 10 * NUMEL):
        layout = Layout(((numel,),))
        try:
            payload = codec.encode(torch.ones(numel), contexts(layout, None, 1)[0])
        except ValueError:
            continue
        with memory_limit(MEMORY_BYTES):
            meet(codec, bytes_of(payload), f"a payload for {numel} elements")


@law(
    "damaged", "Damaged payloads are answered or refused by PayloadError, in bounded time and memory.", "point_to_point"
)
def damaged(case: Case) -> None:
    codec, draw = case.make(), random.Random(7)
    sound = sound_payloads(codec)
    with memory_limit(MEMORY_BYTES):
        for number in range(DAMAGED):
            data = mutated(draw.choice(sound), draw, sound)
            meet(codec, resealed(data) if number % 2 else data, f"damaged payload {number}")


@law("huge-counts", "Counts beyond all measure are answered or refused, in bounded time and memory.", "point_to_point")
def counts_beyond_measure(case: Case) -> None:
    codec = case.make()
    sound = sound_payloads(codec)[0]
    with memory_limit(MEMORY_BYTES):
        for number, data in enumerate(huge_counts(sound)):
            meet(codec, data, f"huge count {number}")


@law("random-bytes", "Random bytes are answered or refused, in bounded time and memory.", "point_to_point")
def random_bytes(case: Case) -> None:
    codec, draw = case.make(), random.Random(8)
    length = len(sound_payloads(codec)[0])
    with memory_limit(MEMORY_BYTES):
        for _ in range(DAMAGED // 2):
            meet(codec, draw.randbytes(draw.choice((length, length, draw.randrange(2 * length + 8)))), "random bytes")
        for byte in (0, 0x7F, 0x80, 0xFF):
            meet(codec, bytes([byte]) * length, f"nothing but bytes {byte:#x}")


@law("foreign", "Payloads of other compressors are answered or refused, in bounded time and memory.", "point_to_point")
def foreign(case: Case) -> None:
    codec = case.make()
    sound_payloads(codec)
    with memory_limit(MEMORY_BYTES):
        for name, data in case.foreign():
            meet(codec, data, f"a payload of {name}")


@law(
    "devices",
    "The same wire bytes come from the processor and from CUDA, and decode to the same.",
    "point_to_point",
    "cuda",
)
def devices(case: Case) -> None:
    context, tensor = contexts(LAYOUT, None, 1)[0], gradients(LAYOUT, 1)[0]
    here, there = case.make(), case.make()
    payload, other = here.encode(tensor, context), there.encode(tensor.cuda(), context)
    require_equal(other.cpu(), payload, "payloads of CUDA and of the processor")
    for add, scale in ((False, 1.0), (True, 1 / 3)):  # as the first of three payloads, and as another
        ours, theirs = tensor.clone(), tensor.cuda()
        here.decode(payload, ours, context, add=add, scale=scale)
        there.decode(payload.cuda(), theirs, context, add=add, scale=scale)
        require_equal(theirs.cpu(), ours, f"what CUDA and the processor decode (add={add}, scale={scale:.3g})")
