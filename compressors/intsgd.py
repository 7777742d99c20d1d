from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any

import torch
from torch import Tensor

from compressors.base.chunks import chunks
from compressors.base.compressor import Compressor, Context, Exchange, FeedbackMode, Layout, Rounds, Route, Traits
from compressors.base.payload import NonFiniteError
from testbed.core.kinds import Choice
from testbed.core.parameters import Fraction

_LARGEST = {"int8": 2**7 - 1, "int32": 2**31 - 1}
"""Largest sum, by number type."""
_EXACT = 2**22
"""Largest magnitude at which float32 holds an integer and a fraction to round it by."""
_FIRST = 2**15
"""Steps from zero to the largest value while no scale is known, if there is room for that many."""
_TINY = 1e-30
"""A largest value below this is taken for zero."""


class IntSGD(Compressor):
    """Scale by a shared number, round randomly to integers, sum.

    Multiply by one number that all ranks know from the past, round to integers at random, and sum those.

    Mishchenko, Wang, Kovalev, Richtarik, "IntSGD: Adaptive Floatless Compression of Stochastic Gradients", ICLR 2022,
    arXiv:2102.08374, Algorithm 1 with the moving average of its section on practice (recalled):
    alpha = sqrt(d) / sqrt(2 n r), r = beta r + (1 - beta) |mean gradient|^2, for d entries and n ranks.
    Differs from the paper: r averages the squared norm of the last means, where the paper has that of the change of the
    model divided by the squared learning rate, which for plain SGD is the same; a scale for each bucket. Where r is not
    known, in the first step or after nothing but zeros, ranks first agree on their largest magnitude instead of
    sending that step whole.

    Unbiased, but for values beyond the room a rank has, the largest sum / n, which are cut off there: with int8 those
    of more than 127 sqrt(2 / n) times the root mean square. Summed as integers, which never overflow up to the largest
    world; not point to point. The mean is off by a variance of at most r / 2 over all entries, whatever n: alpha falls
    with n. Raises on NaN and infinity: in the first step on all ranks, later on the rank that has them.
    Wire: in a step whose scale is not known the largest magnitude, float32; codes (n,) of `dtype`, summed;
    n bytes for int8.
    Keeps r for each bucket, one number, equal on all ranks. In other buckets it starts again.

    Args:
        dtype: Sum type: int8 (up to 127 ranks) or int32.
        beta: Decay of r.

    Raises:
        ValueError: A parameter is none of these; all of them at once.
    """

    def __init__(
        self, *, dtype: Annotated[str, Choice(_LARGEST)] = "int8", beta: Fraction = 0.9, feedback: FeedbackMode = "auto"
    ) -> None:
        super().__init__(feedback=feedback)
        self.beta = beta
        self._largest = _LARGEST[dtype]
        self._dtype = torch.int8 if dtype == "int8" else torch.int32
        self._energies: dict[str, float] = {}
        self.traits = Traits(
            own_rounds=True,
            max_rounds=2,
            point_to_point=False,
            fixed_size=False,
            max_world=self._largest if dtype == "int8" else self._largest // _FIRST,
            unbiased=True,
            feedback="harmful",
            carries_non_finite=False,
        )

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        """Return the bytes of a first step at step 0, of any other step later on."""
        return layout.numel * self._dtype.itemsize + 4 * (context.step == 0)

    def sent_bytes(self, layout: Layout, world_size: int, route: Route, *, step: int = 0) -> int:
        context = Context(layout=layout, route=route, seed=0, step=step, rank=0, world_size=world_size)
        return 2 * (world_size - 1) * self.payload_bytes(layout, context)

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        world_size, key = context.world_size, context.state_key
        room = min(self._largest // world_size, _EXACT)
        alpha = _known_alpha(self._energies.get(key, 0.0), tensor.numel(), world_size)
        if alpha is None:
            (peak,) = yield Exchange(kind="all_reduce", data=[_peak(tensor)], op="max", then="compress")
            alpha = self._first_alpha(float(peak), room)
        codes = torch.empty(tensor.numel(), dtype=self._dtype, device=tensor.device)
        for piece, integers in self._integers(tensor, context, alpha, room):
            codes[piece].copy_(integers)
            if error is not None:
                torch.sub(tensor[piece], integers.mul_(1 / alpha), out=error[piece])
        (total,) = yield Exchange(kind="all_reduce", data=[codes])
        energy = 0
        for piece in chunks(total):
            energy += _energy(total[piece])
            out[piece].copy_(total[piece].double().mul_(1 / (alpha * world_size)))
        self._remember(key, energy / (alpha * world_size) ** 2)

    def _first_alpha(self, peak: float, room: int) -> float:
        if not math.isfinite(peak):
            raise NonFiniteError("IntSGD sums integers, which cannot be NaN or infinite, and some rank has such values")
        return min(room, _FIRST) / peak if peak > _TINY else 1.0

    def _integers(self, tensor: Tensor, context: Context, alpha: float, room: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield the integers of each slice, float32, which the caller may change."""
        stream = context.random("rounding", shared=False)
        for piece in chunks(tensor):
            values = tensor[piece].float()
            if not bool(torch.stack(torch.aminmax(values)).isfinite().all()):
                raise NonFiniteError("IntSGD sums integers, which cannot be NaN or infinite, and this rank has such")
            places = stream.dither(piece.start, len(values), tensor.device).add_(values * alpha)
            yield piece, places.floor_().clamp_(-room, room)

    def _remember(self, key: str, energy: float) -> None:
        before = self._energies.get(key, 0.0)
        self._energies[key] = self.beta * before + (1 - self.beta) * energy if before else energy

    def state_dict(self) -> dict[str, Any]:
        return dict(self._energies)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._energies = dict(state)


def _known_alpha(energy: float, numel: int, world_size: int) -> float | None:
    """Return alpha, or None if it is not known from earlier steps."""
    if not energy > _TINY**2 * numel:
        return None
    return math.sqrt(numel / (2 * world_size * energy))


def _energy(integers: Tensor) -> int:
    """Return the exact sum of squares: the same on every rank, in whatever order its threads or its device add."""
    if integers.dtype is torch.int8:  # squares are at most 2**14, and float64 has the sum of 2**39 of them
        return int(integers.double().square_().sum())
    high, low = (integers >> 16).long(), integers.bitwise_and(0xFFFF).long()
    # each of these sums is below 2**63 for up to 2**31 integers
    return (int((high * high).sum()) << 32) + (int((high * low).sum()) << 17) + int((low * low).sum())


def _peak(tensor: Tensor) -> Tensor:
    """Return (1,) float32: the largest magnitude; infinite for NaN, which would not survive a maximum."""
    if not tensor.numel():
        return tensor.new_zeros(1, dtype=torch.float32)
    low, high = torch.aminmax(tensor)
    return torch.maximum(-low, high).float().nan_to_num_(torch.inf, torch.inf).view(1)
