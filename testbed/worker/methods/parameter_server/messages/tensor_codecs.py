"""Lossy codecs for one tensor at a time, point to point, and whose message it is that they code."""

from __future__ import annotations

import hashlib
import math
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, Layout
from compressors.base.payload import PayloadError, from_bytes, require_size, to_bytes
from compressors.base.streams import Stream
from compressors.parts import codec_process
from compressors.sz3 import ALGORITHMS
from testbed.worker.methods.parameter_server.messages.schema import Item

_SZ3_ROOM, _ZSTD_ROOM = 4096, 1 << 17
"""Bytes a stream may have beyond its values before it is given up."""
_STEP = struct.Struct("<f")
_LEVELS = 127


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Of a message, known to both of its ends: what is drawn at random depends on it and on the tensor."""

    seed: int
    """Of the run."""
    round: int
    sender: int
    """Its rank."""
    world_size: int

    def dither(self, direction: str, name: str) -> Stream:
        """A stream of its own for each tensor of each message, whatever the order in which they are coded."""
        key = f"{self.seed}/{self.round}/{direction}/{self.sender}/{name}/dither"
        return Stream(int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little"))

    def context(self, direction: str, index: int, item: Item) -> Context:
        """For a compressor: each tensor is a bucket of its own."""
        return Context(
            layout=Layout((item.shape,), index, (item.name,)),
            route=None,
            seed=self.seed,
            step=self.round,
            rank=self.sender,
            world_size=self.world_size,
            stream=direction,
        )


class Codec(ABC):
    """Codes float32 values, 1-D, contiguous, finite, on the processor. Its body has no checksum: the message has."""

    name: ClassVar[str]
    """As messages have it."""
    bounded: ClassVar[bool] = False
    """Keeps to an absolute bound; else the sender measures the error and says what it was."""
    varies: bool = True
    """The length of a body depends on the values."""
    dithers: ClassVar[bool] = False
    """Rounds to points that lie twice the bound apart, so that subtractive dither makes its error uniform."""

    def kept_bound(self, bound: float, peak: float, *, dither: bool) -> float:
        """The bound it will keep where `bound` is asked for values up to `peak` in magnitude."""
        return bound

    @abstractmethod
    def encode(self, values: Tensor, bound: float, context: Context) -> Tensor: ...

    @abstractmethod
    def decode(self, body: Tensor, numel: int, context: Context) -> Tensor:
        """
        Returns:
            (numel,) float32, of which nothing is promised: the caller checks it.

        Raises:
            PayloadError: no such values can have this body.
        """


class Sz3(Codec):
    """SZ3 3.4 with an absolute bound (Liang et al., IEEE Transactions on Big Data 9(2), 2023, arXiv:2111.02925).

    Wire: an SZ3 stream of n float32 in one dimension, some 70 bytes at least. In a helper process (`codec_process`).

    Args:
        algorithm: one of lorenzo_reg, interp_lorenzo, interp, nopred.
    """

    name, bounded, dithers = "sz3", True, True

    def __init__(self, algorithm: str) -> None:
        self.algorithm = ALGORITHMS[algorithm]

    def encode(self, values: Tensor, bound: float, context: Context) -> Tensor:
        room = values.nbytes + _SZ3_ROOM
        return codec_process.encode("sz3", values, room, algorithm=self.algorithm, bound=bound)

    def decode(self, body: Tensor, numel: int, context: Context) -> Tensor:
        return from_bytes(codec_process.decode("sz3", body, 4 * numel), torch.float32)


class Int8Zstd(Codec):
    """Multiples of one step, in 8 bits, and zstd: the plain baseline of error-bounded codecs.

    The step is twice the bound where 127 of these reach the largest magnitude; else it is as large as they need, and
    the bound that is kept is larger than the one asked for.
    Wire: step float32, then n codes of int8, or a zstd frame of them where that has fewer than n bytes.
    """

    name, bounded, dithers = "int8_zstd", True, True

    def kept_bound(self, bound: float, peak: float, *, dither: bool) -> float:
        # dither adds up to one bound to the peak
        return max(bound, peak / (2 * _LEVELS - 1 if dither else 2 * _LEVELS))

    def encode(self, values: Tensor, bound: float, context: Context) -> Tensor:
        head = bytearray(_STEP.pack(2 * bound))
        (step,) = _STEP.unpack(head)
        codes = to_bytes((values / step).round_().to(torch.int8))
        coded = codec_process.encode("zstd", codes, len(codes) + _ZSTD_ROOM, level=1, planes=1)
        return torch.cat([torch.frombuffer(head, dtype=torch.uint8), coded if len(coded) < len(codes) else codes])

    def decode(self, body: Tensor, numel: int, context: Context) -> Tensor:
        if len(body) < _STEP.size:
            raise PayloadError(f"int8_zstd payload of {len(body)} bytes has no step")
        (step,) = _STEP.unpack(body[: _STEP.size].numpy().tobytes())
        if not 0 < step < math.inf:
            raise PayloadError(f"int8_zstd payload has a step of {step}")
        codes = body[_STEP.size :]
        if len(codes) != numel:
            codes = codec_process.decode("zstd", codes, numel, planes=1)
        return codes.view(torch.int8).float().mul_(step)


class Fp16(Codec):
    """IEEE half precision; of values beyond 65504 nothing finite is left. Wire: n float16; 2n bytes."""

    name, varies = "fp16", False

    def encode(self, values: Tensor, bound: float, context: Context) -> Tensor:
        return to_bytes(values.half())

    def decode(self, body: Tensor, numel: int, context: Context) -> Tensor:
        require_size(body, 2 * numel, "fp16", numel)
        return from_bytes(body, torch.float16).float()


class OfCompressor(Codec):
    """Any compressor that works point to point, without its own feedback. Wire: its payload."""

    name = "compressor"

    def __init__(self, compressor: Compressor) -> None:
        self.compressor = compressor
        self.varies = not compressor.traits.fixed_size

    def encode(self, values: Tensor, bound: float, context: Context) -> Tensor:
        return to_bytes(self.compressor.encode(values, context).cpu())

    def decode(self, body: Tensor, numel: int, context: Context) -> Tensor:
        out = torch.zeros(numel)
        self.compressor.decode(body, out, context)
        return out
