"""What strategies of bucketed data parallelism have in common: parameters, micro-batches, the hand-over of buckets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, Protocol

import torch
from torch import Tensor, nn

from compressors.base.compressor import Compressor, Context, Layout
from compressors.base.feedback import with_feedback
from testbed.core.costs.fusion import BY_TIMES, RULES, TUNED, Cost
from testbed.core.costs.run_costs import all_reduce_cost
from testbed.core.kinds import Choice
from testbed.core.parameters import Count, Positive, Size
from testbed.core.units import parse_size_bytes
from testbed.worker.communication.collectives.algorithm_selection import Collectives, routes_of, sums_fault
from testbed.worker.interfaces.strategy import StepStats, Strategy, WorkerContext
from testbed.worker.interfaces.workload import Batch, Workload, parameters_crc32
from testbed.worker.interfaces.workload_capabilities import split
from testbed.worker.reduction.buckets import Bucket, Buckets
from testbed.worker.reduction.fusion import grouped
from testbed.worker.reduction.fusion_tuner import SMALLEST_SHARE, Bounds, FusionTuner

FUSIONS = (*RULES, TUNED)
Fusion = Annotated[str, Choice(FUSIONS)]


class BucketReducer(Protocol):
    """Part of a reducer that all strategies of buckets use; see `Reducer`."""

    def start(self, flat: Tensor, layout: Layout, step: int) -> None: ...

    def context(self, layout: Layout, step: int) -> Context: ...


class BucketedStrategy(Strategy):
    """Gradients of all micro-batches of a step are summed in buckets, each reduced once the last of them is there.

    Args:
        bucket_size: Size of a gradient bucket. Larger ones pay a link's latency less often, smaller ones overlap more.
        fusion: Gradients that share a bucket, in backward order. size: as many as fit `bucket_size`; first_small: the
            same, the first bucket 25 times smaller; one: all; layers: those of a layer; mg_wfbp: by times of layers and
            links (Shi et al., INFOCOM 2019); tuned: by a size that is searched during the run, in ten trials of six
            steps, and again when the network changes.
        collective: Algorithm of exchanges; auto: the cheapest predicted. Each is in
            `testbed.worker.communication.collectives`; auto decides by the closed forms, for each exchange.
        accumulate: Micro-batches per step, to save memory. They run one after another; the gradient is the same but for
            the order of sums.
        clip_norm: Largest 2-norm of the mean gradient; null: unlimited.

    Raises:
        ValueError: with a line for each parameter that is not one of these.
    """

    carries_compressor = sends_by_comm = True
    sent_in_backward: float = 1.0
    """Of an all-reduce; for fusion by times."""

    def __init__(
        self,
        *,
        bucket_size: Size,
        fusion: Fusion,
        collective: str,
        accumulate: Count,
        clip_norm: Positive | None,
    ) -> None:
        self.bucket_size_bytes = parse_size_bytes(bucket_size)
        self.fusion, self.collective = fusion, collective
        self.micro_batches, self.clip_norm = accumulate, clip_norm
        self._collectives: Collectives
        self._reducer: BucketReducer
        self._tuner: FusionTuner | None = None

    def bind(self, context: WorkerContext) -> None:
        self._context, self._step = context, 0
        self.compressor: Compressor = with_feedback(context.compressor)
        self._optimizer = self.compressor.adopt(context.optimizer)
        self._names = {parameter: name for name, parameter in context.model.named_parameters()}
        if self.fusion == TUNED:
            self.bucket_size_bytes = self._bounds().clamped(self.bucket_size_bytes)
        self.buckets = Buckets(self._groups(self.bucket_size_bytes), self._hand_over, self._names)
        if self.fusion == TUNED and context.comm.networked:
            self._tuner = self._new_tuner()
        context.comm.require_equal(parameters_crc32(context.model), "the checksum of the initial parameters")

    def step(self, batch: Batch, step: int) -> StepStats:
        clock, times = self._context.clock, self._context.clock.times
        self._step = step
        losses: list[Tensor] = []
        share = 1 / self.micro_batches
        parts = split(self._context.workload, batch, self.micro_batches)
        for number, part in enumerate(parts):
            with clock.phase("forward", None if times.forward_s is None else share * times.forward_s):
                loss = self._forward(part, number)
            if number == 0:
                self.buckets.reset()
            is_last = number + 1 == self.micro_batches
            (self.buckets.expect if is_last else self.buckets.hold)()
            with clock.phase("backward", None if times.backward_s is None else share * times.backward_s):
                (loss if self.micro_batches == 1 else share * loss).backward()
                if is_last:
                    self.buckets.flush()
            losses.append(loss.detach())
        self._update()
        if self._tuner is not None and (size_bytes := self._tuner.after_step()) is not None:
            self._regroup(size_bytes)
        return StepStats(float(sum(losses[1:], losses[0])) * share)

    def _take_step(self) -> None:
        """Of the optimizer, once mean gradients are there."""
        clock = self._context.clock
        with clock.phase("optimizer", clock.times.optimizer_s):
            if self.clip_norm is not None:
                nn.utils.clip_grad_norm_(self._context.model.parameters(), self.clip_norm)
            self._optimizer.step()

    def layouts(self) -> list[Layout]:
        return [bucket.layout for bucket in self.buckets.buckets]

    def routes(self) -> list[str]:
        return routes_of(self._reduction(layout) for layout in self.layouts())

    def collectives(self) -> list[str]:
        return self._collectives.planned_for(self.compressor, (self._reduction(layout) for layout in self.layouts()))

    def validate_batch(self, batch_size: int, world_size: int) -> Iterator[str]:
        if batch_size % self.micro_batches:
            yield f"batch_size={batch_size}: cannot be taken in {self.micro_batches} equal parts, as the strategy does"

    def validate(self, compressor: Compressor, workload: Workload, world_size: int) -> Iterator[str]:
        try:
            reduced = with_feedback(compressor)
            if reduced.traits.owns != "nothing":  # an optimizer imports what takes a second
                reduced.adopt(workload.optimizer([torch.nn.Parameter(torch.zeros(1))]))
        except ValueError as error:
            yield f"compressor: {error}"
            return
        yield from sums_fault(self.collective, compressor)
        name, traits = type(compressor).__name__, compressor.traits
        keeps = traits.feedback == "builtin" or traits.owns != "nothing"
        if self.fusion == BY_TIMES and traits.sum_dtype is None:
            yield f"strategy.fusion={BY_TIMES} goes by what sums cost, but {name} sends otherwise; use fusion=size"
        if self.fusion == TUNED and keeps and type(compressor).move_state is Compressor.move_state:
            yield f"strategy.fusion={TUNED}: what {name} keeps of buckets cannot move to others; use fusion=size"

    def _groups(self, size_bytes: int) -> list[list[torch.nn.Parameter]]:
        context, rule = self._context, self.fusion if self.fusion != TUNED else RULES[0]
        cost = None
        if rule == BY_TIMES:
            width = (self.compressor.traits.sum_dtype or torch.float32).itemsize / torch.float32.itemsize
            total_bytes = self._bounds().most_bytes
            whole = all_reduce_cost(context.spec, self.collective, total_bytes, width)
            cost = Cost(self.sent_in_backward * whole.start_s, self.sent_in_backward * whole.second_byte)
        share, parameters = 1 / self.micro_batches, context.model.parameters()
        return grouped(parameters, size_bytes, rule, self._names, context.clock.times, cost, share)

    def _bounds(self) -> Bounds:
        total_bytes = sum(p.nbytes for p in self._names if p.requires_grad)
        return Bounds(max(1, total_bytes // SMALLEST_SHARE), total_bytes)

    def _new_tuner(self) -> FusionTuner:
        return FusionTuner(
            self._bounds(),
            self.bucket_size_bytes,
            lambda size_bytes: tuple(len(group) for group in self._groups(size_bytes)),
            self._context.rank,
            self._context.clock,
            lambda exchange: self._collectives.run(exchange),
            self._context.record,
        )

    def _regroup(self, size_bytes: int) -> None:
        """Other buckets, between two steps: what a compressor keeps goes with its parameters."""
        old, state = self.layouts(), self.compressor.state_dict()
        self.bucket_size_bytes = size_bytes
        self.buckets.regroup(self._groups(size_bytes))
        self.compressor.load_state_dict(self.compressor.move_state(state, old, self.layouts()) if state else {})

    def _hand_over(self, bucket: Bucket) -> None:
        clock = self._context.clock
        clock.spend(clock.times.backward_of(bucket.parameters) / self.micro_batches)
        self._start(bucket)

    def _start(self, bucket: Bucket) -> None:
        """Reduce `bucket`, whose gradients are all there; called in the same order on every rank."""
        self._reducer.start(bucket.flat, bucket.layout, self._step)

    def _forward(self, part: Batch, number: int) -> Tensor:
        """The loss of micro-batch `number` of a step."""
        loss: Tensor = self._context.workload.loss(self._context.model, part)
        return loss

    @abstractmethod
    def _update(self) -> None:
        """Backward is over."""

    def _reduction(self, layout: Layout) -> Context:
        """Return how a bucket is reduced in the first step."""
        return self._reducer.context(layout, step=0)
