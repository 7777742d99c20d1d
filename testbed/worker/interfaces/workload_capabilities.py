"""Capabilities of workloads beyond `Workload`: one that has the methods has the capability, and inherits nothing.

The functions at the end answer for workloads that have not. Strategies and transforms that need a capability ask for it
by `isinstance`, and refuse a workload that lacks it before a run is built.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from testbed.core.errors import InputError
from testbed.core.models.catalogue import Layer
from testbed.worker.interfaces.workload import Batch, Workload
from testbed.worker.model.pieces import Piece

LABELLED = (
    *("blocks", "bytelm", "cifar10", "digits", "fashion", "glyphs"),
    *("sensors", "speakers", "texts", "tiny_bert", "tiny_vit"),
)
"""Workloads of this tree that are `Labelled`."""


@runtime_checkable
class Hashed(Protocol):
    """Workload whose data may differ from one machine to another."""

    def data_hash(self) -> str | None:
        """Return the hash of the data, which is recorded in the spec; None: they are the same everywhere."""


@runtime_checkable
class Published(Protocol):
    """Workload whose data others have published, and which are fetched on first use."""

    def to_fetch(self) -> str | None:
        """Return what has to be fetched first and how large it is, in words; None: the data are here."""

    def licence(self) -> str:
        """Return the licence of the data, with whom to name, for the record."""


@runtime_checkable
class Preloaded(Protocol):
    """Workload with something to load that all ranks share, such as data kept at module level."""

    def preload(self) -> None:
        """Load it; called once, before ranks are forked.

        It runs as root outside the containers, in one thread: a parallel region of torch here would hang the ranks.
        """


@runtime_checkable
class Labelled(Protocol):
    """Workload whose samples can be divided by their labels, so that clients have heterogeneous data."""

    def labels(self) -> Tensor:
        """Return the label of each training sample, int64 of shape (samples,), each at least 0.

        They are in the order of the samples' numbers, those held out by `hold_out` too. Not to be changed: it may be
        the data themselves. Not every number up to the highest need occur.
        """


@runtime_checkable
class HoldOut(Protocol):
    """Workload that can keep training samples back."""

    def hold_out(self, samples: int, seed: int) -> Batch:
        """Return `samples` training samples, which `batch` gives no more from here on; `Workload.samples` counts them.

        All ranks that train call it, before they do. The samples are drawn at random, the same ones for the same seed;
        none of those that `evaluate` uses. Called again, it starts again.

        Raises:
            InputError: There are no more samples than that.
        """


@runtime_checkable
class SampleLosses(Protocol):
    """Workload that can tell the loss of each sample."""

    def sample_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the loss of each sample of the batch, (samples,), in order; their mean is `loss`, to rounding."""


@runtime_checkable
class Sequential(Protocol):
    """Workload whose model is a chain that can be cut into stages."""

    def pieces(self, model: nn.Module) -> list[Piece]:
        """Return the chain that `model` is.

        One after another, from `inputs` on, they give what the model gives, bit for bit.
        """

    def inputs(self, batch: Batch) -> Tensor:
        """Return the input of the first piece, of shape (samples, ...)."""

    def loss_of(self, output: Tensor, batch: Batch) -> Tensor:
        """Return the value of `loss`, from the output of the last piece."""


@runtime_checkable
class Prompted(Protocol):
    """Workload whose pieces make something else of each batch, but not from the data that they are given."""

    def prompt(self, pieces: nn.Module, batch: Batch) -> None:
        """Tell pieces, the children of `pieces`, of which batch their next call is; ranks of all stages draw it."""


@runtime_checkable
class MicroBatched(Protocol):
    """Workload whose batch is no tensor, nor a tuple or list of tensors."""

    def split(self, batch: Batch, parts: int) -> list[Batch]:
        """Return the batch in `parts` parts of equal size, whose mean loss is its own; its samples divide into them."""


@runtime_checkable
class Augmented(Protocol):
    """Workload that may change samples each time they come, as by random shifts."""

    @property
    def varies_samples(self) -> bool:
        """True if a training sample is something else each time it comes."""


@runtime_checkable
class Modelled(Protocol):
    """Workload whose layers come from a table and are not computed."""

    def modelled_layers(self) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
        """Return (layers of the whole model, the same layers at the size in which they are sent).

        Both are in the order of forward; entry i is the module `layers.i` of the model.
        """


@runtime_checkable
class Numbered(Protocol):
    """Workload whose training samples have numbers, so that they can be divided among clients."""

    def left(self) -> Tensor:
        """Return the numbers of the samples that are not held out, ascending, int64 of shape (samples,)."""

    def picked(self, numbers: Tensor) -> Batch:
        """Return training samples by their numbers."""


@runtime_checkable
class DrawnTraining(Protocol):
    """Workload that computes nothing, and draws what training would have changed."""

    def own_parameters(self, model: nn.Module, seed: int) -> str:
        """Give a model parameters in memory of their own, drawn as if they were trained; the same on every rank.

        Returns:
            Name of the workload on which it was measured what they, and their changes, look like.
        """

    def draw_change(
        self, model: nn.Module, only: Sequence[nn.Parameter], *, seed: int, rank: int, round_: int, steps: int
    ) -> None:
        """Change parameters as `steps` local steps would.

        Args:
            model: Model that was given parameters of its own.
            only: Parameters of it that change.
            rank: Rank or client that trains. What is drawn depends on it, but for a part that all of a round share.
            round_: Number of the exchange that follows; what is drawn depends on it.
        """


@runtime_checkable
class WarmedUpOtherwise(Protocol):
    """Workload that warms up with another model than its own."""

    def warm_up_model(self, model: nn.Module) -> nn.Module:
        """Return the model to take steps on before the run instead of `model`, which they must not change."""


@runtime_checkable
class KnownFlop(Protocol):
    """Workload whose FLOPs are known, and not counted while forward runs."""

    def forward_flop(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        """Return the FLOPs of one batch by the name of the layer, a module."""


def data_hash(workload: Workload) -> str | None:
    """Return the hash of data that may differ between machines, by default None."""
    return workload.data_hash() if isinstance(workload, Hashed) else None


def licence(workload: Workload) -> str | None:
    """Return the licence of data that are fetched, None for all others."""
    return workload.licence() if isinstance(workload, Published) else None


def to_fetch(workload: Workload) -> str | None:
    """Return what has to be fetched before the data can be used, None if nothing has."""
    return workload.to_fetch() if isinstance(workload, Published) else None


def preload(workload: Workload) -> None:
    """Load what all ranks share, by default nothing."""
    if isinstance(workload, Preloaded):
        workload.preload()


def is_labelled(workload: Workload) -> bool:
    """Return True if samples have labels. An attribute `labels` that is no method does not count."""
    return isinstance(workload, Labelled) and callable(workload.labels)


def labels_of(workload: Workload) -> Tensor:
    """Return the label of each sample, int64 of shape (samples,).

    Raises:
        InputError: Samples have none.
    """
    if isinstance(workload, Labelled) and is_labelled(workload):
        return workload.labels()
    raise InputError(
        f"{type(workload).__name__} was asked for the labels of its samples, to split them among clients, and has none;"
        f" those of workloads {', '.join(LABELLED)} can be split, and of one of your own that defines `labels`"
    )


def split(workload: Workload, batch: Batch, parts: int) -> list[Batch]:
    """Return a batch in equal parts, by default those of its tensors along their first dimension."""
    if isinstance(workload, MicroBatched):
        return workload.split(batch, parts)
    return [batch] if parts == 1 else _split(batch, parts)


def varies_samples(workload: Workload) -> bool:
    """Return True if samples change each time they come, by default False."""
    return isinstance(workload, Augmented) and workload.varies_samples


def warm_up_model(workload: Workload, model: nn.Module) -> nn.Module:
    """Return the model to take steps on before the run, by default a copy of `model`."""
    return workload.warm_up_model(model) if isinstance(workload, WarmedUpOtherwise) else copy.deepcopy(model)


def draw_change(
    workload: Workload, model: nn.Module, only: Sequence[nn.Parameter], *, seed: int, rank: int, round_: int, steps: int
) -> None:
    """Change parameters as training would have, of a workload that computes nothing; by default they have changed."""
    if isinstance(workload, DrawnTraining):
        workload.draw_change(model, only, seed=seed, rank=rank, round_=round_, steps=steps)


def _split(batch: Batch, parts: int) -> list[Batch]:
    """Return tensors in parts along their first dimension, and tuples and lists of them part by part."""
    if isinstance(batch, Tensor):
        return list(batch.split(len(batch) // parts))
    if isinstance(batch, tuple | list):
        pieces = zip(*(_split(item, parts) for item in batch), strict=True)
        return [type(batch)(*piece) if hasattr(batch, "_fields") else type(batch)(piece) for piece in pieces]
    raise TypeError(f"a batch of {type(batch).__name__} cannot be split; its workload's `split` has to")
