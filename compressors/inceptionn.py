from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor

from compressors.base.chunks import chunks, root_mean_square
from compressors.base.compressor import Compressor, Context, FeedbackMode, Layout, Traits
from compressors.base.payload import PayloadError, from_bytes, put, require_bytes, to_bytes
from compressors.parts.packing import Packer, packed_bytes
from testbed.core.kinds import Number

_EXPECTED_BITS = 10
"""Bits of a value for choosing the route: a tag and 8 bits."""
_MAX_POWERS = 15
"""Powers of two from the error bound to the unit: 16 bits then suffice for values below the unit."""
_ABOVE = 4
"""Powers of two from the root mean square to the unit, or about; few gradients are above 16 times theirs."""
_MIN_BOUND = 2.0**-100
"""A bucket whose error bound is below this is sent as it is."""
_RAW = -128
"""Mark instead of the error bound's power of two: no value is coded."""
_FINEST = 2.0 ** (_ABOVE - _MAX_POWERS)
"""The least error bound."""
_KINDS = (torch.int8, torch.int16, torch.float32)
_BYTES = (0, 1, 2, 4)
"""Bytes of a value, by its tag."""


class Inceptionn(Compressor):
    """Send 0, 8, 16 or 32 bits per value, by magnitude.

    Send 0, 8, 16 or 32 bits of each value, by its magnitude, and a tag of two bits that says how many.

    Li et al., "A Network-Centric Hardware/Algorithm Co-Design to Accelerate Distributed Training of Deep Neural
    Networks", MICRO 2018, doi:10.1109/MICRO.2018.00023 (INCEPTIONN). The classes follow GRACE's description of it, as
    the paper was not at hand; the use of 8 bits is Longhaul's.
    The bound b is `error_bound` times the root mean square of the bucket, rounded down to a power of two. With
    E = ceil(log2(16 / error_bound)), h = ceil(E / 2) and the unit u = 2**E b, a magnitude below b is not sent; one
    below 2**-h u is, in 8 bits, as a multiple of 2**-(h + 7) u; one below u in 16 bits, as a multiple of 2**-15 u; a
    larger one as it is. Multiples are rounded toward zero.
    Differs from GRACE, where the unit is 1 whatever the gradients, so that most small ones are never sent, and where 8
    bits are the upper ones of the 16, which leaves next to nothing of values so small.

    Biased (rounding toward zero); not linear, so payloads are gathered, or averaged in two shots, which encodes twice.
    In one encoding the error of a value is below b, and never more than the value; |x - C(x)|^2 <= error_bound^2 |x|^2,
    for normal values 3 % at most with a bound of 0.5. A bucket that holds NaN or infinity, or whose bound is below
    2**-100, is sent as it is.
    Wire: the power of b int8, -128 where all values are sent as they are; tags (n,) of 2 bits in four planes (0 to 3:
    0, 8, 16, 32 bits), then the values of each class in their order: (i,) int8, (j,) int16, (k,) float32;
    1 + ceil(n / 4) + i + 2j + 4k bytes, not known beforehand. Where a bound is next to a power of two, kinds of device
    may round it to either side.
    Keeps no state.

    Args:
        error_bound: Error bound / RMS of the bucket.

    Raises:
        ValueError: error_bound is below 2**-11, or not below 1.
    """

    def __init__(
        self, *, error_bound: Annotated[float, Number(least=_FINEST, below=1)] = 0.25, feedback: FeedbackMode = "auto"
    ) -> None:
        super().__init__(feedback=feedback)
        self.error_bound = error_bound
        self._unit = _ABOVE + 1 - math.frexp(error_bound)[1]  # E
        self._half = -(-self._unit // 2)  # h
        self.traits = Traits(
            fixed_size=False,
            # of a Gaussian's energy, what lies within so many of its root mean squares is 5 %
            feedback="recommended" if error_bound > 0.59 else "none",
            contraction=1 - error_bound**2,
        )

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return 1 + -(-layout.numel * _EXPECTED_BITS // 8)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        numel = tensor.numel()
        tags = torch.empty(numel, dtype=torch.uint8, device=tensor.device)
        power = self._power(root_mean_square(tensor))
        table, units = self._table(power).to(tensor.device), self._units(power)
        classes: tuple[list[Tensor], ...] = ([], [], [])
        for piece in chunks(tensor):
            values, ours = tensor[piece].float().contiguous(), tags[piece]
            exponents = (values.view(torch.int32) >> 23).bitwise_and_(0xFF)
            torch.index_select(table, 0, exponents, out=ours)
            counts = _counts(ours).tolist()
            sent = values.index_select(0, ours.argsort(stable=True)[counts[0] :])  # one sort for all classes
            for found, coded, unit, kind in zip(sent.split(counts[1:]), classes, units, _KINDS, strict=True):
                coded.append(found.div_(unit).to(kind))
        head = torch.tensor([power], dtype=torch.int8, device=tensor.device).view(torch.uint8)
        bodies = (to_bytes(torch.cat(found)) for found in classes if found)
        return torch.cat([head, Packer(numel, 2).pack(tags), *bodies])

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        numel, name = out.numel(), type(self).__name__
        require_bytes(payload)
        split = 1 + packed_bytes(numel, 2)
        if len(payload) < split:
            raise PayloadError(f"{name} payload for {numel} elements: {len(payload)} bytes do not hold {split} of tags")
        tags = Packer(numel, 2).unpack(payload[1:split])
        units = self._units(int(payload[:1].view(torch.int8)))
        counts = torch.stack([_counts(tags[piece]) for piece in chunks(tags)] or [_counts(tags)])
        ends = (counts * torch.tensor(_BYTES)).sum(dim=0).cumsum(0).add_(split).tolist()
        if len(payload) != ends[3]:
            raise PayloadError(
                f"{name} payload for {numel} elements: expected {ends[3]} bytes by its tags, found {len(payload)}"
            )
        classes = [from_bytes(payload[ends[i] : ends[i + 1]], kind) for i, kind in enumerate(_KINDS)]
        starts = counts.cumsum(0).sub_(counts).tolist()
        for piece, start, count in zip(chunks(out), starts, counts.tolist(), strict=False):
            sent = [
                found[first : first + size].float().mul(unit)
                for found, first, size, unit in zip(classes, start[1:], count[1:], units, strict=True)
            ]
            values = torch.zeros(piece.stop - piece.start, dtype=torch.float32, device=out.device)
            values.index_copy_(0, tags[piece].argsort(stable=True)[count[0] :], torch.cat(sent))
            put(out[piece], values, add, scale)

    def _power(self, rms: float) -> int:
        """Return the error bound's power of two: the largest one that is not above it."""
        bound = self.error_bound * rms
        whole = not bound < math.inf or 0 < bound < _MIN_BOUND  # or NaN
        return _RAW if whole else math.frexp(bound)[1] - 1

    def _table(self, power: int) -> Tensor:
        """Return (256,) uint8: the tag of each exponent that float32 has."""
        starts = torch.tensor([power, power + self._unit - self._half, power + self._unit])
        tags = torch.bucketize(torch.arange(256) - 127, starts, right=True)
        return (tags if power != _RAW else tags.fill_(3)).to(torch.uint8)

    def _units(self, power: int) -> tuple[float, float, float]:
        """Return the numbers that values of each class are multiples of."""
        return 2.0 ** (power + self._unit - self._half - 7), 2.0 ** (power + self._unit - _MAX_POWERS), 1.0


def _counts(tags: Tensor) -> Tensor:
    """Return (4,) int64, on the CPU: the number of values of each tag."""
    return torch.bincount(tags, minlength=4).cpu()
