from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

from compressors.base.compressor import Compressor, Context, Layout
from compressors.base.feedback import with_feedback
from testbed.core.costs.collective import ranks_of_regions
from testbed.core.kinds import Choice
from testbed.core.parallelism.comparison import AUTO
from testbed.core.parallelism.comparison import WAYS as PLANS
from testbed.core.parallelism.plan import ONE_F_ONE_B, SCHEDULES, SEARCHED, Plan
from testbed.core.parameters import Count, Size, raise_all
from testbed.core.record.events.pipeline import Pipeline
from testbed.core.spec.topology import Topology
from testbed.core.units import parse_size_bytes
from testbed.worker.communication.collectives.algorithm_selection import routes_of
from testbed.worker.interfaces.clipping import clipping_fault
from testbed.worker.interfaces.numbered_workload import NumberedWorkload
from testbed.worker.interfaces.strategy import StepStats, Strategy, WorkerContext
from testbed.worker.interfaces.workload import Batch, Workload, parameters_crc32
from testbed.worker.interfaces.workload_capabilities import Sequential
from testbed.worker.methods.pipeline.boundary import ActivationCodec, codec
from testbed.worker.methods.pipeline.elastic import WAYS as ELASTIC
from testbed.worker.methods.pipeline.elastic import Elastic
from testbed.worker.methods.pipeline.model_gather import hand_over
from testbed.worker.methods.pipeline.plan_request import FirstPieces, PipelineRequest, PlacementRequest
from testbed.worker.methods.pipeline.rank import (
    COLLECTIVES,
    PipelineRank,
    WaitingRank,
    rank_layouts,
    samples_of_replica,
)
from testbed.worker.methods.planner.request import PlanRequest
from testbed.worker.model import pieces as chains
from testbed.worker.model.pieces import Piece


class Hybrid(Strategy):
    """Pipeline x data x tensor parallelism over `pp` x `dp` x `tp` ranks.

    `pp` positions hold stages of the model, `dp` replicas of the pipeline take parts of the batch and average
    gradients, `tp` ranks share each layer.

    Ranks fill the grid as in Li et al., "AMP", NeurIPS 2022, arXiv:2210.07297. Schedules are those of
    `testbed.worker.methods.pipeline.executor`, shared layers those of
    `testbed.worker.methods.pipeline.tensor_parallel`, each with its source.
    Differs from all of these: the executor is ours (docs/decisions/0025), what passes a boundary goes through any codec
    that works point to point, and stages before the first trained parameter get no gradients and compute no backward.

    Synchronous: n ranks train on the union of the batches that `ddp` would give them, so that without codecs both take
    the same steps, to rounding. Each replica has pp x tp ranks' batches, in micro-batches of `micro_batch` samples.
    Gradients of a stage are averaged over its replicas through the run's compressor, bucket by bucket while backward
    goes on; without replicas there is nothing to average, and a compressor is refused.
    Rank 0 holds the whole model only after `sync_parameters`: where the model is evaluated, stages send it what they
    have trained, which counts in the step's time and bytes. After the last step all ranks get all of it, reported
    apart.
    A rank that is gone fails the run: those that wait for it name it. So does a partition longer than `timeout_s`.
    Cost: of a boundary 4 bytes an activation each way, for each shard; of a ring the gradients of a stage.

    Args:
        pp: Pipeline positions, each with stages of the model.
        dp: Replicas of the pipeline; null: as many as fit.
        tp: Ranks that share each layer.
        micro_batch: Samples of a micro-batch; null: one rank's batch. A replica then has pp x tp micro-batches.
        cuts: First piece of each stage; null: even by blocks. Even by parameters where the model has no blocks.
        placement: Placement of ranks. across: pipelines cross regions, replicas of a stage share one; inside: the
            reverse; or the ranks, of position 0 first, of its replica 0 first.
        schedule: Order of micro-batches. interleaved: several stages a position, 2 without cuts; auto: gpipe or 1f1b,
            chosen with the plan.
        activations: Compressor of activations and their gradients, without error feedback. By name at its defaults, or
            as `{_target_: …}`.
        bucket_size: Size of a bucket of gradients.
        plan: Search of the plan before the first step; null: none. It chooses pp, dp, tp, micro_batch, cuts and
            placement, from the model's pieces and from links as probed (docs/plans.md).
        plan_place: Rank of the plan, for auto and amp; 1: best.
        memory: Memory of each device. Plans that need more are not chosen, except by amp.
        elastic: Use of ranks that freezing leaves over. They wait, or make more pipelines, as `transform=freeze`
            shortens the pipeline (`testbed.worker.methods.pipeline.elastic`); null: the plan stays.
        collective: Algorithm that averages gradients.

    Raises:
        ValueError: a parameter is not one of these.
    """

    carries_compressor = draws_batches = sends_by_comm = True

    def __init__(
        self,
        *,
        pp: Count = 2,
        dp: Count | None = None,
        tp: Count = 1,
        micro_batch: Count | None = None,
        cuts: FirstPieces | None = None,
        placement: PlacementRequest = "across",
        schedule: Annotated[str, Choice((*SCHEDULES, AUTO))] = "1f1b",
        activations: Annotated[str | Compressor, ActivationCodec()] = "none",
        bucket_size: Size = "4 MiB",
        collective: Annotated[str, Choice(COLLECTIVES)] = "ring",
        plan: Annotated[str, Choice(PLANS)] | None = None,
        plan_place: Count = 1,
        memory: Size | None = None,
        elastic: Annotated[str, Choice(ELASTIC)] | None = None,
    ) -> None:
        self.asked = PipelineRequest(
            pp=pp,
            dp=dp,
            tp=tp,
            micro_batch=micro_batch,
            cuts=cuts,
            placement=placement,
            schedule=ONE_F_ONE_B if schedule == AUTO else schedule,
        )
        self._schedules = SEARCHED if schedule == AUTO else (schedule,)
        given = {"pp": pp, "dp": dp, "tp": tp, "micro_batch": micro_batch, "cuts": cuts, "placement": placement}

        def chosen() -> PlanRequest:
            return PlanRequest(way=plan, place=plan_place, memory=memory)

        def stretching() -> Elastic | None:
            return None if elastic is None else Elastic(elastic, self.asked)

        raise_all(
            *_faults_of(stretching),
            f"schedule={AUTO}: is chosen with a plan; give plan too, or schedule={' or '.join(SEARCHED)}"
            if schedule == AUTO and plan is None
            else None,
            None if elastic is None or plan is None else f"elastic={elastic}: plan={plan} chooses once; leave out one",
            *(wrong := _faults_of(chosen)),
            *([] if wrong else chosen().given_faults(given)),
        )
        self.plan_request, self.elastic, self.activations = chosen(), stretching(), codec(activations)
        self.bucket_bytes, self.collective = parse_size_bytes(bucket_size), collective
        self._regions: list[list[int]] = []
        self._rank: PipelineRank | WaitingRank | None = None
        """None where nothing is networked."""

    def place(self, topology: Topology) -> None:
        self._regions = ranks_of_regions(topology)

    def takes_transform(self, *, at_once: bool, keeps_parameters: bool) -> bool:
        return (at_once or keeps_parameters) and self.asked.tp == 1 and self.plan_request.way is None

    def validate(self, compressor: Compressor, workload: Workload, world_size: int) -> Iterator[str]:
        name, traits = type(compressor).__name__, compressor.traits
        divided = isinstance(workload, NumberedWorkload) and workload.partition is not None
        if not isinstance(workload, Sequential):
            yield (
                f"strategy=hybrid: {type(workload).__name__} is no chain of pieces that stages could be cut from;"
                " use fashion, texts, bytelm, digits, glyphs or tiny_vit, or strategy=ddp"
            )
            return
        if divided:
            yield "strategy=hybrid: ranks of a pipeline train on the same samples; leave workload.partition out"
        if (fault := clipping_fault("hybrid", workload)) is not None:
            yield fault
        model = workload.model(0)
        pieces = workload.pieces(model)
        if not pieces:
            yield (
                f"strategy=hybrid: {type(workload).__name__} has a chain of pieces for some models alone; of a replay"
                " for bert-…, gpt2-…, vit-… and swin-t; use one of these, or strategy=ddp"
            )
            return
        if not workload.computes and not self.activations.traits.fixed_size:
            yield (
                f"strategy.activations={type(self.activations).__name__}: what it sends depends on values, and"
                f" activations of {type(workload).__name__} have none; use none, or a codec of one size, as fp16"
            )
        yield from (f"strategy=hybrid: {fault}; use strategy=ddp" for fault in chains.faults(model, pieces))
        dp = self.asked.dp
        try:
            dp = dp if self.plan_request.way else self._asked_plan(pieces, 1).dp
        except ValueError as error:
            yield from (f"strategy.{line}" for line in str(error).splitlines())
        if self.plan_request.way and not (traits.verbatim and self.activations.traits.verbatim):
            yield (
                f"strategy.plan={self.plan_request.way}: chosen for what is sent as it is, and something is to be"
                " compressed; use compressor=none and strategy.activations=none, or give pp, dp, tp and placement"
            )
        elif dp == 1 and not traits.verbatim:
            yield (
                f"strategy=hybrid: {name} compresses gradients on their way to other replicas, and there are none"
                " (dp=1); use compressor=none, and strategy.activations for what passes between stages"
            )
        if traits.owns == "optimizer":
            yield f"strategy=hybrid: {name} takes over the optimizer, of which a rank has a part; use strategy=ddp"
        if compressor.needs_link_stats and self.asked.tp > 1:
            yield f"strategy=hybrid: {name} goes by what each rank measures, and shards must agree; use strategy.tp=1"

    def starts_collectives(self, workers: int) -> bool:
        """Sums of gradients over replicas and of layers over shards; a plan that is searched may have neither."""
        pp, dp, tp = self.asked.pp, self.asked.dp, self.asked.tp
        return self.plan_request.way is None and (tp > 1 or (dp or workers // (pp * tp)) > 1)

    def validate_batch(self, batch_size: int, world_size: int) -> Iterator[str]:
        if self.plan_request.way is None:
            asked = self.elastic or self.asked
            yield from (f"strategy.{line}" for line in asked.batch_faults(batch_size, world_size))

    def bind(self, context: WorkerContext) -> None:
        self._context = context
        self.compressor = with_feedback(context.compressor)
        self._optimizer = self.compressor.adopt(context.optimizer)
        assert isinstance(context.workload, Sequential), "another one is refused"
        pieces = context.workload.pieces(context.model)
        if self.plan_request.way is not None and not context.comm.networked:
            self._layouts = []  # what will be averaged is not known
            return
        plan = self._planned(context, pieces)
        self._layouts = rank_layouts(context, plan, pieces, self.bucket_bytes)
        if context.comm.networked:
            self._rank = self._rank_of(context, plan, pieces)
        if context.rank == 0:
            context.record(_event_of(plan, samples_of_replica(plan, context)))
        context.comm.require_equal(parameters_crc32(context.model), "the checksum of the initial parameters")

    def step(self, batch: Batch, step: int) -> StepStats:
        return StepStats(self._alone(batch) if self._rank is None else self._rank.step(self._context.start_step + step))

    def sync_parameters(self) -> None:
        if self._rank is not None and self._context.workload.computes:
            self._rank.settle()

    def finish(self) -> None:
        # what learns nothing is everywhere what it was
        if self._rank is not None and self._context.workload.computes:
            self._rank.finish()

    def hand_over(self) -> None:
        if self._rank is not None and self.elastic is not None:
            hand_over(self._context, self._optimizer, self._rank.told())

    def layouts(self) -> list[Layout]:
        return self._layouts

    def routes(self) -> list[str] | None:
        return routes_of(self._contexts()) or None

    def collectives(self) -> list[str] | None:
        if self._rank is None or self._rank.collectives is None:
            return None
        return self._rank.collectives.planned_for(self.compressor, self._contexts())

    def _contexts(self) -> list[Context]:
        reducer = None if self._rank is None else self._rank.reducer
        return [] if reducer is None else [reducer.context(layout, step=0) for layout in self._layouts]

    def _planned(self, context: WorkerContext, pieces: Sequence[Piece]) -> Plan:
        if self.plan_request.way is None:
            return self._asked_plan(pieces, context.spec.batch_size)
        decision = self.plan_request.decide(context, self._schedules, self.collective)
        if context.rank == 0:
            for event in decision.events:
                context.record(event)
        return decision.plan

    def _asked_plan(self, pieces: Sequence[Piece], batch_size: int) -> Plan:
        return (self.elastic or self.asked).plan(pieces, self._regions, batch_size)

    def _rank_of(self, context: WorkerContext, plan: Plan, pieces: Sequence[Piece]) -> PipelineRank | WaitingRank:
        if context.rank >= plan.world_size:
            return WaitingRank(context, plan, pieces, self._optimizer)
        return PipelineRank(
            context,
            plan,
            pieces,
            optimizer=self._optimizer,
            compressor=self.compressor,
            activations=self.activations,
            collective=self.collective,
            bucket_bytes=self.bucket_bytes,
        )

    def _alone(self, batch: Batch) -> float:
        """A rank's batch through the whole model, by which its times are measured."""
        context, clock = self._context, self._context.clock
        self._optimizer.zero_grad()
        with clock.phase("forward", clock.times.forward_s):
            loss = context.workload.loss(context.model, batch)
        with clock.phase("backward", clock.times.backward_s):
            loss.backward()
        with clock.phase("optimizer", clock.times.optimizer_s):
            self._optimizer.step()
        return float(loss.detach())


def _event_of(plan: Plan, samples: int) -> Pipeline:
    """Return the event of a plan that is executed.

    Args:
        samples: Samples of each replica in a step.
    """
    return Pipeline(
        pp=plan.pp,
        dp=plan.dp,
        tp=plan.tp,
        micro_batch=plan.micro_batch,
        micro_batches=samples // plan.micro_batch,
        schedule=plan.schedule,
        cuts=list(plan.cuts),
        placement=list(plan.placement),
    )


def _faults_of(make: Callable[[], object]) -> list[str]:
    try:
        make()
    except ValueError as error:
        return str(error).splitlines()
    return []
