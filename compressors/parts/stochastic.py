"""Base of compressors that round at random to equal levels, bucket by bucket."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated

import torch
from torch import Tensor

from compressors.base.chunks import chunks
from compressors.base.compressor import Compressor, Context, FeedbackMode, Layout
from compressors.base.exact import divide_, row_sums
from compressors.base.payload import from_bytes, put, require_size
from compressors.parts.packing import WIDTHS, Packer, packed_bytes
from testbed.core.kinds import Whole
from testbed.core.parameters import MAX_BLOCK

_SMALLEST = 1e-36
"""A scale below this is sent as zero: its reciprocal, times levels, would not be finite."""

Levels = Annotated[int, Whole(1, 127)]
BucketSize = Annotated[int, Whole(8, MAX_BLOCK)]


class RandomLevels(Compressor):
    """Base of compressors that round each value over its scale to one of 2 `levels` + 1 equal steps from -1 to 1.

    Each bucket has a scale. A value is rounded up or down at random, so that its expectation is the value.
    Wire: scales (ceil(n / bucket_size),) float32, then codes (n,) of `bits` bits (see `Packer`), each `levels` more
    than its level. One code above the top is kept free: a value that rounding in float32 left a little above its
    bucket's scale is then rounded like any other.
    """

    clips = False
    """Values may be larger than their bucket's scale, and count as equal to it."""

    def __init__(
        self,
        *,
        levels: Levels,
        bucket_size: BucketSize,
        feedback: FeedbackMode = "auto",
    ) -> None:
        super().__init__(feedback=feedback)
        self.levels, self.bucket_size = levels, bucket_size
        self.bits = next(width for width in WIDTHS if 2 * levels + 2 <= 2**width)

    @abstractmethod
    def scales(self, rows: Tensor, count: int) -> Tensor:
        """Return scales (buckets,) float32; NaN or infinity for a row that holds some.

        Args:
            rows: (buckets, bucket_size) float32.
            count: Number of values in `rows`; zeros fill up the last row.
        """

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return 4 * self._buckets(layout.numel) + packed_bytes(layout.numel, self.bits)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        numel, split = tensor.numel(), 4 * self._buckets(tensor.numel())
        payload = torch.empty(split + packed_bytes(numel, self.bits), dtype=torch.uint8, device=tensor.device)
        scales = payload[:split].view(torch.float32)
        codes = payload[split:] if self.bits == 8 else payload.new_empty(numel)
        stream = context.random("rounding", shared=False)
        for piece in chunks(tensor, 2 * self.bucket_size):  # a stream is drawn from even places
            rows = self._rows(tensor[piece].float())
            first = piece.start // self.bucket_size
            ours = scales[first : first + len(rows)]
            ours.copy_(self.scales(rows, piece.stop - piece.start))
            steps = self.levels / ours
            low, high = torch.aminmax(ours)
            if not (low >= _SMALLEST and high < torch.inf):  # or NaN
                steps = steps.nan_to_num_(0.0, 0.0, 0.0).masked_fill_(ours < _SMALLEST, 0.0)
                rows = rows.nan_to_num(0.0, 0.0, 0.0)
            # not fused: some devices would round once where others round twice
            places = stream.dither(piece.start, rows.numel(), tensor.device, above=self.levels).view_as(rows)
            places.add_(rows * steps.unsqueeze(1))
            if self.clips:
                places.clamp_(0.0, 2 * self.levels + 0.5)
            # by way of int32, which is quicker than from float to bytes at once; what is dropped is the fraction
            codes[piece].copy_(places.view(-1)[: piece.stop - piece.start].to(torch.int32))
        if self.bits != 8:
            payload[split:] = Packer(numel, self.bits).pack(codes)
        return payload

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        numel, split = out.numel(), 4 * self._buckets(out.numel())
        require_size(payload, split + packed_bytes(numel, self.bits), type(self).__name__, numel)
        steps = divide_(from_bytes(payload[:split], torch.float32).clone(), self.levels)
        codes = payload[split:] if self.bits == 8 else Packer(numel, self.bits).unpack(payload[split:])
        size = self.bucket_size
        in_place = out.dtype == torch.float32 and not add and scale == 1.0
        for piece in chunks(out, 2 * size):
            values = out[piece].copy_(codes[piece]) if in_place else codes[piece].float()
            values.sub_(self.levels)
            whole, first = len(values) // size, piece.start // size
            values[: whole * size].view(whole, size).mul_(steps[first : first + whole].unsqueeze(1))
            if whole * size < len(values):
                values[whole * size :].mul_(steps[first + whole])
            if not in_place:
                put(out[piece], values, add, scale)

    def _buckets(self, numel: int) -> int:
        return -(-numel // self.bucket_size)

    def _rows(self, values: Tensor) -> Tensor:
        """(buckets, bucket_size), the last one filled up with zeros."""
        padding = -len(values) % self.bucket_size
        if padding:
            values = torch.nn.functional.pad(values, (0, padding))
        return values.contiguous().view(-1, self.bucket_size)


def sums(values: Tensor) -> Tensor:
    """Along dimension 1, float64, of float32."""
    return row_sums(values.double())


def norms(values: Tensor) -> Tensor:
    """Euclidean norms along dimension 1, float32; no square leaves float64, infinite where the norm leaves float32."""
    return row_sums(values.double().square_()).sqrt_().float()
