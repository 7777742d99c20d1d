"""A small byte-level transformer whose keys and values can lie anywhere: each decode step is given its attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, NamedTuple, cast

import torch
from torch import Tensor, nn

from testbed.core.declaration import checked
from testbed.core.kinds import Number, Whole

BYTES = 256


@checked
@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of a model. Its width is heads * head_width.

    Raises:
        ValueError: a size is out of its range.
    """

    layers: Annotated[int, Whole(1, 255)] = 2
    heads: Annotated[int, Whole(1, 255)] = 2
    head_width: Annotated[int, Whole(2, 256, multiple_of=2)] = 32
    """Even: rotary positions turn pairs."""
    widening: Annotated[int, Whole(1, 16)] = 2
    """Of the feed-forward part."""
    rotary_base: Annotated[float, Number(above=1, most=1e9)] = 10_000.0

    @property
    def width(self) -> int:
        return self.heads * self.head_width


class AttentionRequest(NamedTuple):
    """What one layer asks its cache at one decode step; keys and queries are rotated to their positions."""

    layer: int
    position: int
    hidden: Tensor
    """[width]: the layer's input, before its norm."""
    query: Tensor
    """[heads, head_width]."""
    key: Tensor
    """[heads, head_width], of this position, which it sees too."""
    value: Tensor
    """[heads, head_width]."""


Attend = Callable[[AttentionRequest], Tensor]
"""The attention's output, [heads, head_width]."""


class Prefilled(NamedTuple):
    logits: Tensor
    """[length, 256]."""
    keys: Tensor
    """[layers, heads, length, head_width], rotated."""
    values: Tensor
    """[layers, heads, length, head_width]."""


class KVTransformer(nn.Module):
    """Decoder alone, normalised before each part, with rotary positions; the embedding is not tied to the output.

    Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021: dimensions i and i + d/2 of a
    query or key at position p are turned by the angle p * base**(-2 i / d). A turn back by the same angle gives the
    key before it, of which low-rank methods keep a basis.

    A position also has an embedding of the byte before it, so that a head can look for what followed a byte as it
    looks for a byte: the induction that otherwise takes two layers and far more training (Olsson et al., "In-context
    Learning and Induction Heads", 2022, which smears keys over two positions to the same end).

    Args:
        shape: of the model.
        seed: of the initial weights: normal, with a deviation of 1 / sqrt(inputs), those of what a layer adds to the
            residual sum divided by sqrt(2 layers) more.
    """

    def __init__(self, shape: Shape, *, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        self.bytes = nn.Embedding(BYTES, shape.width)
        self.before = nn.Embedding(BYTES, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, BYTES, bias=False)
        self._initialise(torch.Generator().manual_seed(seed))

    def forward(self, text: Tensor) -> Tensor:
        """[samples, length] -> logits [samples, length, 256]."""
        hidden = self._embedded(text)
        positions = torch.arange(text.shape[-1], device=text.device)
        for layer in self._each():
            query, key, value = layer.heads(hidden, positions)
            hidden = layer.after(hidden, _causal(query, key, value))
        return self.head(self.norm(hidden))

    @torch.no_grad()
    def prefill(self, text: Tensor) -> Prefilled:
        """
        Args:
            text: [length].
        """
        hidden, keys, values = self._embedded(text), [], []
        positions = torch.arange(len(text), device=text.device)
        for layer in self._each():
            query, key, value = layer.heads(hidden, positions)
            hidden = layer.after(hidden, _causal(query, key, value))
            keys.append(key)
            values.append(value)
        return Prefilled(self.head(self.norm(hidden)), torch.stack(keys), torch.stack(values))

    @torch.no_grad()
    def step(self, byte: int, before: int, position: int, attend: Attend) -> Tensor:
        """Logits [256] after one byte more; `attend` is called once a layer, in their order.

        Args:
            before: the byte before it; 0 at position 0.
        """
        hidden = self.bytes.weight[byte] + self.before.weight[before]
        at = torch.tensor([position], device=hidden.device)
        for index, layer in enumerate(self._each()):
            query, key, value = (part[:, 0] for part in layer.heads(hidden[None], at))
            seen = attend(AttentionRequest(index, position, hidden, query, key, value))
            hidden = layer.after(hidden[None], seen[:, None])[0]
        return self.head(self.norm(hidden))

    @torch.no_grad()
    def speculated_query(self, layer: int, hidden: Tensor, position: int) -> Tensor:
        """The query that `layer` would have if `hidden`, the input of a layer before it, were its own: [heads,
        head_width], rotated. Residual sums change little from layer to layer (Lee et al., "InfiniGen", OSDI 2024)."""
        at = torch.tensor([position], device=hidden.device)
        query = self._each()[layer].heads(hidden[None], at)[0]
        return query[:, 0]

    def _each(self) -> list[Layer]:
        return cast(list[Layer], list(self.layers))

    def _embedded(self, text: Tensor) -> Tensor:
        return self.bytes(text) + self.before(nn.functional.pad(text[..., :-1], (1, 0)))

    def _initialise(self, generator: torch.Generator) -> None:
        for name, parameter in self.named_parameters():
            if parameter.ndim < 2:
                continue
            inputs = self.shape.width if name in ("bytes.weight", "before.weight") else parameter.shape[1]
            nn.init.normal_(parameter, std=inputs**-0.5, generator=generator)
            if name.endswith(("project.weight", "shrink.weight")):
                parameter.data.div_(math.sqrt(2 * self.shape.layers))


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.norm1 = nn.LayerNorm(shape.width)
        self.attend = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.project = nn.Linear(shape.width, shape.width, bias=False)
        self.norm2 = nn.LayerNorm(shape.width)
        self.widen = nn.Linear(shape.width, shape.widening * shape.width, bias=False)
        self.shrink = nn.Linear(shape.widening * shape.width, shape.width, bias=False)

    def heads(self, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[..., length, width] -> query, key and value of [..., heads, length, head_width]."""
        parts = self.attend(self.norm1(hidden)).unflatten(-1, (3, self.shape.heads, self.shape.head_width))
        query, key, value = (part.transpose(-2, -3) for part in parts.unbind(-3))
        base = self.shape.rotary_base
        return rotated(query, positions, base), rotated(key, positions, base), value

    def after(self, hidden: Tensor, seen: Tensor) -> Tensor:
        """The layer's output: `seen` is the attention's, [..., heads, length, head_width]."""
        hidden = hidden + self.project(seen.transpose(-2, -3).flatten(-2))
        return hidden + self.shrink(nn.functional.gelu(self.widen(self.norm2(hidden))))


def rotated(vectors: Tensor, positions: Tensor, base: float) -> Tensor:
    """Turned to their positions; with negative positions, turned back.

    Args:
        vectors: [..., length, head_width].
        positions: [length].
    """
    half = vectors.shape[-1] // 2
    turns = base ** (-torch.arange(half, dtype=torch.float64, device=vectors.device) / half)
    angles = positions.double()[:, None] * turns
    cos, sin = angles.cos().to(vectors), angles.sin().to(vectors)
    first, second = vectors[..., :half], vectors[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def attention(query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """One head's output [head_width], and its weights [length].

    Args:
        query: [head_width].
        keys, values: [length, head_width], of at least one position.
    """
    weights = torch.softmax(keys @ query / math.sqrt(len(query)), dim=0)
    return weights @ values, weights


class DenseCache:
    """All keys and values in this process, and exact attention over them: what every other method is held against.

    Args:
        prefilled: what is known before the first step; None: nothing.
    """

    def __init__(self, prefilled: Prefilled | None = None) -> None:
        self.keys = list(prefilled.keys) if prefilled else []
        self.values = list(prefilled.values) if prefilled else []

    def __call__(self, asked: AttentionRequest) -> Tensor:
        keys, values = self.append(asked)
        heads = zip(asked.query, keys, values, strict=True)
        return torch.stack([attention(*head)[0] for head in heads])

    def append(self, asked: AttentionRequest) -> tuple[Tensor, Tensor]:
        """Keys and values of the layer, [heads, length, head_width], with those of this position."""
        key, value = asked.key[:, None], asked.value[:, None]
        if asked.layer == len(self.keys):
            self.keys.append(key)
            self.values.append(value)
        else:
            self.keys[asked.layer] = torch.cat([self.keys[asked.layer], key], dim=1)
            self.values[asked.layer] = torch.cat([self.values[asked.layer], value], dim=1)
        return self.keys[asked.layer], self.values[asked.layer]


def _causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
