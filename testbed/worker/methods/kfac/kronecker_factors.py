"""Kronecker factors of linear and convolutional layers, and their gradients as matrices.

The block of the Fisher matrix that belongs to a layer is taken as A (x) G: A is the second moment of what comes into
the layer, with a column of ones where it learns a bias, G that of the gradients of single losses with respect to what
it gives. Martens and Grosse, "Optimizing Neural Networks with Kronecker-factored Approximate Curvature", ICML 2015,
arXiv:1503.05671; for convolutions Grosse and Martens, "A Kronecker-factored approximate Fisher matrix for convolution
layers", ICML 2016, arXiv:1602.01407.

Sums are normalized such that the mean of the factors of equal parts of a batch is the factor of the batch.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TypeAlias, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from testbed.core.errors import RunError

Layer: TypeAlias = nn.Linear | nn.Conv2d


def supports(module: nn.Module) -> TypeGuard[Layer]:
    """Whether `module` has the form of a layer with factors, and a weight that learns.

    It may still never be called: `nn.MultiheadAttention` reads the weight of its `out_proj`, a kind of `nn.Linear`,
    and calls a function. Take as layers what is seen to run.
    """
    if isinstance(module, nn.Conv2d):
        return module.groups == 1 and module.padding_mode == "zeros" and module.weight.requires_grad
    return isinstance(module, nn.Linear) and module.weight.requires_grad


def dimensions(module: Layer) -> tuple[int, int]:
    """Of A and of G: what comes in, one more where a bias learns, and what goes out."""
    return module.weight[0].numel() + _learns_bias(module), module.weight.shape[0]


def input_factor(module: Layer, inputs: Tensor) -> Tensor:
    """A of one batch.

    Args:
        inputs: of `module`. Linear: [..., in]; each row is a sample, as is each token of a sequence. Convolution:
            [samples, channels, height, width]; patches are summed over places and averaged over samples.

    Returns:
        float32 [a, a], symmetric.
    """
    values = inputs.detach().float()
    if isinstance(module, nn.Conv2d):
        values = values.reshape(-1, *values.shape[-3:])
        rows = _patches(module, values).transpose(1, 2).flatten(0, 1)
        count = len(values)
    else:
        rows = values.reshape(-1, values.shape[-1])
        count = len(rows)
    width = rows.shape[1]
    factor = rows.new_empty((width + _learns_bias(module),) * 2)
    factor[:width, :width] = rows.T @ rows
    if _learns_bias(module):
        factor[-1, :-1] = factor[:-1, -1] = rows.sum(0)
        factor[-1, -1] = len(rows)
    return factor.div_(count)


def output_factor(module: Layer, gradient: Tensor) -> Tensor:
    """G of one batch.

    Args:
        gradient: of the *mean* of the losses, with respect to what `module` gave: of a single loss it is so many times
            larger as there are samples. Linear: [..., out]; convolution: [samples, out, height, width].

    Returns:
        float32 [g, g], symmetric: the mean over samples, and over the places of a convolution.
    """
    values = gradient.detach().float()
    if isinstance(module, nn.Conv2d):
        values = values.reshape(-1, *values.shape[-3:])
        samples, places = len(values), values[0, 0].numel()
        rows = values.flatten(2).transpose(1, 2).flatten(0, 1)
    else:
        rows = values.reshape(-1, values.shape[-1])
        samples, places = len(rows), 1
    return (rows.T @ rows).mul_(samples / places)


def places(module: Layer, inputs: Tensor) -> int:
    """At how many places of a sample its weight is applied: of a linear layer one, since each row is a sample."""
    if not isinstance(module, nn.Conv2d):
        return 1
    return math.prod(
        (size + sum(padding) - dilation * (kernel - 1) - 1) // stride + 1
        for size, padding, dilation, kernel, stride in zip(
            inputs.shape[-2:], _padding(module), module.dilation, module.kernel_size, module.stride, strict=True
        )
    )


def moving_average(running: Tensor, new: Tensor, decay: float) -> None:
    """Set `running` to (1 - decay) * running + decay * new, in place. The first `running` is the identity."""
    running.lerp_(new, decay)


def gradient_matrix(module: Layer) -> Tensor:
    """A copy of the gradient as float32 [g, a]: that of the weight, and that of the bias as last column.

    Raises:
        RunError: there is none.
    """
    return torch.cat([gradient.flatten(1) for gradient in _gradients(module)], 1).float()


def write_gradient(module: Layer, matrix: Tensor) -> None:
    """Put `matrix`, as of `gradient_matrix`, into the gradients, in place.

    Raises:
        RunError: there are none.
    """
    gradients = _gradients(module)
    parts = matrix.split([gradient[0].numel() for gradient in gradients], 1)
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.reshape(gradient.shape))


def pack(matrix: Tensor, out: Tensor | None = None) -> Tensor:
    """The upper triangle of a symmetric [d, d], row by row: [d (d + 1) / 2]."""
    index = _triangle(len(matrix), matrix.device)
    if out is None:
        return matrix.reshape(-1).index_select(0, index)
    return torch.index_select(matrix.reshape(-1), 0, index, out=out)


def unpack(packed: Tensor, dimension: int) -> Tensor:
    """The symmetric matrix of which `packed` is the upper triangle."""
    return packed.index_select(0, _square(dimension, packed.device)).view(dimension, dimension)


def _learns_bias(module: Layer) -> bool:
    return module.bias is not None and module.bias.requires_grad


def _patches(module: nn.Conv2d, images: Tensor) -> Tensor:
    """[samples, what a place sees, places], ordered as a row of the weight."""
    around = _padding(module)
    if all(before == after for before, after in around):
        whole = (around[0][0], around[1][0])
    else:
        images, whole = F.pad(images, [*around[1], *around[0]]), (0, 0)
    return F.unfold(images, module.kernel_size, module.dilation, whole, module.stride)


def _padding(module: nn.Conv2d) -> list[tuple[int, int]]:
    """Above and below, left and right. What is uneven of "same" goes below and to the right."""
    if module.padding == "same":
        totals = [d * (k - 1) for k, d in zip(module.kernel_size, module.dilation, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    if isinstance(module.padding, str):  # "valid"
        return [(0, 0), (0, 0)]
    return [(size, size) for size in module.padding]


def _gradients(module: Layer) -> list[Tensor]:
    """Of the weight, and of the bias as a column, where it learns; views."""
    weight, bias = module.weight.grad, None
    if module.bias is not None and _learns_bias(module):
        bias = module.bias.grad
    if weight is None or (bias is None and _learns_bias(module)):
        raise RunError(f"K-FAC: {module} has no gradient; leave out layers that backward does not reach")
    return [weight] if bias is None else [weight, bias[:, None]]


@lru_cache(maxsize=64)
def _triangle(dimension: int, device: torch.device) -> Tensor:
    """Where in a flat matrix its upper triangle is."""
    rows, columns = torch.triu_indices(dimension, dimension, dtype=torch.int32, device=device)
    return rows * dimension + columns


@lru_cache(maxsize=64)
def _square(dimension: int, device: torch.device) -> Tensor:
    """Where in a packed triangle each entry of the flat matrix is."""
    rows, columns = torch.triu_indices(dimension, dimension, device=device)
    square = torch.empty(dimension, dimension, dtype=torch.int32, device=device)
    square[rows, columns] = square[columns, rows] = torch.arange(len(rows), dtype=torch.int32, device=device)
    return square.view(-1)
