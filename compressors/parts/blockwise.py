"""Base of compressors that send codes of a few bits, each block of values scaled by its largest one."""

from __future__ import annotations

import functools
import itertools
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from compressors.base.chunks import CHUNK, chunks
from compressors.base.compressor import Compressor, Context, FeedbackMode, Layout
from compressors.base.exact import divide_
from compressors.base.payload import from_bytes, put, require_size
from compressors.parts.packing import Packer, packed_bytes
from testbed.core.kinds import Whole
from testbed.core.parameters import MAX_BLOCK

_LARGEST = torch.finfo(torch.float32).max
_SMALLEST = torch.finfo(torch.float32).tiny
"""Of scales: below it the inverse may be infinite, and the scale is not exact to the last bit."""

BlockSize = Annotated[int, Whole(8, MAX_BLOCK)]


class Blockwise(Compressor):
    """Sends a scale for each block of values, and a code for each value over its scale.

    A block whose scale would be below 1.18e-38 is sent as zeros; one that holds NaN or infinity decodes to NaN. Codes
    of 4 bits lie in two planes, as `Packer` has them, and each plane has blocks of its own.
    Wire: scales (b,) float32, then codes (n,) of `bits` bits, packed; 4b + ceil(n bits / 8) bytes, where b is
    the number of blocks, in each plane the last may be short.
    """

    bits: ClassVar[int] = 8
    """Bits of a code; 4 or 8."""
    top: float = 1.0
    """Largest magnitude of a value over its scale."""

    def __init__(
        self,
        *,
        block_size: BlockSize,
        feedback: FeedbackMode = "auto",
    ) -> None:
        super().__init__(feedback=feedback)
        self.block_size = block_size

    @functools.cached_property
    def _largest(self) -> float:
        """Of scales, rounded down: `top` times it is finite."""
        largest = torch.tensor(_LARGEST / max(self.top, 1.0))
        if float(largest) * self.top > _LARGEST:
            largest = largest.nextafter(torch.tensor(0.0))
        return float(largest)

    @abstractmethod
    def code(self, scaled: Tensor, codes: Tensor) -> None:
        """Fill `codes`, uint8, from `scaled`, float32, of magnitudes up to `top` but for rounding, which may change."""

    @abstractmethod
    def value(self, codes: Tensor, values: Tensor) -> None:
        """Fill `values`, float32, from `codes`, uint8, of which each may be any."""

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        numel = layout.numel
        return 4 * self._blocks(numel) + packed_bytes(numel, self.bits)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        numel, blocks = tensor.numel(), self._blocks(tensor.numel())
        payload = torch.empty(4 * blocks + packed_bytes(numel, self.bits), dtype=torch.uint8, device=tensor.device)
        scales, packed = payload[: 4 * blocks].view(torch.float32), payload[4 * blocks :]
        scratch, spare = self._scratch(tensor)
        block = 0
        for index, plane in enumerate(Packer(numel, self.bits).planes()):
            values = tensor[plane]
            for piece, rows in self._stretches(values):
                count = piece.stop - piece.start
                scaled = scratch[:count]
                self._scale(values[piece].view(rows, -1), scales[block : block + rows], scaled.view(rows, -1))
                block += rows
                if index == 0:
                    self.code(scaled, packed[piece])
                else:
                    self.code(scaled, spare[:count])
                    packed[piece].bitwise_or_(spare[:count].bitwise_left_shift_(self.bits * index))
            if index == 0:
                packed[plane.stop - plane.start :] = 0
        return payload

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        numel, blocks = out.numel(), self._blocks(out.numel())
        require_size(payload, 4 * blocks + packed_bytes(numel, self.bits), type(self).__name__, numel)
        scales, packed = from_bytes(payload[: 4 * blocks], torch.float32), payload[4 * blocks :]
        scratch, spare = self._scratch(out)
        mask, block = (1 << self.bits) - 1, 0
        direct = scale == 1.0 and not add and out.dtype is torch.float32 and out.is_contiguous()
        for index, plane in enumerate(Packer(numel, self.bits).planes()):
            target = out[plane]
            for piece, rows in self._stretches(target):
                ours, codes = target[piece], packed[piece]
                values = ours if direct else scratch[: len(codes)]
                if self.bits < 8:
                    codes = torch.bitwise_right_shift(codes, self.bits * index, out=spare[: len(codes)])
                    codes.bitwise_and_(mask)
                self.value(codes, values)
                values.view(rows, -1).mul_(scales[block : block + rows].unsqueeze(1))
                block += rows
                if not direct:
                    put(ours, values, add, scale)

    def _scale(self, values: Tensor, scales: Tensor, scaled: Tensor) -> None:
        """Fill `scales` (rows,), and `scaled` with `values` (rows, size) over them."""
        if values.dtype is not torch.float32:
            values = values.float()
        torch.abs(values, out=scaled)
        torch.amax(scaled, dim=1, out=scales)
        usual = float(scales.sum()) < 1e38  # neither NaN nor infinity, nor near the largest float32
        finite = None if usual else scales.isfinite()
        divide_(scales, self.top)
        if finite is not None:
            torch.where(finite, scales.clamp(max=self._largest), scales, out=scales)
        scales.mul_(scales.ge(_SMALLEST))
        inverse = scales.reciprocal().nan_to_num_(nan=0.0, posinf=0.0)
        torch.mul(values, inverse.unsqueeze(1), out=scaled)
        if finite is not None:
            scaled.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)

    def _blocks(self, numel: int) -> int:
        planes = Packer(numel, self.bits).planes()
        return sum(-(-(plane.stop - plane.start) // self.block_size) for plane in planes)

    def _stretches(self, values: Tensor) -> Iterator[tuple[slice, int]]:
        """Slices of whole blocks, then of what is left, each with the number of its blocks."""
        whole = values.numel() // self.block_size * self.block_size
        for piece in chunks(values[:whole], self.block_size):
            yield piece, (piece.stop - piece.start) // self.block_size
        if whole < values.numel():
            yield slice(whole, values.numel()), 1

    def _scratch(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        size = tensor.numel()
        if tensor.device.type == "cpu":
            size = min(size, max(CHUNK, self.block_size))
        floats = torch.empty(size, dtype=torch.float32, device=tensor.device)
        return floats, torch.empty(size if self.bits < 8 else 0, dtype=torch.uint8, device=tensor.device)


def look_up(table: Tensor, codes: Tensor, values: Tensor) -> None:
    """Fill `values`, float32, with the entries of `table`, (256,) or more, that `codes`, uint8, stand for."""
    torch.index_select(table.to(codes.device), 0, codes.long(), out=values)


def contraction_of(levels: Sequence[float], block_size: int, slack: float = 0.0) -> float:
    """d of `Traits.contraction` for values rounded to the nearest of `levels`, of which the largest is met exactly.

    The error is largest in proportion halfway between levels. There the largest value of a block weighs against all
    others, which are all halfway between the same two.

    Args:
        levels: ascending; the last is the `top` that each block's largest magnitude becomes.
        slack: how far off the middle between two levels a value may still go to the farther one.
    """
    others = block_size - 1
    top, lost = levels[-1], 0.0
    for low, high in itertools.pairwise(levels):
        error, middle = (high - low) / 2 + slack, min(abs(low + high) / 2, top)
        lost = max(lost, others * error**2 / (top**2 + others * middle**2))
    return max(0.0, 1 - 1.001 * lost)
