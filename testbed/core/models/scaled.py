"""A model S times smaller in bytes, for links S times slower: see core.spec.scale."""

from __future__ import annotations

import math
from dataclasses import replace

from testbed.core.models.model import Layer, Model, Shape

_MAX_EXCESS = 1.01
"""A first dimension that is cut must not leave more than this share of what was asked."""


def scaled(model: Model, scale: float) -> tuple[Layer, ...]:
    """The model's layers with each tensor's elements divided by `scale`, at least one each. FLOPs stay."""
    if scale == 1:
        return model.layers
    return tuple(replace(layer, shapes=tuple(_cut(shape, scale) for shape in layer.shapes)) for layer in model.layers)


def _cut(shape: Shape, scale: float) -> Shape:
    """Fewer rows of the same length where that comes out even, else one row of the right length."""
    wanted = math.ceil(math.prod(shape) / scale)
    rows = math.ceil(shape[0] / scale)
    kept = (rows, *shape[1:])
    return kept if math.prod(kept) <= _MAX_EXCESS * wanted else (wanted,)
