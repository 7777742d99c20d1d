"""Networks of which some layers are two factors, as Pufferfish leaves them: a quarter of the rank, in layers that its
authors chose for each network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from testbed.core.low_rank import WeightLayer, ratio_rank
from testbed.core.models.model import Layer

RATIO = 0.25
_RESNET18_FULL = ("stem", "stage1.0.conv1", "stage1.0.conv2", "classifier")


def resnet18(layers: Iterable[Layer]) -> Iterator[Layer]:
    """All but the stem, the first block, shortcuts and the classifier, as in the authors' code for 32 x 32 pixels."""
    return _factorised(layers, lambda name: name not in _RESNET18_FULL and not name.endswith("shortcut"))


def resnet50(layers: Iterable[Layer]) -> Iterator[Layer]:
    """The last stage with its shortcut, as in the authors' code for ImageNet."""
    return _factorised(layers, lambda name: name.startswith("stage4."))


def _factorised(layers: Iterable[Layer], is_chosen: Callable[[str], bool]) -> Iterator[Layer]:
    for layer in layers:
        yield from _factors(layer) if is_chosen(layer.name) else (layer,)


def _factors(layer: Layer) -> Iterator[Layer]:
    """U has the kernel and the stride, V one place, and what stood beside the weight; both are used as often as it."""
    (outputs, inputs, *kernel), *beside = layer.shapes
    weight = WeightLayer(layer.name, outputs, inputs, tuple(kernel))
    rank, flop = ratio_rank(weight, RATIO), layer.forward_flop / weight.elements
    u, v = (rank, inputs, *kernel), (outputs, rank, *(1 for _ in kernel))
    yield Layer(f"{layer.name}.u", (u,), flop * math.prod(u))
    yield Layer(f"{layer.name}.v", (v, *beside), flop * math.prod(v))
