"""A tensor within an absolute bound: what a codec may lose of it, dither, and what a receiver checks.

    low float32 | high float32 | dither float32 | body of the codec

12 bytes, little-endian, then the body. `low` and `high` are the range of what was sent, `dither` the amplitude of what
was added to it at random and is to be taken off again, 0 where nothing was.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import torch
from torch import Tensor

from compressors.base.chunks import chunks
from compressors.base.payload import PayloadError
from testbed.worker.methods.parameter_server.messages.schema import Item
from testbed.worker.methods.parameter_server.messages.tensor_codecs import Codec, Origin

_HEAD = struct.Struct("<fff")
_ROUNDING = 2.0**-22
"""Of magnitudes, what some operations in float32 may be off by: four units in the last place at most."""
_LARGEST, _SMALLEST = 1e37, 1e-36
"""Magnitudes that a codec may get, and bounds: float32 has room for what is added to them, or less than them."""


@dataclass(frozen=True)
class Lossy:
    """Codes the tensors of one direction.

    What comes out is off by the bound at most, whatever the tensor's type: of the bound a codec gets what rounding in
    float32, dither's two roundings among it, and the last cast to halves leave of it.

    Args:
        dither: subtractive (Gray and Stockham, "Dithered Quantizers", IEEE Transactions on Information Theory 39(3),
            1993): sender adds and receiver takes off the same d, uniform in [-bound, bound).
    """

    codec: Codec
    direction: str
    dither: bool

    def pack(
        self, index: int, item: Item, values: Tensor, bound: float | None, origin: Origin
    ) -> tuple[Tensor, float] | None:
        """(payload, the bound it keeps to); None where only lossless keeps to it, or this would be no shorter.

        Args:
            values: in the type in which they travel, contiguous, finite, on the processor; not empty.
            bound: absolute, above 0; None: whatever the codec loses, which is then measured.
        """
        low, high = (float(end) for end in values.aminmax())
        peak = max(-low, high)
        if peak >= _LARGEST or (bound is None and self.codec.bounded):
            return None
        given, kept = 0.0, 0.0
        if bound is not None and self.codec.bounded:
            given = coding_bound(bound, peak, values.dtype)
            if given == 0.0:
                return None
            kept = self.codec.kept_bound(given, peak, dither=self.dither)
        head = _HEAD.pack(low, high, kept if self.dither else 0.0)
        flat = values.view(-1).float()
        if self.dither:
            flat = flat + self._noise(item, head, origin)
        body = self.codec.encode(flat, kept, origin.context(self.direction, index, item))
        payload = torch.cat([torch.frombuffer(bytearray(head), dtype=torch.uint8), body])
        if len(payload) >= values.nbytes:
            return None
        if bound is None or not self.codec.bounded:
            error, _ = errors(self._values(index, item, payload, values.dtype, origin), values)
            return (payload, error) if math.isfinite(error) else None
        # more than was asked for where a codec cannot do better; halves may round away as much again
        return payload, bound + (kept - given) * (2 if values.dtype.itemsize == 2 else 1)

    def unpack(
        self, index: int, item: Item, payload: Tensor, bound: float, dtype: torch.dtype, origin: Origin
    ) -> Tensor:
        """A new tensor of the item's shape.

        Raises:
            PayloadError: the payload cannot be this tensor's, or what it decodes to is out of its own range.
        """
        if len(payload) < _HEAD.size:
            raise PayloadError(f"{len(payload)} bytes are less than a header of {_HEAD.size}")
        low, high, amplitude = _HEAD.unpack(payload[: _HEAD.size].numpy().tobytes())
        if not -_LARGEST <= low <= high <= _LARGEST:
            raise PayloadError(f"a range from {low:g} to {high:g} is none")
        if not (0 < amplitude <= 1.001 * bound if self.dither else amplitude == 0):
            raise PayloadError(f"dither of {amplitude:g} with a bound of {bound:g}")
        found = self._values(index, item, payload, dtype, origin)
        room = bound + _ROUNDING * (max(-low, high) + bound)
        least, most = (float(end) for end in found.aminmax())
        if not (low - room <= least and most <= high + room):  # or NaN
            raise PayloadError(f"decodes to {least:g} … {most:g}, of values from {low:g} to {high:g} within {bound:g}")
        return found

    def _values(self, index: int, item: Item, payload: Tensor, dtype: torch.dtype, origin: Origin) -> Tensor:
        head = payload[: _HEAD.size].numpy().tobytes()
        context = origin.context(self.direction, index, item)
        found = self.codec.decode(payload[_HEAD.size :], item.numel, context)
        if self.dither:
            found = found - self._noise(item, head, origin)
        if dtype.itemsize == 2:
            limit = torch.finfo(dtype).max
            found = found.clamp(-limit, limit)  # NaN stays
        return found.to(dtype).view(item.shape)

    def _noise(self, item: Item, head: bytes, origin: Origin) -> Tensor:
        """The same bits at both ends: multiples of 2**-23, times the amplitude as it travels."""
        amplitude = _HEAD.unpack(head)[2]
        drawn = origin.dither(self.direction, item.name).uniform(0, item.numel)
        return drawn.mul_(2).sub_(1).mul_(amplitude)


def coding_bound(bound: float, peak: float, dtype: torch.dtype) -> float:
    """What a codec that works in float32 may lose so that no more than `bound` is lost of values of `dtype`, up to
    `peak` in magnitude; 0.0: nothing.

    A half that is off by e before the cast is off by e and half a unit in the last place after it; and by 2e at most,
    since it was a half itself, and the cast goes to the nearest.
    """
    cast = 0.0
    if dtype.itemsize == 2:
        info = torch.finfo(dtype)
        cast = max(info.eps * (peak + bound), info.smallest_normal * info.eps) / 2
    given = max(bound - cast, bound / 2) - _ROUNDING * (peak + 2 * bound)
    return given if given >= max(bound / 4, _SMALLEST) else 0.0


def errors(found: Tensor, wanted: Tensor) -> tuple[float, float]:
    """Largest and root mean square, in float64."""
    largest, squares = 0.0, 0.0
    ours, theirs = found.view(-1), wanted.view(-1)
    for piece in chunks(ours):
        difference = (ours[piece].double() - theirs[piece]).abs_()
        top = float(difference.max())
        largest = top if math.isnan(top) else max(largest, top)
        squares += float(difference.square_().sum())
    return largest, math.sqrt(squares / max(1, len(ours)))
