"""From what hooks see to factors on their way: each is computed as the pass goes, and leaves with its group."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from testbed.core.costs.kfac_variants import Plan, Settings
from testbed.core.device.factored_layer import Factor
from testbed.core.errors import RunError
from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.methods.kfac.curvature import Curvature
from testbed.worker.methods.kfac.exchange import Sums

# Hooks that show K-FAC the inputs of each layer and the gradients of its outputs, in the order of the pass.

Seen = Callable[[str, Tensor], None]
"""Of a layer, by its name: its inputs, or its outputs' gradient."""


class Observer:
    """Calls `inputs` before a layer's forward and `gradient` before its backward; copies of the model are not seen."""

    def __init__(self, modules: Mapping[str, nn.Module], inputs: Seen, gradient: Seen) -> None:
        self._names = {module: name for name, module in modules.items()}
        self._inputs, self._gradient = inputs, gradient
        self.is_on = False
        """Whether this pass is of interest."""
        self.layers: dict[str, None] = {}
        """That were called since `begin`, in the order of first calls."""
        for module in self._names:
            # by functions, not methods: a copy of the model would copy what methods are bound to
            module.register_forward_pre_hook(
                lambda module, inputs, named: self._enter(module, inputs[0] if inputs else named["input"]),
                with_kwargs=True,
            )
            module.register_forward_hook(lambda module, inputs, output: self._leave(module, output))

    def begin(self, *, is_on: bool) -> None:
        """Another step."""
        self.is_on, self.layers = is_on, {}

    def _enter(self, module: nn.Module, inputs: Tensor) -> None:
        name = self._names.get(module)
        if name is None or not self.is_on or not torch.is_grad_enabled():
            return
        self.layers[name] = None
        self._inputs(name, inputs.detach())

    def _leave(self, module: nn.Module, output: Tensor) -> None:
        name = self._names.get(module)
        if name is None or not self.is_on or not output.requires_grad:
            return
        output.register_hook(lambda gradient: self._gradient(name, gradient))


class FactorCollector:
    """One rank's factors of a step.

    Which layers take part is seen in the first step, without a plan: those that each forward calls once.
    """

    def __init__(self, context: WorkerContext, curvature: Curvature, sums: Sums, settings: Settings) -> None:
        self._context, self._curvature, self._sums = context, curvature, sums
        self._micro_batches, self._takes_traces = settings.micro_batches, settings.averages_traces
        self._number, self._step = 0, 0
        self._observer = Observer(
            curvature.modules,
            lambda layer, inputs: self._see(curvature.layer(layer).factor("a"), inputs),
            lambda layer, gradient: self._see(curvature.layer(layer).factor("g"), gradient),
        )
        self.packed: dict[str, Tensor] = {}
        """Factors by name; once there is a plan, parts of what travels together."""
        self.traces: dict[str, float] = {}
        """Of this rank's factors, where those are averaged apart."""
        self._seen: dict[str, list[int]] = {}
        """Of each factor: the micro-batches that it was shown, once for each time."""
        self._plan: Plan | None = None
        self._pipelined, self._wanted = False, set[str]()
        self.flats: list[Tensor] = []
        """What travels together, by group."""
        self._group_of: dict[str, int] = {}
        self._missing: list[int] = []
        """Of each group: factors that are not there yet."""
        self._next = 0

    def adopt(self, plan: Plan, wanted: set[str], *, pipelined: bool) -> None:
        """Go by this plan from now on; what was computed in this step without it is kept.

        Args:
            wanted: names of the factors that this rank computes.
            pipelined: whether a group leaves as soon as it is complete.
        """
        self._plan, self._wanted, self._pipelined = plan, wanted, pipelined
        old, self.packed = self.packed, {}
        for number, group in enumerate(plan.groups):
            factors = [plan.factors[index] for index in group]
            sizes = [factor.elements for factor in factors]
            self.flats.append(torch.zeros(sum(sizes)))
            for factor, part in zip(factors, self.flats[-1].split(sizes), strict=True):
                self.packed[factor.name], self._group_of[factor.name] = part, number
        for factor in plan.factors:
            if factor.name in wanted:
                part = self.packed.setdefault(factor.name, torch.zeros(0 if plan.groups else factor.elements))
                part.copy_(old.get(factor.name, part))

    def begin(self, step: int, *, is_on: bool) -> None:
        """A step, in which factors are taken or not."""
        self._step, self._next, self._seen = step, 0, {}
        self._observer.begin(is_on=is_on)
        if self._plan is not None:
            self._missing = [len(group) for group in self._plan.groups]

    def take_part(self, number: int) -> None:
        """Micro-batch `number` of this step follows."""
        self._number = number

    def end(self) -> None:
        """Backward is over."""
        self._observer.is_on = False

    def layers_seen(self) -> list[str]:
        """In the order of forward: of which each micro-batch had inputs and a gradient once.

        Raises:
            RunError: there are none.
        """
        seen, each_once = self._seen, list(range(self._micro_batches))
        once = [
            layer for layer in self._observer.layers if seen.get(f"{layer}.a") == seen.get(f"{layer}.g") == each_once
        ]
        if not once:
            raise RunError("K-FAC: no linear layer or convolution is called exactly once in forward; use strategy=ddp")
        return once

    def start_rest(self) -> None:
        """Send off what has not left yet.

        Raises:
            RunError: a factor is not complete.
        """
        for name in self._wanted:
            if self._seen.get(name) != list(range(self._micro_batches)):
                raise self._not_once(name)
        self._start_to(len(self.flats))

    def finish(self) -> None:
        """Whoever is told means has them in `packed`."""
        self._sums.finish()

    def _see(self, factor: Factor, what: Tensor) -> None:
        """A layer's inputs, or the gradient of its outputs."""
        name, parts, seen = factor.name, self._micro_batches, self._seen.setdefault(factor.name, [])
        if self._plan is not None and name not in self._wanted:
            return
        if self._plan is not None and self._number in seen:
            raise self._not_once(name)  # its group may be on its way
        seen.append(self._number)
        with self._context.clock.work(name, 1 / parts), torch.no_grad():
            if name not in self.packed:
                self.packed[name] = torch.zeros(factor.elements)
            first = self._number == 0
            self._curvature.compute(factor, what, self.packed[name], micro_batches=parts, first=first)
        if len(seen) != parts:
            return
        if self._takes_traces:
            self.traces[name] = self._curvature.trace(factor, self.packed[name])  # while it is this rank's alone
        if self._plan is not None and self._pipelined:
            self._missing[self._group_of[name]] -= 1
            # ranks must issue collectives in one order, so a group that is early waits for the ones before it
            while self._next < len(self.flats) and self._missing[self._next] == 0:
                self._start_to(self._next + 1)

    def _not_once(self, name: str) -> RunError:
        return RunError(
            f"rank {self._context.rank}: step {self._step + 1} did not call {name.rpartition('.')[0]} once, as the"
            " first step did; K-FAC needs the same layers in each step that takes factors"
        )

    def _start_to(self, end: int) -> None:
        assert self._plan is not None
        for number in range(self._next, end):
            owner = self._plan.owners[self._plan.groups[number][0]]
            self._sums.start(self.flats[number], number, owner, self._step)
        self._next = end
