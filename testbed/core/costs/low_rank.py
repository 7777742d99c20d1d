"""Which layers of a model are factorised, and at which rank. Arithmetic alone.

A weight is a matrix W of m outputs and n columns: the inputs of a linear map, or those of a convolution times the
places of its kernel. At rank r it becomes V U, with V of m x r and U of r x n:

| layer | full | at rank r |
|---|---|---|
| linear, n to m | m n | r (m + n) |
| convolution, i to o channels, k x k | o i k k | r (i k k + o): k x k from i to r channels, then 1 x 1 from r to o |

Below r = m n / (m + n), the break-even rank, that is less to compute and to send. Biases stay as they are.

Pufferfish: Wang et al., "Pufferfish: Communication-efficient Models At No Extra Cost", MLSys 2021, arXiv:2103.03936.
Cuttlefish: Wang et al., "Cuttlefish: Low-rank Model Training without All The Tuning", MLSys 2023, arXiv:2305.02538.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_ROUNDING = 1e-9
"""Of products such as 0.29 * 100, which are a hair less than what is meant."""


@dataclass(frozen=True)
class WeightLayer:
    """A linear map or a convolution of a model."""

    name: str
    """Of the module."""
    outputs: int
    inputs: int
    """Channels, of a convolution."""
    kernel: tuple[int, ...] = ()
    """Of a convolution; empty: a linear map."""
    groups: int = 1
    unfit: str = ""
    """Why its module cannot be replaced by two; empty: it can."""

    @property
    def columns(self) -> int:
        return self.inputs // self.groups * math.prod(self.kernel)

    @property
    def elements(self) -> int:
        """Of the weight."""
        return self.outputs * self.columns

    @property
    def full_rank(self) -> int:
        return min(self.outputs, self.columns)

    @property
    def break_even(self) -> float:
        """From this rank on, factors have no fewer elements than the weight."""
        return self.elements / (self.outputs + self.columns)

    def factor_elements(self, rank: int) -> int:
        """Of both factors."""
        return rank * (self.outputs + self.columns)


@dataclass(frozen=True)
class LowRankPlan:
    """What becomes of each layer of a model."""

    layers: tuple[WeightLayer, ...]
    """In the order of the model's modules."""
    ranks: Mapping[str, int]
    """Of layers that are factorised."""
    kept: Mapping[str, str]
    """Why others stay full."""


def make_plan(layers: Sequence[WeightLayer], keep_first: int, rank_of: Callable[[WeightLayer], int]) -> LowRankPlan:
    """Factorise what `standing` leaves to, where factors are smaller than the weight.

    Args:
        keep_first: so many of `layers` stay full.
        rank_of: of a layer that may be factorised.

    Raises:
        ValueError: a rank is not from 1 to the layer's full rank; all such faults at once.
    """
    kept, ranks, faults = standing(layers, keep_first), dict[str, int](), list[str]()
    for layer in layers:
        if layer.name in kept:
            continue
        rank = rank_of(layer)
        if not 1 <= rank <= layer.full_rank:
            faults.append(f"layer {layer.name}: rank {rank} is not from 1 to its full rank, {layer.full_rank}")
        elif rank >= layer.break_even:
            kept[layer.name] = f"rank {rank} saves nothing: it would have to be below {layer.break_even:.1f}"
        else:
            ranks[layer.name] = rank
    if faults:
        raise ValueError("\n".join(faults))
    return LowRankPlan(tuple(layers), ranks, kept)


def standing(layers: Sequence[WeightLayer], keep_first: int) -> dict[str, str]:
    """Layers that stay full whatever their rank, and why.

    The first ones and the last, which is the classifier; convolutions in groups, and those of one place, such as
    shortcuts. Differs from both papers: their ResNet-50 has convolutions of one place factorised too, but for
    shortcuts, which cannot be told from others here.
    """
    found = {}
    for position, layer in enumerate(layers):
        if layer.unfit:
            found[layer.name] = layer.unfit
        elif position < keep_first:
            found[layer.name] = f"one of the first {keep_first}"
        elif position == len(layers) - 1:
            found[layer.name] = "the last layer"
        elif layer.groups > 1:
            found[layer.name] = f"a convolution in {layer.groups} groups"
        elif layer.kernel and math.prod(layer.kernel) == 1:
            found[layer.name] = "a convolution of one place"
    return found


def ratio_rank(layer: WeightLayer, ratio: float) -> int:
    """Pufferfish's: the same part of every layer's full rank, rounded down, at least 1."""
    return max(1, math.floor(ratio * layer.full_rank + _ROUNDING))


def re_warm_up(steps_since: int, steps: int) -> float:
    """What the learning rate is multiplied by: rises evenly to 1 over so many steps.

    Args:
        steps_since: the switch, of the step to be taken; the first has 0.
    """
    return min(1.0, (steps_since + 1) / steps) if steps else 1.0
