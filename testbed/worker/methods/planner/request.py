"""What a user may say of a plan that is chosen for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from testbed.core.parallelism.comparison import RANKED
from testbed.core.parallelism.problem import HIERARCHICAL, RING
from testbed.core.parallelism.search import Options
from testbed.core.parameters import raise_all
from testbed.core.units import parse_size_bytes
from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.methods.planner.decision import Decision, Wanted, decide
from testbed.worker.methods.planner.model_profile import profile_of

CHOSEN: Mapping[str, object] = {
    "pp": 2,
    "dp": None,
    "tp": 1,
    "micro_batch": None,
    "cuts": None,
    "placement": "across",
}
"""Parameters of a plan that is given, at what they are where nothing is said of them."""


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """
    Raises:
        ValueError: a value goes with a plan that is given; all of them, one a line.
    """

    way: str | None
    """Of choosing; None: the plan is given."""
    place: int = 1
    memory: str | None = None
    """Of each device, as text with a unit; None: without limit."""

    def __post_init__(self) -> None:
        raise_all(
            f"plan_place={self.place}: only {' and '.join(RANKED)} put plans in an order; leave it out"
            if self.place != 1 and self.way not in RANKED
            else None,
            f"memory={self.memory}: is for a plan that is chosen, as by plan=auto; leave it out"
            if self.memory is not None and self.way is None
            else None,
        )

    def given_faults(self, given: Mapping[str, object]) -> Iterator[str]:
        """Of what was said of the plan itself.

        Args:
            given: the parameters of `CHOSEN`.
        """
        for name, value in given.items():
            if self.way is not None and value != CHOSEN[name]:
                yield f"{name}={value}: plan={self.way} chooses it; leave it out, or plan=null"

    def decide(self, context: WorkerContext, schedules: tuple[str, ...], collective: str) -> Decision:
        """On all ranks at once.

        Raises:
            RunError: there is no such plan.
        """
        assert self.way is not None, "the plan is given"
        spec = context.spec
        wanted = Wanted(
            way=self.way,
            place=self.place,
            global_batch=spec.batch_size * context.world_size,
            options=Options(schedules=schedules),
            memory_bytes=None if self.memory is None else parse_size_bytes(self.memory),
            all_reduce=HIERARCHICAL if collective.startswith(HIERARCHICAL) else RING,
        )
        return decide(
            context.comm,
            tuple(node.region for node in spec.topology.nodes),
            wanted,
            lambda: profile_of(context.workload, context.model, spec, context.clock.times.profile),
            spec.dilation,
        )
