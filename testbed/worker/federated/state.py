"""A model with what federated learning sends beside it, as one module: whatever carries models carries all of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

NOBODY = -1


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

    def report(self, reports: Sequence[tuple[int, float, float]]) -> None:
        """
        Args:
            reports: (client, emulated seconds, mean loss) of those that this rank has run; of all others nothing.
        """
        raise NotImplementedError


class FederatedState(ClientState):
    """Beside the model: who runs which clients, what clients report, and the server's control variates, if any.

    Variates are parameters, so that they travel as the model does: as differences, by any codec. What is in no
    difference is sent as it is: 14 bytes a client each way, before anything shortens them.

    Args:
        clients: all there are, whoever takes part.
        variates: whether there are control variates; one for each parameter of the model, 0 at first.
    """

    owners: Tensor
    """int16 (clients): the worker that runs each in this round, or NOBODY."""
    elapsed_s: Tensor
    """float64 (clients): emulated seconds that each took; 0: it did not take part."""
    losses: Tensor
    """float32 (clients): mean of each in this round."""

    def __init__(self, model: nn.Module, clients: int, *, variates: bool) -> None:
        super().__init__(model)
        self.register_buffer("owners", torch.full((clients,), NOBODY, dtype=torch.int16))
        self.register_buffer("elapsed_s", torch.zeros(clients, dtype=torch.float64))
        self.register_buffer("losses", torch.zeros(clients, dtype=torch.float32))
        self._variates = nn.ParameterList(torch.zeros_like(one) for one in self.learning) if variates else None

    @property
    def variates(self) -> list[nn.Parameter]:
        return [] if self._variates is None else list(self._variates)

    def owned(self, worker: int) -> list[int]:
        return [int(client) for client in (self.owners == worker).nonzero().flatten()]

    def report(self, reports: Sequence[tuple[int, float, float]]) -> None:
        self.elapsed_s.zero_()
        self.losses.zero_()
        for client, elapsed_s, loss in reports:
            self.elapsed_s[client], self.losses[client] = elapsed_s, loss


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

    def report(self, reports: Sequence[tuple[int, float, float]]) -> None:
        self.elapsed_s.fill_(sum(elapsed_s for _, elapsed_s, _ in reports))
