"""Base class of strategies: one optimizer step of this rank's part.

Data, timing, records and stopping belong to the loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import torch
from torch import nn

from compressors.base.compressor import Compressor
from testbed.core.declaration import Declared
from testbed.core.device.factored_layer import FactoredLayer
from testbed.core.device.profile import Collective, WorkTimes
from testbed.core.record.events.base import StepEvent
from testbed.core.renaming import Renamed, tell_renamed
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.communication.communicator import Communicator
from testbed.worker.device.clock import PhaseClock
from testbed.worker.interfaces.workload import Batch, Workload


@dataclass(frozen=True, kw_only=True)
class WorkerContext:
    """Everything that a strategy may use."""

    spec: RunSpec
    workload: Workload
    model: nn.Module
    optimizer: torch.optim.Optimizer
    compressor: Compressor
    """Compressor of the run, without feedback. Wrap it with `with_feedback` if it carries gradients."""
    comm: Communicator
    clock: PhaseClock
    prepare: Callable[[torch.optim.Optimizer], None] = lambda _: None
    """Function that prepares an optimizer which takes steps apart from `optimizer`: see `new_optimizer`."""

    record: Callable[[StepEvent], None] = lambda _: None
    """Function that puts an event into the record, after the step in which it is called. A plug-in outside this tree
    records `testbed.core.record.events.note.Note`. A rehearsal records nothing."""
    start_step: int = 0
    """Number of steps of the run before this binding, taken with another model; a strategy counts its own from 0."""

    def new_optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Return an optimizer of the workload's kind, for a strategy that needs more than one."""
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
    """Computing of a strategy in addition to gradients and their update, and exchanges in addition to buckets."""

    work: tuple[WorkTimes, ...] = ()
    """Items of computing, under the names that the clock is given; their seconds are measured by whoever asks."""
    factored: tuple[FactoredLayer, ...] = ()
    """Layers with Kronecker factors, in the form of `core.device.profile`."""
    collectives: tuple[Collective, ...] = ()
    """Uncompressed exchanges in addition to the buckets of `layouts`; a share `share` of the steps has them."""


@dataclass(frozen=True, kw_only=True)
class Beside(ExtraWork):
    """Old name of `ExtraWork`."""

    def __post_init__(self) -> None:
        tell_renamed("testbed.worker.interfaces.strategy", "Beside is ExtraWork now", stacklevel=3)


@dataclass(frozen=True)
class StepStats:
    """Figures of one step on this rank."""

    loss: float | None
    """Loss of this rank's batch, before the step; None for a rank without batches."""
    samples: int | None = None
    """Samples that this rank has trained on, if the strategy draws them; None: those of its batch."""


class Agreement(Enum):
    """Ways in which all ranks come to have the same parameters in the end."""

    BY_STRATEGY = "by strategy"
    """All ranks have them after `finish`, at the latest."""
    MEAN_AT_END = "mean at the end"
    """Replicas differ between exchanges. After `finish` the loop makes each the mean of all, by one all-reduce of the
    trained parameters, whose bytes and time count with those of `finish`."""
    NONE = "none"
    """Ranks end with different parameters, and nothing compares these."""


class Strategy(Renamed, Declared, ABC):
    """Base of all strategies, with the methods that each of them has.

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
        """True if something that it sends passes through the run's compressor.

        Otherwise a run that asks for a compressor is refused: it would be recorded as compressed, and is not.
        """
        return False

    def varying_codecs(self, compressor: Compressor) -> list[str]:
        """Return the names of codecs by which it sends so many bytes as values make them, with a run's compressor."""
        varies = self.carries_compressor and not compressor.traits.fixed_size
        return [type(compressor).__name__] if varies else []

    uses_collectives: bool = True
    """False: after `bind` no rank takes part in an exchange of all ranks, such as `comm.run` or `comm.all_reduce`. Only
    such a strategy can continue without a rank."""
    agreement: Agreement = Agreement.BY_STRATEGY
    """Way to equal parameters. Rank 0's model is evaluated, also if replicas differ."""
    draws_batches: bool = False
    """True: it draws batches itself, all ranks together those of their parts; `step` is given None."""
    has_optimizer: bool = True
    """True: updates are made by an optimizer's `step`, to which a transform may add."""
    trains: bool = True
    """True: the model changes."""
    sends_by_comm: bool = False
    """True: it sends through `comm` alone, which can cut messages among connections and have a host take its time.
    A run that asks for either is refused otherwise."""

    @property
    def takes_connections(self) -> bool:
        """True if all that it sends is cut among the connections that a run asks for."""
        return self.sends_by_comm

    def starts_collectives(self, workers: int) -> bool:
        """Return True if steps of so many workers have collectives, for each of which a host can take its time."""
        return self.sends_by_comm

    exchanges_models: bool = False
    """True: it sends parameters, or what has changed of them. A workload that computes nothing draws them then."""
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
        """Take optimizer step `step`, counted from 0 since `bind`, and return its figures."""

    def finish(self) -> None:
        """Complete what is in flight. Called once, after the last step; its bytes and time are reported apart."""
        return
