"""Schedules of learning rates: what the rate of each step is multiplied by."""

from __future__ import annotations

from typing import Annotated, Protocol, runtime_checkable

from testbed.core.kinds import Choice

CONSTANT, FALLING = "constant", "falling"
SCHEDULES = (CONSTANT, FALLING)
ScheduleName = Annotated[str, Choice(SCHEDULES)]
_LEAST = 0.02
"""Smallest factor of a falling rate, so that the last steps still learn."""


@runtime_checkable
class Scheduled(Protocol):
    """Workload whose learning rate changes from step to step.

    The loop multiplies the rate of every optimizer that takes the workload's steps, also of those that a strategy, a
    compressor or a client makes, and of those with a rate of their own.
    """

    def rate_factor(self, step: int, steps: int) -> float:
        """Return what learning rates are multiplied by in `step`, counted from 0, of `steps` in the run."""


def rate_factor(workload: object, step: int, steps: int) -> float:
    """Return what learning rates are multiplied by in `step` of `steps`, by default 1."""
    return workload.rate_factor(step, steps) if isinstance(workload, Scheduled) else 1.0


def factor_at(step: int, steps: int, schedule: str, warm_up_steps: int) -> float:
    """Return the factor of a schedule by its name, after a warm-up that rises in equal parts.

    Args:
        step: Number of the step, from 0.
        steps: Number of steps of the run.
        warm_up_steps: Number of steps until the factor is no longer reduced; 0: from the first step.
    """
    rising = min(1.0, (step + 1) / warm_up_steps) if warm_up_steps else 1.0
    return rising * (max(_LEAST, 1 - step / steps) if schedule == FALLING else 1.0)
