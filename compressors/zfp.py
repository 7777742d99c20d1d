from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, FeedbackMode, Layout, Traits
from compressors.base.payload import PayloadError, from_bytes, put, require_finite_payload
from compressors.parts import codec_process
from compressors.parts.frame import (
    CODED,
    HEADER_BYTES,
    RAW,
    ZERO,
    finite_root_mean_square,
    floats,
    pack,
    pack_smaller,
    unpack,
)
from testbed.core.kinds import Choice, Number, Whole

_BLOCK = 4
"""Values that share an exponent, in one dimension."""
_STREAM_HEADER_BITS, _WORD_BITS = 96, 64
_ROOM = 4096
_MIN_TOLERANCE = 1e-27
"""The codec scales a block to 30 bits by a float32, which overflows where a block has nothing above 2^-97."""
MODES = ("accuracy", "precision", "rate")


class ZFP(Compressor):
    """Send blocks of 4 transformed values as bit planes.

    Send blocks of 4 values under one exponent, transformed, their bits in order of significance until enough.

    Lindstrom, "Fixed-Rate Compressed Floating-Point Arrays", IEEE Transactions on Visualization and Computer Graphics
    20(12), 2014; fixed precision and fixed accuracy came with the library, zfp 1.0 through zfpy.
    Differs from the paper: a bucket is one-dimensional, since gradients have no smooth order in any, so the transform
    gains nothing and each block pays for its exponent; and the tolerance is `error_bound` times the root mean square of
    the bucket, so that it follows gradients as they shrink.

    Biased; not linear, so payloads are gathered, or averaged in two shots, which encodes twice: bounds are of one
    encoding. With accuracy no value is off by more than the tolerance, which the codec rounds down to a power of two:
    most are off by a quarter of it or less. A bucket whose tolerance is below 1e-27 is sent raw; with precision and
    rate, a block with nothing above 2^-97 (6e-30) decodes to noise of that size.
    Wire: frame (28 bytes, `frame`), then a zfp stream with its own header, of float32. With rate always that, in
    8 ceil((96 + ceil(n / 4) 4 rate) / 64) bytes; otherwise its size depends on the values: nothing for a bucket of
    zeros, raw float32 where that is shorter.
    Keeps no state. The codec works in a helper process (`codec_process`).

    Args:
        mode: Mode: accuracy (`error_bound`), precision or rate.
        error_bound: Error bound / RMS of the bucket.
        precision: Bit planes kept of each block.
        rate: Bits per value. A block's exponent takes 9 of its 4 rate bits, so that below 6 more is lost than sent.

    Raises:
        ValueError: a parameter is none of these.
        NonFiniteError: a bucket holds NaN or infinity, which zfp has no code for.
        CodecProcessError: the helper process cannot work.
    """

    def __init__(
        self,
        *,
        mode: Annotated[str, Choice(MODES)] = "accuracy",
        error_bound: Annotated[float, Number(above=0, below=1e6)] = 0.3,
        precision: Annotated[int, Whole(4, 32)] = 8,
        rate: Annotated[float, Number(least=6, most=32, multiple_of=0.25, unit="bits")] = 8.0,
        feedback: FeedbackMode = "auto",
    ) -> None:
        super().__init__(feedback=feedback)
        self.mode, self.error_bound, self.precision, self.rate = mode, error_bound, precision, float(rate)
        promised = 1 - error_bound**2 if mode == "accuracy" else 0.0
        loses = {"accuracy": error_bound > 1, "precision": precision < 6, "rate": rate < 7}[mode]
        self.traits = Traits(
            fixed_size=mode == "rate",
            feedback="recommended" if loses else "none",
            contraction=promised if promised > 0 else None,
            carries_non_finite=False,
        )

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        """Return the exact size with rate, otherwise an estimate for planning: bodies are never above the raw size."""
        if self.mode == "rate":
            return HEADER_BYTES + self._stream_bytes(layout.numel)
        # Bits of a value as measured on normal and on heavy-tailed values, the mean of both.
        bits = self.precision + 0.9 if self.mode == "precision" else 5.9 - math.log2(self.error_bound)
        return HEADER_BYTES + math.ceil(layout.numel * min(32.0, max(1.0, bits)) / 8)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        values = tensor.detach().float().cpu().contiguous()
        rms = finite_root_mean_square(values, "zfp")
        if rms == 0.0 and self.mode != "rate":
            return pack("zfp", ZERO, len(values)).to(tensor.device)
        if self.mode == "accuracy" and self.error_bound * rms < _MIN_TOLERANCE:
            return pack("zfp", RAW, len(values), values).to(tensor.device)
        mode, value = {
            "accuracy": ("tolerance", self.error_bound * rms),
            "precision": ("precision", self.precision),
            "rate": ("rate", self.rate),
        }[self.mode]
        if not len(values):  # of which the codec makes nothing
            return pack("zfp", CODED, 0).to(tensor.device)
        coded = codec_process.encode("zfp", values, 2 * values.nbytes + _ROOM, mode=mode, value=value)
        if self.mode == "rate":
            return pack("zfp", CODED, len(values), coded).to(tensor.device)
        return pack_smaller("zfp", len(values), coded, values).to(tensor.device)

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        numel = out.numel()
        if self.mode == "rate":
            size = self._stream_bytes(numel)
            _, body = unpack(payload, "zfp", numel, size, kinds=(CODED,))
            if len(body) != size:
                raise PayloadError(f"zfp payload for {numel} elements: a stream of {len(body)} bytes, expected {size}")
            values = from_bytes(codec_process.decode("zfp", body, 4 * numel) if numel else body, torch.float32)
            require_finite_payload(values, "zfp", numel)
        else:
            values = floats(payload, "zfp", numel, finite=True)
        put(out, values.to(out.device), add, scale)

    def _stream_bytes(self, numel: int) -> int:
        if not numel:
            return 0
        bits = _STREAM_HEADER_BITS + -(-numel // _BLOCK) * round(_BLOCK * self.rate)
        return -(-bits // _WORD_BITS) * (_WORD_BITS // 8)
