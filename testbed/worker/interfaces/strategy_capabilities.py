"""Capabilities of strategies beyond `Strategy`: one that has the methods has the capability, and inherits nothing.

`testbed.worker.training.capabilities` alone asks which of them a strategy has, and answers for one that has not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from compressors.base.compressor import Layout
from testbed.core.spec.topology import Topology
from testbed.worker.interfaces.strategy import ExtraWork
from testbed.worker.interfaces.workload import Workload


@runtime_checkable
class Placed(Protocol):
    """Strategy that depends on where ranks are."""

    def place(self, topology: Topology) -> None:
        """Take the places of all ranks; called first, before anything else is asked."""


@runtime_checkable
class Sharded(Protocol):
    """Strategy whose ranks take other parts of the data than one each."""

    def part(self, rank: int, world_size: int) -> tuple[int, int] | None:
        """Return (index of the part of the data that `rank` trains on, number of parts); None: it trains on none."""


@runtime_checkable
class BatchChecked(Protocol):
    """Strategy that cannot take every batch size."""

    def validate_batch(self, batch_size: int, world_size: int) -> Iterator[str]:
        """Yield a line for each reason why ranks cannot take `batch_size` samples each in a step."""


@runtime_checkable
class FaultTolerant(Protocol):
    """Strategy that continues without some ranks; its `uses_collectives` is False."""

    def tolerates_loss_of(self, rank: int) -> bool:
        """Return True if all other ranks continue when `rank` is lost.

        True for rank 0: they wait until an event starts it again.
        """


@runtime_checkable
class Rejoining(Protocol):
    """Strategy to which a lost rank can return. That rank has `comm.is_back`, and takes part in no collective."""

    def can_rejoin(self, rank: int) -> bool:
        """Return True if `rank` is taken in again when it is started again; False if its loss is not tolerated."""

    def first_step(self) -> int:
        """Return the step to begin with: 0 unless this rank is back.

        A rank that is back waits here until the others take it in. Rank 0 begins with the first step that was not
        certainly done, which is the number of steps if all were.
        """


@runtime_checkable
class Deferred(Protocol):
    """Strategy that puts off what a step does to parameters."""

    def sync_parameters(self) -> None:
        """Bring the parameters to their values after the last step.

        Called on all ranks at once, before rank 0's model is evaluated or kept, and after the last step.
        """


@runtime_checkable
class Bucketed(Protocol):
    """Strategy that reduces buckets through the compressor; all methods are called after `bind`."""

    def layouts(self) -> Sequence[Layout]:
        """Return the layout of each bucket that `cycle_steps` steps reduce, in order."""

    def routes(self) -> list[str] | None:
        """Return the value of each bucket's `Route`, in order, for the record; None: buckets take no route."""

    def collectives(self) -> list[str] | None:
        """Return the name of the algorithm that carries each bucket, in order, for the record; None: none does."""


@runtime_checkable
class Profiled(Protocol):
    """Strategy that computes or sends more in a step than gradients, their update and buckets."""

    def extra_work(self) -> ExtraWork:
        """Return the additional work, for the simulator and `dilation=auto`; called after a step."""


@runtime_checkable
class ForeseesWork(Protocol):
    """Strategy that knows its additional work before anything runs, of some workloads at least."""

    def expected_work(self, workload: Workload, batch_size: int) -> ExtraWork:
        """Return the additional work, so that a device can refuse it; nothing if it is not known yet."""


@runtime_checkable
class Sized(Protocol):
    """Strategy whose uncompressed traffic is not that of data parallelism by a ring."""

    def dense_bytes_step(self) -> float:
        """Return the bytes that all ranks together would send in a step with nothing compressed or left out.

        Called once, after `bind`, for the record.
        """


@runtime_checkable
class ModelSwitchable(Protocol):
    """Strategy with conditions on transforms that change the model."""

    def takes_transform(self, *, at_once: bool, keeps_parameters: bool) -> bool:
        """Return True if a transform may change the model.

        Args:
            at_once: Before the first step. Otherwise later: every rank has to have all of the model after `finish`, in
                modules that it computes with.
            keeps_parameters: All parameters stay those of the workload's model.
        """

    def hand_over(self) -> None:
        """Give every rank the optimizer state of parameters that the next binding may have it train.

        Called after `finish`, if a changed model continues.
        """


@runtime_checkable
class AcceleratorReady(Protocol):
    """Strategy that computes and sends where the model is, and so can train on an accelerator."""

    def validate_accelerator(self) -> Iterator[str]:
        """Yield a line for each parameter with which it cannot."""
