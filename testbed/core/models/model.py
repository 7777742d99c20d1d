"""What a table of a model holds."""

from __future__ import annotations

import math
from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """Tensors that one forward call uses together: a weight with its bias, or with the normalisation beside it."""

    name: str
    shapes: tuple[Shape, ...]
    forward_flop: float
    """For one sample, two for each multiply-add of a convolution, a linear map or attention; what is done element by
    element (normalisation, activations, pooling) is not counted, as in the published figures."""

    @property
    def numel(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes)


@dataclass(frozen=True)
class Model:
    """A model's trainable tensors, by layer in the order of forward."""

    name: str
    layers: tuple[Layer, ...]
    published_parameters: int
    published_forward_flop: float | None
    """For one sample of `sample`, where a figure is known to us; two for each multiply-add."""
    sample: str
    """What one sample is, such as "224 x 224 pixels"."""
    source: str
    buffers_bytes: int = 0
    """Bytes of its buffers, such as caches of positions, which data parallelism may send in each forward."""

    @property
    def parameters(self) -> int:
        return sum(layer.numel for layer in self.layers)

    @property
    def forward_flop(self) -> float:
        return sum(layer.forward_flop for layer in self.layers)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return tuple(shape for layer in self.layers for shape in layer.shapes)


def conv(
    name: str,
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, int],
    size: int,
    *,
    groups: int = 1,
    bias: bool = False,
    norm: str = "after",
) -> Layer:
    """A convolution and the batch normalisation beside it.

    Args:
        size: height and width of its output.
        norm: "after" it, "before" it, or "none".
    """
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    weight: Shape = (outputs, inputs // groups, height, width)
    shapes: tuple[Shape, ...] = (weight, (outputs,)) if bias else (weight,)
    if norm == "after":
        shapes = (*shapes, (outputs,), (outputs,))
    elif norm == "before":
        shapes = ((inputs,), (inputs,), *shapes)
    return Layer(name, shapes, 2.0 * math.prod(weight) * size * size)


def linear(name: str, inputs: int, outputs: int, *, times: int = 1) -> Layer:
    """A linear map with bias, used `times` in one sample: once for each token."""
    return Layer(name, ((outputs, inputs), (outputs,)), 2.0 * inputs * outputs * times)


def norm(name: str, width: int) -> Layer:
    return Layer(name, ((width,), (width,)), 0.0)
