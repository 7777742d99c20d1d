"""Transformers of the tables as chains of blocks: what passes from one to the next, and what they keep for backward.

Derived from the tables: a linear map's FLOPs say for how many tokens of a sample it is used.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.core.models.model import Layer, Model

COLUMNS = ("query", "key", "value", "query_key_value", "mlp1")
"""Linear maps whose outputs ranks can divide."""
ROWS = ("output", "mlp2")
"""Linear maps whose inputs are divided then."""
HEAD_WIDTH = 64
"""Width of an attention head of BERT, GPT-2 and ViT in all their sizes."""
_BLOCK = re.compile(r"(block\d+|stage\d+\.\d+|merge\d+)\.")


@dataclass(frozen=True)
class Block:
    """A run of layers that stays together.

    Args:
        name: its prefix in the table; "embeddings" and "head" of what is around the blocks.
        layers: numbers of its layers.
        values: number of values of a sample that it passes on; 0: it is the last.
        kept: number of values of a sample that backward needs of it.
        heads: attention heads that ranks which share it divide; 0: it is not shared out.
        tied: the layer whose weight it uses too, a number; None: none.
    """

    name: str
    layers: range
    values: int
    kept: int
    heads: int = 0
    tied: int | None = None

    @property
    def is_block(self) -> bool:
        """True for one of the like blocks that make most of the model."""
        return self.name.startswith(("block", "stage"))


def blocks_of(model: Model) -> tuple[Block, ...]:
    """Return the chain of a transformer, in the order of forward; empty for other models.

    Kept for backward are the inputs of each layer, of attention the three that it takes, and of the activation between
    the two last linear maps of a block what it takes: no scores, as with fused attention.
    """
    if not any(layer.name.endswith(".attention") for layer in model.layers):
        return ()
    groups = [list(group) for _, group in itertools.groupby(enumerate(model.layers), lambda item: _key(item[1]))]
    found = list[Block]()
    for place, group in enumerate(groups):
        layers = [layer for _, layer in group]
        name = _key(layers[0]) or ("head" if place else "embeddings")
        first, following = group[0][0], groups[place + 1] if place + 1 < len(groups) else []
        values = 0
        if following:
            own = _values(layers, of_outputs=True)
            values = own if place and own else _values([layer for _, layer in following], of_outputs=False)
        found.append(
            Block(
                name,
                range(first, first + len(group)),
                values,
                kept=_kept(layers, found[-1].values if found else values),
                heads=_width(layers) // HEAD_WIDTH if name.startswith("block") else 0,
                tied=0 if name == "head" and model.layers[0].name == "tied_embeddings" else None,
            )
        )
    return tuple(found)


def part(layer: Layer) -> str:
    """Return the layer's name in its block."""
    return layer.name.rpartition(".")[2]


def _key(layer: Layer) -> str:
    found = _BLOCK.match(layer.name)
    return found[1] if found else ""


def _is_linear(layer: Layer) -> bool:
    return bool(layer.shapes) and len(layer.shapes[0]) == 2 and layer.forward_flop > 0


def _tokens(layer: Layer) -> int:
    """Return for how many tokens of a sample a linear map is used."""
    return round(layer.forward_flop / (2 * math.prod(layer.shapes[0])))


def _values(layers: Sequence[Layer], *, of_outputs: bool) -> int:
    """Return the values of a sample that the last linear map makes, or that the first one takes; 0 without any."""
    linear = [layer for layer in layers if _is_linear(layer)]
    if not linear:
        return 0
    layer = linear[-1] if of_outputs else linear[0]
    return _tokens(layer) * layer.shapes[0][0 if of_outputs else 1]


def _width(layers: Sequence[Layer]) -> int:
    return next(layer.shapes[0][1] for layer in layers if _is_linear(layer))


def _kept(layers: Sequence[Layer], entering: int) -> int:
    total = 0
    for layer in layers:
        name = part(layer)
        if name in ("key", "value"):  # the query has the same input
            continue
        if _is_linear(layer):
            total += _tokens(layer) * layer.shapes[0][1] * (2 if name == "mlp2" else 1)
        elif name == "attention":
            total += 3 * entering
        elif layer.shapes:
            total += entering
    return total
