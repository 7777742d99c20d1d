from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, FeedbackMode, Layout, Traits
from compressors.base.payload import put
from compressors.parts import codec_process
from compressors.parts.frame import HEADER_BYTES, ZERO, floats, pack, pack_smaller
from testbed.core.kinds import Choice, Whole

_PLANNED = 0.87
"""Bytes after / before, for zstd and the byte shuffle on values of heavy tails, measured."""
_ROOM = 4096
_LARGEST_BYTES = 2**31 - 64
"""Largest input of the library, in bytes."""
CODECS = ("blosclz", "lz4", "lz4hc", "zlib", "zstd")
SHUFFLES = {"none": 0, "byte": 1, "bit": 2}


class Blosc2(Compressor):
    """Send float32 losslessly, bytes or bits regrouped, then encoded.

    Send float32 losslessly: in blocks, bytes or bits of one significance put together, then a codec.

    Alted, "Why Modern CPUs Are Starving and What Can Be Done about It", Computing in Science & Engineering 12(2), 2010;
    the codec is C-Blosc2 3 of the package blosc2. The bit shuffle is that of Masui et al., "A Compression Scheme for
    Radio Data in High Performance Computing", Astronomy and Computing 12, 2015, arXiv:1503.00638.

    Lossless: every bit arrives, those of NaN too. Not linear, so payloads are gathered, or averaged in two shots, which
    encodes twice.
    Wire: frame (28 bytes, `frame`), then a Blosc2 chunk of float32, or raw float32 where that is shorter, or nothing
    where all bits are 0.
    Keeps no state. The codec works in a helper process (`codec_process`), with one thread.

    Args:
        codec: Codec; only zlib and zstd shorten gradients. The others have no entropy code.
        shuffle: Unit by which values are regrouped by significance.
        level: Level; above 1 is slower and no shorter (measured).

    Raises:
        ValueError: a parameter is none of these, or a bucket has more than 2 GiB.
        CodecProcessError: the helper process cannot work.
    """

    traits = Traits(fixed_size=False, unbiased=True, contraction=1.0)

    def __init__(
        self,
        *,
        codec: Annotated[str, Choice(CODECS)] = "zstd",
        shuffle: Annotated[str, Choice(SHUFFLES)] = "byte",
        level: Annotated[int, Whole(1, 9)] = 1,
        feedback: FeedbackMode = "auto",
    ) -> None:
        super().__init__(feedback=feedback)
        self.codec, self.shuffle, self.level = codec, shuffle, level

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        """Return an estimate for planning. Bodies are never above the raw size."""
        return HEADER_BYTES + math.ceil(_PLANNED * 4 * layout.numel)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        values = tensor.detach().float().cpu().contiguous()
        if values.nbytes > _LARGEST_BYTES:
            raise ValueError(f"Blosc2: a bucket of {values.nbytes} bytes; it takes at most {_LARGEST_BYTES}")
        if not values.view(torch.int32).any():
            return pack("blosc2", ZERO, len(values)).to(tensor.device)
        coded = codec_process.encode(
            "blosc2",
            values,
            values.nbytes + _ROOM,
            codec=self.codec,
            shuffle=SHUFFLES[self.shuffle],
            level=self.level,
        )
        return pack_smaller("blosc2", len(values), coded, values).to(tensor.device)

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        put(out, floats(payload, "blosc2", out.numel()).to(out.device), add, scale)
