"""Reasons why a server cannot carry a workload, and codecs whose messages are as long as the values make them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from testbed.core.errors import InputError
from testbed.worker.interfaces.workload import Workload
from testbed.worker.interfaces.workload_capabilities import DrawnTraining
from testbed.worker.methods.parameter_server.bounds.baselines import Fixed, LinearDecay
from testbed.worker.methods.parameter_server.bounds.rounds import BoundSchedule
from testbed.worker.methods.parameter_server.messages.plan import Plan
from testbed.worker.methods.parameter_server.messages.schema import Schema

_BY_ROUNDS_ALONE = (Fixed, LinearDecay)
"""Schedules of bounds that ask for no loss."""


def workload_faults(
    strategy: str, workload: Workload, plans: Mapping[str, Plan], schedule: BoundSchedule | None
) -> Iterator[str]:
    """Yield a line for each reason why `workload` cannot be served.

    Args:
        strategy: Name of the strategy, with which lines begin.
        plans: Plans of "up" and "down", as far as there are any.
        schedule: Schedule of error bounds; None: nothing follows one.
    """
    name = type(workload).__name__
    if not workload.computes:
        yield from (f"{strategy} {fault}" for fault in _drawn_faults(name, workload, plans, schedule))
    try:
        Schema.of(workload.model(0))
    except InputError as error:
        yield from (f"{strategy}: {name}: {fault}" for fault in error.faults)


def _drawn_faults(
    name: str, workload: Workload, plans: Mapping[str, Plan], schedule: BoundSchedule | None
) -> Iterator[str]:
    if not isinstance(workload, DrawnTraining):
        yield f"{name} has no parameters of its own to send"
        return
    if "up" in plans and plans["up"].payload == "grad":
        yield (
            f"strategy.uplink.payload=grad: the server's optimizer changes nothing of {name}, so that it would send"
            " zeros; use delta or params"
        )
    if any(plan.bounded for plan in plans.values()) and not isinstance(schedule, _BY_ROUNDS_ALONE):
        yield (
            f"strategy.bound: {type(schedule).__name__} goes by losses, of which {name} has none; use"
            " {_target_: testbed.worker.methods.parameter_server.bounds.baselines.Fixed}"
        )


def varying_codecs(plans: Mapping[str, Plan]) -> list[str]:
    """Return the codecs whose messages are as long as the values make them, with their direction."""
    found = []
    for direction, plan in plans.items():
        names = [plan.coder.name] if plan.coder is not None and plan.coder.varies else []
        found += [f"{name} ({direction})" for name in (*names, *(["zstd"] if plan.zstd else []))]
    return found
