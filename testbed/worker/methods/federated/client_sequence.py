"""Many clients in one worker, one after another: what comes of a round of those that it runs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from testbed.worker.interfaces.workload import Batch
from testbed.worker.methods.federated.aggregation.attacks import Attack
from testbed.worker.methods.federated.aggregation.methods import Method
from testbed.worker.methods.federated.aggregation.state import ClientState, Report
from testbed.worker.methods.federated.aggregation.weighting import Sent
from testbed.worker.methods.federated.clients.population import Population
from testbed.worker.methods.federated.local_client import LocalClient
from testbed.worker.methods.parameter_server.messages.schema import Schema


class ClientSequence:
    """A `testbed.worker.methods.parameter_server.rounds.update_source.Source`: a worker's update is the mean of its
    clients', each by its factor in the
    server's rule, so that a round's bytes are those of its workers, however many clients they run.

    After Tang et al., "FedML Parrot", arXiv:2303.01778, whose workers add up what their clients send ("hierarchical
    aggregation"). The sum over workers is that over clients, to rounding.

    Args:
        worker: its number, from 0.
        population, method: of the run.
        local: trains one client.
        attack, attackers: so many clients, the first ones, send what `attack` makes of what they have learnt.
    """

    gradient_squares = None
    """Clients' gradients are not kept."""

    def __init__(
        self,
        worker: int,
        state: ClientState,
        population: Population,
        method: Method,
        local: LocalClient,
        *,
        attack: Attack | None = None,
        attackers: int = 0,
    ) -> None:
        self._worker, self._state, self._population, self._method, self._local = (
            worker,
            state,
            population,
            method,
            local,
        )
        self._attack, self._attackers = attack, attackers
        self._weighting = method.rule(len(population)).weighting
        self._round = 0
        self._reports: list[Report] = []
        """Of clients that count."""

    def begin(self) -> None:
        self._reports = []

    def forget(self) -> None:
        self._local.correction.forget()

    def step(self, batch: Batch) -> float | None:
        """A round of all that this worker runs, after which the state is what came of it: parameters, and of running
        statistics the mean by samples; what is discrete is that of the client of most samples. Their mean loss."""
        del batch  # clients have samples of their own
        state = self._state
        learning = (*state.learning, *state.variates)
        kept = (*learning, *state.statistics, *state.discrete)
        began = [tensor.detach().clone() for tensor in kept]
        totals, means, most, discrete, cut = _Total(), _Total(), 0, list[Tensor](), list[Report]()
        for client in state.owned(self._worker):
            _put(kept, began)
            samples = self._population.samples(client)
            limit_s = state.limit_s(client)
            trained = self._local.train(client, self._round, limit_s)
            if trained is None:
                cut.append(Report(client, -limit_s))
                continue
            steps = self._method.effective_steps(self._population.steps(client))
            totals.add(
                self._sent(client, trained.delta),
                self._weighting.factor(Sent(client=client, weight=samples, steps=steps)),
            )
            means.add(state.statistics, samples)
            if samples > most:
                most, discrete = samples, [tensor.clone() for tensor in state.discrete]
            self._reports.append(Report(client, trained.elapsed_s, trained.loss, trained.utility))
        self._round += 1
        if self._reports:
            moved = [start + change for start, change in zip(began[: len(learning)], totals.mean(), strict=True)]
            _put(kept, (*moved, *means.mean(), *discrete))
        else:
            _put(kept, began)
        state.report([*self._reports, *cut])
        return self.mean_loss if self._reports else None

    def _sent(self, client: int, delta: list[Tensor]) -> list[Tensor]:
        if self._attack is None or client >= self._attackers:
            return delta
        generator = torch.Generator().manual_seed(self._local.seed(client, self._round))
        return self._attack.sent([delta], generator)[0]

    @property
    def samples(self) -> int:
        return sum(self._population.samples(one.client) for one in self._reports)

    @property
    def mean_loss(self) -> float:
        weighted = sum(self._population.samples(one.client) * one.loss for one in self._reports)
        return weighted / max(1, self.samples)

    def result(self, schema: Schema, reference: Sequence[Tensor]) -> list[Tensor]:
        return schema.delta(schema.take(self._state), reference)

    def at(self, round_: int) -> None:
        """The round to be trained next is this one: of a worker that comes back."""
        self._round = round_


class _Total:
    """A weighted mean, summed in float64."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._sums: list[Tensor] = []

    def add(self, tensors: Sequence[Tensor], weight: float) -> None:
        if not self._sums:
            self._sums = [torch.zeros(tensor.shape, dtype=torch.float64) for tensor in tensors]
        for total, tensor in zip(self._sums, tensors, strict=True):
            total.add_(tensor, alpha=weight)
        self._weight += weight

    def mean(self) -> list[Tensor]:
        return [total / self._weight for total in self._sums]


def _put(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)
