"""The transformer of workloads `texts` and `speakers`, which predicts the next byte."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from testbed.worker.data.published.documents import CONTEXT, SYMBOLS
from testbed.worker.model.pieces import Piece
from testbed.worker.model.transformer_block import Block

HEADS = 4
MAX_PARAMETERS = 1_500_000
_BYTE_WIDTH, _REACH = 32, 5
"""Width of a byte's embedding, and number of bytes that the convolution sees, the last of them its own."""
_DEVIATION = 0.08
"""Standard deviation of initial weights of linear layers."""


class ByteModel(nn.Module):
    """A causal convolution over embedded bytes, learned positions, and blocks of a transformer.

    Args:
        width: Width of what each place is described by, a multiple of 4.
        blocks: Number of blocks.
    """

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.width = width
        self.stem = _Stem(width)
        self.blocks = nn.ModuleList(Block(width, HEADS, causal=True) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, SYMBOLS, bias=False)

    def forward(self, text: Tensor) -> Tensor:
        """Return logits of the next byte, (samples, length, SYMBOLS), for bytes of (samples, length)."""
        hidden = self.stem(text)
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.head(self.norm(hidden))
        return logits

    def pieces(self) -> list[Piece]:
        """Return the stem, each block, and the head with its norm."""
        blocks = (Piece(f"blocks.{index}", block, is_block=True) for index, block in enumerate(self.blocks))
        return [Piece("stem", self.stem), *blocks, Piece("head", nn.Sequential(self.norm, self.head))]

    def draw(self, generator: torch.Generator) -> None:
        """Draw all parameters anew."""
        for name, parameter in self._drawn():
            if name == "stem.conv.weight":
                nn.init.kaiming_normal_(parameter, nonlinearity="relu", generator=generator)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=_deviation(name, len(self.blocks)), generator=generator)

    def _drawn(self) -> Iterator[tuple[str, nn.Parameter]]:
        return ((name, one) for name, one in self.named_parameters() if "norm" not in name)


class _Stem(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.bytes = nn.Embedding(SYMBOLS, _BYTE_WIDTH)
        self.conv = nn.Conv1d(_BYTE_WIDTH, width, _REACH)
        self.positions = nn.Parameter(torch.empty(CONTEXT, width))

    def forward(self, text: Tensor) -> Tensor:
        before = nn.functional.pad(self.bytes(text).transpose(1, 2), (_REACH - 1, 0))
        return nn.functional.relu(self.conv(before)).transpose(1, 2) + self.positions[: text.shape[1]]


def parameters_of(width: int, blocks: int) -> int:
    """Return the number of parameters of a `ByteModel`."""
    stem = SYMBOLS * _BYTE_WIDTH + (_BYTE_WIDTH * _REACH + 1) * width + CONTEXT * width
    return stem + blocks * (12 * width**2 + 13 * width) + (2 + SYMBOLS) * width


def _deviation(name: str, blocks: int) -> float:
    """Return the standard deviation of the initial values of a parameter."""
    known = {"stem.bytes.weight": 0.5, "stem.positions": 0.1}
    if name.endswith(("project.weight", "shrink.weight")):
        return _DEVIATION / math.sqrt(2 * blocks)  # what blocks add to the residual sums to the size of one
    return known.get(name, _DEVIATION)
