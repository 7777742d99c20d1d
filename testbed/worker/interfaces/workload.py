"""What a workload is: a model, its data, its loss, its metric."""

from __future__ import annotations

import copy
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from testbed.core.declaration import Declared
from testbed.core.errors import InputError
from testbed.core.models.catalogue import Layer
from testbed.worker.model.pieces import Piece

Batch = Any
"""What `loss` takes; opaque to strategies."""
LABELLED = ("blocks", "bytelm", "cifar10", "digits", "glyphs", "sensors", "tiny_bert", "tiny_vit")
"""Workloads of this tree that have `labels`."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """How good the model is."""

    name: str
    target: float
    higher_is_better: bool = True


class Workload(Declared, ABC):
    """Constructors take keyword-only parameters, raise ValueError for each bad one, and read no data."""

    metric: ClassVar[Metric | None]
    """None: nothing is learnt, and there is nothing to evaluate."""
    computes: ClassVar[bool] = True
    """False: it does no arithmetic, so that a device must say how long it takes, and its losses mean nothing."""

    can_hold_out: ClassVar[bool] = False
    """Whether `hold_out` is there."""
    has_labels: ClassVar[bool] = False
    """Whether `labels` is there."""
    has_sample_losses: ClassVar[bool] = False
    """Whether `sample_losses` is there."""
    has_pieces: ClassVar[bool] = False
    """Whether `pieces`, `inputs` and `loss_of` are there."""

    def faults(self) -> list[str]:
        """What the data lack on this machine, as far as can be told quickly; asked before anything is built."""
        return []

    def data_hash(self) -> str | None:
        """Of data that may differ from one machine to another, recorded in the spec; None: they are always the same."""
        return None

    def preload(self) -> None:
        """Load what all ranks share, such as data kept at module level; called once, before they are forked.

        It runs as root outside the containers, in one thread: a parallel region of torch here would hang the ranks.
        """

    @property
    def varies_samples(self) -> bool:
        """Whether a training sample is something else each time it comes, as by random shifts."""
        return False

    @abstractmethod
    def model(self, seed: int) -> nn.Module:
        """The same initial parameters on every rank."""

    def warm_up_model(self, model: nn.Module) -> nn.Module:
        """What to take steps on before the run in place of `model`, which they must not change."""
        return copy.deepcopy(model)

    @abstractmethod
    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """A new one, of all parameters or of some: it is asked for several times, also before the run."""

    @abstractmethod
    def samples(self) -> int:
        """Training samples of one epoch."""

    @abstractmethod
    def batch(self, step: int, *, rank: int, world_size: int, batch_size: int, seed: int) -> Batch:
        """This rank's part of the global batch of `step`, counted from 0.

        An epoch covers all samples once. Parts are disjoint, but where the global batch straddles two epochs: a sample
        may come late in the one and early in the other. For the same seed and global batch size the union of the parts
        does not depend on `world_size`. None of that where ranks have samples of their own (`partition`).
        """

    def hold_out(self, samples: int, seed: int) -> Batch:
        """So many training samples, which `batch` gives no more from here on; `samples` counts them still.

        All ranks that train call it, before they do. Drawn at random, the same ones for the same seed; none of those
        that `evaluate` goes by. Once more, it begins anew.

        Raises:
            InputError: there are no more than that.
        """
        raise NotImplementedError(f"{type(self).__name__} has no samples that it could hold out")

    def labels(self) -> Tensor:
        """What training samples are split by where clients are to have unlike data, int64 [samples], each at least 0.

        In the order of the samples' numbers, those held out by `hold_out` too. Not to be changed: it may be the data
        themselves. Not every number up to the highest need occur.

        Raises:
            InputError: samples have none.
        """
        raise InputError(
            f"{type(self).__name__} was asked for the labels of its samples, to split them among clients, and has none;"
            f" those of workloads {', '.join(LABELLED)} can be split, and of one of your own that defines `labels`"
        )

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Mean over the batch."""

    def sample_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """[samples]: of each one of the batch, in order; their mean is `loss`, to rounding."""
        raise NotImplementedError(f"{type(self).__name__} has no losses of single samples")

    def pieces(self, model: nn.Module) -> list[Piece]:
        """The chain that `model` is: one after another, from `inputs` on, they give what it gives, bit for bit."""
        raise NotImplementedError(f"{type(self).__name__} is no chain of pieces")

    def inputs(self, batch: Batch) -> Tensor:
        """What the first piece takes, [samples, ...]."""
        raise NotImplementedError(f"{type(self).__name__} is no chain of pieces")

    def loss_of(self, output: Tensor, batch: Batch) -> Tensor:
        """`loss`, of what the last piece gives."""
        raise NotImplementedError(f"{type(self).__name__} is no chain of pieces")

    def split(self, batch: Batch, parts: int) -> list[Batch]:
        """The batch in so many parts of equal size, which its samples divide into; their mean loss is its own."""
        return [batch] if parts == 1 else _split(batch, parts)

    def forward_flop(self, model: nn.Module, batch: Batch) -> dict[str, float] | None:
        """FLOPs of one batch by the name of the layer, a module; None has them counted while forward runs."""
        return None

    @abstractmethod
    def evaluate(self, model: nn.Module) -> float:
        """The metric on held-out data, in evaluation mode and without gradients; leaves the model in training mode.

        Called for a copy of the model, in a thread beside training: it must change nothing that `batch` or `loss` use,
        and draw nothing from torch's global generator.
        """


@runtime_checkable
class Modelled(Protocol):
    """Workload whose layers come from a table and are not computed.

    A workload has this capability if it has the method below. Strategies that need more of a layer than its gradient
    (K-FAC) ask for it.
    """

    def modelled_layers(self) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
        """Return (layers of the whole model, the same layers at the size in which they are sent).

        Both are in the order of forward; entry i is the module `layers.i` of the model.
        """


def _split(batch: Batch, parts: int) -> list[Batch]:
    """Tensors along their first dimension, and tuples and lists of them part by part."""
    if isinstance(batch, Tensor):
        return list(batch.split(len(batch) // parts))
    if isinstance(batch, tuple | list):
        pieces = zip(*(_split(item, parts) for item in batch), strict=True)
        return [type(batch)(*piece) if hasattr(batch, "_fields") else type(batch)(piece) for piece in pieces]
    raise TypeError(f"a batch of {type(batch).__name__} cannot be split; its workload's `split` has to")


def trained(model: nn.Module) -> list[nn.Parameter]:
    """Those that learn, in order: what an optimizer is given."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def parameters_crc32(model: nn.Module) -> int:
    """Of all parameters' bits, in order."""
    checksum = 0
    for parameter in model.parameters():
        checksum = zlib.crc32(parameter.detach().cpu().contiguous().numpy().data, checksum)
    return checksum
