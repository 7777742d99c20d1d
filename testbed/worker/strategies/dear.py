from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Annotated

import torch
from torch import Tensor, nn

from compressors.base.compressor import Compressor
from compressors.base.feedback import with_feedback
from testbed.core.kinds import Choice
from testbed.core.parameters import Count, Positive, Size
from testbed.worker.communication.collectives.algorithm_selection import Collectives
from testbed.worker.device.layer_pace import LayerPace
from testbed.worker.interfaces.clipping import clipping_fault
from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.interfaces.workload import Batch, Workload
from testbed.worker.reduction.data_parallel import BucketedStrategy, Fusion
from testbed.worker.reduction.halved_reducer import HALVES, HalvedReducer


class DeAR(BucketedStrategy):
    """Data parallelism with all-reduces in two halves: reduce-scatter in backward, all-gather in the next forward.

    Forward waits layer by layer and updates each layer's parameters just before it uses them.

    Zhang et al., "DeAR: Accelerating Distributed Deep Learning with Fine-Grained All-Reduce Pipelining", ICDCS 2023,
    arXiv:2302.12445. Differs from the paper: buckets are cut by parameters in the model's order, waits are by module;
    second halves follow each other in one channel without a wait in between; the order of forward is observed in the
    first step, not taken from the order of registration; any compressor whose rounds can be put off passes through.

    Synchronous: the same update as `ddp`, with the hyper-parameters of its own step, applied later; `sync_parameters`
    applies what is left before the model is evaluated or kept. A module whose parameters others read without calling it
    (or that the first step does not call) has them updated before forward begins; one that is called and also read
    without being called, before that, would be read too early, which backward mostly notices and refuses.
    In a partition it waits: a short one costs its length and what TCP takes to try again; one longer than `timeout_s`
    fails the run, which names the rank and the link that is down.
    Cost: the bytes of a ring's all-reduce, twice its messages' start-up at worst; 4 bytes a parameter for the buckets.

    Args:
        collective: Algorithm whose halves are used. With a hierarchical one the WAN carries a tensor once per region:
            sums inside regions and the leaders' reduce-scatter overlap backward, the leaders' all-gather and what they
            pass on inside the next forward.
        clip_norm: Largest 2-norm of the mean gradient; null: unlimited. It is known when all first halves are through;
            a compressor's sum is then not put off at all.

    Raises:
        ValueError: a parameter is not one of these.
    """

    sent_in_backward = 0.5

    _reducer: HalvedReducer

    def __init__(
        self,
        *,
        bucket_size: Size = "4 MiB",
        fusion: Fusion = "size",
        collective: Annotated[str, Choice(HALVES)] = "ring",
        accumulate: Count = 1,
        clip_norm: Positive | None = None,
    ) -> None:
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
        name = type(compressor).__name__
        if not found and with_feedback(compressor).traits.owns == "optimizer":
            yield f"strategy=dear updates layer by layer, but {name} takes over the optimizer; use strategy=ddp"
        if (fault := clipping_fault("dear", workload)) is not None:
            yield fault
        if compressor.needs_link_stats:
            yield f"strategy=dear cannot tell {name} what links cost; use strategy=ddp"

    def bind(self, context: WorkerContext) -> None:
        super().bind(context)
        spec = context.spec
        parts = self.compressor, context.comm, context.clock, spec.topology, spec.seed
        self._collectives = Collectives(context.comm, spec.topology, self.collective)
        self._reducer = HalvedReducer(*parts, self._collectives)
        self._optimizers = self._new_optimizers()
        self._elements = sum(layout.numel for layout in self.layouts())
        self._unapplied: set[int] = set()
        """Buckets whose update is still to come."""
        self._order: list[int] = []
        """Of buckets, as forward needs them; known after the first forward."""
        self._first: list[int] = []
        """Those of them that are needed before it begins."""
        self._needs: dict[nn.Module, list[int]] = {}
        """Of the modules that have parameters: their buckets."""
        self._calls: dict[nn.Module, None] = {}
        """Of those, the ones that the first forward has called, in order."""
        self._observes = True
        """Until that is over."""
        self._sends_the_gradient = self.compressor.traits.verbatim and not context.compressor.uses_feedback
        self._hook(context.model)

    def sync_parameters(self) -> None:
        while self._unapplied:
            self._apply_next()

    def _hook(self, model: nn.Module) -> None:
        """By functions, not methods: a copy of the model would copy what methods are bound to."""
        self._arrange()
        for module in self._needs:
            # first of all hooks: others may compute from the parameters what the module uses
            module.register_forward_pre_hook(lambda module, _: self._enter(module), prepend=True)
        self._pace = LayerPace(model, self._context.clock, self.micro_batches)

    def _enter(self, module: nn.Module) -> None:
        """A module is about to read its parameters. A copy of the model has these hooks too, but no part in this."""
        if self._observes and module in self._needs:
            self._calls[module] = None
        for index in self._needs.get(module, ()):
            while index in self._unapplied:
                self._apply_next()

    def _arrange(self) -> None:
        """Which buckets each module needs, and the order of all, by what the first forward has called: what a module
        has that was not called may be read all the same, at any time."""
        bucket_of = {p: index for index, bucket in enumerate(self.buckets.buckets) for p in bucket.parameters}
        for module in self._context.model.modules():
            own = {bucket_of[p] for p in module.parameters(recurse=False) if p in bucket_of}
            if own:
                self._needs[module] = sorted(own, reverse=True)  # backward reaches buckets the other way round
        uncalled = {index for module in self._needs.keys() - self._calls.keys() for index in self._needs[module]}
        self._first = sorted(uncalled, reverse=True)
        called = [index for module in self._calls for index in self._needs[module]]
        self._order = list(dict.fromkeys([*self._first, *called]))

    def _complete_order(self) -> None:
        """After the first forward."""
        if self._observes:
            self._observes = False
            self._arrange()
            order = zlib.crc32(bytes(str(self._order), "ascii"))
            self._context.comm.require_equal(order, "the order in which forward reads buckets of parameters")

    def _regroup(self, size_bytes: int) -> None:
        self.sync_parameters()
        super()._regroup(size_bytes)
        kept = {p: state for optimizer in self._optimizers for p, state in optimizer.state.items()}
        self._optimizers = self._new_optimizers()
        for bucket, optimizer in zip(self.buckets.buckets, self._optimizers, strict=True):
            optimizer.state.update({p: kept[p] for p in bucket.parameters if p in kept})
        self._arrange()

    def _new_optimizers(self) -> list[torch.optim.Optimizer]:
        """One a bucket: what a compressor has left of the run's optimizer, its settings, is what these go by."""
        return [self._context.new_optimizer(bucket.parameters) for bucket in self.buckets.buckets]

    def _apply_next(self) -> None:
        """Update the parameters of a bucket with the last step's mean gradient, once it is there: always in one order,
        whatever a later forward calls first, since some compressors exchange something more now."""
        index = next(index for index in self._order if index in self._unapplied)
        self._unapplied.remove(index)
        self._reducer.finish_one(index)
        clock, bucket = self._context.clock, self.buckets.buckets[index]
        whole_s = clock.times.optimizer_s
        share = bucket.layout.numel / self._elements
        with clock.phase("optimizer", None if whole_s is None else whole_s * share):
            self._optimizers[index].step()

    def _remember_settings(self) -> None:
        """Learning rates and the like as they are at the end of this step: the update comes when they may be others."""
        groups = {p: group for group in self._context.optimizer.param_groups for p in group["params"]}
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                if group["params"]:  # of a bucket a kind of parameters may have none
                    settings = groups[group["params"][0]]
                    group.update({key: value for key, value in settings.items() if key != "params"})

    def _forward(self, part: Batch, number: int) -> Tensor:
        self._pace.begin()
        for _ in self._unapplied.intersection(self._first):
            self._apply_next()
        loss = super()._forward(part, number)
        self.sync_parameters()  # of modules that this forward did not call
        self._complete_order()
        return loss

    def _update(self) -> None:
        self._remember_settings()
        self._unapplied = set(self._order)
        if self.clip_norm is None:
            self._reducer.turn(self._order)
        elif self._sends_the_gradient and self._reducer.has_halves:
            self._reducer.clip(self.clip_norm)
            self._reducer.turn(self._order)
        else:
            self._reducer.turn(self._order)
            for index in self._order:
                self._reducer.finish_one(index)
            nn.utils.clip_grad_norm_(self._context.model.parameters(), self.clip_norm)
