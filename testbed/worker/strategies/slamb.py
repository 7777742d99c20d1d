from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Annotated

import torch

from compressors.base.compressor import Compressor, Context, Exchange, Layout
from compressors.base.feedback import with_feedback
from testbed.core.device.profile import MOMENTS_SHARE, Collective
from testbed.core.kinds import Number
from testbed.core.parameters import Count, Fraction, LearningRate, Share
from testbed.worker.communication.collectives.algorithm_selection import CollectiveName, Collectives, routes_of
from testbed.worker.interfaces.strategy import ExtraWork, StepStats, Strategy, WorkerContext
from testbed.worker.interfaces.workload import Batch, Workload, parameters_crc32
from testbed.worker.methods.optimizers.lamb import LambRule, MostRatio
from testbed.worker.methods.optimizers.sparse_momenta import SparseMomenta
from testbed.worker.reduction.buckets import Buckets
from testbed.worker.reduction.reducer import Reducer

MIN_DENSITY = 0.002
"""Least density with which each turn has a block of the smallest tensor that takes turns."""


class SLAMB(Strategy):
    """LAMB for large batches with sparse communication: a part of each worker's momenta is averaged in each step.

    Parameters are averaged every `sync_every` steps.

    Xu et al., "SLAMB: Accelerated Large Batch Training with Sparse Communication", ICML 2023; LAMB as in
    `testbed.worker.methods.optimizers.lamb`. By the first of the two variants in the authors' public code: with m and v
    by this worker's
    gradients alone, the momenta S that have their turn are averaged, and all others stay as they are here, so that
    what was not sent is sent later; second moments v are never averaged. rho = beta3^(steps since it was sent) for each
    element, r = |w| / |u| of S and of all else in the same tensor, P workers:
    w = w - learning_rate (rho + (1 - rho) / sqrt(P)) (rho r[S] + (1 - rho) r[else]) u.
    The other variant draws S anew in each step, and keeps rho of each element; here each element has its turn once in
    1/density steps, and rho follows from the step. Both differ little otherwise, and one is not mixed with the other.
    Differs from the code: S is blocks of 16 elements, dealt out tensor by tensor, not single elements of all;
    parameters are averaged at the end of each `sync_every`-th step, not after the first one; and no element of
    m / sqrt(v) exceeds what moments of the same gradients could come to (`LambRule.most_direction`), which LAMB's never
    do. Here m is a mean over workers and v is not, so that where this worker's gradients are zero and others' are not,
    a bias of a unit that its samples do not reach, m would be divided by epsilon alone: unbounded, two workers with
    `digits` and batches of 32 diverge within 40 steps.

    With density=1 and sync_every=1 it is still not `lamb`: v is of squares of this worker's own gradients, not of the
    mean gradient, so it is larger where workers' gradients differ, and makes another step of the same momenta on each
    of them. With equal batches on all workers, or with one worker, it is `lamb`.

    What is evaluated is rank 0's own parameters at that step, which differ from the others' between averages. They stay
    so, so that a run which is evaluated or kept more often is the same run. After the last step all workers
    average once more, if that was not the turn of it.
    Momenta pass through any compressor that leaves nothing to later steps; parameters are sent as they are. Neither
    overlaps backward: momenta are known when it is over.
    In a partition it waits: a short one costs its length and what TCP takes to try again; one longer than `timeout_s`
    fails the run, which names the rank and the link that is down.
    Cost: of `ddp`'s bytes the density in each step, all of tensors of one dimension or below 9,000 elements, and
    1/sync_every; 13 bytes a parameter. Of a replay, which has nothing to update, the same bytes.

    Args:
        density: Share of momenta sent per step. It is rounded up to 1 over a whole number.
        sync_every: Steps between averages of the parameters (H).
        learning_rate: Relative step of a layer; null: workload's learning rate.
        beta1: Decay of the first moment.
        beta2: Decay of the second moment. It is above the square of `beta1`.
        beta3: Decay of freshness.
        epsilon: Term added to the root of the second moment.
        weight_decay: Weight decay of tensors of two or more dimensions.
        least_ratio: Lower bound of both trust ratios.
        most_ratio: Upper bound of both trust ratios.
        collective: Algorithm of exchanges; auto: the cheapest predicted. It carries momenta and parameters.

    Raises:
        ValueError: a parameter is not one of these.
    """

    carries_compressor = sends_by_comm = True
    has_optimizer = False

    def __init__(
        self,
        *,
        density: Annotated[float, Number(least=MIN_DENSITY, most=1)] = 0.1,
        sync_every: Count = 50,
        learning_rate: LearningRate | None = None,
        beta1: Fraction = 0.9,
        beta2: Fraction = 0.999,
        beta3: Share = 0.99,
        epsilon: Share = 1e-6,
        weight_decay: Fraction = 0.01,
        least_ratio: Share = 0.01,
        most_ratio: MostRatio = 1000.0,
        collective: CollectiveName = "gloo",
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
        self.turns = int(1 / density + 1e-9)
        self.sync_every, self.beta3, self.collective = sync_every, beta3, collective

    def validate(self, compressor: Compressor, workload: Workload, world_size: int) -> Iterator[str]:
        name, traits = type(compressor).__name__, compressor.traits
        instead = "use one that leaves nothing to later steps, as int8, or strategy=lamb"
        if traits.owns != "nothing":
            yield f"strategy=slamb: {name} takes over {traits.owned}, which is LAMB's; {instead}"
        elif compressor.uses_feedback or traits.feedback in ("required", "recommended", "builtin"):
            yield (
                f"strategy=slamb: {name} with feedback={compressor.feedback} makes up in later steps for what it leaves"
                f" out, and momenta, unlike gradients, are not summed over steps; {instead}"
            )
        elif traits.own_rounds or not traits.averages:
            yield f"strategy=slamb: {name} keeps account of gradients or does not average; {instead}"

    def bind(self, context: WorkerContext) -> None:
        self._context, self._step = context, -1
        spec, comm = context.spec, context.comm
        self.compressor = with_feedback(context.compressor)
        self._collectives = Collectives(comm, spec.topology, self.collective)
        self._reducer = Reducer(self.compressor, comm, context.clock, spec.topology, spec.seed, self._collectives)
        names = {parameter: name for name, parameter in context.model.named_parameters()}
        self._parameters = [p for p in context.model.parameters() if p.requires_grad]
        self._gradients = Buckets([self._parameters], lambda bucket: None)
        self._momenta = SparseMomenta(
            self._parameters,
            self._gradients.buckets[0].flat,
            context.optimizer.param_groups,
            self.rule,
            count=self.turns,
            beta3=self.beta3,
            spread=comm.world_size**0.5,
            seed=spec.seed,
            learns=context.workload.computes,
        )
        self._layouts = [self._momenta.layout(turn, names) for turn in range(self.turns)]
        comm.require_equal(parameters_crc32(context.model), "the checksum of the initial parameters")

    def step(self, batch: Batch, step: int) -> StepStats:
        context, clock = self._context, self._context.clock
        self._step, turn = step, step % self.turns
        self._gradients.reset()
        with clock.phase("forward", clock.times.forward_s):
            loss = context.workload.loss(context.model, batch)
        with clock.phase("backward", clock.times.backward_s):
            loss.backward()
        with self._updating(MOMENTS_SHARE):
            sent = self._momenta.take(turn)
        self._reducer.start(sent, self._layouts[turn], step)
        self._reducer.finish()
        with self._updating(1 - MOMENTS_SHARE):
            self._momenta.apply(step + 1, context.optimizer.param_groups)
        if (step + 1) % self.sync_every == 0:
            self._average()
        return StepStats(float(loss.detach()))

    def finish(self) -> None:
        """All workers agree on the parameters."""
        if (self._step + 1) % self.sync_every:
            self._average()

    def layouts(self) -> list[Layout]:
        """The largest of a step: others have a block less of some tensors."""
        return [max(self._layouts, key=lambda layout: layout.numel)]

    def extra_work(self) -> ExtraWork:
        size_bytes = 4 * sum(p.numel() for p in self._parameters)
        return ExtraWork(collectives=(Collective(kind="all_reduce", size_bytes=size_bytes, share=1 / self.sync_every),))

    def routes(self) -> list[str]:
        return routes_of(self._contexts())

    def collectives(self) -> list[str]:
        return self._collectives.planned_for(self.compressor, self._contexts())

    def _contexts(self) -> list[Context]:
        return [self._reducer.context(layout, step=0) for layout in self.layouts()]

    def _updating(self, share: float) -> AbstractContextManager[None]:
        """A part of the optimizer's work."""
        clock = self._context.clock
        whole_s = clock.times.optimizer_s
        return clock.phase("optimizer", None if whole_s is None else share * whole_s)

    @torch.no_grad()
    def _average(self) -> None:
        """Of all workers' parameters; the others' are awaited, and copying takes this processor's time."""
        context, clock = self._context, self._context.clock
        with clock.phase("optimizer"):
            flat = self._flat_parameters()
        (total,) = self._collectives.run(Exchange(kind="all_reduce", data=[flat])).wait()
        if not context.workload.computes:
            return
        with clock.phase("optimizer"):
            pieces = total.div_(context.world_size).split([p.numel() for p in self._parameters])
            for parameter, piece in zip(self._parameters, pieces, strict=True):
                parameter.copy_(piece.view_as(parameter))

    def _flat_parameters(self) -> torch.Tensor:
        """A copy; of a replay, whose parameters mean nothing, its gradients."""
        if not self._context.workload.computes:
            return self._gradients.buckets[0].flat
        return torch.cat([p.detach().view(-1) for p in self._parameters])
