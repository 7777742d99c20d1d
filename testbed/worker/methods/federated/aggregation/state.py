"""A model with what federated learning sends beside it, as one module: whatever carries models carries all of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

NOBODY = -1


class Report(NamedTuple):
    """Of a client that a worker has run."""

    client: int
    elapsed_s: float
    """Emulated; below 0: so many after which it was cut, and nothing of it counts."""
    loss: float = 0.0
    """Mean."""
    utility: float = 0.0
    """As of `testbed.worker.methods.federated.clients.oort.statistical_utility`."""


class ClientState(nn.Module):
    """What clients train, one after another, and how they are told who is to run, and report of it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *given: Any) -> Any:
        """The model's."""
        return self.model(*given)

    @property
    def learning(self) -> list[nn.Parameter]:
        """The model's parameters that learn, in order."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    @property
    def variates(self) -> list[nn.Parameter]:
        """Of each of these the server's control variate; none where there are none."""
        return []

    @property
    def statistics(self) -> list[Tensor]:
        """The model's own buffers of floats."""
        return [buffer for buffer in self.model.buffers() if buffer.is_floating_point()]

    @property
    def discrete(self) -> list[Tensor]:
        """Its other buffers, such as counters, of which no mean is made."""
        return [buffer for buffer in self.model.buffers() if not buffer.is_floating_point()]

    def owned(self, worker: int) -> list[int]:
        """Clients that `worker` is to run now, ascending."""
        raise NotImplementedError

    def limit_s(self, client: int) -> float:
        """Emulated seconds after which it is cut."""
        return math.inf

    def report(self, reports: Sequence[Report]) -> None:
        """
        Args:
            reports: of those that this rank has run; of all others there is nothing to say.
        """
        raise NotImplementedError


class FederatedState(ClientState):
    """Beside the model: who runs which clients, what clients report, and the server's control variates, if any.

    Variates are parameters, so that they travel as the model does: as differences, by any codec. What is in no
    difference is sent as it is: 14 bytes a client each way, before anything shortens them; 4 more with utilities, and
    8 more with limits.

    Args:
        clients: all there are, whoever takes part.
        variates: whether there are control variates; one for each parameter of the model, 0 at first.
        utilities: whether clients report theirs.
        limits: whether clients may be cut.
    """

    owners: Tensor
    """int16 (clients): the worker that runs each in this round, or NOBODY."""
    elapsed_s: Tensor
    """float64 (clients): emulated seconds that each took; 0: it did not take part; below 0: it was cut then."""
    losses: Tensor
    """float32 (clients): mean of each in this round."""
    utilities: Tensor | None
    """float32 (clients)."""
    limits_s: Tensor | None
    """float64 (clients): emulated seconds after which each is cut; inf: it is not."""

    def __init__(
        self, model: nn.Module, clients: int, *, variates: bool, utilities: bool = False, limits: bool = False
    ) -> None:
        super().__init__(model)
        self.register_buffer("owners", torch.full((clients,), NOBODY, dtype=torch.int16))
        self.register_buffer("elapsed_s", torch.zeros(clients, dtype=torch.float64))
        self.register_buffer("losses", torch.zeros(clients, dtype=torch.float32))
        self.register_buffer("utilities", torch.zeros(clients, dtype=torch.float32) if utilities else None)
        self.register_buffer("limits_s", torch.full((clients,), math.inf, dtype=torch.float64) if limits else None)
        self._variates = nn.ParameterList(torch.zeros_like(one) for one in self.learning) if variates else None

    @property
    def variates(self) -> list[nn.Parameter]:
        return [] if self._variates is None else list(self._variates)

    def owned(self, worker: int) -> list[int]:
        return [int(client) for client in (self.owners == worker).nonzero().flatten()]

    def limit_s(self, client: int) -> float:
        return math.inf if self.limits_s is None else float(self.limits_s[client])

    def report(self, reports: Sequence[Report]) -> None:
        self.elapsed_s.zero_()
        self.losses.zero_()
        for one in reports:
            self.elapsed_s[one.client], self.losses[one.client] = one.elapsed_s, one.loss
        if self.utilities is not None:
            self.utilities.zero_()
            for one in reports:
                self.utilities[one.client] = one.utility


class AssignedState(ClientState):
    """Beside the model: the one client that whoever receives it is to run; and then how long that took. 24 bytes."""

    task: Tensor
    """int64 (2): the client, or NOBODY, and how often it was run before."""
    elapsed_s: Tensor
    """float64 (1): emulated seconds."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.register_buffer("task", torch.tensor([NOBODY, 0]))
        self.register_buffer("elapsed_s", torch.zeros(1, dtype=torch.float64))

    @property
    def run(self) -> int:
        """How often the client was run before."""
        return int(self.task[1])

    def owned(self, worker: int) -> list[int]:
        client = int(self.task[0])
        return [] if client == NOBODY else [client]

    def report(self, reports: Sequence[Report]) -> None:
        self.elapsed_s.fill_(sum(one.elapsed_s for one in reports))
