"""Signs with the mean magnitude of their block: the code that sign methods with a scale have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import torch
from torch import Tensor

from compressors.base.chunks import CHUNK, chunks
from compressors.base.exact import divide_, row_sums
from compressors.base.payload import from_bytes, put, require_size
from compressors.parts.packing import SignBits, packed_bytes
from testbed.core.kinds import Whole
from testbed.core.parameters import MAX_BLOCK

BlockSize = Annotated[int, Whole(8, MAX_BLOCK, multiple_of=8)]


class BlockSigns:
    """One bit a value, and of each block of values one or two means.

    Each value is read as the mean of its block: with one mean, as sign times mean magnitude; with two, as the mean of
    the block's values that are not below zero, or of those that are. Means are the best such constants in the sense of
    squares: of n values with one mean what is lost is |x|^2 - |x|_1^2 / n, so (1 - 1/n) |x|^2 at most, and with two it
    is no more.

    A block that holds NaN or infinity decodes to values that are not finite; so may one with magnitudes above
    3.4e38 / block_size, whose sum overflows.
    Wire: means (blocks, means) float32, then signs, packed; 4 * means * ceil(n / block_size) + ceil(n / 8) bytes.
    """

    def __init__(self, block_size: int, means: int = 1) -> None:
        self.block_size, self.means = block_size, means

    def size_bytes(self, numel: int) -> int:
        return self._head_bytes(numel) + packed_bytes(numel, 1)

    def encode(self, tensor: Tensor) -> Tensor:
        numel, device = tensor.numel(), tensor.device
        payload = torch.empty(self.size_bytes(numel), dtype=torch.uint8, device=device)
        head = self._head_bytes(numel)
        means = from_bytes(payload[:head], torch.float32).view(-1, self.means)
        packed = payload[head:]
        bits = self._bits(tensor)
        for piece in self._pieces(tensor):
            values = tensor[piece].float().contiguous()
            bits.pack(values, packed[piece.start // 8 : packed_bytes(piece.stop, 1)])
            whole = len(values) // self.block_size * self.block_size
            first = piece.start // self.block_size
            full = values[:whole].view(-1, self.block_size)
            self._means(full, means[first : first + len(full)], bits.scratch[:whole].view(full.shape))
            if whole < len(values):
                rest = values[whole:].view(1, -1)
                self._means(rest, means[-1:], bits.scratch[whole : len(values)].view(1, -1))
        return payload

    def decode(self, payload: Tensor, out: Tensor, name: str, *, add: bool = False, scale: float = 1.0) -> None:
        """Write the values of a payload into `out`, or add them.

        Raises:
            PayloadError: The payload is not as long as one for a tensor of this size.
        """
        numel, size = out.numel(), self.block_size
        require_size(payload, self.size_bytes(numel), name, numel)
        head = self._head_bytes(numel)
        means = from_bytes(payload[:head], torch.float32).view(-1, self.means) * scale
        middle = means.mul(0.5).sum(dim=1, keepdim=True) if self.means == 2 else None
        half = means[:, :1].mul(0.5).sub_(means[:, 1:], alpha=0.5) if self.means == 2 else means
        packed = payload[head:]
        bits = self._bits(out)
        in_place = out.dtype == torch.float32 and out.is_contiguous() and not add
        for piece in self._pieces(out):
            count = piece.stop - piece.start
            place = out[piece] if in_place and count % 8 == 0 else None
            signs = bits.unpack(packed[piece.start // 8 : packed_bytes(piece.stop, 1)], place)[:count]
            first, whole = piece.start // size, count // size
            for part, rows in (
                (signs[: whole * size].view(whole, size), slice(first, first + whole)),
                (signs[whole * size :].view(1, -1), slice(-1, None)),
            ):
                if part.numel():
                    part.mul_(half[rows])
                    if middle is not None:
                        part.add_(middle[rows])
            if place is None:
                put(out[piece], signs, add, 1.0)

    def _means(self, values: Tensor, means: Tensor, scratch: Tensor) -> None:
        """Of each row of `values`.

        Args:
            scratch: holds 1 where a value is below zero, else 0.
        """
        if self.means == 1:
            means[:, 0] = divide_(row_sums(torch.abs(values, out=scratch)), values.shape[1])
            return
        below = scratch.sum(dim=1)
        above = (values.shape[1] - below).clamp_(min=1)
        means[:, 0] = row_sums(torch.clamp(values, min=0.0, out=scratch)) / above
        means[:, 1] = row_sums(torch.clamp(values, max=0.0, out=scratch)) / below.clamp_(min=1)

    def _head_bytes(self, numel: int) -> int:
        return 4 * self.means * -(-numel // self.block_size)

    def _bits(self, tensor: Tensor) -> SignBits:
        """For the largest piece, which comes first."""
        first = next(self._pieces(tensor), slice(0, 0))
        return SignBits(first.stop, tensor.device)

    def _pieces(self, tensor: Tensor) -> Iterator[slice]:
        """Of whole blocks; twice as long as usual, since there are few passes over each."""
        return chunks(tensor, max(2 * CHUNK // self.block_size, 1) * self.block_size)
