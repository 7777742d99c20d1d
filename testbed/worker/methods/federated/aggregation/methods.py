"""Federated methods by their names: the server's rule and the clients' correction that belong together."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from testbed.core.declaration import checked
from testbed.core.kinds import Settings, shown
from testbed.core.parameters import Fraction, NotNegative, Positive, choice, raise_all
from testbed.worker.methods.federated.aggregation.adaptive import FedAdagrad, FedAdam, FedYogi
from testbed.worker.methods.federated.aggregation.corrections import (
    dynamic,
    dynamic_memory,
    proximal,
    scaffold_drift,
    scaffold_variate,
)
from testbed.worker.methods.federated.aggregation.rules import FedAvg, FedAvgM, FedDyn, FedNova, Rule, Scaffold
from testbed.worker.methods.federated.aggregation.weighting import normalised_steps

RULES: dict[str, type[Rule]] = {
    "fedavg": FedAvg,
    "fedprox": FedAvg,
    "fedavgm": FedAvgM,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "fedadagrad": FedAdagrad,
    "fednova": FedNova,
    "scaffold": Scaffold,
    "feddyn": FedDyn,
}
_PLAIN_SGD = ("scaffold", "fednova", "feddyn")
"""What they reckon with is the sum of a round's gradients, which no other optimizer's progress is."""


@checked
@dataclass(frozen=True, kw_only=True)
class Method:
    """What a user asks for.

    Args:
        name: one of RULES.
        server: parameters of the rule; see `testbed.worker.methods.federated.aggregation.rules`.
        mu: of fedprox.
        alpha: of feddyn.
        learning_rate, momentum: of clients' SGD, without dampening or Nesterov's, from 0 in each round; a learning rate
            of None: clients take the workload's optimizer, new in each round.

    Raises:
        ValueError: a parameter is out of its range, or says nothing to that method; all of them, one a line.
    """

    name: str
    server: Annotated[Mapping[str, Any], Settings()]
    mu: NotNegative | None = None
    alpha: Positive | None = None
    learning_rate: Positive | None = None
    momentum: Fraction = 0.0

    def __post_init__(self) -> None:
        raise_all(*self._faults())

    @property
    def has_variates(self) -> bool:
        return self.name == "scaffold"

    @property
    def remembers(self) -> bool:
        """Whether a client keeps something from one round to the next."""
        return self.name in ("scaffold", "feddyn")

    def rule(self, clients: int) -> Rule:
        """The server's; of so many clients, whoever takes part."""
        own = {"clients": clients, "alpha": self._alpha}
        return RULES[self.name](**self.server, **{name: own[name] for name in self._owned})

    def correction(self) -> Correction:
        """The clients'."""
        if self.name == "fedprox":
            return Proximal(0.01 if self.mu is None else self.mu)
        if self.name == "scaffold":
            assert self.learning_rate is not None, "refused otherwise"
            return Drift(self.learning_rate)
        return Dynamic(self._alpha) if self.name == "feddyn" else Correction()

    def effective_steps(self, steps: int) -> float:
        """As they count where progress is per step."""
        return normalised_steps(steps, momentum=self.momentum) if self.name == "fednova" else float(steps)

    @property
    def _alpha(self) -> float:
        return 0.01 if self.alpha is None else self.alpha

    @property
    def _owned(self) -> tuple[str, ...]:
        """Parameters of the rule that follow from others."""
        return {"scaffold": ("clients",), "feddyn": ("clients", "alpha")}.get(self.name, ())

    def _faults(self) -> Iterator[str | None]:
        unknown = choice("method", self.name, RULES)
        yield unknown
        for name, value, owner in (("mu", self.mu, "fedprox"), ("alpha", self.alpha, "feddyn")):
            if value is not None and self.name != owner:
                yield f"{name}={shown(value)}: is of method={owner}; leave it out"
        if self.name in _PLAIN_SGD and self.learning_rate is None:
            yield f"learning_rate=null: method={self.name} assumes that clients use SGD; give its learning rate"
        if self.learning_rate is None and self.momentum:
            yield f"momentum={shown(self.momentum)}: is of clients' SGD; give learning_rate too"
        if self.name in ("scaffold", "feddyn") and self.momentum:
            yield f"momentum={shown(self.momentum)}: method={self.name} assumes steps without momentum; use 0"
        if not unknown:
            yield from self._server_faults()

    def _server_faults(self) -> Iterator[str]:
        """What the rule says of its parameters."""
        rule = RULES[self.name]
        known = [name for name in inspect.signature(rule).parameters if name not in self._owned]
        for name, value in self.server.items():
            if name not in known:
                told = ", ".join(known) or "no parameters"
                yield f"server.{name}={shown(value)}: unknown; {rule.__name__} knows: {told}"
        given = {name: value for name, value in self.server.items() if name in known}
        try:
            rule(**given, **dict.fromkeys(self._owned, 1))
        except ValueError as error:
            yield from (f"server.{line}" for line in str(error).splitlines())


class Correction:
    """Of clients that correct nothing; and what others do.

    Lists have a tensor for each parameter that learns.
    """

    def begin(self, client: int, began: Sequence[Tensor], variates: Sequence[Tensor]) -> None:
        """A client does, from `began`; `variates` are the server's, if any."""

    def gradient(self, values: Sequence[Tensor]) -> Sequence[Tensor] | None:
        """What is to be added to that of the loss; None: nothing."""
        return None

    def end(self, values: Sequence[Tensor], steps: int) -> list[Tensor]:
        """What a client sends beside what has changed, after so many steps, at the end of which it has `values`."""
        return []

    def forget(self) -> None:
        """The model is another one."""


class Proximal(Correction):
    """See `proximal`."""

    def __init__(self, mu: float) -> None:
        self._mu = mu
        self._began: Sequence[Tensor] = ()

    def begin(self, client: int, began: Sequence[Tensor], variates: Sequence[Tensor]) -> None:
        self._began = began

    def gradient(self, values: Sequence[Tensor]) -> Sequence[Tensor] | None:
        return proximal(values, self._began, self._mu) if self._mu else None


class Remembering(Correction):
    """Of clients that keep something: `kept`, 0 before they have taken part."""

    def __init__(self) -> None:
        self.kept: dict[int, list[Tensor]] = {}
        """By client."""
        self._client = -1
        self._began: Sequence[Tensor] = ()

    def begin(self, client: int, began: Sequence[Tensor], variates: Sequence[Tensor]) -> None:
        self._client, self._began = client, began

    @property
    def _own(self) -> list[Tensor]:
        return self.kept.get(self._client) or [torch.zeros_like(one) for one in self._began]

    def forget(self) -> None:
        self.kept.clear()


class Drift(Remembering):
    """See `scaffold_drift` and `scaffold_variate`."""

    def __init__(self, learning_rate: float) -> None:
        super().__init__()
        self._learning_rate = learning_rate
        self._variates: Sequence[Tensor] = ()
        self._drift: list[Tensor] = []

    def begin(self, client: int, began: Sequence[Tensor], variates: Sequence[Tensor]) -> None:
        super().begin(client, began, variates)
        self._variates = variates
        self._drift = scaffold_drift(variates, self._own)

    def gradient(self, values: Sequence[Tensor]) -> Sequence[Tensor]:
        return self._drift

    def end(self, values: Sequence[Tensor], steps: int) -> list[Tensor]:
        own, rate = self._own, self._learning_rate
        found = scaffold_variate(own, self._variates, self._began, values, steps=steps, learning_rate=rate)
        self.kept[self._client] = found
        return [new - old for new, old in zip(found, own, strict=True)]


class Dynamic(Remembering):
    """See `dynamic` and `dynamic_memory`."""

    def __init__(self, alpha: float) -> None:
        super().__init__()
        self._alpha = alpha

    def gradient(self, values: Sequence[Tensor]) -> Sequence[Tensor]:
        return dynamic(values, self._began, self._own, self._alpha)

    def end(self, values: Sequence[Tensor], steps: int) -> list[Tensor]:
        self.kept[self._client] = dynamic_memory(values, self._began, self._own, self._alpha)
        return []
