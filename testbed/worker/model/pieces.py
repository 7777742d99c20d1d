"""A model as a chain of pieces, each of which takes what the one before it gives: what pipelines are cut from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor, nn


class Sharing(Protocol):
    """Makes one shard's layers from a piece's layers, for ranks that share the piece out (tensor parallelism)."""

    degree: int
    """Number of ranks that share the piece."""
    shard: int
    """Place of this rank among them."""

    def columns(self, layer: nn.Linear, runs: int = 1) -> nn.Module:
        """Return a module that computes this shard's outputs of `layer`.

        Args:
            runs: number of equal groups of outputs, each of which is divided, as queries, keys and values.
        """

    def rows(self, layer: nn.Linear) -> nn.Module:
        """Return a module that computes all outputs of `layer` from this shard's inputs."""

    def share(self, whole: nn.Parameter, part: nn.Parameter) -> nn.Parameter:
        """Return `part`, which this shard trains in place of `whole`; it is an equal share of its elements."""

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum over all of these ranks, who ask for it in the same order."""


@dataclass(frozen=True)
class Piece:
    """
    Args:
        name: for messages.
        module: takes one tensor and returns one, of floats; its parameters are the model's own.
        is_block: one of the like blocks that make most of the model, as embeddings and the head are not.
        shared: what one of several ranks has that share this piece out; None: each of them computes all of it.
        divisible: by what it is called, each number that the ranks which share it must divide.
        kept: values of a sample that it keeps for backward; None: computing it shows.
        tied: a weight of the first piece that it, the last one, uses too.
    """

    name: str
    module: nn.Module
    is_block: bool = False
    shared: Callable[[Sharing], nn.Module] | None = None
    divisible: Mapping[str, int] = field(default_factory=dict)
    kept: int | None = None
    tied: nn.Parameter | None = None


def pieces_of(model: nn.Sequential) -> list[Piece]:
    """A new piece begins with each module that has weights: activations, pools and norms go with the one before."""
    runs: list[list[tuple[str, nn.Module]]] = []
    for name, module in model.named_children():
        if not runs or (any(p.ndim > 1 for p in module.parameters()) and _has_weights(runs[-1])):
            runs.append([])
        runs[-1].append((name, module))
    return [Piece(run[0][0], nn.Sequential(*(module for _, module in run))) for run in runs]


def faults(model: nn.Module, pieces: Sequence[Piece]) -> Iterator[str]:
    """Why stages of these pieces would not be the model, one line each."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    holders: dict[nn.Parameter, list[str]] = {parameter: [] for parameter in names}
    for piece in pieces:
        for parameter in piece.module.parameters():
            holders[parameter].append(piece.name)
    for parameter, found in holders.items():
        if not found:
            yield f"{names[parameter]} is in no piece of the chain"
        elif len(found) > 1:
            yield f"{names[parameter]} is shared by {' and '.join(found)}, which may lie on different ranks"
    for name, _ in model.named_buffers():
        yield f"{name} changes in forward, micro-batch by micro-batch, on the ranks of its stage alone"


def _has_weights(run: Sequence[tuple[str, nn.Module]]) -> bool:
    return any(p.ndim > 1 for _, module in run for p in module.parameters())
