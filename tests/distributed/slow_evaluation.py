"""The digits with an evaluation that lasts longer than many steps."""

from __future__ import annotations

import time

from torch import nn

from testbed.worker.workloads.digits import Digits


class SlowEvaluation(Digits):
    def evaluate(self, model: nn.Module) -> float:
        assert not model.training
        time.sleep(0.5)
        return super().evaluate(model)
