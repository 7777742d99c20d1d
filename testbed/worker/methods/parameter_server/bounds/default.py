"""The schedule of error bounds that a server has where none is asked for."""

from __future__ import annotations

from collections.abc import Iterable

from testbed.worker.methods.parameter_server.bounds.adaptive import AdaptiveBound
from testbed.worker.methods.parameter_server.bounds.baselines import Fixed
from testbed.worker.methods.parameter_server.bounds.rounds import BoundSchedule


def usual_bound(payloads: Iterable[object]) -> BoundSchedule:
    """Return the schedule that sends fewest bytes at equal accuracy.

    As docs/reproductions/sz3-adaptive.md has it: a fixed hundredth of the range where parameters travel, and an
    adaptive bound of differences and gradients.

    Args:
        payloads: Those of both directions, as they are asked for.
    """
    return Fixed() if "params" in payloads else AdaptiveBound()
