"""What strategies of bucketed data parallelism have in common: parameters, micro-batches, the hand-over of buckets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from compressors.base import Compressor, Context, Layout
from compressors.feedback import with_feedback
from testbed.core import parameter_faults
from testbed.core.units import parse_size_bytes
from testbed.worker.buckets import Bucket, Buckets
from testbed.worker.collectives.choice import Collectives
from testbed.worker.strategy import StepStats, Strategy, WorkerContext
from testbed.worker.workload import Batch, Workload, parameters_crc32


class BucketedStrategy(Strategy):
    """Gradients of all micro-batches of a step are summed in buckets, each reduced once the last of them is there.

    Args:
        bucket_size: text with a unit.
        collective: its name, one of `collectives`.
        accumulate: in how many micro-batches a step takes its batch, one after another: less memory, the same gradient
            but for the order of sums.
        faults: of the strategy's other parameters.
        clip_norm: the mean gradient of a longer norm (2-norm over all parameters) is scaled down to it; None leaves it.

    Raises:
        ValueError: with a line for each parameter that is not one of these.
    """

    def __init__(
        self,
        *,
        bucket_size: str,
        collective: str,
        collectives: Collection[str],
        accumulate: int,
        clip_norm: float | None,
        faults: Iterable[str | None] = (),
    ) -> None:
        parameter_faults.raise_all(
            _size_fault(bucket_size),
            parameter_faults.choice("collective", collective, collectives),
            parameter_faults.whole("accumulate", accumulate, 1),
            parameter_faults.number("clip_norm", clip_norm, above=0, below=float("inf"), null=True),
            *faults,
        )
        self.bucket_size_bytes = parse_size_bytes(bucket_size)
        self.collective, self.micro_batches, self.clip_norm = collective, accumulate, clip_norm
        self._collectives: Collectives

    def bind(self, context: WorkerContext) -> None:
        self._context, self._step = context, 0
        self.compressor: Compressor = with_feedback(context.compressor)
        self._optimizer = self.compressor.adopt(context.optimizer)
        names = {parameter: name for name, parameter in context.model.named_parameters()}
        self.buckets = Buckets(context.model.parameters(), self.bucket_size_bytes, self._hand_over, names)
        context.comm.require_equal(parameters_crc32(context.model), "the checksum of the initial parameters")

    def step(self, batch: Batch, step: int) -> StepStats:
        clock, times = self._context.clock, self._context.clock.times
        self._step = step
        losses: list[Tensor] = []
        share = 1 / self.micro_batches
        parts = self._context.workload.split(batch, self.micro_batches)
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
        return StepStats(float(sum(losses[1:], losses[0])) * share)

    def layouts(self) -> list[Layout]:
        return [bucket.layout for bucket in self.buckets.buckets]

    def routes(self) -> list[str]:
        contexts = [self._reduction(layout) for layout in self.layouts()]
        return [context.route.value for context in contexts if context.route is not None]

    def collectives(self) -> list[str]:
        contexts = [self._reduction(layout) for layout in self.layouts()]
        return [
            self._collectives.planned(context.route, self.compressor.payload_bytes(context.layout, context))
            for context in contexts
            if context.route is not None
        ]

    def state_dict(self) -> dict[str, Any]:
        return {"compressor": self.compressor.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.compressor.load_state_dict(state["compressor"])

    def faults(self, compressor: Compressor, workload: Workload, world_size: int) -> Iterator[str]:
        try:
            with_feedback(compressor).adopt(workload.optimizer([torch.nn.Parameter(torch.zeros(1))]))
        except ValueError as error:
            yield f"compressor: {error}"

    def _hand_over(self, bucket: Bucket) -> None:
        clock = self._context.clock
        clock.spend(clock.times.backward_of(bucket.parameters) / self.micro_batches)
        self._start(bucket)

    def _forward(self, part: Batch, number: int) -> Tensor:
        """The loss of micro-batch `number` of a step."""
        loss: Tensor = self._context.workload.loss(self._context.model, part)
        return loss

    @abstractmethod
    def _start(self, bucket: Bucket) -> None:
        """All gradients of `bucket` are there; called in the same order on every rank."""

    @abstractmethod
    def _update(self) -> None:
        """Backward is over."""

    @abstractmethod
    def _reduction(self, layout: Layout) -> Context:
        """How a bucket is reduced in the first step."""


def _size_fault(bucket_size: str) -> str | None:
    try:
        if parse_size_bytes(bucket_size) < 1:
            return f"bucket_size={bucket_size}: must be above 0"
    except ValueError as error:
        return f"bucket_size={bucket_size}: {error}"
    return None
