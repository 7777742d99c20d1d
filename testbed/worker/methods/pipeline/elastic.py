"""Pipelines that get shorter while layers freeze: the plan for what is frozen now."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from testbed.core.parallelism.plan import INTERLEAVED, Plan
from testbed.core.parameters import raise_all
from testbed.worker.methods.pipeline import plan_request
from testbed.worker.methods.pipeline.autopipe import initial_pipeline, pipeline_for
from testbed.worker.methods.pipeline.plan_request import PipelineRequest, Regions
from testbed.worker.model.pieces import Piece

PIPE, DATA = "pipe", "data"
WAYS = (PIPE, DATA)
_MILLION = 1e6


class Elastic:
    """AutoPipe and AutoDP of He et al., "PipeTransformer", ICML 2021 (arXiv:2102.03161), sections 3.2 and 3.3.

    The pipeline is halved as often as no stage gets larger than the largest was at first; frozen pieces are all of the
    first stage. "pipe": the ranks that this leaves over wait. "data": they make more pipelines.

    Differs from the paper: pieces are whole layers; a step has as many samples as before, which all pipelines share, so
    that the training is that of any other plan and the learning rate stays.

    Args:
        way: of `WAYS`.
        asked: what it begins with.

    Raises:
        ValueError: the plan asked for leaves nothing to choose; all of it, one a line.
    """

    def __init__(self, way: str, asked: PipelineRequest) -> None:
        raise_all(
            None if asked.tp == 1 else f"tp={asked.tp}: elastic pipelines share no layers; use tp=1",
            None if asked.dp is None else f"dp={asked.dp}: elastic says how many replicas there are; leave it out",
            None if asked.cuts is None else f"cuts={list(asked.cuts)}: elastic says where to cut; leave them out",
            None
            if isinstance(asked.placement, str)
            else f"placement={list(asked.placement)}: of a pipeline that gets shorter; use across or inside",
            None
            if asked.schedule != INTERLEAVED
            else "schedule=interleaved: elastic has one stage a position; use 1f1b",
        )
        self.way, self.asked = way, asked

    def plan(self, pieces: Sequence[Piece], regions: Regions, batch_size: int) -> Plan:
        """For what is frozen now. Its ranks are the first ones; others wait.

        Raises:
            ValueError: the ranks do not make whole pipelines, or the model has too few pieces.
        """
        ranks, length = sum(map(len, regions)), self.asked.pp
        raise_all(
            None if ranks % length == 0 else f"pp={length}: {ranks} ranks do not make whole pipelines of {length}",
            None if length <= len(pieces) else f"pp={length}: the model has {len(pieces)} pieces; use fewer stages",
        )
        sizes = [sum(p.numel() for p in piece.module.parameters()) / _MILLION for piece in pieces]
        found = pipeline_for(sizes, frozen_pieces(pieces), length, initial_pipeline(sizes, length).largest)
        replicas = ranks // (found.length if self.way == DATA else length)
        return Plan(
            pp=found.length,
            dp=replicas,
            tp=1,
            micro_batch=self.asked.micro_batch or batch_size,
            cuts=found.cuts,
            placement=self._placement(regions, found.length, found.length * replicas),
            schedule=self.asked.schedule,
        )

    def batch_faults(self, batch_size: int, ranks: int) -> Iterator[str]:
        """Of each length that it may come to."""
        if ranks % self.asked.pp or self.way == PIPE:
            yield from self.asked.batch_faults(batch_size, ranks)
            return
        lengths = [self.asked.pp >> halves for halves in range(self.asked.pp.bit_length())]
        for length in lengths:
            if self.asked.pp % length == 0:
                for fault in dataclasses.replace(self.asked, pp=length).batch_faults(batch_size, ranks):
                    yield f"{fault} (of pipelines of {length})"

    def _placement(self, regions: Regions, length: int, active: int) -> tuple[int, ...]:
        assert isinstance(self.asked.placement, str)
        there = [[rank for rank in ranks if rank < active] for ranks in regions]
        return plan_request.placed(self.asked.placement, [ranks for ranks in there if ranks], length, 1)


def frozen_pieces(pieces: Sequence[Piece]) -> int:
    """How many first ones have nothing to train."""
    trains = [any(p.requires_grad for p in piece.module.parameters()) for piece in pieces]
    return trains.index(True) if True in trains else len(pieces)
