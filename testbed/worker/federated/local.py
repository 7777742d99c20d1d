"""One client's training in a round."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from testbed.core.federated.slowness import Slowness
from testbed.worker.federated.methods import Method
from testbed.worker.federated.population import Population
from testbed.worker.federated.state import ClientState
from testbed.worker.server.spent import Spent
from testbed.worker.strategy import WorkerContext
from testbed.worker.workload import NumberedWorkload


@dataclass(frozen=True)
class Trained:
    delta: list[Tensor]
    """Of each parameter what it has become less what it was; then of each variate its change."""
    loss: float
    """Mean of all samples' in all steps."""
    elapsed_s: float
    """Emulated: what it takes on this worker."""


class LocalClient:
    """From the parameters that the state has, over all batches of a round, with a new optimizer.

    Args:
        workload: whose samples `population` divides.
        speed: of this worker; a client takes 1/speed of what it takes on one of speed 1.
        slowness: of each run of each client, on top of that.
    """

    def __init__(
        self,
        context: WorkerContext,
        workload: NumberedWorkload,
        state: ClientState,
        population: Population,
        method: Method,
        speed: float,
        slowness: Slowness,
    ) -> None:
        self._context, self._workload, self._state = context, workload, state
        self._population, self._method, self._speed, self._slowness = population, method, speed, slowness
        self._slower = 1.0
        """How many times as long as on a worker of speed 1 the client lasts that is being trained."""
        self.correction = method.correction()

    def train(self, client: int, round_: int) -> Trained:
        self._slower = self._slowness.factor(client, round_) / self._speed
        state, spent = self._state, Spent(self._context.spec.dilation)
        began = [parameter.detach().clone() for parameter in state.learning]
        self.correction.begin(client, began, [one.detach() for one in state.variates])
        parameters = state.learning
        optimizer = self._optimizer(parameters)
        torch.manual_seed(self.seed(client, round_))  # dropout is the same, whoever runs it
        losses = sum(
            len(numbers) * self._step(optimizer, parameters, numbers)
            for numbers in self._population.batches(client, round_)
        )
        values = [parameter.detach() for parameter in parameters]
        changes = self.correction.end(values, self._population.steps(client))
        delta = [value - start for value, start in zip(values, began, strict=True)]
        loss = losses / (self._population.epochs * self._population.samples(client))
        return Trained([*delta, *changes], loss, self._end(client, spent.seconds()))

    def _step(self, optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], numbers: Tensor) -> float:
        """Of one batch its loss."""
        clock, model = self._context.clock, self._state.model
        slower = len(numbers) / self._context.spec.batch_size * self._slower
        with clock.phase("forward", _times(clock.times.forward_s, slower)):
            loss = self._workload.loss(model, self._workload.picked(numbers))
        with clock.phase("backward", _times(clock.times.backward_s, slower)):
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
        with clock.phase("optimizer", _times(clock.times.optimizer_s, slower)):
            self._correct(parameters)
            optimizer.step()
        return float(loss.detach())

    def _correct(self, parameters: list[nn.Parameter]) -> None:
        added = self.correction.gradient([parameter.detach() for parameter in parameters])
        for parameter, extra in zip(parameters, added or (), strict=added is not None):
            parameter.grad = extra.clone() if parameter.grad is None else parameter.grad.add_(extra)

    def _end(self, client: int, spent_s: float) -> float:
        """Emulated seconds that the client took, of which those are spent that it would take on a worker of speed 1;
        the others are waited for."""
        clock, profile = self._context.clock, self._context.clock.times.profile
        if profile is not None:
            step_s = profile.forward_s + profile.backward_s + profile.optimizer_s
            batches = self._population.epochs * self._population.samples(client) / self._context.spec.batch_size
            return batches * step_s * self._slower
        elapsed_s = spent_s * self._slower
        with clock.phase("forward", elapsed_s - spent_s):
            pass
        return elapsed_s

    def _optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        if self._method.learning_rate is None:
            return self._context.new_optimizer(parameters)
        optimizer = torch.optim.SGD(parameters, lr=self._method.learning_rate, momentum=self._method.momentum)
        self._context.prepare(optimizer)
        return optimizer

    def seed(self, client: int, round_: int) -> int:
        """Of what is random in a client's round."""
        return (self._context.spec.seed * 1_000_003 + round_) * 65_537 + client


def _times(seconds: float | None, factor: float) -> float | None:
    return None if seconds is None else seconds * factor
