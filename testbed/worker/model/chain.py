"""A model that is a chain of pieces, of which the first ones may be frozen."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from testbed.worker.model.activation_cache import ActivationCache
from testbed.worker.model.pieces import Piece


class Chain(nn.Module):
    """Each piece takes what the one before it makes: embedding, layers, readout.

    What is frozen runs in evaluation mode and without gradients, so that backward ends where the active part begins.

    Args:
        embedding: takes inputs.
        layers: take and make tensors of one shape.
        readout: makes the output; it is never frozen.
    """

    def __init__(self, embedding: nn.Module, layers: Sequence[nn.Module], readout: nn.Module) -> None:
        super().__init__()
        self.embedding, self.layers, self.readout = embedding, nn.ModuleList(layers), readout
        self.cache: ActivationCache | None = None
        """Of what the frozen part makes of training samples; a copy of the model has one of its own, empty."""
        self._frozen = 0

    @property
    def frozen(self) -> int:
        """Layers, with the embedding once there is one."""
        return self._frozen

    def freeze(self, layers: int) -> None:
        """Have so many first layers, and the embedding, never change again; they are never thawed.

        Raises:
            ValueError: there are not as many, or more are frozen already.
        """
        if not self._frozen <= layers <= len(self.layers):
            raise ValueError(
                f"layers={layers}: {self._frozen} of {len(self.layers)} are frozen; freeze as many or more of them"
            )
        self._frozen = layers
        for piece in self.prefix():
            piece.requires_grad_(False)
        self.train(self.training)

    def train(self, mode: bool = True) -> Chain:
        """As of any module; the frozen part stays in evaluation mode."""
        super().train(mode)
        for piece in self.prefix():
            piece.eval()
        return self

    def prefix(self) -> list[nn.Module]:
        """What is frozen: the embedding and layers, or nothing."""
        return [self.embedding, *self.layers[: self._frozen]] if self._frozen else []

    def pieces(self) -> list[nn.Module]:
        """All of the model, in order."""
        return [self.embedding, *self.layers, self.readout]

    def chained(self) -> list[Piece]:
        """All of the model, as what stages are cut from; layers are the blocks."""
        layers = [Piece(f"layer {number}", layer, is_block=True) for number, layer in enumerate(self.layers)]
        return [Piece("embedding", self.embedding), *layers, Piece("readout", self.readout)]

    def forward(self, inputs: Tensor, numbers: Tensor | None = None) -> Tensor:
        """
        Args:
            numbers: of the training samples that `inputs` are, int64 [samples]; the cache is used where they are given.
        """
        prefix = self.prefix()
        if self.cache is not None and numbers is not None and prefix:
            hidden = self.cache.through(prefix, numbers, inputs)
        else:
            hidden = inputs
            with torch.no_grad():
                for piece in prefix:
                    hidden = piece(hidden)
        for piece in self.pieces()[len(prefix) :]:
            hidden = piece(hidden)
        return hidden


class Readout(nn.Module):
    """The class of a sample, from tokens.

    Args:
        at: the token that is read; None: the mean of all.
    """

    def __init__(self, width: int, classes: int, at: int | None) -> None:
        super().__init__()
        self.at = at
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        normal = self.norm(tokens)
        logits: Tensor = self.head(normal.mean(1) if self.at is None else normal[:, self.at])
        return logits


def drawn(model: Chain, random: torch.Generator, deviation: float) -> None:
    """Give it initial weights: what layers add to the residual sums to the size of one."""
    for name, parameter in model.named_parameters():
        if parameter.ndim == 4:
            nn.init.kaiming_normal_(parameter, nonlinearity="relu", generator=random)
        elif parameter.ndim == 2:
            nn.init.normal_(parameter, std=deviation, generator=random)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
        if name.endswith(("project.weight", "shrink.weight")):
            parameter.data.div_(math.sqrt(2 * len(model.layers)))
