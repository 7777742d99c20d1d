from __future__ import annotations

import torch
from torch import Tensor

from compressors.base.chunks import CHUNK, chunks
from compressors.base.compressor import Compressor, Context, Layout, Traits
from compressors.base.payload import put, require_size
from compressors.parts.packing import SignBits, packed_bytes

_MAGNITUDE = 0x7FFFFFFF
_INFINITY = 0x7F800000
"""Bits of an infinite float32."""


class Natural(Compressor):
    """Round each value at random to a power of two.

    Round each value at random to one of the two powers of two around it, and send sign and exponent.

    Horvath, Ho, Horvath, Sahu, Canini, Richtarik, "Natural Compression for Distributed Deep Learning", MSML 2022, PMLR
    190:129-141, arXiv:1905.10988, definition of C_nat; 9 bits a value, as there for float32.
    Differs from the paper: rounding has 16 random bits, so that expectations are off by at most 2**-17 of a value.

    Unbiased; not linear, so payloads are gathered, or averaged in two shots, which encodes twice; the loss of the
    second encoding is the same on all ranks, and does not average out over them. The variance of one encoding is at
    most 1/8 of a value's square; powers of two and zero are exact. Below 1.18e-38 the lower of the two is zero; above
    1.7e38 the upper one is infinity. NaN and infinity become infinity.
    Wire: exponents (n,) uint8, with float32's bias, 0 for zero; then signs (n,), 1 bit each, of values 8 i to
    8 i + 7 in byte i from the lowest bit up; n + ceil(n / 8) bytes.
    Keeps no state.
    """

    traits = Traits(unbiased=True, contraction=0.87, feedback="harmful")  # 7/8, less what rounding is off by

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return layout.numel + packed_bytes(layout.numel, 1)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        numel = tensor.numel()
        payload = torch.empty(numel + packed_bytes(numel, 1), dtype=torch.uint8, device=tensor.device)
        exponents, packed = payload[:numel], payload[numel:]
        stream = context.random("natural", shared=False)
        signs = SignBits(_most(tensor), tensor.device)
        for piece in chunks(tensor, 8):
            values = tensor[piece].float().contiguous()
            signs.pack(values, packed[_bytes(piece)])
            bits = values.view(torch.int32).bitwise_and(_MAGNITUDE).clamp_(max=_INFINITY)
            # A carry out of the mantissa is a rounding up; what is added is never 0 nor 2**23.
            drawn = stream.bits(piece.start // 2, (len(bits) + 1) // 2, tensor.device).view(torch.int16)[: len(bits)]
            bits.add_(drawn.to(torch.int32), alpha=1 << 7).add_((1 << 22) + (1 << 6))
            exponents[piece] = bits.bitwise_right_shift_(23)
        return payload

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        numel = out.numel()
        require_size(payload, numel + packed_bytes(numel, 1), type(self).__name__, numel)
        exponents, packed = payload[:numel], payload[numel:]
        signs = SignBits(_most(out), out.device)
        for piece in chunks(out, 8):
            values = exponents[piece].to(torch.int32).bitwise_left_shift_(23).view(torch.float32)
            values.mul_(signs.unpack(packed[_bytes(piece)])[: len(values)])
            put(out[piece], values, add, scale)


def _bytes(piece: slice) -> slice:
    """Return where the packed signs of `piece` are, which begins at a whole byte."""
    return slice(piece.start // 8, -(-piece.stop // 8))


def _most(tensor: Tensor) -> int:
    """Return the number of elements of the largest chunk."""
    return min(tensor.numel(), CHUNK) if tensor.device.type == "cpu" else tensor.numel()
