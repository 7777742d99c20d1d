"""Times that a host takes for communication on an emulated device, beside what its links take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from testbed.core.device.kinds import seconds
from testbed.core.spec.run_spec import Part
from testbed.core.units import format_time


@dataclass(frozen=True)
class HostCosts:
    """Seconds of a host, as `device.host_s` gives them. Emulated: ranks wait for as long."""

    collective_s: float = 0.0
    """Seconds from the call of a collective until it sends: its launch, negotiation among ranks and the like. A
    reduce-scatter and the all-gather after it, which are an all-reduce in two halves, have half of it each."""
    segment_s: float = 0.0
    """Seconds from a segment's arrival until it is passed on: copies, sums and waking up."""

    @classmethod
    def of(cls, device: Part) -> HostCosts:
        """Return the costs that a run's device has; none of one that says nothing of its host."""
        given = device.params.get("host_s")
        return (
            cls(**{f"{cost}_s": seconds(one) for cost, one in given.items()}) if isinstance(given, Mapping) else cls()
        )


NO_COSTS = HostCosts()


def unknowns(host_s: Mapping[str, float | str]) -> Iterator[str]:
    """Yield what a record says of each of these times: nobody has measured it in the run."""
    for cost, given in host_s.items():
        what = {"collective": "to start a collective", "segment": "to pass on a segment"}[cost]
        yield f"how long the host takes {what} (device.host_s.{cost}: {format_time(seconds(given))}, waited for)"
