"""A plan of pipeline x data x tensor parallelism: which rank holds which layers, and who talks to whom.

Ranks fill a grid of pp x dp x tp, tensor parallelism fastest, as in Li et al., "AMP: Automatically Finding Model
Parallel Strategies with Heterogeneity Awareness", NeurIPS 2022 (arXiv:2210.07297), section 3. Stages may be uneven.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.core.parameters import choice, raise_all, whole

GPIPE, ONE_F_ONE_B, INTERLEAVED = "gpipe", "1f1b", "interleaved"
SCHEDULES = (GPIPE, ONE_F_ONE_B, INTERLEAVED)
SEARCHED = (ONE_F_ONE_B, GPIPE)
"""Schedules that a search tries by default; of equal ones the first, which keeps fewer activations."""
Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """
    Raises:
        ValueError: a number is out of its range, or cuts or placement are not what the degrees ask for; all of it, one
            a line.
    """

    pp: int
    """Positions in a pipeline."""
    dp: int
    """Replicas of the pipeline."""
    tp: int
    """Ranks that share each layer."""
    micro_batch: int
    """Samples."""
    cuts: tuple[int, ...]
    """The first layer of each stage. Interleaved: a multiple of pp, of which stage s is at position s modulo pp."""
    placement: tuple[int, ...]
    """The ranks, of position 0 first, of its replica 0 first."""
    schedule: str = ONE_F_ONE_B

    def __post_init__(self) -> None:
        raise_all(*self._faults())

    @property
    def world_size(self) -> int:
        return self.pp * self.dp * self.tp

    @property
    def stages(self) -> int:
        return len(self.cuts)

    @property
    def chunks(self) -> int:
        """Stages at each position: 1 unless interleaved."""
        return len(self.cuts) // self.pp

    def rank(self, position: int, replica: int, shard: int) -> int:
        return self.placement[(position * self.dp + replica) * self.tp + shard]

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """Position, replica and shard of `rank`."""
        rest, shard = divmod(self.placement.index(rank), self.tp)
        return *divmod(rest, self.dp), shard

    def stages_of(self, rank: int) -> tuple[int, ...]:
        return tuple(range(self.coordinates(rank)[0], self.stages, self.pp))

    def position_ranks(self, position: int) -> tuple[int, ...]:
        """All ranks that hold the same stages, whole or in part."""
        size = self.dp * self.tp
        return self.placement[position * size : (position + 1) * size]

    def layers_of_stage(self, stage: int, layers: int) -> range:
        """
        Args:
            layers: of the whole model.
        """
        return range(self.cuts[stage], self.cuts[stage + 1] if stage + 1 < self.stages else layers)

    @property
    def data_groups(self) -> Groups:
        """Those whose gradients are summed, each in the order of its ring; by position, then shard."""
        pairs = itertools.product(range(self.pp), range(self.tp))
        return tuple(tuple(self.rank(p, d, t) for d in range(self.dp)) for p, t in pairs)

    @property
    def tensor_groups(self) -> Groups:
        """By position, then replica."""
        pairs = itertools.product(range(self.pp), range(self.dp))
        return tuple(tuple(self.rank(p, d, t) for t in range(self.tp)) for p, d in pairs)

    def micro_batches(self, global_batch: int) -> int:
        """That each pipeline runs in a step."""
        return global_batch // (self.dp * self.micro_batch)

    def check(self, *, world_size: int, layers: int, global_batch: int) -> None:
        """
        Raises:
            ValueError: the plan does not fit so many ranks, layers or samples a step; all of it, one a line.
        """
        raise_all(*self._misfits(world_size, layers, global_batch))

    def _faults(self) -> Iterator[str | None]:
        numbers = ("pp", "dp", "tp", "micro_batch")
        faults = [whole(name, getattr(self, name), 1) for name in numbers]
        yield from faults
        yield choice("schedule", self.schedule, SCHEDULES)
        rising = all(a < b for a, b in itertools.pairwise(self.cuts))
        if not self.cuts or self.cuts[0] != 0 or not rising:
            yield f"cuts={self.cuts}: must begin at 0 and rise, so that no stage is empty"
        if not any(faults):
            yield self._stages_fault()
            yield self._placement_fault()

    def _stages_fault(self) -> str | None:
        if self.schedule != INTERLEAVED:
            wrong = len(self.cuts) != self.pp
            return f"cuts={self.cuts}: {len(self.cuts)} stages, but pp={self.pp}; give as many" if wrong else None
        if self.pp > 1 and self.chunks >= 2 and len(self.cuts) % self.pp == 0:
            return None
        return f"cuts={self.cuts}: interleaved takes pp of at least 2, and 2, 3, ... stages a position; pp={self.pp}"

    def _placement_fault(self) -> str | None:
        if sorted(self.placement) == list(range(self.world_size)):
            return None
        asked = f"pp={self.pp} x dp={self.dp} x tp={self.tp}"
        return f"placement={self.placement}: must be each of the {self.world_size} ranks of {asked} once"

    def _misfits(self, world_size: int, layers: int, global_batch: int) -> Iterator[str | None]:
        if self.world_size != world_size:
            yield f"pp={self.pp} x dp={self.dp} x tp={self.tp}: {self.world_size} ranks, but there are {world_size}"
        if self.cuts[-1] >= layers:
            yield f"cuts={self.cuts}: the model has {layers} layers; the last stage must begin before {layers}"
        count = self.dp * self.micro_batch
        if global_batch < 1 or global_batch % count:
            yield (
                f"global_batch={global_batch}: must be a multiple of {count}, which is "
                f"dp={self.dp} x micro_batch={self.micro_batch}"
            )
        else:
            yield schedule_fault(self.schedule, self.pp, global_batch // count)


def schedule_fault(schedule: str, pp: int, micro_batches: int) -> str | None:
    """Of a number of micro-batches that torch 2.13's schedules refuse, or None."""
    if schedule == ONE_F_ONE_B and micro_batches < pp:
        return f"1f1b: {micro_batches} micro-batches; must be at least pp={pp}; a smaller micro_batch makes more"
    rounds = max(1, micro_batches // pp)
    if schedule == INTERLEAVED and micro_batches % rounds:
        return f"interleaved: {micro_batches} micro-batches; must divide into {rounds} equal rounds of pp={pp} or more"
    return None
