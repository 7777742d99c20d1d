"""What frozen layers make of training samples, kept in memory: PipeTransformer's AutoCache.

He et al., ICML 2021 (arXiv:2102.03161), section 3.4. Differs from the paper: a process keeps what it has seen itself,
and none serves others. A rank stands for a machine, with a link between it and any other; what another one has kept
would have to be sent. No tier on a disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from testbed.core.parameters import raise_all, whole


@dataclass(frozen=True)
class Counts:
    """Samples looked up, by what was found of them."""

    whole: int = 0
    """What all frozen pieces make of it."""
    part: int = 0
    """What fewer make, of a time when fewer were frozen."""
    none: int = 0


class ActivationCache:
    """Keys are a sample's number and how many pieces of the model it has been through.

    Of each sample the deepest is kept: what was kept of it before is of no use any more. It takes memory as samples
    come, up to its capacity. Then a sample takes the place of one that has been through fewer pieces, and where there
    is none it is not kept: every sample comes once an epoch, so that one which has just come will be the last to come
    again, and what was used longest ago is the very one to be kept. A copy of it is an empty one.

    Right only while the same number stands for the same inputs, and pieces once frozen do not change.

    Args:
        capacity_bytes: of values.

    Raises:
        ValueError: it is below 1.
    """

    def __init__(self, capacity_bytes: int) -> None:
        raise_all(whole("capacity_bytes", capacity_bytes, 1))
        self.capacity_bytes = capacity_bytes
        self._kept: dict[int, dict[int, Tensor]] = {}
        """Values by number of pieces, and by the sample's number."""
        self._depth: dict[int, int] = {}
        """Of each sample."""
        self._size_bytes = 0
        self._counts = Counts()

    def __deepcopy__(self, memo: dict[int, Any]) -> ActivationCache:
        return ActivationCache(self.capacity_bytes)

    def __len__(self) -> int:
        """Samples."""
        return len(self._depth)

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def depths(self, numbers: Tensor) -> list[int]:
        """Through how many pieces what is kept of these samples has been; 0: nothing is kept."""
        return [self._depth.get(number, 0) for number in numbers.tolist()]

    def take_counts(self) -> Counts:
        """Since the last call."""
        counts, self._counts = self._counts, Counts()
        return counts

    @torch.no_grad()
    def through(self, pieces: Sequence[nn.Module], numbers: Tensor, inputs: Tensor) -> Tensor:
        """What these pieces, all of which are frozen, make of samples; those that nothing is kept of go through all.

        Samples that have been equally far go on together. Where they were apart before, sums may differ by rounding.

        Args:
            numbers: int64 [samples].
            inputs: [samples, ...], of the first piece.
        """
        depths = torch.tensor([depth if depth <= len(pieces) else 0 for depth in self.depths(numbers)])
        self._count(depths, len(pieces))
        made: Tensor | None = None
        for depth in depths.unique().tolist():
            at = (depths == depth).nonzero().flatten()
            hidden = self._values(numbers[at].tolist()) if depth else inputs[at]
            for piece in pieces[depth:]:
                hidden = piece(hidden)
            if depth < len(pieces):
                self._keep(numbers[at].tolist(), hidden, len(pieces))
            if made is None:
                made = hidden.new_empty(len(inputs), *hidden.shape[1:])
            made[at] = hidden
        assert made is not None, "there are samples"
        return made

    def _values(self, numbers: Sequence[int]) -> Tensor:
        return torch.stack([self._kept[self._depth[number]][number] for number in numbers])

    def _count(self, depths: Tensor, pieces: int) -> None:
        entire, nothing = int((depths == pieces).sum()), int((depths == 0).sum())
        before = self._counts
        self._counts = Counts(
            before.whole + entire, before.part + len(depths) - entire - nothing, before.none + nothing
        )

    def _keep(self, numbers: Sequence[int], values: Tensor, depth: int) -> None:
        for number, value in zip(numbers, values, strict=True):
            self._drop(number)
            while self._size_bytes + value.nbytes > self.capacity_bytes and self._evict(depth):
                pass
            if self._size_bytes + value.nbytes <= self.capacity_bytes:
                self._kept.setdefault(depth, {})[number] = value.clone()
                self._depth[number] = depth
                self._size_bytes += value.nbytes

    def _evict(self, depth: int) -> bool:
        """One sample that has not been as far as `depth`; False where there is none."""
        shallowest = min(self._kept, default=depth)
        if shallowest >= depth:
            return False
        self._drop(next(reversed(self._kept[shallowest])))
        return True

    def _drop(self, number: int) -> None:
        depth = self._depth.pop(number, None)
        if depth is None:
            return
        values = self._kept[depth]
        self._size_bytes -= values.pop(number).nbytes
        if not values:
            del self._kept[depth]
