"""Laws of NaN and infinity: a compressor passes them on, or both of its sides refuse them, as it declares."""

from __future__ import annotations

import math

import torch

from compressors.base.payload import NonFiniteError
from testbed.worker.laws.cases.lockstep import contexts
from testbed.worker.laws.cases.registry import LAYOUT, Case, gradients, law, require
from testbed.worker.laws.cases.steps import ranks_of, take_step

PLACES = (0, -1500, -1)
"""Places of the bad entry: the first of all, in the middle, in a tensor of its own."""


@law("nan", "NaN shows in the mean, alike on all ranks, or is refused by NonFiniteError, as declared.", per_route=True)
def nan(case: Case) -> None:
    _not_finite(case, math.nan)


@law("infinity", "The same of infinity, of either sign.", per_route=True)
def infinity(case: Case) -> None:
    _not_finite(case, math.inf)
    _not_finite(case, -math.inf)


def _not_finite(case: Case, bad: float) -> None:
    for place in PLACES:
        carried = case.traits.carries_non_finite
        tensors = gradients(LAYOUT, 2)
        tensors[0][place] = bad
        try:
            means, _, _ = take_step(case, ranks_of(case, 2), tensors)
        except NonFiniteError:
            require(not carried, f"carries_non_finite=True, and {bad} at {place} is refused")
            continue
        require(carried is not False, f"carries_non_finite=False, and {bad} at {place} is taken")
        require(torch.equal(means[0].isfinite(), means[1].isfinite()), f"{bad}: ranks have it in different places")
        require(not means[0].isfinite().all(), f"{bad} went in at {place}, and all that came out is finite")


@law(
    "carries", "Point to point, NaN and infinity are decoded, or refused by the sender, as declared.", "point_to_point"
)
def carries(case: Case) -> None:
    for bad in (math.nan, math.inf, -math.inf):
        codec, context, out = case.make(), contexts(LAYOUT, None, 1)[0], torch.zeros(LAYOUT.numel)
        tensor = gradients(LAYOUT, 1)[0]
        tensor[-1500] = bad
        carried = case.traits.carries_non_finite
        try:
            payload = codec.encode(tensor, context)
        except NonFiniteError:
            require(not carried, f"carries_non_finite=True, and {bad} is refused")
            continue
        require(carried is not False, f"carries_non_finite=False, and {bad} is encoded")
        codec.decode(payload, out, context)
        require(not out.isfinite().all(), f"{bad} was encoded, and all that is decoded is finite")
