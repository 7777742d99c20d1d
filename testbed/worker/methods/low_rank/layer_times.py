"""How much faster layers are with two factors, measured one by one on the shapes that they see."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from testbed.core.costs.low_rank import WeightLayer, ratio_rank
from testbed.worker.device.median import repeated
from testbed.worker.methods.low_rank.layers import low_rank
from testbed.worker.methods.low_rank.stable_rank import Stack

_BUDGET_S = 0.2
"""For each stack."""


def stacks(model: nn.Module, layers: Sequence[WeightLayer], loss: Callable[[], Tensor], ratio: float) -> list[Stack]:
    """Neighbours among `layers` of the same shape on inputs of the same shape, and CPU seconds of one of each.

    A layer that does not take part in `loss`, or cannot be factorised, is a stack without speed-up.

    Args:
        model: a copy, since forward may change buffers.
        loss: of one batch, by that model.
        ratio: of the ranks with which factors are timed.
    """
    shapes = _input_shapes(model, layers, loss)

    def key(layer: WeightLayer) -> tuple[object, ...]:
        return layer.outputs, layer.inputs, layer.kernel, layer.groups, bool(layer.unfit), shapes.get(layer.name)

    found = []
    for _, run in itertools.groupby(layers, key):
        first, *others = run
        full_s, low_rank_s = 1.0, 1.0
        if first.name in shapes and not first.unfit and first.groups == 1:
            full_s, low_rank_s = _times(model.get_submodule(first.name), shapes[first.name], ratio_rank(first, ratio))
        found.append(Stack(1 + len(others), full_s, low_rank_s))
    return found


def _input_shapes(model: nn.Module, layers: Sequence[WeightLayer], loss: Callable[[], Tensor]) -> dict[str, torch.Size]:
    found: dict[str, torch.Size] = {}
    hooks = [
        model.get_submodule(layer.name).register_forward_pre_hook(
            lambda _, inputs, name=layer.name: found.setdefault(name, inputs[0].shape) and None
        )
        for layer in layers
    ]
    with torch.no_grad():
        loss()
    for hook in hooks:
        hook.remove()
    return found


def _times(module: nn.Module, shape: torch.Size, rank: int) -> tuple[float, float]:
    """Of forward and backward: full, and factorised."""
    assert isinstance(module, nn.Linear | nn.Conv2d)
    inputs = torch.ones(shape, dtype=module.weight.dtype, device=module.weight.device, requires_grad=True)
    factorised, _ = low_rank(module, rank)
    kinds: dict[str, nn.Module] = {"full": module, "low rank": factorised}

    def once() -> dict[str, float]:
        return {name: _once_s(kind, inputs) for name, kind in kinds.items()}

    found = repeated(once, _BUDGET_S)
    return found["full"], found["low rank"]


def _once_s(layer: nn.Module, inputs: Tensor) -> float:
    begin_s = time.thread_time()
    outputs = layer(inputs)
    torch.autograd.grad(outputs, [inputs, *layer.parameters()], torch.ones_like(outputs))
    return time.thread_time() - begin_s
