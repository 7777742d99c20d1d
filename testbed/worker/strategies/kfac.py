from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Annotated

import torch
from torch import Tensor

from compressors.base.compressor import Compressor
from compressors.none import Uncompressed
from testbed.core.costs.kfac_variants import FUSIONS, VARIANTS, Settings
from testbed.core.device.factored_layer import CHOLESKY, FORMS
from testbed.core.kinds import Choice
from testbed.core.parameters import Count, Positive, Share, Size, raise_all, whole
from testbed.worker.communication.collectives.algorithm_selection import CollectiveName, Collectives
from testbed.worker.device.layer_pace import LayerPace
from testbed.worker.interfaces.strategy import ExtraWork, StepStats, WorkerContext
from testbed.worker.interfaces.workload import Batch, Workload
from testbed.worker.interfaces.workload_capabilities import Modelled
from testbed.worker.methods.kfac import kronecker_factors
from testbed.worker.methods.kfac.curvature import Curvature
from testbed.worker.methods.kfac.exchange import Nowhere, Sums, ToAll, ToOwners, UncalibratedReducer
from testbed.worker.methods.kfac.replayed_curvature import ReplayedCurvature
from testbed.worker.methods.kfac.second_order import SecondOrder
from testbed.worker.reduction.buckets import Bucket
from testbed.worker.reduction.data_parallel import BucketedStrategy, Fusion
from testbed.worker.reduction.reducer import Reducer

COMPRESS = ("gradients", "factors", "all")
RESULTS = tuple(dict.fromkeys(results for variant in VARIANTS.values() for results in variant.results))


class KFAC(BucketedStrategy):
    """Second-order data parallelism: K-FAC whose factors and inverses are shared out among the workers.

    D-, MPD- and SPD-KFAC as in Shi et al., "Accelerating Distributed K-FAC with Smart Parallelism of Computing and
    Communication Tasks", ICDCS 2021, arXiv:2107.06533; PAD-KFAC, which sends each factor to its owner alone, by the
    authors' public code; DP-KFAC as in Zhang et al., "Scalable K-FAC Training for Deep Neural Networks with Distributed
    Preconditioning", TCC 2022, arXiv:2206.15143. Numerics: Martens and Grosse, ICML 2015, arXiv:1503.05671; Grosse and
    Martens, ICML 2016, arXiv:1602.01407.
    Differs from the papers: damping never enters the running factors; the KL clip takes the products of preconditioned
    and plain gradients; inverses travel as triangles, fused by owner; the plan goes by closed forms of the links and by
    the device's times, not by a fit during the first steps; in the first step factors travel after backward.
    Conventions of public code, for layers with S places and batches of N: `decay` weighs the new factor, as
    `factor_decay` does in the authors' code (lzhangbv/kfac_pytorch, last version). In its earlier versions and in
    kfac-pytorch (gpauloski) `factor_decay` weighs the old factor: 0.95 there is 0.05 here. G undoes the averaging of
    the loss over a batch, and damping is split between A and G by their traces, as in the authors' code, where a
    convolution's A is 1/S^2 and its G S^2 times what they are here. kfac-pytorch leaves the averaging in (its A is
    1/S^3 and its G 1/(N^2 S^2) times what they are here) and adds the whole damping to both.

    Gradients are averaged as `ddp` does. Linear layers and convolutions that each forward calls exactly once have
    factors; all other parameters keep their plain gradients. What comes out is given to the workload's own optimizer.
    `d`, `mpd`, `spd` and `pad` make the same steps but for the order of sums; `dp` does not: an owner's factors are
    those of its own samples.
    Synchronous; in a partition it waits as `ddp` does.
    Cost: `ddp`'s, and in a step that takes and inverts factors, with K elements of all their triangles and G of the
    layers' gradients, by ring or chain, so many more elements from each of P ranks: d 2(P-1)/P K; mpd 3(P-1)/P K; spd
    between; pad 2(P-1)/P K and two numbers a layer, or (P-1)/P (K + G) with gradients; dp (P-1)/P G. What comes back is
    twice K with eigenvectors; gradients come back in every step.

    Args:
        variant: Variant of K-FAC. d: every worker inverts all. mpd: owners in turn. spd: factors travel while they are
            computed, owners by load, small inverses by everyone. pad: factors travel to their owner alone. dp: they do
            not travel.
        results: Results that owners send back; null: the variant's. inverses: once per `inverse_every`; gradients:
            preconditioned ones, each step. `pad` alone has the choice.
        inverse: Decomposition. cholesky: of the damped factors; eigen: it damps their Kronecker product.
        damping: Damping (lambda).
        decay: Weight of new factors in the moving average. running = (1 - decay) * running + decay * new, from the
            identity on; 1 keeps the last factor alone.
        kl_clip: Largest output change per step (kappa); null: unlimited. It holds for plain SGD; with momentum, decay
            or Adam the step is another.
        factor_every: Steps between computations of factors.
        inverse_every: Steps between inversions; a multiple of `factor_every`.
        factor_fusion: Factors that travel together; null: one, or mg_wfbp while factors are computed. Never different
            owners'. layers: no fusion.
        factor_group_size: Size of a group of factors (factor_fusion=size).
        compress: Compressed traffic. Results that owners send back are not.

    Raises:
        ValueError: a parameter is not one of these.
        RunError: in a step: no layer has factors, or a factor cannot be inverted.
    """

    _reducer: Reducer

    def __init__(
        self,
        *,
        variant: Annotated[str, Choice(VARIANTS)] = "spd",
        results: Annotated[str, Choice(RESULTS)] | None = None,
        inverse: Annotated[str, Choice(FORMS)] = CHOLESKY,
        damping: Positive = 0.03,
        decay: Share = 0.95,
        kl_clip: Positive | None = 0.001,
        factor_every: Count = 1,
        inverse_every: Count = 1,
        factor_fusion: Annotated[str, Choice(FUSIONS)] | None = None,
        factor_group_size: Size = "25 MiB",
        compress: Annotated[str, Choice(COMPRESS)] = "gradients",
        bucket_size: Size = "4 MiB",
        fusion: Fusion = "size",
        collective: CollectiveName = "gloo",
        accumulate: Count = 1,
    ) -> None:
        raise_all(_results_fault(variant, results), whole("inverse_every", inverse_every, 1, multiple_of=factor_every))
        super().__init__(
            bucket_size=bucket_size,
            fusion=fusion,
            collective=collective,
            accumulate=accumulate,
            clip_norm=None,
        )
        self._way, self._name = VARIANTS[variant], "dkfac" if variant == "d" else f"{variant}_kfac"
        self.compress, self._numerics = compress, (inverse, damping, decay, kl_clip)
        self._settings = Settings.of(
            {
                "variant": variant,
                "results": results,
                "inverse": inverse,
                "factor_every": factor_every,
                "inverse_every": inverse_every,
                "factor_fusion": factor_fusion,
                "factor_group_size": factor_group_size,
                "accumulate": accumulate,
                "collective": collective,
            }
        )

    def validate(self, compressor: Compressor, workload: Workload, world_size: int) -> Iterator[str]:
        if self.compress != "factors":
            found = list(super().validate(compressor, workload, world_size))
            yield from found
            if not found and compressor.traits.owns != "nothing":
                yield (
                    f"strategy={self._name} gives the optimizer preconditioned gradients, but"
                    f" {type(compressor).__name__} takes over its work; use strategy=ddp"
                )
        if self.compress != "gradients":
            yield from self._factor_faults(compressor)

    def bind(self, context: WorkerContext) -> None:
        self._pace = LayerPace(context.model, context.clock, self.micro_batches)
        self._pace.follow_backward()  # before buckets wait for gradients
        given, plain = context.compressor, Uncompressed()
        if self.compress == "factors":
            context = dataclasses.replace(context, compressor=plain)
        super().bind(context)
        spec = context.spec
        self._collectives = Collectives(context.comm, spec.topology, self.collective)
        parts = context.comm, context.clock, spec.topology, spec.seed, self._collectives
        # a device's times are of the run's compressor on gradients
        self._reducer = (UncalibratedReducer if self.compress == "factors" else Reducer)(self.compressor, *parts)
        codec = plain if self.compress == "gradients" else given
        if self._way.factors_to == "owner":
            sums: Sums = ToOwners(codec, context)
        elif self._way.factors_to == "all":
            sums = ToAll(UncalibratedReducer(codec, *parts))
        else:
            sums = Nowhere()
        self._second = SecondOrder(self._settings, context, self._curvature(context), sums)

    def step(self, batch: Batch, step: int) -> StepStats:
        self._second.begin(step)
        return super().step(batch, step)

    def extra_work(self) -> ExtraWork:
        return self._second.extra_work()

    def expected_work(self, workload: Workload, batch_size: int) -> ExtraWork:
        if not isinstance(workload, Modelled):
            return ExtraWork()
        curvature = ReplayedCurvature(workload, None, batch_size, self._numerics[0])
        return curvature.work(curvature.names)

    def _curvature(self, context: WorkerContext) -> Curvature:
        form, damping, decay, kl_clip = self._numerics
        if isinstance(context.workload, Modelled):
            return ReplayedCurvature(context.workload, context.model, context.spec.batch_size, form)
        owners: dict[torch.nn.Parameter, int] = {}
        for module in context.model.modules():
            for parameter in module.parameters(recurse=False):
                owners[parameter] = owners.get(parameter, 0) + 1
        modules = {
            name: module
            for name, module in context.model.named_modules()
            # a weight that two modules share has no factors of its own
            if kronecker_factors.supports(module) and all(owners[p] == 1 for p in module.parameters(recurse=False))
        }
        return Curvature(modules, form=form, damping=damping, decay=decay, kl_clip=kl_clip, record=context.record)

    def _factor_faults(self, compressor: Compressor) -> Iterator[str]:
        name, traits = type(compressor).__name__, compressor.traits
        if self._way.factors_to == "nobody":
            yield f"strategy.compress={self.compress}: factors of variant dp do not travel; use compress=gradients"
        elif self._way.factors_to == "owner" and traits.sum_dtype is None:
            yield (
                f"strategy.compress={self.compress}: factors are summed on their way to owners, and what {name} sends"
                " cannot be; use a compressor of another number type, as bf16, or compress=gradients"
            )
        elif traits.feedback in ("required", "recommended", "builtin") or traits.owns != "nothing":
            yield (
                f"strategy.compress={self.compress}: {name} leaves out what it makes up for in later steps, and factors"
                " are not gradients, whose sum counts; use compress=gradients"
            )
        elif traits.own_rounds or not traits.averages:
            yield (
                f"strategy.compress={self.compress}: {name} keeps account of gradients or does not average, and factors"
                " are means; use compress=gradients"
            )

    def _hand_over(self, bucket: Bucket) -> None:
        """The time of its layers is over: factors before it waited for that too."""
        self._start(bucket)

    def _forward(self, part: Batch, number: int) -> Tensor:
        self._pace.begin()
        self._second.take_part(number)
        return super()._forward(part, number)

    def _update(self) -> None:
        self._second.after_backward()
        self._reducer.finish()
        self._second.update()
        self._take_step()


def _results_fault(variant: str, results: Annotated[str, Choice(RESULTS)] | None) -> str | None:
    if results is None or results in VARIANTS[variant].results:
        return None
    return f"results={results}: variant {variant} sends back {' or '.join(VARIANTS[variant].results)}"
