from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from compressors.base.chunks import chunks
from compressors.base.compressor import Compressor, Context, FeedbackMode, Layout, Traits
from compressors.base.payload import from_bytes, put, require_size
from compressors.parts.packing import Packer, packed_bytes
from testbed.core.kinds import Choice

_BUCKETS = (2, 4, 16, 64, 128, 256)
_SAMPLES = 1 << 14
"""Values from which quantiles are estimated."""
_HALF = 1 << 15
"""Keys of negative, and of positive values: the upper 16 bits of a float32."""


class SketchML(Compressor):
    """Send each value's quantile bucket, and the buckets' means.

    Sort values into about equally full buckets, and send the bucket of each value and the mean of each bucket.

    Jiang, Fu, Yang, Cui, "SketchML: Accelerating Distributed Machine Learning with Data Sketches", SIGMOD 2018,
    section 3.2 (quantile-bucket quantification); the form for dense gradients is that of GRACE, Xu et al., ICDCS 2021.
    Differs from the paper: gradients are dense, so there are no keys to encode by their differences, and no
    MinMaxSketch, which thins out codes of sparse ones; quantiles are those of a sample of 16384 values, not of a
    sketch of all; splits are rounded to 8 significant bits; a bucket is sent as the exact mean of what it holds, not as
    the middle between its splits.

    Biased (deterministic but for the sample); not linear, so payloads are gathered, or averaged in two shots, which
    encodes twice: bounds are of one encoding. |x - C(x)|^2 <= |x|^2, the variance within buckets: 0.1 % of
    the energy of normal values with 256 buckets. The sum of a tensor is kept.
    A bucket that holds NaN or infinity decodes to NaN or infinity.
    Wire: means (buckets,) float32, then codes (n,) of b bits (see `Packer`); 4 buckets + ceil(n b / 8) bytes, b = 1, 2
    or 4 for 2, 4 or 16 buckets, else 8. The last bits of a mean may differ between kinds of device.
    Keeps no state.

    Args:
        buckets: Number q of buckets of values.

    Raises:
        ValueError: The number of buckets is none of these.
    """

    def __init__(self, *, buckets: Annotated[int, Choice(_BUCKETS)] = 256, feedback: FeedbackMode = "auto") -> None:
        super().__init__(feedback=feedback)
        self.buckets = buckets
        self._bits = {2: 1, 4: 2, 16: 4}.get(buckets, 8)
        # With 4 buckets a normal tensor loses 12 % of its energy, with 16 about 2 %.
        self.traits = Traits(contraction=0.0, feedback="recommended" if buckets <= 4 else "none")

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return 4 * self.buckets + packed_bytes(layout.numel, self._bits)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        numel, split = tensor.numel(), 4 * self.buckets
        payload = torch.empty(split + packed_bytes(numel, self._bits), dtype=torch.uint8, device=tensor.device)
        codes = payload[split:] if self._bits == 8 else payload.new_empty(numel)
        table = self._table(tensor, context)
        sums, counts = (torch.zeros(self.buckets, dtype=torch.float64, device=tensor.device) for _ in range(2))
        for piece in chunks(tensor):
            values = tensor[piece].float().contiguous()
            rows = table.index_select(0, _keys(values))
            codes[piece].copy_(rows)
            rows = rows.to(torch.int64)
            sums += torch.bincount(rows, weights=values.double(), minlength=self.buckets)
            counts += torch.bincount(rows, minlength=self.buckets)
        payload[:split].view(torch.float32).copy_(sums / counts.clamp(min=1))
        if self._bits != 8:
            payload[split:] = Packer(numel, self._bits).pack(codes)
        return payload

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        numel, split = out.numel(), 4 * self.buckets
        require_size(payload, split + packed_bytes(numel, self._bits), type(self).__name__, numel)
        means = payload.new_zeros(256, dtype=torch.float32)  # for any byte, also of fewer buckets
        means[: self.buckets] = from_bytes(payload[:split], torch.float32)
        codes = payload[split:] if self._bits == 8 else Packer(numel, self._bits).unpack(payload[split:])
        for piece in chunks(out):
            put(out[piece], means.index_select(0, codes[piece].to(torch.int64)), add, scale)

    def _table(self, tensor: Tensor, context: Context) -> Tensor:
        """(65536,) uint8: the bucket of each key.

        A bucket begins with the key of a quantile of the sample; what has one key has one bucket.
        """
        if not tensor.numel():
            return torch.zeros(2 * _HALF, dtype=torch.uint8, device=tensor.device)
        stride = max(tensor.numel() // _SAMPLES, 1) | 1  # odd, since rows of matrices mostly have even lengths
        offset = context.random("sample", shared=False).integer(stride) if tensor.numel() > stride else 0
        ranks = _ranked(_keys(tensor[offset::stride].float().contiguous())).sort().values
        starts = torch.arange(1, self.buckets, device=tensor.device) * len(ranks) // self.buckets
        begun = torch.bincount(ranks[starts], minlength=2 * _HALF).cumsum(0)
        every = torch.arange(2 * _HALF, device=tensor.device)
        return begun[_ranked(every)].to(torch.uint8)


def _keys(values: Tensor) -> Tensor:
    """Return (n,) int64, 0 to 65535: the upper half of each float32, contiguous, with its sign bit inverted."""
    return values.view(torch.int32).bitwise_right_shift(16).to(torch.int64).add_(_HALF)


def _ranked(keys: Tensor) -> Tensor:
    """Return keys in the order of the values: negative ones of largest magnitude come first."""
    return torch.where(keys < _HALF, _HALF - 1 - keys, keys)
