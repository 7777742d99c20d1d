"""One rank of a plan: its stages, whom it talks to, and what averages its gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from compressors.base.compressor import Compressor, Layout
from testbed.core.parallelism.plan import Plan
from testbed.core.parallelism.schedules import actions
from testbed.worker.communication.collectives.algorithm_selection import Collectives
from testbed.worker.communication.collectives.group import Group
from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.interfaces.workload import Batch
from testbed.worker.interfaces.workload_capabilities import Prompted, Sequential, split
from testbed.worker.methods.pipeline.boundary import Passage, Receiver, Sender
from testbed.worker.methods.pipeline.executor import Ends, Executor
from testbed.worker.methods.pipeline.gradients import Averaged, Gradients, Summed, groups_of, layouts_of
from testbed.worker.methods.pipeline.model_gather import ModelGather
from testbed.worker.methods.pipeline.stage_times import StageTimes
from testbed.worker.methods.pipeline.stages import FrozenPart, Stage, boundary_shapes, stages_of
from testbed.worker.methods.pipeline.tensor_parallel import Shards
from testbed.worker.methods.pipeline.tied_weight import TiedWeight
from testbed.worker.model.pieces import Piece
from testbed.worker.reduction.buckets import Bucket
from testbed.worker.reduction.reducer import Reducer

COLLECTIVES = ("ring", "two_shot", "hierarchical", "hierarchical_two_shot")
"""Which carry exchanges of some ranks alone; gloo's are of all."""
_REPLICAS, _SHARDS, _GATHERING, _TIED, _PASSAGES = 1, 2, 3, 4, 5
"""Channels; each passage has its own, from the last one on."""


def shards_of(context: WorkerContext, plan: Plan) -> Shards | None:
    """With whom this rank shares its layers, if it does."""
    if plan.tp == 1:
        return None
    members = next(group for group in plan.tensor_groups if context.rank in group)
    return Shards(context.comm, context.clock, members, _SHARDS)


def names_of(model: nn.Module, stages: Sequence[Stage]) -> dict[nn.Parameter, str]:
    """Of the model's parameters, and of the parts that a shard has, by those they are parts of."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return names | {part.part: names[part.split.whole] for stage in stages for part in stage.parts}


def rank_layouts(context: WorkerContext, plan: Plan, pieces: Sequence[Piece], bucket_bytes: int) -> list[Layout]:
    """Of what this rank would reduce in a run."""
    if plan.dp == 1 or context.rank >= plan.world_size:
        return []
    stages = stages_of(plan, context.rank, pieces, shards_of(context, plan))
    return layouts_of(stages, bucket_bytes, names_of(context.model, stages))


def samples_of_replica(plan: Plan, context: WorkerContext) -> int:
    """Of a step: replicas share what all ranks' batches have, ranks that wait included."""
    return context.spec.batch_size * context.spec.workers // plan.dp


class WaitingRank:
    """One that a plan has no stages for. It waits for rank 0 step by step, and gets the model when all do."""

    reducer = None
    collectives = None

    def __init__(self, context: WorkerContext, plan: Plan, pieces: Sequence[Piece], optimizer: torch.optim.Optimizer):
        self._context, self._optimizer = context, optimizer
        self._gathering = ModelGather(context, plan, pieces, [], None, _GATHERING)

    def step(self, step: int) -> float | None:
        """
        Raises:
            CollectiveError: rank 0 does not say that the step is over.
        """
        self._context.comm.receive(torch.empty(1, dtype=torch.uint8), source=0).wait()
        self._optimizer.step()  # of nothing: it has no gradients
        return None

    def settle(self) -> None:
        """Rank 0 takes nothing from it."""

    def finish(self) -> None:
        self._gathering.spread()

    def told(self) -> list[nn.Parameter]:
        """See `PipelineRank.told`."""
        return []


class PipelineRank:
    """
    Args:
        optimizer: of the whole model; parts take the places of what they are parts of, and what is of other ranks'
            stages never has a gradient, and stays.
        compressor: of gradients, with its feedback.
        activations: the codec of what passes between stages.
    """

    def __init__(
        self,
        context: WorkerContext,
        plan: Plan,
        pieces: Sequence[Piece],
        *,
        optimizer: torch.optim.Optimizer,
        compressor: Compressor,
        activations: Compressor,
        collective: str,
        bucket_bytes: int,
    ) -> None:
        self._context, self._plan, self._optimizer = context, plan, optimizer
        self._position, self._replica, _ = plan.coordinates(context.rank)
        shards = shards_of(context, plan)
        self.stages = stages_of(plan, context.rank, pieces, shards)
        self._parts = [part for stage in self.stages for part in stage.parts]
        _put_in_place(optimizer, {part.split.whole: part.part for part in self._parts})
        self._times = StageTimes(context.clock.times, context.model, pieces, plan, context.spec.batch_size)
        self._samples = samples_of_replica(plan, context)
        self._step, self._tied = 0, TiedWeight.of(plan, pieces, context.comm, context.clock, _TIED)
        self._waiting = range(plan.world_size, context.comm.world_size)
        self.reducer, self.collectives = self._averaging(compressor, collective)
        workload, spec = context.workload, context.spec
        assert isinstance(workload, Sequential), "another one is refused"
        example = workload.batch(0, rank=0, world_size=1, batch_size=plan.micro_batch, seed=spec.seed)
        shapes = boundary_shapes(plan, pieces, workload.inputs(example))
        self._executor = Executor(
            actions(plan, self._position, self._samples // plan.micro_batch),
            self.stages,
            {stage.number: self._ends(stage, shapes, activations, pieces) for stage in self.stages},
            self._gradients(bucket_bytes),
            workload,
            context.clock,
            self._times,
            FrozenPart.of(context.model, plan),
        )
        self._gathering = ModelGather(context, plan, pieces, self.stages, shards, _GATHERING)
        self._settled = True
        self._wholes = [p for stage in self.stages for p in stage.alike]
        self._wholes += [part.split.whole for part in self._parts if part.part.requires_grad]

    def step(self, step: int) -> float | None:
        """Take an optimizer step; the loss, of a rank that has the last stage."""
        clock, self._step, self._settled = self._context.clock, step, False
        if self._tied is not None:
            self._tied.begin()
        loss = self._executor.run(self._drawn(step), step)
        if self._tied is not None:
            self._tied.backward_done()
        if self.reducer is not None:
            self.reducer.finish()
        if self._tied is not None:
            self._tied.finish()
        with clock.phase("optimizer", self._times.optimizer_s(self._wholes)):
            self._optimizer.step()
        self._executor.finish()
        self._call_waiting()
        return loss

    def told(self) -> list[nn.Parameter]:
        """Trained parameters that this rank alone tells others of: those of its stages, in the first replica."""
        return [parameter for stage in self.stages for parameter in stage.alike] if self._replica == 0 else []

    def settle(self) -> None:
        if not self._settled:
            self._gathering.settle()
            self._settled = True

    def finish(self) -> None:
        self.settle()
        self._gathering.spread()

    def _call_waiting(self) -> None:
        """The step is over, as ranks that wait are told by rank 0, a byte each."""
        comm = self._context.comm
        if comm.rank == 0:
            calls = [comm.send(torch.zeros(1, dtype=torch.uint8), to=rank) for rank in self._waiting]
            for call in calls:
                call.wait()

    def _drawn(self, step: int) -> list[Batch] | None:
        """The replica's micro-batches, which its first stage and its last need, and all stages if pieces are prompted:
        each draws them itself."""
        context, plan = self._context, self._plan
        is_end = {0, plan.stages - 1} & {stage.number for stage in self.stages}
        if not (is_end or isinstance(context.workload, Prompted)):
            return None
        with context.clock.phase("forward", None if context.clock.times.forward_s is None else 0.0):
            batch = context.workload.batch(
                step, rank=self._replica, world_size=plan.dp, batch_size=self._samples, seed=context.spec.seed
            )
            return split(context.workload, batch, self._samples // plan.micro_batch)

    def _averaging(self, compressor: Compressor, collective: str) -> tuple[Reducer | None, Collectives | None]:
        """Over the replicas of this rank's stages, or of its shard of them, where there are several."""
        if self._plan.dp == 1:
            return None, None
        context = self._context
        members = next(group for group in self._plan.data_groups if context.rank in group)
        group = Group(context.comm, members, members.index(context.rank), _REPLICAS)
        between = context.spec.topology.only(members)
        carried = Collectives(group, between, collective)
        return Reducer(compressor, group, context.clock, between, context.spec.seed, carried), carried

    def _gradients(self, bucket_bytes: int) -> dict[int, Gradients]:
        if self.reducer is None:
            return {stage.number: Summed(stage) for stage in self.stages}
        names, found, first = names_of(self._context.model, self.stages), dict[int, Gradients](), 0
        wholes = {part.part: part.split.whole for part in self._parts}
        for stage in self.stages:
            groups = groups_of(stage, bucket_bytes)
            found[stage.number] = Averaged(groups, names, first, lambda bucket: self._hand_over(bucket, wholes))
            first += len(groups)
        return found

    def _hand_over(self, bucket: Bucket, wholes: Mapping[nn.Parameter, nn.Parameter]) -> None:
        """All gradients of `bucket` are there."""
        assert self.reducer is not None
        shared = bucket.parameters[0] in wholes
        of_model = [wholes.get(parameter, parameter) for parameter in bucket.parameters]
        self._context.clock.spend(self._times.backward_of(of_model, shared=shared))
        if self._tied is not None and self._tied.weight in set(of_model):
            self._tied.arrive()
        self.reducer.start(bucket.flat, bucket.layout, self._step)

    def _ends(
        self, stage: Stage, shapes: Sequence[tuple[int, ...]], codec: Compressor, pieces: Sequence[Piece]
    ) -> Ends:
        comm, clock, number = self._context.comm, self._context.clock, stage.number
        ends: dict[str, Any] = {}
        if number > 0:
            before = self._passages(number - 1, shapes[number - 1], pieces)
            ends["activations_in"] = Receiver(before[0], codec, comm, clock)
            if stage.passes_gradients:
                ends["gradients_out"] = Sender(before[1], codec, comm, clock)
        if number + 1 < self._plan.stages:
            after = self._passages(number, shapes[number], pieces)
            ends["activations_out"] = Sender(after[0], codec, comm, clock)
            if stage.learns:
                ends["gradients_in"] = Receiver(after[1], codec, comm, clock)
        return Ends(**ends)

    def _passages(self, boundary: int, shape: tuple[int, ...], pieces: Sequence[Piece]) -> tuple[Passage, Passage]:
        """Both directions of the boundary after that stage."""
        plan, (_, replica, shard) = self._plan, self._plan.coordinates(self._context.rank)
        here, there = (plan.rank(stage % plan.pp, replica, shard) for stage in (boundary, boundary + 1))
        where = f"between {pieces[plan.cuts[boundary + 1] - 1].name} and {pieces[plan.cuts[boundary + 1]].name}"
        forward, backward = (
            Passage(
                name=f"{what} {where}",
                sender=sender,
                receiver=receiver,
                channel=_PASSAGES + 2 * boundary + direction,
                shape=shape,
                index=2 * boundary + direction,
                replica=replica,
                seed=self._context.spec.seed,
            )
            for direction, (what, sender, receiver) in enumerate(
                [("activations", here, there), ("gradients", there, here)]
            )
        )
        return forward, backward


def _put_in_place(optimizer: torch.optim.Optimizer, parts: Mapping[nn.Parameter, nn.Parameter]) -> None:
    for group in optimizer.param_groups:
        group["params"] = [parts.get(parameter, parameter) for parameter in group["params"]]
