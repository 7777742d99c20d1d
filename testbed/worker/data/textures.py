"""Textures of what training changes in a model, and of the model, measured on `texts` and `fashion`.

A texture says how the values of a tensor of one kind are made:

    value[i, j] = rms * row[i] * column[j] * (sqrt(1 - S) noise[i, j] + sum over k of sqrt(s[k]) left[i, k] right[k, j])

`row` and `column` are log-normal, `left` and `right` normal, but for right[0], which is uniform. `noise` follows
measured quantiles, and S is the sum of the shares s[k]. The file is made by scripts/replay_differences.py, and
docs/replay.md compares drawn values with real ones.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.models.catalogue import Model
from testbed.core.models.model import Layer

FILE = Path(__file__).parent / "difference_textures.json"
CHANGE, WEIGHTS = "change", "weights"
"""Things with a texture: the change of a parameter over some local steps, or the parameter itself."""
CONVOLUTION, LINEAR, EMBEDDING, VECTOR = "convolution", "linear", "embedding", "vector"
KINDS = (CONVOLUTION, LINEAR, EMBEDDING, VECTOR)
RANKS = (1, 4, 16)
"""Ends of the groups of singular values that share the energy of the low-rank part."""
MEASURED_STEPS = (10, 50)
"""Local steps after which changes were measured; others follow by a power law."""
NORMAL = tuple(quarter / 4 for quarter in range(-16, 17))
"""Places of quantiles, in standard deviations of a normal number: dense in the tails."""
_EMBEDDINGS = ("embeddings", "tied_embeddings", "users", "items", "positions", "token")


@dataclass(frozen=True)
class Texture:
    """Way in which values of one kind of tensor are made.

    Attributes:
        rms: Root mean square; of changes, after 10 local steps. With `per_input`, times the square root of the inputs
            of a row.
        growth: Exponent of the local steps by which `rms` grows.
        per_input: True if values are smaller, the longer a row is.
        spread: Standard deviation of the logarithm of the root mean square over tensors.
        row_spread: Standard deviation of the logarithm of the rows' factors.
        column_spread: The same of columns.
        shares: Energy of the singular values 1, 2 to 4, and 5 to 16 beyond that of noise, as shares of the whole.
        agreement: Share of the low-rank part that all ranks have in common.
        quantiles: Noise where a normal number would be `NORMAL`, of root mean square 1.
    """

    rms: float
    growth: float
    per_input: bool
    spread: float
    row_spread: float
    column_spread: float
    shares: tuple[float, ...]
    agreement: float
    quantiles: tuple[float, ...]

    def scale(self, steps: int, columns: int) -> float:
        """Return the root mean square after `steps` local steps of a tensor with rows of `columns` values."""
        inputs = math.sqrt(columns) if self.per_input else 1.0
        return self.rms / inputs * (steps / MEASURED_STEPS[0]) ** self.growth


def texture_of(what: str, family: str, kind: str) -> Texture:
    """Return a texture: that of `texts`, where `fashion` has no tensor of the kind."""
    found = _table()
    return found.get((what, family, kind)) or found[what, "texts", kind]


def family_of(model: Model) -> str:
    """Return whose textures a model takes: those of `fashion`, by SGD, if it convolves more than once; else of `texts`.

    Transformers, which have at most one convolution, are trained by AdamW as `texts` is.
    """
    convolutions = sum(kind_of(layer, shape) == CONVOLUTION for layer in model.layers for shape in layer.shapes)
    return "fashion" if convolutions > 1 else "texts"


def kind_of(layer: Layer, shape: tuple[int, ...]) -> str:
    """Return the kind of a tensor of that shape in a layer."""
    if layer.name in _EMBEDDINGS and len(shape) > 1:
        return EMBEDDING
    return VECTOR if len(shape) < 2 else CONVOLUTION if len(shape) > 2 else LINEAR


@functools.cache
def _table() -> dict[tuple[str, str, str], Texture]:
    rows: list[dict[str, Any]] = json.loads(FILE.read_text())["textures"]
    return {(row.pop("what"), row.pop("of"), row.pop("kind")): _texture(row) for row in rows}


def _texture(row: dict[str, Any]) -> Texture:
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    return Texture(**fields)
