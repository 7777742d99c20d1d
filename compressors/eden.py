from __future__ import annotations

import functools
import itertools
import math
from statistics import NormalDist
from typing import Annotated

import torch
from torch import Tensor

from compressors.base.chunks import CHUNK
from compressors.base.compressor import Compressor, Context, FeedbackMode, Layout, Traits
from compressors.base.payload import from_bytes, put, require_size, to_bytes
from compressors.parts.hadamard import Rotation
from compressors.parts.packing import Packer, packed_bytes
from compressors.parts.stochastic import norms, sums
from testbed.core.kinds import Choice, PowerOfTwo

_CELLS = 4096
"""Cells of a table from values to the nearest centroid, so that no value is compared with each."""
_REACH = 4.0
"""Standard deviations on either side that the table spans."""
_MIN_WIDTH = 16
"""Blocks narrower than this are sent as they are: the rotation mixes too few entries there to be right on average."""
_TINY = 1e-30
"""A norm below this is taken for zero."""


class EDEN(Compressor):
    """Rotate blocks, quantise to the best levels, scale to unbiased.

    Rotate blocks at random, quantise the nearly normal result with the best levels, scale it to be unbiased.

    Vargaftik, Ben Basat, Portnoy, Mendelson, Ben-Itzhak, Mitzenmacher, "EDEN: Communication-Efficient and Robust
    Distributed Mean Estimation for Federated Learning", ICML 2022, arXiv:2108.08842, Algorithm 1; with 1 bit it is
    "DRIVE: One-bit Distributed Mean Estimation", NeurIPS 2021, arXiv:2105.08339, with its unbiased scale.
    Differs from the paper: blocks of `block_size` have a rotation and a scale each, the tensor as a whole does not; the
    rotation is two rounds of random signs and a Hadamard transform (see `Rotation`), drawn again by each rank in each
    step; whole bits only, no random subsets; levels are found by a table of 4096 cells.

    Unbiased for a uniform rotation, which this one comes close to in blocks of 16 and more; smaller tensors go as they
    are. Not linear, so payloads are gathered or, with 4 bits alone, averaged in two shots, which encodes twice: the
    loss of the second encoding is the same on all ranks, and does not average out over them. One encoding loses 57 % of
    the energy with 1 bit, 13 % with 2, 1 % with 4, whatever the distribution of x; error feedback is refused, since
    errors average out over ranks and steps. A block that holds NaN or infinity decodes to NaN, as does one whose norm
    leaves float32; one whose norm is below 1e-30 is sent as zeros.
    Wire: scales (blocks,) float32, then codes (blocks * width,) of `bits` bits (see `Packer`); with n entries
    width = min(block_size, the next power of two to n), blocks = ceil(n / width);
    4 blocks + ceil(blocks width bits / 8) bytes. Where width is below 16 values (n,) float32; 4n bytes.
    Keeps no state.

    Args:
        bits: Bits of each rotated value.
        block_size: Entries that are rotated together.

    Raises:
        ValueError: A parameter is none of these; all of them at once.
    """

    def __init__(
        self,
        *,
        bits: Annotated[int, Choice((1, 2, 4))] = 4,
        block_size: Annotated[int, PowerOfTwo(_MIN_WIDTH, CHUNK)] = 1024,
        feedback: FeedbackMode = "auto",
    ) -> None:
        super().__init__(feedback=feedback)
        self.bits, self.block_size = bits, block_size
        # In two shots the noise of the second encoding is the same on all ranks: 13 % of the energy is too much there.
        self.traits = Traits(unbiased=True, feedback="harmful", chunkable=bits == 4)

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        width, blocks = Rotation.sizes(layout.numel, self.block_size)
        return 4 * layout.numel if width < _MIN_WIDTH else 4 * blocks + packed_bytes(blocks * width, self.bits)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        rotation = self._rotation(tensor, context)
        if rotation.width < _MIN_WIDTH:
            return to_bytes(tensor.float()).clone()
        payload = torch.empty(self._size(rotation), dtype=torch.uint8, device=tensor.device)
        scales = payload[: 4 * rotation.blocks].view(torch.float32)
        packer = Packer(rotation.size, self.bits)
        codes = payload.new_empty(rotation.size)
        nearest, levels = (table.to(tensor.device) for table in _tables(self.bits))
        middle = torch.tensor(_CELLS / 2, device=tensor.device)
        for group in rotation.groups():
            rotated = rotation.forward(tensor[group.entries], group)
            lengths = norms(rotated)
            # A normal value of variance one in each place, if the rotation was good.
            unit = torch.where(lengths < _TINY, 0.0, math.sqrt(rotation.width) / lengths)
            rotated.mul_(unit.unsqueeze(1))
            places = torch.add(middle, rotated, alpha=_CELLS / (2 * _REACH)).clamp_(0, _CELLS - 1)
            if not bool(lengths.isfinite().all()):
                places.nan_to_num_(0.0)
            cells = places.to(torch.int32).to(torch.int64).view(-1)
            torch.index_select(nearest, 0, cells, out=codes[group.codes])
            rotated.mul_(torch.index_select(levels, 0, cells).view(group.shape))
            scales[group.blocks].copy_(self._scales(lengths, rotated, rotation).view(-1))
        payload[4 * rotation.blocks :] = packer.pack(codes)
        return payload

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        width, blocks = Rotation.sizes(out.numel(), self.block_size)
        raw = width < _MIN_WIDTH
        size = 4 * out.numel() if raw else 4 * blocks + packed_bytes(blocks * width, self.bits)
        require_size(payload, size, type(self).__name__, out.numel())
        if raw:
            put(out, from_bytes(payload, torch.float32), add, scale)
            return
        rotation = self._rotation(out, context)
        scales = from_bytes(payload[: 4 * blocks], torch.float32)
        codes = Packer(rotation.size, self.bits).unpack(payload[4 * blocks :])
        values = torch.tensor(centroids(self.bits), device=out.device)
        for group in rotation.groups():
            rotated = rotation.buffer(group)
            torch.index_select(values, 0, codes[group.codes].to(torch.int64), out=rotated.view(-1))
            put(out[group.entries], rotation.inverse(rotated, group, scales[group.blocks]), add, scale)

    def _scales(self, lengths: Tensor, products: Tensor, rotation: Rotation) -> Tensor:
        """Return |x|^2 / <R x, q>, from the products of normalised values and levels; 0 for a block of zeros."""
        scales = (lengths * (math.sqrt(rotation.width) / sums(products))).float()
        return torch.where(lengths < _TINY, 0.0, scales)

    def _rotation(self, tensor: Tensor, context: Context) -> Rotation:
        # Another one on each rank: errors of like gradients would else be alike, and not average out.
        stream = context.random("rotation", shared=False)
        return Rotation(tensor.numel(), self.block_size, stream, tensor.device, turns=2)

    def _size(self, rotation: Rotation) -> int:
        return 4 * rotation.blocks + packed_bytes(rotation.size, self.bits)


@functools.cache
def centroids(bits: int) -> list[float]:
    """Return the 2^bits levels that quantise a normal value with the least mean squared error, ascending.

    Lloyd's method, from quantiles: each level the mean of what lies nearest to it. Max, "Quantizing for Minimum
    Distortion", 1960, tabulates them.
    """
    normal = NormalDist()
    count = 2**bits
    levels = [normal.inv_cdf((index + 0.5) / count) for index in range(count)]
    for _ in range(2000):
        edges = [-math.inf, *((low + high) / 2 for low, high in itertools.pairwise(levels)), math.inf]
        moved = [
            (normal.pdf(low) - normal.pdf(high)) / (normal.cdf(high) - normal.cdf(low))
            for low, high in itertools.pairwise(edges)
        ]
        done = max(abs(old - new) for old, new in zip(levels, moved, strict=True)) < 1e-12
        levels = moved
        if done:
            break
    return levels


@functools.cache
def _tables(bits: int) -> tuple[Tensor, Tensor]:
    """Return (code, level) of each cell."""
    levels = torch.tensor(centroids(bits))
    middles = (torch.arange(_CELLS) + 0.5 - _CELLS / 2) * (2 * _REACH / _CELLS)
    codes = (middles[:, None] - levels).abs().argmin(dim=1)
    return codes.to(torch.uint8), levels[codes]
