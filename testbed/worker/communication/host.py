"""The host of the emulated device: the time it takes for communication passes by waiting, where it communicates."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from testbed.core.device.host_costs import NO_COSTS, HostCosts
from testbed.core.spec.run_spec import RunSpec

Done = TypeVar("Done")


class Host:
    """Spends emulated seconds in the thread that carries collectives."""

    def __init__(self, costs: HostCosts, dilation: Callable[[], float] = lambda: 1.0) -> None:
        """Take the costs.

        Args:
            dilation: Function that returns wall seconds for each emulated second, which change during a run.
        """
        self.costs, self._dilation = costs, dilation

    def starting(self, work: Callable[[], Done], share: float = 1.0) -> Callable[[], Done]:
        """Return the work of a collective, or of a share of one, with the wait before it sends."""

        def begun() -> Done:
            time.sleep(self._dilation() * share * self.costs.collective_s)
            return work()

        return begun if self.costs.collective_s else work

    @classmethod
    def of(cls, spec: RunSpec, dilation: Callable[[], float]) -> Host:
        """Return the host of a run's device."""
        return cls(HostCosts.of(spec.device), dilation)

    @property
    def segment_wall_s(self) -> float:
        """Wall seconds from a segment's arrival until it is passed on."""
        return self._dilation() * self.costs.segment_s

    @contextmanager
    def segment(self) -> Iterator[None]:
        """Take the host's time for a segment that has come; what is done with it inside counts."""
        began_s = time.monotonic()
        yield
        if self.costs.segment_s:
            time.sleep(max(0.0, began_s + self.segment_wall_s - time.monotonic()))


NO_HOST = Host(NO_COSTS)
