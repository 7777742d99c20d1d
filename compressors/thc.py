from __future__ import annotations

from collections.abc import Iterator
from statistics import NormalDist
from typing import Annotated

import torch
from torch import Tensor

from compressors.base.compressor import (
    Compressor,
    Context,
    Exchange,
    Feedback,
    FeedbackMode,
    Layout,
    Rounds,
    Route,
    Traits,
)
from compressors.parts.hadamard import Group, Rotation, RotationWidth
from compressors.parts.stochastic import norms
from testbed.core.kinds import Choice, Number, Whole
from testbed.core.parameters import raise_all, whole

_LARGEST = {"uint8": 2**8 - 1, "int32": 2**31 - 1}
"""Largest sum, by number type."""
_TINY = 1e-30
"""A range below this is taken for zero."""
_FEW_LEVELS = 10
"""Least number of levels at which rounding loses no more than 5 % of a normal tensor's energy."""


class THC(Compressor):
    """Rotate blocks, agree on their ranges, sum small integers.

    Li, Ben Basat, Vargaftik, Lao, Xu, Mitzenmacher, Yu, "THC: Accelerating Distributed Deep Learning Using Tensor
    Homomorphic Compression", NSDI 2024, arXiv:2302.08545: the uniform variant; its p = 1/32 and the truncated range are
    recalled.
    Differs from the paper: no parameter server and so no table of non-uniform levels that a server looks up. Integers
    are summed in an all-reduce, in which the type of the sum travels both ways, a byte at least, not 4 bits:
    as many `levels` as the world leaves room for (255 / ranks) cost no more than 15. Blocks of `block_size` are rotated
    (see `Rotation`) and have a range each. Residuals are not kept unless asked for: rounding with 15 levels loses about
    2 % of the energy.

    A range is the largest magnitude among ranks, but no more than `truncated` leaves of a normal value of the largest
    norm. Each value is rounded at random to one of `levels` + 1 equal steps. Biased by values that are cut off at the
    range, unbiased if `truncated` is 0. Two exchanges, the second summed in integers, which never overflow up to the
    largest world; not point to point. A block that holds NaN or infinity on any rank comes out as NaN.
    Wire: ranges (blocks,) float32, of which the maximum is taken; then codes (blocks * width,) of `dtype`, summed; with
    n entries width = min(block_size, the next power of two to n), blocks = ceil(n / width); 4 blocks + blocks width
    bytes for uint8.
    Keeps no state.

    Args:
        levels: Steps of a range; at most 255 with uint8. 15 take 4 bits before they are summed.
        truncated: Share of normal values beyond the range (p).
        block_size: Entries that are rotated together.
        dtype: Sum type: uint8 (up to 255 / `levels` ranks) or int32.

    Raises:
        ValueError: A parameter is none of these; all of them at once.
    """

    def __init__(
        self,
        *,
        levels: Annotated[int, Whole(1, 65535)] = 15,
        truncated: Annotated[float, Number(least=0, most=0.5)] = 1 / 32,
        block_size: RotationWidth = 1024,
        dtype: Annotated[str, Choice(_LARGEST)] = "uint8",
        feedback: FeedbackMode = "auto",
    ) -> None:
        raise_all(whole("levels", levels, 1, 255 if dtype == "uint8" else 65535))
        super().__init__(feedback=feedback)
        self.levels, self.truncated, self.block_size = levels, truncated, block_size
        self._dtype = torch.uint8 if dtype == "uint8" else torch.int32
        self._reach = NormalDist().inv_cdf(1 - truncated / 2) if truncated else float("inf")
        biased: Feedback = "none" if levels >= _FEW_LEVELS else "recommended"
        self.traits = Traits(
            own_rounds=True,
            max_rounds=2,
            point_to_point=False,
            max_world=_LARGEST[dtype] // levels,
            unbiased=not truncated,
            feedback=biased if truncated else "harmful",
        )

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        """Return the bytes of both exchanges together."""
        width, blocks = Rotation.sizes(layout.numel, self.block_size)
        return blocks * (4 + width * self._dtype.itemsize)

    def sent_bytes(self, layout: Layout, world_size: int, route: Route, *, step: int = 0) -> int:
        context = Context(layout=layout, route=route, seed=0, step=step, rank=0, world_size=world_size)
        return 2 * (world_size - 1) * self.payload_bytes(layout, context)

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        device = tensor.device
        rotation = Rotation(tensor.numel(), self.block_size, context.random("rotation", shared=True), device)
        rotated = torch.empty(rotation.size, device=device)
        ranges = torch.empty(rotation.blocks, device=device)
        for group in rotation.groups():
            values = rotation.forward(tensor[group.entries], group)
            rotated[group.codes].copy_(values.view(-1))
            ranges[group.blocks].copy_(self._range(values, rotation.width).view(-1))
        (ranges,) = yield Exchange(kind="all_reduce", data=[ranges], op="max", then="compress")
        codes = torch.empty(rotation.size, dtype=self._dtype, device=device)
        self._quantise(rotated, ranges, codes, rotation, context)
        if error is not None:
            if error is not tensor:
                error.copy_(tensor)
            for group, values in self._restored(codes, ranges, rotation, 1):
                error[group.entries].sub_(values)
        (total,) = yield Exchange(kind="all_reduce", data=[codes])
        for group, values in self._restored(total, ranges, rotation, context.world_size):
            out[group.entries].copy_(values)

    def _range(self, values: Tensor, width: int) -> Tensor:
        """Return (sets, lanes); infinite where a block holds NaN or infinity: NaN would not survive a maximum."""
        largest = values.abs().amax(dim=1)
        if self.truncated:
            largest = torch.minimum(largest, norms(values).mul_(self._reach / width**0.5))
        return largest.nan_to_num_(torch.inf, torch.inf)

    def _quantise(self, rotated: Tensor, ranges: Tensor, codes: Tensor, rotation: Rotation, context: Context) -> None:
        stream = context.random("rounding", shared=False)
        per_unit = torch.where(ranges < _TINY, 0.0, self.levels / 2 / ranges)  # 0 for an infinite range
        for group in rotation.groups():
            values = rotated[group.codes].view(group.shape)
            if not bool(ranges[group.blocks].isfinite().all()):
                values = values.nan_to_num(0.0, 0.0, 0.0)
            places = stream.dither(*_stretch(group.codes), rotated.device).view(group.shape)
            places.addcmul_(values, per_unit[group.blocks].view(group.shape[0], 1, -1)).add_(self.levels / 2)
            places.clamp_(0.0, self.levels + 0.5)
            codes[group.codes].copy_(places.view(-1).to(torch.int32))

    def _restored(
        self, total: Tensor, ranges: Tensor, rotation: Rotation, count: int
    ) -> Iterator[tuple[Group, Tensor]]:
        """Yield the entries of each group, given the sum of the codes of `count` ranks, divided by that."""
        steps = torch.where(ranges.isfinite(), 2 * ranges / (self.levels * count), torch.nan)
        middle = self.levels * count / 2
        for group in rotation.groups():
            values = rotation.buffer(group)
            values.view(-1).copy_(total[group.codes])
            yield group, rotation.inverse(values.sub_(middle), group, steps[group.blocks])


def _stretch(codes: slice) -> tuple[int, int]:
    return codes.start, codes.stop - codes.start
