"""The model that a run begins with: the workload's, with the numbers of one that was kept, as a transform has it."""

from __future__ import annotations

from typing import Any

from torch import nn

from testbed.core.spec import RunSpec
from testbed.worker import kept_model
from testbed.worker.parts import Parts


def first_model(spec: RunSpec, parts: Parts) -> tuple[nn.Module, dict[str, Any] | None]:
    """It, and what became of it at once, as `Transform.begin` tells; the same on all ranks.

    Raises:
        InputError: what was kept does not fit, or else the transform's parameters do not; with all faults.
    """
    model = parts.workload.model(spec.seed)
    if spec.start_from is not None:
        kept_model.load(model, spec.start_from, spec.start_hash)
    return model, parts.transform.begin(model, spec.seed)
