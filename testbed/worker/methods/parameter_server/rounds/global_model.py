"""The server's model: what a round's mean makes of it, and the way back to one that was good."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from compressors.base.chunks import root_mean_square
from testbed.worker.methods.parameter_server.messages.entries import not_finite
from testbed.worker.methods.parameter_server.messages.lossless import same_bits
from testbed.worker.methods.parameter_server.messages.schema import PARAMETER, Item, Schema

Loss = Callable[[], float]


class GlobalModel:
    """What is averaged is kept in each tensor's own type, which is what is evaluated and sent.

    Args:
        model: holds `values` at all times.
        payload: of updates, hence what their mean is.
        optimizer: of the model's parameters; takes a step for a mean gradient, and has nothing to do otherwise.
    """

    def __init__(self, model: nn.Module, schema: Schema, payload: str, optimizer: torch.optim.Optimizer) -> None:
        self.schema = schema
        self._model, self._payload, self._optimizer = model, payload, optimizer
        self.values: list[Tensor] = schema.take(model)
        """What has been averaged last; never changed in place."""
        self._began = self._good = self.values
        self.step_rms: list[float] | None = None
        """Root mean square of what the last step of the optimizer has changed, by item; None where it takes none."""

    def begin(self) -> None:
        """A round does."""
        self._began = self.values

    def move(self, mean: Sequence[Tensor], reference: Sequence[Tensor]) -> None:
        """By what the round's clients have sent, on average.

        What clients have changed is added to what has been averaged, not to what they had: what a broadcast loses is
        no progress of theirs, and comes with the next. Of parameters it is what they sent less what they had.

        Args:
            reference: what they had, as they decoded it.
        """
        if self._payload == "grad":
            self._step(mean)
        elif self._payload == "delta":
            self._put(self.schema.moved(self.values, mean))
        else:
            self._put(
                [self._progress(*three) for three in zip(self.schema.items, mean, reference, self.values, strict=True)]
            )

    def take_over(self, tensors: Sequence[Tensor]) -> None:
        """Those of another server."""
        self._put(tensors)

    def keep(self) -> None:
        """The state in which this round began is one to go back to."""
        self._good = self._began

    def go_back(self) -> None:
        """To the last that was kept, the initial one before any was; without momenta, which led away from it."""
        self._put(self._good)
        self._optimizer.state.clear()

    @property
    def finite(self) -> bool:
        return all(not_finite(item, value) is None for item, value in zip(self.schema.items, self.values, strict=True))

    def loss_of(self, tensors: Sequence[Tensor], loss: Loss) -> float:
        """What `loss` says of the model while it is `tensors`."""
        self.schema.put(self._model, tensors)
        try:
            return loss()
        finally:
            self.schema.put(self._model, self.values)

    def state_dict(self) -> dict[str, Any]:
        """But for the optimizer's, which is the run's."""
        return {"values": self.values, "began": self._began, "good": self._good, "step_rms": self.step_rms}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._put(state["values"])
        self._began, self._good, self.step_rms = state["began"], state["good"], state["step_rms"]

    def _step(self, gradient: Sequence[Tensor]) -> None:
        self.schema.put_gradients(self._model, gradient)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        before, self.values = self.values, self.schema.take(self._model)
        change = self.schema.delta(self.values, before)
        self.step_rms = [
            root_mean_square(one.view(-1)) if item.kind == PARAMETER and item.numel else 0.0
            for item, one in zip(self.schema.items, change, strict=True)
        ]

    def _progress(self, item: Item, mean: Tensor, had: Tensor, value: Tensor) -> Tensor:
        """The mean itself, to the bit, where clients had all of the model."""
        if item.kind != PARAMETER or same_bits(had, value):
            return mean
        return value.to(item.wide) + (mean.to(item.wide) - had.to(item.wide))

    def _put(self, tensors: Sequence[Tensor]) -> None:
        self.schema.put(self._model, tensors)
        self.values = self.schema.take(self._model)
