from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from compressors.base.compressor import Compressor
from compressors.base.feedback import with_feedback
from testbed.core.costs.sockets import libraries
from testbed.core.parameters import Count, Fraction, LearningRate, Positive, Share, Size
from testbed.worker.communication.collectives.algorithm_selection import Collectives, SumsName
from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.interfaces.workload import Workload
from testbed.worker.methods.optimizers.lamb import Lamb, LambRule, MostRatio
from testbed.worker.reduction.data_parallel import BucketedStrategy, Fusion
from testbed.worker.reduction.reducer import Reducer


class LAMB(BucketedStrategy):
    """Synchronous data parallelism for large batches: gradients are averaged as `ddp` does, and LAMB takes the step.

    You et al., ICLR 2020, arXiv:1904.00962; formulas, and what differs from the paper:
    `testbed.worker.methods.optimizers.lamb`. The
    workload's own optimizer takes no step; its learning rate counts, if none is given.
    Compressors pass as through `ddp`, but those that take over the optimizer's work are refused.
    Synchronous; with no compressor, n ranks equal one rank with n times the batch. In a partition it waits as `ddp`
    does.
    Cost: `ddp`'s; 12 bytes a parameter, for buckets and two moments. Of a replay, which has nothing to update, the same
    bytes.

    Args:
        learning_rate: Relative step of a layer; null: workload's learning rate.
        beta1: Decay of the first moment.
        beta2: Decay of the second moment. It is above the square of `beta1`.
        epsilon: Term added to the root of the second moment.
        weight_decay: Weight decay of tensors of two or more dimensions.
        least_ratio: Lower bound of the trust ratio.
        most_ratio: Upper bound of the trust ratio.

    Raises:
        ValueError: a parameter is not one of these.
    """

    _reducer: Reducer

    def __init__(
        self,
        *,
        learning_rate: LearningRate | None = None,
        beta1: Fraction = 0.9,
        beta2: Fraction = 0.999,
        epsilon: Share = 1e-6,
        weight_decay: Fraction = 0.01,
        least_ratio: Share = 0.01,
        most_ratio: MostRatio = 1000.0,
        clip_norm: Positive | None = None,
        bucket_size: Size = "4 MiB",
        fusion: Fusion = "size",
        collective: SumsName = "gloo",
        accumulate: Count = 1,
    ) -> None:
        self.rule = LambRule(
            learning_rate=learning_rate,
            beta1=beta1,
            beta2=beta2,
            epsilon=epsilon,
            weight_decay=weight_decay,
            least_ratio=least_ratio,
            most_ratio=most_ratio,
        )
        super().__init__(
            bucket_size=bucket_size,
            fusion=fusion,
            collective=collective,
            accumulate=accumulate,
            clip_norm=clip_norm,
        )

    def validate(self, compressor: Compressor, workload: Workload, world_size: int) -> Iterator[str]:
        found = list(super().validate(compressor, workload, world_size))
        yield from found
        if not found and (traits := with_feedback(compressor).traits).owns != "nothing":
            yield (
                f"strategy=lamb takes LAMB's steps, but {type(compressor).__name__} with"
                f" feedback={compressor.feedback} takes over {traits.owned}; use strategy=ddp"
            )

    def validate_accelerator(self) -> Iterator[str]:
        yield from ()

    def bind(self, context: WorkerContext) -> None:
        if context.workload.computes:  # else there is nothing to update, and no memory for moments
            optimizer = Lamb(context.optimizer, self.rule)
            context.prepare(optimizer)
            context = dataclasses.replace(context, optimizer=optimizer)
        super().bind(context)
        spec = context.spec
        self._collectives = Collectives(context.comm, spec.topology, self.collective, libraries(spec))
        self._reducer = Reducer(
            self.compressor, context.comm, context.clock, spec.topology, spec.seed, self._collectives
        )

    def _update(self) -> None:
        self._reducer.finish()
        self._take_step()
