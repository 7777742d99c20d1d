"""What a client's updates come from: its own training, or the clients of its region."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from testbed.worker.interfaces.workload import Batch
from testbed.worker.methods.parameter_server.messages.schema import Schema


class Source(Protocol):
    """In rounds, each of which begins once a model is there."""

    def begin(self) -> None:
        """A round does; the model is what the server has sent."""

    def forget(self) -> None:
        """The model is another one, whole: what was kept is of one that is no more."""

    @property
    def samples(self) -> int:
        """Of this round: what its result weighs."""

    @property
    def mean_loss(self) -> float:
        """Of these samples."""

    @property
    def gradient_squares(self) -> list[float] | None:
        """Mean squares of the round's gradients, by item; None: they are not kept."""

    def result(self, schema: Schema, reference: Sequence[Tensor]) -> list[Tensor]:
        """What the round has come to, as the uplink's payload says; `reference` is what the server has sent."""


class Training(Source, Protocol):
    """A client's own."""

    def step(self, batch: Batch) -> float | None:
        """Of one batch its loss; None: it has trained on nothing."""
