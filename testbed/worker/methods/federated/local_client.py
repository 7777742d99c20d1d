"""One client's training in a round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from testbed.core.device.profile import Profile
from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.interfaces.workload import Batch, Workload
from testbed.worker.interfaces.workload_capabilities import Numbered, SampleLosses, draw_change
from testbed.worker.methods.federated.aggregation.methods import Method
from testbed.worker.methods.federated.aggregation.state import ClientState
from testbed.worker.methods.federated.clients.oort import statistical_utility
from testbed.worker.methods.federated.clients.population import Population
from testbed.worker.methods.federated.clients.slowness import Slowness
from testbed.worker.methods.parameter_server.transport.elapsed import Elapsed


@dataclass(frozen=True)
class Trained:
    delta: list[Tensor]
    """Of each parameter what it has become less what it was; then of each variate its change."""
    loss: float
    """Mean of all samples' in all steps."""
    elapsed_s: float
    """Emulated: what it takes on this worker."""
    utility: float
    """Of all samples' losses in all steps; 0 where it is not asked for."""


class LocalClient:
    """From the parameters that the state has, over all batches of a round, with a new optimizer.

    Args:
        workload: whose samples `population` divides.
        speed: of this worker; a client takes 1/speed of what it takes on one of speed 1.
        slowness: of each run of each client, on top of that.
        has_utility: clients' utilities are asked for.
    """

    def __init__(
        self,
        context: WorkerContext,
        workload: Workload,
        state: ClientState,
        population: Population,
        method: Method,
        speed: float,
        slowness: Slowness,
        *,
        has_utility: bool = False,
    ) -> None:
        self._context, self._workload, self._state = context, workload, state
        self._picked = cast(Numbered, workload).picked  # another one is refused
        self._population, self._method, self._speed, self._slowness = population, method, speed, slowness
        self._sample_losses: list[float] | None = [] if has_utility else None
        """Of the client that is being trained; None: nobody asks."""
        self._slower = 1.0
        """How many times as long as on a worker of speed 1 the client lasts that is being trained."""
        self.correction = method.correction()

    def train(self, client: int, round_: int, limit_s: float = math.inf) -> Trained | None:
        """
        Args:
            limit_s: emulated seconds of its own after which the client is cut.

        Returns:
            None: it is cut. That took `limit_s`; what the state is then means nothing, and a method's memory is as it
            was.
        """
        self._slower = self._slowness.factor(client, round_) / self._speed
        state, elapsed, known_s = self._state, Elapsed(self._context.spec.dilation), self._known_s(client)
        if known_s is not None and known_s > limit_s:
            self._wait(limit_s)  # nothing would come of what it computes
            return None
        began = [parameter.detach().clone() for parameter in state.learning]
        self.correction.begin(client, began, [one.detach() for one in state.variates])
        is_timed = known_s is None and limit_s < math.inf
        parameters, losses, self._sample_losses = state.learning, 0.0, None if self._sample_losses is None else []
        optimizer = self._optimizer(parameters)
        self._draw(client, round_)
        torch.manual_seed(self.seed(client, round_))  # dropout is the same, whoever runs it
        for numbers in self._population.batches(client, round_):
            losses += len(numbers) * self._step(optimizer, parameters, numbers)
            if is_timed and elapsed.seconds() * self._slower > limit_s:
                self._wait(limit_s - elapsed.seconds())
                return None
        values = [parameter.detach() for parameter in parameters]
        changes = self.correction.end(values, self._population.steps(client))
        delta = [value - start for value, start in zip(values, began, strict=True)]
        loss = losses / (self._population.epochs * self._population.samples(client))
        elapsed_s = self._waited(elapsed.seconds(), limit_s) if known_s is None else known_s
        return Trained([*delta, *changes], loss, elapsed_s, self._utility())

    def _draw(self, client: int, round_: int) -> None:
        """Have a workload that computes nothing change what the client would, while the device computes."""
        context, state = self._context, self._state
        key = {"seed": context.spec.seed, "rank": client, "round_": round_, "steps": self._population.steps(client)}
        with context.clock.phase("forward", None if context.clock.times.forward_s is None else 0.0):
            draw_change(self._workload, state.model, state.learning, **key)

    def _step(self, optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], numbers: Tensor) -> float:
        """Of one batch its loss."""
        clock, model = self._context.clock, self._state.model
        slower = len(numbers) / self._context.spec.batch_size * self._slower
        with clock.phase("forward", _times(clock.times.forward_s, slower)):
            loss = self._loss(model, self._picked(numbers))
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

    def _loss(self, model: nn.Module, batch: Batch) -> Tensor:
        if self._sample_losses is None:
            return self._workload.loss(model, batch)
        assert isinstance(self._workload, SampleLosses), "another one is refused"
        each = self._workload.sample_losses(model, batch)
        self._sample_losses += each.detach().tolist()
        return each.mean()

    def _utility(self) -> float:
        if self._sample_losses is None:
            return 0.0
        try:
            return statistical_utility(self._sample_losses)
        except ValueError:
            return 0.0  # it has diverged, which its parameters tell the server

    def _known_s(self, client: int) -> float | None:
        """Emulated seconds that the client takes; None: no device tells."""
        profile = self._context.clock.times.profile
        if profile is None:
            return None
        return alone_s(profile, self._population, client, self._context.spec.batch_size) * self._slower

    def _waited(self, spent_s: float, limit_s: float) -> float:
        """Emulated seconds that the client took, of which those are spent that it would take on a worker of speed 1;
        the others are waited for."""
        elapsed_s = min(spent_s * self._slower, limit_s)  # what a method adds at the end makes nobody late
        self._wait(elapsed_s - spent_s)
        return elapsed_s

    def _wait(self, seconds: float) -> None:
        with self._context.clock.phase("forward", max(0.0, seconds)):
            pass

    def _optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        if self._method.learning_rate is None or not self._workload.computes:
            return self._context.new_optimizer(parameters)
        optimizer = torch.optim.SGD(parameters, lr=self._method.learning_rate, momentum=self._method.momentum)
        self._context.prepare(optimizer)
        return optimizer

    def seed(self, client: int, round_: int) -> int:
        """Of what is random in a client's round."""
        return (self._context.spec.seed * 1_000_003 + round_) * 65_537 + client


def alone_s(profile: Profile, population: Population, client: int, batch_size: int) -> float:
    """Emulated seconds of a client's round on a device with that profile."""
    step_s = profile.forward_s + profile.backward_s + profile.optimizer_s
    return population.epochs * population.samples(client) / batch_size * step_s


def _times(seconds: float | None, factor: float) -> float | None:
    return None if seconds is None else seconds * factor
