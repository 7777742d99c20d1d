"""Recommendation: layers computed from how many users and items there are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from testbed.core.models.model import Layer, linear

_FACTORS = 64
_WIDTHS = (256, 256, 128, 64)


def neumf(users: int, items: int) -> Iterator[Layer]:
    """He et al., "Neural Collaborative Filtering", WWW 2017, arXiv:1708.05031, as in NVIDIA's DeepLearningExamples: 64
    factors, a perceptron of 256, 256, 128, 64; a user's two embeddings are one tensor, an item's likewise."""
    width = _FACTORS + _WIDTHS[0] // 2
    yield Layer("users", ((users, width),), 0.0)
    yield Layer("items", ((items, width),), 0.0)
    for index, (inputs, outputs) in enumerate(itertools.pairwise(_WIDTHS)):
        yield linear(f"mlp{index}", inputs, outputs)
    yield linear("head", _FACTORS + _WIDTHS[-1], 1)
