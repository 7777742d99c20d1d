"""What a strategy is: one optimizer step of this rank's part. Data, timing, records and stopping belong to the loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from compressors.base.compressor import Compressor, Layout
from testbed.core.declaration import Declared
from testbed.core.device.factored_layer import FactoredLayer
from testbed.core.device.profile import Collective, WorkTimes
from testbed.core.spec.run_spec import RunSpec
from testbed.core.spec.topology import Topology
from testbed.worker.communication.communicator import Communicator
from testbed.worker.device.clock import PhaseClock
from testbed.worker.interfaces.workload import Batch, Workload


@dataclass(frozen=True, kw_only=True)
class WorkerContext:
    """All a strategy may use."""

    spec: RunSpec
    workload: Workload
    model: nn.Module
    optimizer: torch.optim.Optimizer
    compressor: Compressor
    """As the user named it; wrap it with `with_feedback` where gradients are sent."""
    comm: Communicator
    clock: PhaseClock
    prepare: Callable[[torch.optim.Optimizer], None] = lambda _: None
    """What an optimizer needs that takes steps beside `optimizer`: see `new_optimizer`."""

    begun: int = 0
    """Steps that were taken before this binding, when the model was another; a strategy's own begin at 0 again."""

    def new_optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Of the workload's kind, for a strategy that has some of its own."""
        optimizer = self.workload.optimizer(parameters)
        self.prepare(optimizer)
        return optimizer

    @property
    def rank(self) -> int:
        return self.comm.rank

    @property
    def world_size(self) -> int:
        return self.comm.world_size


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What a strategy computes beside gradients and their update, and what it sends beside buckets."""

    work: tuple[WorkTimes, ...] = ()
    """Pieces of computing, under the names that the clock is given; their seconds are measured by whoever asks."""
    factored: tuple[FactoredLayer, ...] = ()
    """As of `core.device.profile`."""
    collectives: tuple[Collective, ...] = ()
    """What is sent beside the buckets of `layouts`, not compressed."""


@dataclass(frozen=True)
class StepStats:
    loss: float | None
    """Of this rank's batch, before the step; None of a rank that has no batches."""
    samples: int | None = None
    """That this rank has trained on, where the strategy draws them; None: those of its batch."""


class Strategy(Declared, ABC):
    """Constructors take keyword-only parameters and raise ValueError for each bad one. `bind` comes once, first."""

    micro_batches: int = 1
    """In how many parts a step takes its batch, each `Workload.split`'s; divides the batch size."""
    has_optimizer: bool = True
    """Whether an optimizer's `step` makes its updates, in which others may have a say."""
    draws: bool = False
    """Whether it draws batches itself, together those of `part` of all ranks; those that `step` is given are None."""
    trains: bool = True
    """Whether the model changes."""
    cycle_steps: int = 1
    """In so many steps each of `layouts` is reduced once."""

    def place(self, topology: Topology) -> None:
        """Be told where ranks are. Whoever builds a run's parts does so first, before anything else is asked."""
        return

    def outlives(self, rank: int) -> bool:
        """Whether all others go on when this rank is gone.

        Of a strategy of which that is true of any rank, no rank may take part in a collective after `bind`. A rank that
        comes back has `comm.is_back`: its `bind` may not have one either. Of rank 0: whether the others wait until
        an event starts it again.
        """
        return False

    def takes_back(self, rank: int) -> bool:
        """Whether they take it in again when it is started anew. Of none that they do not outlive."""
        return self.outlives(rank)

    def part(self, rank: int, world_size: int) -> tuple[int, int] | None:
        """Which part of the data this rank trains on: its place among so many; None: on none of it."""
        return rank, world_size

    def faults(self, compressor: Compressor, workload: Workload, world_size: int) -> Iterator[str]:
        """Combinations this strategy cannot run, one line each."""
        yield from ()

    def accelerator_faults(self) -> Iterator[str]:
        """Why it cannot train a model that lies on an accelerator, one line each."""
        yield "computes or sends in the host's memory; ddp, torch_ddp, lamb, local_sgd and diloco do not"

    def batch_faults(self, batch_size: int, world_size: int) -> Iterator[str]:
        """Why it cannot take so many samples of each rank a step, one line each."""
        if batch_size % self.micro_batches:
            yield f"batch_size={batch_size}: cannot be taken in {self.micro_batches} equal parts, as the strategy does"

    def takes_transform(self, *, at_once: bool, keeps_parameters: bool) -> bool:
        """Whether the model may be changed by somebody else, before the first step or later.

        For later every rank must have all of it after `finish`, in modules that it computes with.

        Args:
            keeps_parameters: all of them stay those of the workload's model.
        """
        return True

    @abstractmethod
    def bind(self, context: WorkerContext) -> None:
        """Take the parts of this run. Collectives are allowed; all ranks bind at once."""

    def first_step(self) -> int:
        """The step to begin with: 0, but for a rank that comes back, which waits here until the others take it in; rank
        0 begins with the first of those that were not sure to be done, the number of all where there is none."""
        return 0

    @abstractmethod
    def step(self, batch: Batch, step: int) -> StepStats:
        """Take optimizer step `step`, counted from 0."""

    def settle(self) -> None:
        """Make the parameters what they are after the last step, where the strategy has put that off.

        Called on all ranks at once: before the model is evaluated or kept, and after the last step.
        """
        return

    def layouts(self) -> Sequence[Layout]:
        """Of each bucket that a step reduces, or a cycle of `cycle_steps`, in order; called after `bind`."""
        return ()

    def dense_bytes_step(self) -> float | None:
        """What all ranks would send in a step with nothing compressed or left out; None: what ring data parallel would.

        Called once, after `bind`, for the record.
        """
        return None

    def beside(self) -> Beside:
        """What a step computes and sends that no phase of its own name and no layout shows; called after a step."""
        return Beside()

    def routes(self) -> list[str] | None:
        """The route of each bucket as its `Route`'s value, in order; None where buckets take no such route.

        Called once, after `bind`, for the record.
        """
        return None

    def collectives(self) -> list[str] | None:
        """What carries each bucket, in order; None where nothing of ours does. Called once, after `bind`."""
        return None

    def take_notes(self) -> list[dict[str, Any]]:
        """What the strategy has decided by itself since the last call: events for the record, "tuning" or "plan".

        Called after every step.
        """
        return []

    def finish(self) -> None:
        """Complete what is in flight; called once, after the last step. Its bytes and time are reported apart."""
        return

    def hand_over(self) -> None:
        """After `finish`, where a changed model goes on: give every rank what optimizers keep of parameters that the
        next binding may have it train."""
