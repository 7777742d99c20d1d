"""What a server makes of a round: the mean of what clients send, and the model that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from testbed.worker.methods.parameter_server.messages.schema import Schema
from testbed.worker.methods.parameter_server.rounds.average import Average
from testbed.worker.methods.parameter_server.rounds.exchanges import Asking
from testbed.worker.methods.parameter_server.rounds.global_model import GlobalModel
from testbed.worker.methods.parameter_server.transport.frame_errors import Refusal, Refused


class Mean(Protocol):
    """Of one round."""

    def add(self, client: int, weight: float, tensors: Sequence[Tensor]) -> None: ...

    def mean(self) -> list[Tensor]: ...


class Aggregator:
    """The mean by samples, and what `GlobalModel` makes of it.

    Args:
        most_samples: returns how many a client, by its number, can have trained on in a round; who says more would own
            the mean. None: any.
    """

    def __init__(self, most_samples: Callable[[int], int] | None = None) -> None:
        self._most_samples = most_samples

    def model(
        self,
        model: nn.Module,
        schema: Schema,
        payload: str,
        optimizer: torch.optim.Optimizer,
        clients: Callable[[], Sequence[int]],
    ) -> GlobalModel:
        """
        Args:
            clients: those that are there, whenever it is asked.
        """
        return GlobalModel(model, schema, payload, optimizer)

    def mean(self, schema: Schema, clients: Sequence[int]) -> Mean:
        """Of a round that has just begun, of these clients."""
        return Average(schema, clients)

    def check(self, client: int, samples: int, tensors: Sequence[Tensor]) -> None:
        """Of an update that was decoded, after `mean` was asked for; may be called in any thread.

        Args:
            samples: that it says it is of.

        Raises:
            Refused: it would weigh nothing, or more than it can.
        """
        if samples < 1:
            raise Refused(Refusal.NUMBER, found=f"{samples} samples", asked="at least 1")
        if self._most_samples is not None and samples > (most := self._most_samples(client)):
            raise Refused(Refusal.NUMBER, found=f"{samples} samples", asked=f"at most {most}")

    def meet(self, asking: Asking) -> None:
        """By which it may exchange more with clients than models and updates; before any round."""

    def before(self, round_: int, clients: Collection[int]) -> None:
        """What is exchanged before the round's model goes out.

        Args:
            clients: those that know of the round: none that has just come back.
        """

    def after(self, round_: int, reference: Sequence[Tensor]) -> Collection[int] | None:
        """What is exchanged once the round's updates are there, and before `mean` is asked for its mean; whose of them
        count, None: all.

        Args:
            reference: what clients had, as they decoded it.
        """
        return None
