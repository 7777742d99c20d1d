"""A step of distributed K-FAC: factors are gathered, learnt and inverted; gradients are preconditioned."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch
from torch import Tensor

from testbed.core.costs.kfac_costs import inverting, plan_for, preconditioning
from testbed.core.costs.kfac_variants import GRADIENTS, VARIANTS, Plan, Settings
from testbed.core.record.events.kfac import FactorPlan, OwnedFactor
from testbed.worker.interfaces.strategy import ExtraWork, WorkerContext
from testbed.worker.methods.kfac.curvature import Curvature
from testbed.worker.methods.kfac.exchange import Broadcasts, Sums, is_shared
from testbed.worker.methods.kfac.factor_collector import FactorCollector


class SecondOrder:
    """In the first step the plan is made, after backward, so that its factors travel then, whatever the variant."""

    def __init__(
        self,
        settings: Settings,
        context: WorkerContext,
        curvature: Curvature,
        sums: Sums,
    ) -> None:
        self._settings, self._context, self._curvature = settings, context, curvature
        self._variant, self._step = VARIANTS[settings.variant], 0
        self._alone = not is_shared(context.comm)
        self._sends_gradients = settings.results == GRADIENTS and not self._alone
        self._gathering = FactorCollector(context, curvature, sums, settings)
        self._plan: Plan | None = None
        self._broadcasts: Broadcasts
        self._layers: list[str] = []
        self._layers_of: list[list[str]] = []
        """Those whose preconditioned gradients each rank sends."""
        self._results: list[list[Tensor]] = []
        """Of each rank: room for what it sends, its layers' gradients or its factors' inverses."""

    @property
    def plan(self) -> Plan:
        assert self._plan is not None, "the first step makes the plan"
        return self._plan

    @property
    def _is_factor_step(self) -> bool:
        return self._step % self._settings.factor_every == 0

    def begin(self, step: int) -> None:
        self._step = step
        self._gathering.begin(step, is_on=self._is_factor_step)

    def take_part(self, number: int) -> None:
        """Micro-batch `number` of this step follows."""
        self._gathering.take_part(number)

    def after_backward(self) -> None:
        self._gathering.end()
        if self._plan is None:
            self._adopt(self._gathering.layers_seen())
        if self._is_factor_step:
            self._gathering.start_rest()

    def update(self) -> None:
        """Gradients are means now: put preconditioned ones in their place."""
        if self._is_factor_step:
            self._learn()
        if self._step % self._settings.inverse_every == 0:
            self._invert()
        self._curvature.write(self._preconditioned(), self._context.optimizer)

    def extra_work(self) -> ExtraWork:
        """For the calibration: all pieces of work, whoever does them in a run."""
        return self._curvature.work(self._layers)

    def _adopt(self, layers: list[str]) -> None:
        """Make the plan for these layers, which all ranks must have alike."""
        context, profile = self._context, self._context.clock.times.profile
        factored = [self._curvature.layer(name) for name in layers]
        plan = plan_for(context.spec, self._settings, factored, profile)
        checksum = zlib.crc32(repr(plan).encode())
        context.comm.require_equal(checksum, "the plan of who inverts which of K-FAC's factors")
        self._plan, self._layers = plan, layers
        if context.rank == 0:
            context.record(_event_of(plan))
        wanted = range(len(plan.factors)) if self._variant.factors_to != "nobody" else self._mine()
        names = {plan.factors[index].name for index in wanted}
        self._gathering.adopt(plan, names, pipelined=self._variant.pipelined)
        its, ranks = plan.layer_owners, range(context.world_size)
        self._layers_of = [[name for name, owner in its.items() if owner == rank] for rank in ranks]
        sizes = [self._result_sizes(rank) for rank in ranks]
        self._broadcasts = Broadcasts(context, [sum(of_rank) for of_rank in sizes])
        self._results = [
            list(flat.split(of_rank)) if of_rank else []
            for flat, of_rank in zip(self._broadcasts.flats, sizes, strict=True)
        ]

    def _mine(self) -> list[int]:
        """What this rank inverts for itself or for others, others' first."""
        return list(range(len(self.plan.factors))) if self._alone else self.plan.owned(self._context.rank)

    def _result_sizes(self, rank: int) -> list[int]:
        """Elements of what `rank` sends, one after another."""
        if self._settings.results == GRADIENTS:
            return [self._curvature.layer(name).gradient_elements for name in self._layers_of[rank]]
        return [self.plan.factors[index].inverse_elements(self._settings.form) for index in self.plan.owned(rank)]

    def _learn(self) -> None:
        """Whoever is told a factor's mean takes it into the moving average."""
        plan, curvature, packed = self.plan, self._curvature, self._gathering.packed
        traces = self._mean_traces()
        self._gathering.finish()
        known = range(len(plan.factors)) if self._variant.factors_to == "all" else self._mine()
        for index in known:
            factor = plan.factors[index]
            curvature.learn(factor, packed[factor.name])
            if traces is None:
                curvature.learn_trace(factor, curvature.trace(factor, packed[factor.name]))
        for factor, trace in zip(plan.factors, [] if traces is None else traces.tolist(), strict=False):
            curvature.learn_trace(factor, trace)

    def _mean_traces(self) -> Tensor | None:
        """None where whoever needs one has the factor."""
        if self._alone or not self._settings.averages_traces:
            return None
        comm = self._context.comm
        traces = torch.tensor([self._gathering.traces[factor.name] for factor in self.plan.factors])
        comm.all_reduce(traces).wait()
        return traces / comm.world_size

    def _invert(self) -> None:
        plan, curvature, rank = self.plan, self._curvature, self._context.rank
        self._invert_all(self._mine())
        if self._alone or self._sends_gradients:
            return
        for index, part in zip(plan.owned(rank), self._results[rank], strict=True):
            curvature.put_inverse(plan.factors[index], part)
        self._broadcasts.start()
        self._invert_all(plan.everyones)
        self._broadcasts.finish()
        for owner in range(self._context.world_size):
            # its own too: what was sent, to the last bit, is everyone's
            for index, part in zip(plan.owned(owner), self._results[owner], strict=True):
                curvature.take_inverse(plan.factors[index], part)

    def _invert_all(self, indices: Sequence[int]) -> None:
        for index in indices:
            factor = self.plan.factors[index]
            with self._context.clock.work(inverting(factor)):
                self._curvature.invert(factor)

    def _preconditioned(self) -> dict[str, Tensor]:
        """By layer, flat."""
        if not self._sends_gradients:
            return {name: self._precondition(name) for name in self._layers}
        rank = self._context.rank
        for name, part in zip(self._layers_of[rank], self._results[rank], strict=True):
            part.copy_(self._precondition(name))
        self._broadcasts.start()
        self._broadcasts.finish()
        pairs = zip(self._layers_of, self._results, strict=True)
        return {name: part for names, parts in pairs for name, part in zip(names, parts, strict=True)}

    def _precondition(self, name: str) -> Tensor:
        with self._context.clock.work(preconditioning(name)):
            return self._curvature.precondition(name).reshape(-1)


def _event_of(plan: Plan) -> FactorPlan:
    owned = zip(plan.factors, plan.owners, strict=True)
    return FactorPlan(
        factors=[OwnedFactor(name=one.name, dimension=one.dimension, owner=owner) for one, owner in owned],
        groups=[len(group) for group in plan.groups],
    )
