"""Gradients of a rank's stages: summed over micro-batches, averaged over the replicas of their position."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import nn

from compressors.base.compressor import Layout
from testbed.worker.methods.pipeline.stages import Stage
from testbed.worker.reduction.buckets import Bucket, Buckets
from testbed.worker.reduction.fusion import grouped

Names = Mapping[nn.Parameter, str]
Groups = list[list[nn.Parameter]]


def groups_of(stage: Stage, bucket_bytes: int) -> Groups:
    """The parameters of each bucket, in the order of backward.

    What all shards have alike has buckets of its own: they hold the same bits on every shard, so that whatever a
    compressor makes of them is the same too, and shards stay alike.
    """
    return [*grouped(stage.shared, bucket_bytes), *grouped(stage.alike, bucket_bytes)]


def layouts_of(stages: Sequence[Stage], bucket_bytes: int, names: Names) -> list[Layout]:
    """Of each bucket of a rank, in order."""
    groups = [group for stage in stages for group in groups_of(stage, bucket_bytes)]
    return [
        Layout(tuple(tuple(p.shape) for p in group), index, tuple(names[p] for p in group))
        for index, group in enumerate(groups)
    ]


class Summed:
    """Of a stage of which there is one replica: nothing is sent."""

    def __init__(self, stage: Stage) -> None:
        self._trained = [*stage.alike, *stage.shared]

    def before(self, micro_batch: int, micro_batches: int) -> None:
        """Its backward is next."""
        if micro_batch == 0:
            for parameter in self._trained:
                parameter.grad = None

    def after(self, micro_batch: int, micro_batches: int) -> None:
        """Its backward is over, and with the last one gradients are complete."""


class Averaged:
    """Of one that others have too: each bucket is handed on once its last gradient is there."""

    def __init__(
        self, groups: Sequence[Sequence[nn.Parameter]], names: Names, first: int, ready: Callable[[Bucket], None]
    ):
        """
        Args:
            first: number of the first bucket among the rank's.
            ready: called in the same order on all replicas.
        """
        self._buckets = Buckets(groups, ready, names, first)

    def before(self, micro_batch: int, micro_batches: int) -> None:
        if micro_batch == 0:
            self._buckets.reset()
        if micro_batch + 1 < micro_batches:
            self._buckets.hold()
        else:
            self._buckets.expect()

    def after(self, micro_batch: int, micro_batches: int) -> None:
        if micro_batch + 1 == micro_batches:
            self._buckets.flush()


Gradients = Summed | Averaged
