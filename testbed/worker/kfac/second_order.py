"""The course of a step of distributed K-FAC: factors are seen, travel, are learnt and inverted; gradients follow."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from testbed.core.errors import RunError
from testbed.core.kfac_plan import Factor, in_order
from testbed.core.kfac_variants import GRADIENTS, VARIANTS, Costs, Plan, make_plan
from testbed.core.profile import Collective, WorkTimes
from testbed.worker.clock import WAITING
from testbed.worker.kfac.curvature import CHOLESKY, Curvature
from testbed.worker.kfac.exchange import Broadcasts, Sums, is_shared
from testbed.worker.kfac.observer import Observer
from testbed.worker.kfac.readiness import inverting, preconditioning, with_readiness
from testbed.worker.strategy import Beside, WorkerContext


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Of `KFAC`, which says what they are."""

    variant: str
    results: str
    form: str
    factor_every: int
    inverse_every: int
    fusion: str
    group_bytes: int
    micro_batches: int


class SecondOrder:
    """Which layers take part is seen in the first step: those that each forward calls once. Its factors travel after
    backward, whatever the variant; from the second step on all goes by the plan."""

    def __init__(
        self,
        settings: Settings,
        context: WorkerContext,
        curvature: Curvature,
        sums: Sums,
        costs: Callable[[Iterable[Factor]], Costs],
    ) -> None:
        """
        Args:
            costs: of these factors, for the plan.
        """
        self._settings, self._context, self._curvature, self._sums = settings, context, curvature, sums
        self._costs, self._variant = costs, VARIANTS[settings.variant]
        self._alone = not is_shared(context.comm)
        self._observer = Observer(curvature.modules, self._saw_inputs, self._saw_gradient)
        self._step, self._number = 0, 0
        self._fresh: dict[str, Tensor] = {}
        """Packed factors of this step, by name; parts of `_flats` once there is a plan."""
        self._seen: dict[str, int] = {}
        """How many micro-batches each factor holds."""
        self._traces: dict[str, float] = {}
        """Of this rank's factors of this step."""
        self._flats: list[Tensor] = []
        self._missing: list[int] = []
        """Of each group: factors that are not there yet."""
        self._next = 0
        self.plan: Plan | None = None

    @property
    def _is_factor_step(self) -> bool:
        return self._step % self._settings.factor_every == 0

    @property
    def _is_inverse_step(self) -> bool:
        return self._step % self._settings.inverse_every == 0

    def begin(self, step: int) -> None:
        """A step."""
        self._step, self._next = step, 0
        self._observer.is_on = self._is_factor_step
        self._observer.count()
        self._seen = {}
        if self.plan is not None:
            self._missing = [len(group) for group in self.plan.groups]

    def take_part(self, number: int) -> None:
        """Micro-batch `number` of this step follows."""
        self._number = number

    def after_backward(self) -> None:
        self._observer.is_on = False
        if not self._is_factor_step:
            return
        if self.plan is None:
            self._adopt(self._layers_seen())
            self._start_to(len(self._flats))
        elif not self._variant.pipelined:
            self._start_to(len(self._flats))
        plan = self._planned()
        wanted = self._settings.micro_batches
        lacking = [f.name for f in plan.factors if self._wants(f) and self._seen.get(f.name, 0) != wanted]
        if lacking:
            raise RunError(
                f"rank {self._context.rank}: step {self._step + 1} did not call {lacking[0].rpartition('.')[0]} once,"
                " as the first step did; K-FAC needs the same layers in each step that takes factors"
            )

    def update(self) -> None:
        """Gradients are means now: put preconditioned ones in their place."""
        if self._is_factor_step:
            self._learn()
        if self._is_inverse_step:
            self._invert()
        self._curvature.write(self._preconditioned(), self._context.optimizer)

    def beside(self) -> Beside:
        """For the calibration: pieces of work, and what is sent in a step that does all of it."""
        plan, settings, curvature = self._planned(), self._settings, self._curvature
        ranks = self._context.world_size
        work = []
        for factor, owner in zip(plan.factors, plan.owners, strict=True):
            alone = 1 if owner is None else 1 / ranks
            seen = alone if self._variant.factors_to == "nobody" else 1
            flop = curvature.factor_flop(factor), curvature.inverse_flop(factor)
            work.append(WorkTimes(name=factor.name, seconds=0, flop=flop[0], share=seen / settings.factor_every))
            work.append(
                WorkTimes(name=inverting(factor), seconds=0, flop=flop[1], share=alone / settings.inverse_every)
            )
        share = 1 / ranks if settings.results == GRADIENTS else 1
        for layer in self._layers:
            flop_ = curvature.precondition_flop(layer)
            work.append(WorkTimes(name=preconditioning(layer), seconds=0, flop=flop_, share=share))
        sums = [("all_reduce", flat.nbytes) for flat in self._flats]
        if self._variant.factors_to == "owner":
            sums = [("all_gather", -(-flat.nbytes // ranks)) for flat in self._flats]
        sent = sum(flat.nbytes for flat in self._broadcasts.flats)
        results = [("all_gather", -(-sent // ranks))] if sent else []
        each = tuple(Collective(kind=kind, size_bytes=size) for kind, size in [*sums, *results])
        return Beside(work=tuple(work), collectives=each)

    def state_dict(self) -> dict[str, Any]:
        if self.plan is None:
            return {}
        return {"layers": self._layers, "owners": list(self.plan.owners), "curvature": self._curvature.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state:
            self._adopt(state["layers"], state["owners"])
            self._curvature.load_state_dict(state["curvature"])

    def _planned(self) -> Plan:
        assert self.plan is not None, "the first step makes the plan"
        return self.plan

    def _wants(self, factor: Factor) -> bool:
        """Whether this rank computes it: where factors stay where they are, owners alone need them."""
        if self._variant.factors_to != "nobody" or self._alone or self.plan is None:
            return True
        return self.plan.layer_owners[factor.layer] == self._context.rank

    def _saw_inputs(self, layer: str, inputs: Tensor) -> None:
        self._see(Factor(layer, "a", self._curvature.dimensions(layer)[0]), inputs)

    def _saw_gradient(self, layer: str, gradient: Tensor) -> None:
        self._see(Factor(layer, "g", self._curvature.dimensions(layer)[1]), gradient)

    def _see(self, factor: Factor, what: Tensor) -> None:
        """A layer's inputs, or the gradient of its outputs."""
        if self.plan is not None and (factor.name not in self._index or not self._wants(factor)):
            return
        with self._context.clock.work(factor.name), torch.no_grad():
            out = self._fresh.get(factor.name)
            if out is None:
                out = self._fresh[factor.name] = torch.zeros(self._curvature.elements(factor))
            parts = self._settings.micro_batches
            self._curvature.compute(factor, what, out, micro_batches=parts, first=self._number == 0)
        self._seen[factor.name] = self._seen.get(factor.name, 0) + 1
        if self._seen[factor.name] == parts:
            self._traces[factor.name] = self._curvature.trace(factor, out)  # while it is this rank's alone
        if self.plan is not None and self._variant.pipelined and self._seen[factor.name] == parts:
            self._arrived(self._index[factor.name])

    def _arrived(self, index: int) -> None:
        self._missing[self._group_of[index]] -= 1
        # ranks must issue collectives in one order, so a group that is early waits for the ones before it
        while self._next < len(self._flats) and self._missing[self._next] == 0:
            self._start_to(self._next + 1)

    def _start_to(self, end: int) -> None:
        plan = self._planned()
        for number in range(self._next, end):
            owner = plan.owners[plan.groups[number][0]]
            self._sums.start(self._flats[number], number, owner, self._step)
        self._next = end

    def _layers_seen(self) -> list[str]:
        """In the order of forward: of which each micro-batch had inputs and a gradient once.

        Raises:
            RunError: there are none.
        """
        parts = self._settings.micro_batches
        once = [
            layer
            for layer, calls in self._observer.calls.items()
            if calls == parts and self._seen.get(f"{layer}.a") == self._seen.get(f"{layer}.g") == parts
        ]
        if not once:
            raise RunError("K-FAC: no linear layer or convolution is called exactly once in forward; use strategy=ddp")
        return once

    def _adopt(self, layers: list[str], owners: list[int | None] | None = None) -> None:
        """Make the plan for these layers, and room for what travels together."""
        curvature, settings, comm = self._curvature, self._settings, self._context.comm
        factors = in_order(layers, {layer: curvature.dimensions(layer) for layer in layers})
        factors = with_readiness(factors, self._context.model, self._context.clock.times, settings.micro_batches)
        self.plan = plan = make_plan(
            settings.variant,
            settings.results,
            factors,
            comm.world_size,
            self._costs(factors),
            settings.fusion,
            settings.group_bytes,
            owners,
        )
        comm.require_equal(zlib.crc32(repr(plan).encode()), "the plan of who inverts which of K-FAC's factors")
        self._layers = layers
        self._index = {factor.name: index for index, factor in enumerate(factors)}
        self._group_of = {index: number for number, group in enumerate(plan.groups) for index in group}
        old, self._fresh = self._fresh, {}
        for group in plan.groups or [(index,) for index in range(len(factors))]:
            sizes = [curvature.elements(factors[index]) for index in group]
            flat = torch.zeros(sum(sizes))
            if plan.groups:
                self._flats.append(flat)
            self._fresh |= {factors[i].name: part for i, part in zip(group, flat.split(sizes), strict=True)}
        for name, part in self._fresh.items():
            if name in old:
                part.copy_(old[name])
        self._broadcasts = Broadcasts(comm, self._context.clock, self._sent_elements(plan))

    def _sent_elements(self, plan: Plan) -> list[int]:
        """By rank: of its results for others."""
        sizes = [0] * self._context.world_size
        if self._settings.results == GRADIENTS:
            for layer, owner in plan.layer_owners.items():
                sizes[owner] += self._curvature.gradient_elements(layer)
        else:
            for rank in range(len(sizes)):
                sizes[rank] = sum(self._curvature.inverse_elements(plan.factors[index]) for index in plan.owned(rank))
        return sizes

    def _learn(self) -> None:
        """Whoever is told a factor's mean takes it into the moving average."""
        plan, curvature, comm = self._planned(), self._curvature, self._context.comm
        # how damping is split needs both factors' traces, of which an owner may have one
        apart = self._variant.factors_to == "owner" and self._settings.results != GRADIENTS and not self._alone
        traces, pending = torch.zeros(0), None
        if apart and self._settings.form == CHOLESKY:
            traces = torch.tensor([self._traces[factor.name] for factor in plan.factors])
            self._context.clock.mark()
            pending = comm.all_reduce(traces)
        self._sums.finish()
        if pending is not None:
            with self._context.clock.phase(WAITING):
                pending.wait()
        for index, factor in enumerate(plan.factors):
            if self._variant.factors_to == "all" or self._is_mine(plan.owners[index]):
                curvature.learn(factor, self._fresh[factor.name])
                if pending is None:
                    curvature.learn_trace(factor, curvature.trace(factor, self._fresh[factor.name]))
            if pending is not None:
                curvature.learn_trace(factor, float(traces[index]) / comm.world_size)

    def _is_mine(self, owner: int | None) -> bool:
        return self._alone or owner is None or owner == self._context.rank

    def _invert(self) -> None:
        plan, curvature, clock, rank = self._planned(), self._curvature, self._context.clock, self._context.rank
        sends = self._settings.results != GRADIENTS and not self._alone
        mine = list(range(len(plan.factors))) if self._alone else plan.owned(rank)
        for index in mine:
            with clock.work(inverting(plan.factors[index])):
                curvature.invert(plan.factors[index])
        if not sends:
            return
        for factor, part in self._parts(plan, rank):
            curvature.put_inverse(factor, part)
        self._broadcasts.start()
        for index in plan.everyones:
            with clock.work(inverting(plan.factors[index])):
                curvature.invert(plan.factors[index])
        self._broadcasts.finish()
        for owner in range(self._context.world_size):
            for factor, part in self._parts(plan, owner):  # its own too: what was sent, to the last bit, is everyone's
                curvature.take_inverse(factor, part)

    def _parts(self, plan: Plan, owner: int) -> list[tuple[Factor, Tensor]]:
        """Of what `owner` sends: the room of each factor's inverse."""
        factors = [plan.factors[index] for index in plan.owned(owner)]
        sizes = [self._curvature.inverse_elements(factor) for factor in factors]
        return list(zip(factors, self._broadcasts.flats[owner].split(sizes), strict=True)) if factors else []

    def _preconditioned(self) -> dict[str, Tensor]:
        """By layer, flat."""
        plan, rank = self._planned(), self._context.rank
        if self._settings.results != GRADIENTS or self._alone:
            return {layer: self._precondition(layer) for layer in self._layers}
        found: dict[str, Tensor] = {}
        for owner, flat in enumerate(self._broadcasts.flats):
            layers = [layer for layer, its in plan.layer_owners.items() if its == owner]
            sizes = [self._curvature.gradient_elements(layer) for layer in layers]
            found |= dict(zip(layers, flat.split(sizes), strict=True)) if layers else {}
        for layer, owner in plan.layer_owners.items():
            if owner == rank:
                found[layer].copy_(self._precondition(layer))
        self._broadcasts.start()
        self._broadcasts.finish()
        return found

    def _precondition(self, layer: str) -> Tensor:
        with self._context.clock.work(preconditioning(layer)):
            return self._curvature.precondition(layer).reshape(-1)


def _piece(name: str, flop: float, share: float) -> WorkTimes:
    return WorkTimes(name=name, seconds=0.0, flop=flop, share=share)
