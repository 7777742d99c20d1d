"""What a strategy is: one optimizer step of this rank's part. Data, timing, records and stopping belong to the loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

import torch
from torch import nn

from compressors.base.compressor import Compressor
from testbed.core.device.factored_layer import FactoredLayer
from testbed.core.device.profile import Collective, WorkTimes
from testbed.core.renaming import Renamed, tell_renamed
from testbed.core.spec.run_spec import RunSpec
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

    start_step: int = 0
    """Number of steps of the run before this binding, taken with another model; a strategy counts its own from 0."""

    def new_optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Of the workload's kind, for a strategy that has some of its own."""
        optimizer = self.workload.optimizer(parameters)
        self.prepare(optimizer)
        return optimizer

    @property
    def begun(self) -> int:
        """Old name of `start_step`."""
        tell_renamed("WorkerContext", "begun is start_step now")
        return self.start_step

    @property
    def rank(self) -> int:
        return self.comm.rank

    @property
    def world_size(self) -> int:
        return self.comm.world_size


@dataclass(frozen=True, kw_only=True)
class ExtraWork:
    """What a strategy computes in addition to gradients and their update, and sends in addition to buckets."""

    work: tuple[WorkTimes, ...] = ()
    """Pieces of computing, under the names that the clock is given; their seconds are measured by whoever asks."""
    factored: tuple[FactoredLayer, ...] = ()
    """As of `core.device.profile`."""
    collectives: tuple[Collective, ...] = ()
    """What is sent in addition to the buckets of `layouts`, not compressed: `share` of the steps send it."""


@dataclass(frozen=True, kw_only=True)
class Beside(ExtraWork):
    """Old name of `ExtraWork`."""

    def __post_init__(self) -> None:
        tell_renamed("testbed.worker.interfaces.strategy", "Beside is ExtraWork now", stacklevel=3)


@dataclass(frozen=True)
class StepStats:
    loss: float | None
    """Of this rank's batch, before the step; None of a rank that has no batches."""
    samples: int | None = None
    """That this rank has trained on, where the strategy draws them; None: those of its batch."""


class Agreement(Enum):
    """How all ranks come to have the same parameters in the end."""

    BY_STRATEGY = "by strategy"
    """After `finish` they have them, at the latest."""
    MEAN_AT_END = "mean at the end"
    """Replicas differ between exchanges. After `finish` the loop makes each the mean of all, by one all-reduce of the
    trained parameters, whose bytes and time count with those of `finish`."""
    NONE = "none"
    """They end with different parameters, and nothing compares these."""


class Strategy(Renamed, ABC):
    """Base of all strategies: what each has to have.

    Constructors take keyword-only parameters and raise ValueError with a line for each bad one. `bind` comes once,
    first. What only some strategies do, such as dividing the data in another way or surviving the loss of a rank, is in
    `testbed.worker.interfaces.strategy_capabilities`: a strategy that has the methods has the capability.
    """

    renamed: ClassVar[Mapping[str, str]] = {
        "faults": "validate",
        "accelerator_faults": "validate_accelerator",
        "batch_faults": "validate_batch",
        "outlives": "tolerates_loss_of",
        "takes_back": "can_rejoin",
        "draws": "draws_batches",
        "beside": "extra_work",
        "settle": "sync_parameters",
    }

    # What a strategy declares, with what is true of one that averages gradients by itself, uncompressed.

    @property
    def carries_compressor(self) -> bool:
        """True if something that it sends passes through the run's compressor. Otherwise a run that asks for one is
        refused: it would be recorded as compressed, and is not."""
        return False

    uses_collectives: bool = True
    """False: after `bind` no rank takes part in an exchange of all ranks, such as `comm.run` or `comm.all_reduce`. Only
    such a strategy can continue without a rank."""
    agreement: Agreement = Agreement.BY_STRATEGY
    """What is evaluated is rank 0's model, also where replicas differ."""
    draws_batches: bool = False
    """True: it draws batches itself, all ranks together those of their parts; `step` is given None."""
    has_optimizer: bool = True
    """True: updates are made by an optimizer's `step`, to which a transform may add."""
    trains: bool = True
    """True: the model changes."""
    cycle_steps: int = 1
    """Number of steps in which each bucket of `layouts` is reduced once."""

    def validate(self, compressor: Compressor, workload: Workload, world_size: int) -> Iterator[str]:
        """Yield a line for each combination that it cannot run."""
        yield from ()

    @abstractmethod
    def bind(self, context: WorkerContext) -> None:
        """Take the parts of this run. Collectives are allowed; all ranks bind at once, but for one that is back."""

    @abstractmethod
    def step(self, batch: Batch, step: int) -> StepStats:
        """Take optimizer step `step`, counted from 0 since `bind`."""

    def take_notes(self) -> list[dict[str, Any]]:
        """What the strategy has decided by itself since the last call: events for the record, "tuning" or "plan".

        Called after every step.
        """
        return []

    def finish(self) -> None:
        """Complete what is in flight. Called once, after the last step; its bytes and time are reported apart."""
        return
