from __future__ import annotations

from torch import nn

from testbed.worker.interfaces.transform import Transform


class Unchanged(Transform):
    """Leave the model as it is: the baseline."""

    changes_the_model = False

    def plan_after(self, model: nn.Module, step: int) -> None:
        return None
