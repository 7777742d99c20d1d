"""Large entries of a bucket, found in one pass, and the same ones on every kind of device."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from compressors.base.chunks import CHUNK, chunks
from compressors.base.compressor import Context

SAMPLES = 1 << 16
"""Entries from which `largest` guesses its threshold: 1 % of a bucket is then found within 4 % nearly always."""
_FEW = 1 << 17
"""Entries up to which looking at all of them at once is as fast."""
_MAGNITUDE = 2**31 - 1
"""All bits of a float32 but the sign. Magnitudes compare as int32 as they do as numbers, NaN above infinity."""


def at_least(tensor: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Return (indices (k,) int64, ascending; values (k,) float32) of entries whose magnitude is at least `threshold`.

    NaN and infinity always are among them, zeros never.
    """
    found, values = [], []
    scratch = torch.empty(_scratch_numel(tensor), dtype=torch.float32, device=tensor.device)
    below = _below(threshold)
    for part in chunks(tensor):
        piece = tensor[part]
        numel = len(piece)
        scratch[numel - 1 + numel % 2] = 0.0
        torch.ops.aten.hardshrink.out(piece.float(), below, out=scratch[:numel])
        # Most pairs are zeros, and one look at 64 bits tells.
        pairs = scratch[: numel + numel % 2].view(torch.int64)
        some = pairs.nonzero().view(-1)
        values.append(pairs.index_select(0, some))
        found.append(some.add_(part.start // 2))
    if not found:
        return torch.empty(0, dtype=torch.int64, device=tensor.device), scratch[:0]
    both = torch.cat(values).view(torch.float32)
    places = both.nonzero().view(-1)
    indices = torch.cat(found).index_select(0, places >> 1).mul_(2).add_(places & 1)
    return indices, both.index_select(0, places)


def at_least_one(tensor: Tensor, threshold: float, context: Context) -> tuple[Tensor, Tensor]:
    """Return what `at_least` does; if that is nothing, the first of the largest entries, unless all are zeros."""
    indices, values = at_least(tensor, threshold)
    if len(indices) or not tensor.numel():
        return indices, values
    indices, values = largest(tensor, 1, context)
    return (indices, values) if bool(values[0]) else (indices[:0], values[:0])


def largest(tensor: Tensor, k: int, context: Context) -> tuple[Tensor, Tensor]:
    """Return (indices (k,) int64, ascending; values (k,) float32) of the k entries of largest magnitude.

    Exact. Of equal magnitudes the first ones; NaN counts as larger than infinity. A threshold guessed from a sample
    finds a few more than k, of which the best are taken; where it finds less, a lower one is tried.
    """
    numel = tensor.numel()
    if numel <= _FEW or 4 * k > numel:
        indices = first_largest(tensor.float(), k)
        return indices, tensor.index_select(0, indices).float()
    sample = sample_magnitudes(tensor, SAMPLES, context)
    for margin in (4, 16):
        expected = k / numel * len(sample)
        indices, values = at_least(tensor, rank_magnitude(sample, expected + margin * (math.sqrt(expected) + 1)))
        if len(indices) >= k:
            break
    else:
        indices, values = at_least(tensor, 0.0)
    if len(indices) < k:  # the rest is zeros, and enough of them are among the first k entries
        zeros = (tensor[:k] == 0).nonzero().view(-1)[: k - len(indices)]
        indices = torch.cat([indices, zeros]).sort().values
        return indices, tensor.index_select(0, indices).float()
    best = first_largest(values, k)
    return indices.index_select(0, best), values.index_select(0, best)


def first_largest(values: Tensor, k: int) -> Tensor:
    """Indices (k,) int64, ascending, of the k of largest magnitude in `values`, float32; of equals the first ones."""
    if not k:
        return torch.empty(0, dtype=torch.int64, device=values.device)
    ranked = magnitudes(values)
    least = ranked.topk(k, sorted=False).values.min()
    chosen = ranked >= least
    indices = chosen.nonzero().view(-1)
    surplus = len(indices) - k
    if surplus:
        equal = (ranked == least).nonzero().view(-1)
        chosen[equal[len(equal) - surplus :]] = False
        indices = chosen.nonzero().view(-1)
    return indices


def largest_of_rows(rows: Tensor, k: int) -> Tensor:
    """Return (rows, k) int64, ascending: the k largest of each row of `magnitudes`, among equals the first ones."""
    length = rows.shape[1]
    if k == length:
        return torch.arange(length, device=rows.device).expand(rows.shape).contiguous()
    found = rows.topk(k + 1, dim=1)
    if bool((found.values[:, k - 1] == found.values[:, k]).any()):
        # Which of equals come first is not said; made different by their places, none are equal.
        places = torch.arange(length - 1, -1, -1, device=rows.device)
        found = (rows.long() << 32).add_(places).topk(k, dim=1)
    return found.indices[:, :k].sort(dim=1).values


def magnitudes(values: Tensor) -> Tensor:
    """int32, ordered as the magnitudes of `values`, float32, are; NaN above infinity."""
    return values.view(torch.int32).bitwise_and(_MAGNITUDE)


def sample_magnitudes(tensor: Tensor, count: int, context: Context) -> Tensor:
    """int32 as in `magnitudes`, of about `count` entries that lie evenly in `tensor`, from a drawn one on.

    All of them, if there are not many more.
    """
    # odd, since rows of matrices mostly have even lengths
    stride = max(tensor.numel() // max(count, 1), 1) | 1
    if tensor.numel() < 2 * count:
        stride = 1
    offset = context.random("sample", shared=False).integer(stride)
    return magnitudes(tensor[offset::stride].float())


def rank_magnitude(sample: Tensor, rank: float) -> float:
    """The magnitude at that rank, from 1 up, among those of `sample_magnitudes`, the largest first; 0 beyond."""
    place = max(math.ceil(rank), 1)
    if place > len(sample):
        return 0.0
    ranked = sample.topk(place, sorted=False).values.min().view(1)
    found = float(ranked.view(torch.float32))
    return math.inf if math.isnan(found) else found


def _below(threshold: float) -> float:
    """The float32 next to `threshold` on the side of zero; NaN counts as infinity."""
    threshold = math.inf if math.isnan(threshold) else max(threshold, 0.0)
    return float(torch.nextafter(torch.tensor(threshold, dtype=torch.float32), torch.tensor(0.0)))


def _scratch_numel(tensor: Tensor) -> int:
    numel = tensor.numel() if tensor.device.type != "cpu" else min(tensor.numel(), CHUNK)
    return numel + numel % 2
