"""What a user asks of a round's clients: how they are chosen, when they are there, and how long they may take."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from testbed.core.declaration import checked
from testbed.core.device.profile import Profile
from testbed.core.errors import InputError
from testbed.core.kinds import Number, Part
from testbed.core.parameters import Count, Seconds, raise_all
from testbed.worker.device.clock import PhaseClock
from testbed.worker.interfaces.strategy import WorkerContext
from testbed.worker.interfaces.workload import Workload
from testbed.worker.interfaces.workload_capabilities import SampleLosses
from testbed.worker.methods.federated.aggregation.methods import Method
from testbed.worker.methods.federated.clients.availability import Availability
from testbed.worker.methods.federated.clients.oort import Oort
from testbed.worker.methods.federated.clients.population import Population
from testbed.worker.methods.federated.clients.sampling import Sampling
from testbed.worker.methods.federated.clients.slowness import Slowness
from testbed.worker.methods.federated.deadline import RoundDeadline
from testbed.worker.methods.federated.fleet import Fleet
from testbed.worker.methods.federated.local_client import alone_s
from testbed.worker.methods.federated.presence import Presence, RunTime

AnySelection = Annotated[Oort, Part(Oort, "an Oort")]
AnyAvailability = Annotated[Availability, Part(Availability, "an Availability")]
Overselect = Annotated[float, Number(least=1, most=10)]


@checked
@dataclass(frozen=True, kw_only=True)
class ClientSelection:
    """
    Raises:
        ValueError: a parameter is out of its range, or does not go with another; all of them, one a line.
    """

    clients: Count
    participants: Count | None
    """Whose updates a round takes; None: all clients'."""
    selection: AnySelection | None = None
    """None: all clients alike."""
    availability: AnyAvailability | None = None
    """None: all are there, always."""
    deadline_s: Seconds | None = None
    """Emulated, of a client; None: none."""
    overselect: Overselect = 1.0
    """So many times `participants` are drawn, and the first ones that are done count."""
    sees_each: bool = False
    """A worker runs one client, so that no more than workers are drawn."""

    def __post_init__(self) -> None:
        raise_all(*self._faults())

    @property
    def wanted(self) -> int:
        """Clients whose updates a round takes at most."""
        return min(self.participants or self.clients, self.clients)

    @property
    def drawn(self) -> int:
        """Clients of a round."""
        return min(math.ceil(round(self.wanted * self.overselect, 6)), self.clients)

    @property
    def cuts(self) -> bool:
        """Whether a client may be cut."""
        return self.availability is not None or self.deadline_s is not None or self.overselect > 1

    def workload_faults(self, name: str, workload: Workload) -> Iterator[str]:
        if self.selection is not None and not isinstance(workload, SampleLosses):
            yield (
                f"{name} strategy.selection: goes by the losses of samples, and {type(workload).__name__} has none"
                " (`sample_losses`); use null"
            )

    def require_clock(self, clock: PhaseClock) -> None:
        """
        Raises:
            InputError: who would be done first has to be known, and nothing says how long clients take.
        """
        if self.overselect > 1 and clock.times.profile is None:
            raise InputError(
                f"strategy.overselect={self.overselect:g}: which clients are done first has to be known before they are"
                " run, and workers are not paced to a device here; run it by `longhaul run`, or use overselect=1"
            )

    def fleet(
        self,
        context: WorkerContext,
        population: Population,
        method: Method,
        slowness: Slowness,
        *,
        placement: str,
        speeds: Sequence[float] | None,
        most_wait_s: float,
    ) -> Fleet:
        """Of a run's server.

        Args:
            most_wait_s: emulated seconds that it waits for a client to come.
        """
        seed, clock, presence = context.spec.seed, context.clock, None
        if self.availability is not None:
            presence = Presence(self.availability.of_run(seed), RunTime(clock), most_wait_s=most_wait_s)
        takes = None
        if self.overselect > 1:
            self.require_clock(clock)
            assert clock.times.profile is not None, "refused otherwise"
            takes = _Takes(clock.times.profile, population, context.spec.batch_size, slowness, speeds)
        return Fleet(
            population,
            method,
            Sampling(count=self.drawn, seed=seed),
            workers=context.comm.world_size - 1,
            placement=placement,
            stays=method.remembers,
            one_each=self.sees_each,
            selection=None if self.selection is None else self.selection.of_run(self.drawn, seed),
            deadline=RoundDeadline(presence, deadline_s=self.deadline_s, first=self.wanted, takes=takes),
            record=context.record,
        )

    def _faults(self) -> Iterator[str | None]:
        if self.selection is not None and self.selection.count is not None:
            yield f"selection.count={self.selection.count}: follows from strategy.participants; leave it out"
        if self.availability is not None:
            yield from (f"availability.{fault}" for fault in self.availability.faults(self.clients))
        if self.overselect == 1:
            return
        told = f"overselect={self.overselect:g}"
        if self.wanted == self.clients:
            yield f"{told}: all clients take part as it is; use fewer participants, or 1"
        if self.sees_each:
            yield f"{told}: under a defence each worker runs one client, so that no more can be drawn; use 1"


@dataclass(frozen=True)
class _Takes:
    """Emulated seconds of a client, in a round, on a worker: to the bit those that it reports."""

    profile: Profile
    population: Population
    batch_size: int
    slowness: Slowness
    speeds: Sequence[float] | None

    def __call__(self, client: int, round_: int, worker: int) -> float:
        slower = self.slowness.factor(client, round_) / (1.0 if self.speeds is None else self.speeds[worker])
        return alone_s(self.profile, self.population, client, self.batch_size) * slower
