"""The digits with evaluations that last until the last step has begun, however long that takes."""

from __future__ import annotations

import threading

from torch import Tensor, nn

from testbed.worker.workloads.digits import Digits

STEPS = 12
STALLED_S = 200.0


class SlowEvaluation(Digits):
    def __init__(self, *, learning_rate: float = 0.01, momentum: float = 0.9) -> None:
        super().__init__(learning_rate=learning_rate, momentum=momentum)
        self._trains, self._ends = threading.Event(), threading.Event()

    def batch(self, step: int, *, rank: int, world_size: int, batch_size: int, seed: int) -> tuple[Tensor, Tensor]:
        if step > 0:  # the first one is drawn for the warm-up too, and there an evaluation is waited for
            self._trains.set()
        if step == STEPS - 1:
            self._ends.set()
        return super().batch(step, rank=rank, world_size=world_size, batch_size=batch_size, seed=seed)

    def evaluate(self, model: nn.Module) -> float:
        assert not model.training
        if self._trains.is_set():
            assert self._ends.wait(STALLED_S), "training waits for an evaluation"
        return super().evaluate(model)
