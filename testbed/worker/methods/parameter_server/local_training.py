"""What a client does between two messages: steps of its own, or gradients for the server's."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.interfaces.workload import Batch, trained
from testbed.worker.interfaces.workload_capabilities import draw_change
from testbed.worker.methods.parameter_server.messages.schema import Schema


class LocalTraining:
    """Steps of the workload's optimizer, which goes on from round to round with its momenta. For a server that takes
    gradients none: those of all batches of a round, at the parameters that the server sent, add up.

    Args:
        payload: of updates.
        importance: whether gradients' squares are asked for; those of gradients that are sent are not kept here.
        local_steps: of a round, as long as which a workload that draws has what it changes; None: nothing is sent.
    """

    def __init__(
        self, context: WorkerContext, payload: str, *, importance: bool = False, local_steps: int | None = None
    ) -> None:
        self._context, self.payload = context, payload
        self._schema = Schema.of(context.model) if importance and payload != "grad" else None
        self._local_steps = local_steps
        self._losses: list[float] = []
        self._squares: list[float] = []
        """Of gradients, by item: sums over the round's batches."""

    def begin(self) -> None:
        """A round does."""
        self._losses, self._squares = [], []
        self._context.optimizer.zero_grad(set_to_none=True)

    def step(self, batch: Batch) -> float:
        """Of one batch its loss."""
        context, clock = self._context, self._context.clock
        steps = self.payload != "grad"
        if steps:
            context.optimizer.zero_grad(set_to_none=True)
        with clock.phase("forward", clock.times.forward_s):
            loss = context.workload.loss(context.model, batch)
            if self._local_steps is not None and not self._losses:  # of the whole round, while the device computes
                key = {"seed": context.spec.seed, "rank": context.rank, "round_": context.comm.step}
                only = trained(context.model)
                draw_change(context.workload, context.model, only, **key, steps=self._local_steps)
        with clock.phase("backward", clock.times.backward_s):
            loss.backward()
        if self._schema is not None:
            with clock.phase("compress"):
                self._add(self._schema.gradient_squares(context.model))
        if steps:
            with clock.phase("optimizer", clock.times.optimizer_s):
                context.optimizer.step()
        self._losses.append(float(loss.detach()))
        return self._losses[-1]

    def forget(self) -> None:
        """Momenta are of a model that is no more."""
        self._context.optimizer.state.clear()

    @property
    def samples(self) -> int:
        """Of this round."""
        return len(self._losses) * self._context.spec.batch_size

    @property
    def mean_loss(self) -> float:
        return sum(self._losses) / len(self._losses)

    @property
    def gradient_squares(self) -> list[float] | None:
        """Mean squares of the gradients of the round's batches, by item; None: nobody has asked for them."""
        return None if self._schema is None else [total / len(self._losses) for total in self._squares]

    def result(self, schema: Schema, reference: Sequence[Tensor]) -> list[Tensor]:
        """What the round has come to, as the payload says: parameters, what has changed of `reference`, or the mean
        gradient of the batches."""
        if self.payload == "grad":
            return schema.take_gradients(self._context.model, 1 / len(self._losses))
        values = schema.take(self._context.model)
        return schema.delta(values, reference) if self.payload == "delta" else values

    def _add(self, squares: list[float]) -> None:
        before = self._squares or [0.0] * len(squares)
        self._squares = [total + square for total, square in zip(before, squares, strict=True)]
