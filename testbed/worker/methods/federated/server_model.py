"""The server's half of a federated round: what workers have sent changes its model by the method's rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from testbed.core.errors import RunError
from testbed.worker.methods.federated.aggregation.fold import Update
from testbed.worker.methods.federated.aggregation.robust import Defence
from testbed.worker.methods.federated.aggregation.rules import Rule
from testbed.worker.methods.federated.aggregation.state import FederatedState
from testbed.worker.methods.federated.aggregation.weighting import Sent
from testbed.worker.methods.federated.fleet import EmptyRound, Fleet
from testbed.worker.methods.parameter_server.messages.schema import DISCRETE, PARAMETER, Schema
from testbed.worker.methods.parameter_server.rounds.aggregator import Aggregator, Mean
from testbed.worker.methods.parameter_server.rounds.global_model import GlobalModel
from testbed.worker.methods.parameter_server.transport.frame_errors import Refusal, Refused


class Places:
    """Where in a schema the tensors of a state are."""

    def __init__(self, schema: Schema, state: FederatedState) -> None:
        names: dict[int, str] = {}
        for name, tensor in state.state_dict(keep_vars=True).items():
            names.setdefault(id(tensor), name)  # of what is tied the first, by which it travels
        index = {item.name: place for place, item in enumerate(schema.items)}
        self.owners, self.elapsed_s, self.losses = (index[name] for name in ("owners", "elapsed_s", "losses"))
        self.utilities, self.limits_s = index.get("utilities"), index.get("limits_s")
        self.said = {self.elapsed_s, self.losses, self.utilities, self.limits_s} - {None}
        """What says something of clients, and is no part of a model."""
        self.learning = [index[names[id(one)]] for one in state.learning]
        self.variates = [index[names[id(one)]] for one in state.variates]


class Gathered:
    """What workers have sent in a round, in the place of
    `testbed.worker.methods.parameter_server.rounds.average.Average`: of deltas the sum by
    the rule's weighting, or by a defence; of the model's statistics the mean by samples, of what is discrete what the
    client of most samples has; reports as they are. The same bits in whatever order they come.

    Kept until the end: 4 bytes an element for each worker.
    """

    def __init__(self, schema: Schema, places: Places, fleet: Fleet, rule: Rule, defence: Defence | None) -> None:
        self._schema, self._places, self._fleet, self._rule, self._defence = schema, places, fleet, rule, defence
        self._came: dict[int, Sequence[Tensor]] = {}

    def add(self, client: int, weight: float, tensors: Sequence[Tensor]) -> None:
        """
        Args:
            client: the worker.
            weight: not asked for: who has how many samples is known.
        """
        self._schema.require(tensors, f"worker {client}")
        self._came[client] = tensors

    def mean(self) -> list[Tensor]:
        """One tensor for each item, of parameters float64.

        Raises:
            EmptyRound: no client of this round has come, which the fleet knows then.
            RunError: that was so too often, or too few came for the defence.
        """
        places = self._places
        sent = {worker: ran for worker in sorted(self._came) if (ran := self._ran(worker))}
        if not sent:
            self._fleet.finish()
            raise EmptyRound
        weights = [sum(one.weight for one in ran) for ran in sent.values()]
        heaviest = max(sent, key=lambda worker: max((one.weight, -one.client) for one in sent[worker]))
        totals = dict(zip((*places.learning, *places.variates), self._total(sent), strict=True))
        found: list[Tensor] = []
        for place, item in enumerate(self._schema.items):
            each = [self._came[worker][place] for worker in sent]
            if place in places.said:
                found.append(torch.zeros_like(each[0]))  # it has been read, and goes nowhere
            elif item.kind == PARAMETER:
                found.append(totals[place])
            else:
                is_mean = item.kind != DISCRETE
                found.append(_mean(each, weights).to(item.dtype) if is_mean else self._came[heaviest][place].clone())
        return found

    def _ran(self, worker: int) -> list[Sent]:
        came, places = self._came[worker], self._places
        utilities = None if places.utilities is None else came[places.utilities].tolist()
        return self._fleet.sent(worker, came[places.elapsed_s].tolist(), utilities)

    def _total(self, sent: Mapping[int, list[Sent]]) -> list[Tensor]:
        """Of deltas, and of variates' changes behind them."""
        changing = (*self._places.learning, *self._places.variates)
        if self._defence is not None:
            updates = [
                Update(client=one.client, weight=one.weight, steps=one.steps, delta=self._tensors(worker, changing))
                for worker, (one,) in sent.items()
            ]
            try:
                return self._defence.combined(updates)
            except ValueError as error:
                raise RunError(f"strategy.defence: {error}") from error
        weighting = self._rule.weighting
        scale = weighting.scale([one for found in sent.values() for one in found])
        shares = {worker: scale * sum(map(weighting.factor, found)) for worker, found in sent.items()}
        return [
            sum(
                (shares[worker] * self._came[worker][place].double() for worker in sent),
                torch.zeros((), dtype=torch.float64),
            )
            for place in changing
        ]

    def _tensors(self, worker: int, places: Sequence[int]) -> list[Tensor]:
        return [self._came[worker][place] for place in places]


class FederatedModel(GlobalModel):
    """Moves by a rule; says with each model who runs which clients.

    Args:
        workers: those that are there, asked for when a round begins.
    """

    def __init__(
        self,
        state: FederatedState,
        schema: Schema,
        optimizer: torch.optim.Optimizer,
        rule: Rule,
        fleet: Fleet,
        workers: Callable[[], Sequence[int]],
    ) -> None:
        super().__init__(state, schema, "delta", optimizer)
        self._places, self._rule, self._fleet, self._workers = Places(schema, state), rule, fleet, workers
        self._fresh = rule.state_dict()

    def begin(self) -> None:
        self._fleet.begin(self._workers())
        values = list(self.values)
        values[self._places.owners] = torch.tensor(self._fleet.owners, dtype=torch.int16)
        if self._places.limits_s is not None:
            limits_s = torch.full_like(values[self._places.limits_s], math.inf)
            for client, limit_s in self._fleet.limits_s.items():
                limits_s[client] = limit_s
            values[self._places.limits_s] = limits_s
        self._put(values)
        super().begin()

    def move(self, mean: Sequence[Tensor], reference: Sequence[Tensor]) -> None:
        places, values = self._places, list(mean)
        changing = (*places.learning, *places.variates)
        steps = self._rule.move([mean[place] for place in changing], self._fleet.came)
        for place, step in zip(places.learning, steps, strict=True):
            values[place] = self.values[place].double() + step
        for place, variate in zip(places.variates, getattr(self._rule, "variate", ()), strict=True):
            values[place] = variate
        self._put(values)
        self._fleet.finish()

    def go_back(self) -> None:
        """With the rule as it was at first, since its momenta led away, too; clients forget what they kept."""
        super().go_back()
        self._rule.load_state_dict(self._fresh)
        values = list(self.values)
        for place in self._places.variates:
            values[place] = torch.zeros_like(values[place])
        self._put(values)

    def state_dict(self) -> dict[str, Any]:
        own = {"rule": self._rule.state_dict(), "fleet": self._fleet.state_dict()}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._rule.load_state_dict(state["rule"])
        self._fleet.load_state_dict(state["fleet"])


def _mean(tensors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    total = sum(
        (weight * tensor.double() for tensor, weight in zip(tensors, weights, strict=True)),
        torch.zeros((), dtype=torch.float64),
    )
    return total / sum(weights)


class Federation(Aggregator):
    """Of a federated server."""

    def __init__(self, state: FederatedState, fleet: Fleet, rule: Rule, defence: Defence | None) -> None:
        self._state, self._fleet, self._rule, self._defence = state, fleet, rule, defence

    def model(
        self,
        model: nn.Module,
        schema: Schema,
        payload: str,
        optimizer: torch.optim.Optimizer,
        clients: Callable[[], Sequence[int]],
    ) -> GlobalModel:
        return FederatedModel(self._state, schema, optimizer, self._rule, self._fleet, clients)

    def check(self, client: int, samples: int, tensors: Sequence[Tensor]) -> None:
        """A worker may have run no client of a round; who says that it has says of how many samples."""
        elapsed_s = tensors[Places(Schema.of(self._state), self._state).elapsed_s]
        owned = torch.tensor(self._fleet.owners) == client
        if samples < 1 and bool((elapsed_s[owned] > 0).any()):
            raise Refused(Refusal.NUMBER, found=f"{samples} samples of clients that were run", asked="at least 1")
        if samples > (most := self._fleet.samples(client)):
            raise Refused(Refusal.NUMBER, found=f"{samples} samples of clients that have {most}", asked="at most that")

    def mean(self, schema: Schema, clients: Sequence[int]) -> Mean:
        return Gathered(schema, Places(schema, self._state), self._fleet, self._rule, self._defence)
