from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, Exchange, FeedbackMode, Layout, Rounds, Route, Traits
from compressors.base.exact import divide_
from compressors.base.payload import (
    PayloadError,
    from_bytes,
    require_bytes,
    require_finite,
    require_finite_payload,
    to_bytes,
)
from compressors.base.routes import SIZE_BYTES
from compressors.parts.selection import at_least, first_largest, largest
from compressors.parts.sparse import kept_of, require_ascending, require_indices
from testbed.core.parameters import Count, Share

_SLACK = 2.0
"""Factor by which a threshold may keep more or fewer entries than it should before it is found again."""


@dataclass
class _Plan:
    """Thresholds and boundaries that stay the same between two estimations."""

    boundaries: Tensor
    """(world_size + 1,) int64: where the region of each rank begins, and the end."""
    ours: float
    """Threshold on this rank's entries."""
    all: float
    """Threshold on sums."""
    is_stale: bool = False
    """True if `all` kept half or twice as much as it should, which all ranks saw."""


class OkTopK(Compressor):
    """Sum the largest entries at owners, gather the largest sums.

    Send the largest entries to the ranks that own their regions, sum there, and gather the largest sums.

    Li and Hoefler, "Near-Optimal Sparse Allreduce for Distributed Deep Learning", PPoPP 2022, arXiv:2201.07598,
    sections 3 and 4: regions are cut so that every rank receives about as much; thresholds are found every `reestimate`
    steps and used again in between.
    Differs from the paper: sums are gathered as they lie, without the step that balances them among ranks first; when
    thresholds are found, each rank hands on the largest of its sums, twice its fair share, of which the k largest are
    applied; a threshold that has come to keep half or twice as much as it should is found again, on a rank's own
    entries at once, on sums in the next step; sums that are dropped stay with their owner as residual, so that nothing
    is lost.

    Biased; not linear; not point to point. Use with error feedback.
    Wire: to each owner values (k_r,) float32, then indices (k_r,) int32, ascending, of its region; then sums and
    indices of about k entries in all, in the same form, padded to the longest. With k = ceil(density * n) about
    3 (world_size - 1) * 8k bytes of all ranks, up to twice that; every `reestimate` steps one more exchange of
    4 world_size bytes, summed.
    Keeps thresholds and boundaries of each bucket.

    Args:
        density: Kept / all entries.
        reestimate: Steps between estimations of thresholds and boundaries.

    Raises:
        ValueError: a parameter is out of its range, or a bucket has more than 2**31 - 1 entries.
        NonFiniteError: A bucket holds NaN or infinity, for which there is no threshold.
    """

    is_sparse = True
    traits = Traits(
        own_rounds=True,
        max_rounds=3,
        point_to_point=False,
        fixed_size=False,
        feedback="required",
        contraction=0.0,
        carries_non_finite=False,
    )

    def __init__(self, *, density: Share = 0.01, reestimate: Count = 32, feedback: FeedbackMode = "auto") -> None:
        super().__init__(feedback=feedback)
        self.density, self.reestimate = density, reestimate
        self._plans: dict[str, _Plan] = {}

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return 8 * kept_of(self.density, layout.numel)

    def sent_bytes(self, layout: Layout, world_size: int, route: Route, *, step: int = 0) -> int:
        others = world_size - 1
        boundaries = 2 * others * 4 * world_size if step % self.reestimate == 0 else 0
        # what is gathered is padded to the longest, which is taken for twice the mean
        return 3 * others * 8 * kept_of(self.density, layout.numel) + 2 * world_size * others * SIZE_BYTES + boundaries

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        name, numel, world_size = type(self).__name__, tensor.numel(), context.world_size
        require_indices(numel, name)
        require_finite(tensor, name)
        k = kept_of(self.density, numel)
        plan = self._plans.get(context.state_key)
        fresh = plan is None or len(plan.boundaries) != world_size + 1 or context.step % self.reestimate == 0
        fresh = fresh or (plan is not None and plan.is_stale)
        indices, values, threshold = _select(tensor, k, None if plan is None or fresh else plan.ours, context)
        if fresh or plan is None:
            ends = _balanced_ends(indices, numel, world_size)
            (total,) = yield Exchange(kind="all_reduce", data=[ends], then="compress")
            plan = _Plan(_boundaries(total, numel, world_size), threshold, 0.0)
            self._plans[context.state_key] = plan
        plan.ours = threshold
        if error is not None:
            if error is not tensor:
                error.copy_(tensor)
            error[indices] = 0.0
        cuts = torch.searchsorted(indices, plan.boundaries).tolist()
        mine = [_pack(values[a:b], indices[a:b]) for a, b in itertools.pairwise(cuts)]
        arrived = yield Exchange(kind="all_to_all", data=mine, then="compress")
        start, end = int(plan.boundaries[context.rank]), int(plan.boundaries[context.rank + 1])
        sums = torch.zeros(end - start, device=tensor.device)
        for payload in arrived:
            theirs, places = _unpack(payload, start, end)
            sums.index_add_(0, places - start, theirs)
        require_finite(sums, name)
        kept = sums.nonzero().view(-1)
        if fresh:
            best = first_largest(sums[kept], min(len(kept), math.ceil(_SLACK * k / world_size)))
            kept = kept[best]
        else:
            kept = kept[sums[kept].abs() >= plan.all]
        if error is not None:
            left = sums.clone()
            left[kept] = 0.0
            error[start:end] += left
        gathered = yield Exchange(kind="all_gather", data=[_pack(sums[kept], kept + start)])
        self._apply(gathered, plan, k, fresh, context, out, error)

    def _apply(
        self,
        gathered: list[Tensor],
        plan: _Plan,
        k: int,
        fresh: bool,
        context: Context,
        out: Tensor,
        error: Tensor | None,
    ) -> None:
        """Leave the mean in `out`. In an estimation more than k sums arrive, of which all ranks find the same k."""
        bounds = plan.boundaries.tolist()
        parts = [_unpack(p, a, b) for p, a, b in zip(gathered, bounds[:-1], bounds[1:], strict=True)]
        sums, places = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
        plan.is_stale = not fresh and not k / _SLACK <= len(sums) <= k * _SLACK
        if fresh:
            best = first_largest(sums, min(k, len(sums)))
            plan.all = float(sums[best].abs().amin()) if len(best) else 0.0
            if error is not None:
                dropped = torch.ones(len(sums), dtype=torch.bool, device=sums.device)
                dropped[best] = False
                owned = (places >= bounds[context.rank]) & (places < bounds[context.rank + 1]) & dropped
                error.index_add_(0, places[owned], sums[owned])
            sums, places = sums[best], places[best]
        out.zero_()
        out[places] = (sums / context.world_size).to(out.dtype)

    def state_dict(self) -> dict[str, Any]:
        return {key: {**vars(plan), "boundaries": plan.boundaries.clone()} for key, plan in self._plans.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._plans = {key: _Plan(**{**plan, "boundaries": plan["boundaries"].clone()}) for key, plan in state.items()}


def _select(tensor: Tensor, k: int, threshold: float | None, context: Context) -> tuple[Tensor, Tensor, float]:
    """Return (indices, values, threshold used): entries that reach it, or the k largest where it is far off."""
    if threshold is not None and threshold > 0:
        indices, values = at_least(tensor, threshold)
        if k / _SLACK <= len(indices) <= k * _SLACK:
            return indices, values, threshold
    indices, values = largest(tensor, k, context)
    return indices, values, float(values.abs().amin()) if k else 0.0


def _balanced_ends(indices: Tensor, numel: int, world_size: int) -> Tensor:
    """Return (world_size,) float32: ends of ranges, in parts of the bucket, that hold equally many of `indices`."""
    if not len(indices):
        return torch.ones(world_size, device=indices.device)
    shares = torch.arange(1, world_size + 1, device=indices.device) * len(indices)
    ends = indices[(shares.div(world_size, rounding_mode="floor") - 1).clamp_min(0)] + 1
    ends[-1] = numel
    return divide_(ends.float(), numel)


def _boundaries(total: Tensor, numel: int, world_size: int) -> Tensor:
    """Return the mean of the boundaries that all ranks propose."""
    ends = (divide_(total.double(), world_size) * numel).round().long().clamp_(0, numel)
    ends[-1] = numel
    return torch.cat([ends.new_zeros(1), ends.cummax(dim=0).values])


def _pack(values: Tensor, indices: Tensor) -> Tensor:
    return torch.cat([to_bytes(values), to_bytes(indices.to(torch.int32))])


def _unpack(payload: Tensor, start: int, end: int) -> tuple[Tensor, Tensor]:
    """Return (values, indices) of a payload, whose indices must lie in a region."""
    require_bytes(payload)
    k, rest = divmod(len(payload), 8)
    if rest or k > end - start:
        raise PayloadError(f"OkTopK payload for {end - start} elements: {len(payload)} bytes are not 8 for each entry")
    indices = from_bytes(payload[4 * k :], torch.int32)
    require_ascending(indices - start, end - start, OkTopK.__name__)
    values = from_bytes(payload[: 4 * k], torch.float32)
    require_finite_payload(values, OkTopK.__name__, end - start)
    return values, indices.long()
