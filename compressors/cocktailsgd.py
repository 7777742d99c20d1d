from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, FeedbackMode, Layout, Traits
from compressors.base.payload import (
    PayloadError,
    from_bytes,
    require_finite,
    require_finite_payload,
    require_size,
    to_bytes,
)
from compressors.parts.packing import Packer, packed_bytes
from compressors.parts.sampling import sample
from compressors.parts.selection import largest
from compressors.parts.sparse import kept_of, scatter
from testbed.core.parameters import Share

_LEVELS = 8
"""Levels of magnitude: three bits, next to one for the sign."""
_WIDEST = 4.0 ** (_LEVELS - 1)
"""Largest / smallest level: two that follow each other are at most four times apart, so that the nearer one, by ratio,
is never further from a magnitude than zero is."""


class CocktailSGD(Compressor):
    """Draw entries, keep the largest, quantise them to 4 bits.

    Wang et al., "CocktailSGD: Fine-tuning Foundation Models over 500Mbps Networks", ICML 2023, PMLR 202.
    Differs from the paper: among all ranks, not through parameter servers; the sample has one entry of each of as many
    equal ranges of the bucket; the drawn entries that are kept are marked in a bitmap; rounding is to nearest.

    Biased; not linear, so payloads are gathered, or averaged in two shots, which encodes twice: bounds are of one
    encoding. The drawn entries follow from a seed that all ranks share, which costs nothing; |x - C(x)|^2 <= |x|^2.
    Levels follow each other by a constant ratio from the smallest to the largest kept magnitude: kept entries of a
    residual have a long tail, of which even steps would send the largest few alone. Use with error feedback.
    Wire: smallest and largest level (2,) float32, then a bit for each of the m drawn entries, then k codes of 4 bits;
    8 + ceil(m / 8) + ceil(k / 2) bytes with m = ceil(drawn * n) and k = ceil(density * m).
    Keeps no state.

    Args:
        drawn: Drawn / all entries.
        density: Kept / drawn entries.

    Raises:
        ValueError: a share is not in (0, 1].
        NonFiniteError: a bucket holds NaN or infinity, which might not be drawn.
    """

    is_sparse = True
    traits = Traits(feedback="required", contraction=0.0, carries_non_finite=False)

    def __init__(self, *, drawn: Share = 0.4, density: Share = 0.05, feedback: FeedbackMode = "auto") -> None:
        super().__init__(feedback=feedback)
        self.drawn, self.density = drawn, density

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        m, k = self._counts(layout.numel)
        return 8 + packed_bytes(m, 1) + packed_bytes(k, 4)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        require_finite(tensor, type(self).__name__)
        m, k = self._counts(tensor.numel())
        values = tensor[self._places(tensor, context)].float()
        kept, _ = largest(values, k, context)
        marks = torch.zeros(m, dtype=torch.uint8, device=tensor.device)
        marks[kept] = 1
        ends = _ends(values[kept].abs())
        codes = torch.bucketize(values[kept].abs(), _between(ends).to(tensor.device))
        codes = (codes + _LEVELS * (values[kept] < 0)).to(torch.uint8)
        return torch.cat([to_bytes(ends.to(tensor.device)), Packer(m, 1).pack(marks), Packer(k, 4).pack(codes)])

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        m, k = self._counts(out.numel())
        require_size(payload, 8 + packed_bytes(m, 1) + packed_bytes(k, 4), type(self).__name__, out.numel())
        marks = Packer(m, 1).unpack(payload[8 : 8 + packed_bytes(m, 1)])
        kept = marks.nonzero().view(-1)
        if len(kept) != k:
            raise PayloadError(f"CocktailSGD payload for {out.numel()} elements: {len(kept)} marks, expected {k}")
        ends = from_bytes(payload[:8], torch.float32).cpu()
        require_finite_payload(ends, type(self).__name__, out.numel())
        levels = _levels(ends).float()
        table = torch.cat([levels, -levels]).to(out.device)
        codes = Packer(k, 4).unpack(payload[8 + packed_bytes(m, 1) :])
        scatter(out, self._places(out, context)[kept], table[codes.long()], add, scale)

    def _counts(self, numel: int) -> tuple[int, int]:
        m = kept_of(self.drawn, numel)
        return m, kept_of(self.density, m)

    def _places(self, tensor: Tensor, context: Context) -> Tensor:
        # Both encodings of a part, under TWO_SHOT, look at the same entries.
        stream = replace(context, part=context.part % context.world_size).random("cocktailsgd", shared=True)
        return sample(stream, tensor.numel(), self._counts(tensor.numel())[0], tensor.device)


def _ends(magnitudes: Tensor) -> Tensor:
    """Return (2,) float32, in the CPU's memory: the smallest and the largest level."""
    if not len(magnitudes):
        return torch.zeros(2)
    smallest, largest = (end.cpu() for end in magnitudes.aminmax())
    return torch.stack([torch.maximum(smallest, largest / _WIDEST), largest])


def _levels(ends: Tensor) -> Tensor:
    """(levels,) float64, by a constant ratio; whatever the bytes of `ends` are."""
    smallest, largest = ends.double()
    if not smallest > 0 or not largest > 0:
        return torch.zeros(_LEVELS, dtype=torch.float64)
    return smallest * (largest / smallest) ** (torch.arange(_LEVELS, dtype=torch.float64) / (_LEVELS - 1))


def _between(ends: Tensor) -> Tensor:
    """(levels - 1,) float32: where the nearer level changes, by ratio."""
    levels = _levels(ends)
    return (levels[:-1] * levels[1:]).sqrt().float()
