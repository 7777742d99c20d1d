"""Recurrent language models: layers computed from width, depth and vocabulary."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.core.models.model import Layer, linear


def lstm(width: int, depth: int, *, tokens: int, vocabulary: int = 10_000) -> Iterator[Layer]:
    """Zaremba, Sutskever and Vinyals, "Recurrent Neural Network Regularization", 2014, arXiv:1409.2329, on the Penn
    Treebank; the output layer has a weight of its own."""
    yield Layer("embeddings", ((vocabulary, width),), 0.0)
    for cell in range(depth):  # four gates, each of what comes in and of the state
        yield linear(f"cell{cell}", 2 * width, 4 * width, times=tokens)
    yield linear("head", width, vocabulary, times=tokens)
