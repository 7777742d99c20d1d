"""Transformers: layers computed from width, depth and vocabulary."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.core.models.model import Layer, linear, norm


def bert(width: int, depth: int, *, tokens: int, vocabulary: int = 30522, positions: int = 512) -> Iterator[Layer]:
    """Devlin et al., NAACL 2019, arXiv:1810.04805, uncased: the encoder with its pooler and no head."""
    yield Layer("embeddings", ((vocabulary, width), (positions, width), (2, width), (width,), (width,)), 0.0)
    for block in range(depth):
        name = f"block{block}"
        for projection in ("query", "key", "value"):
            yield linear(f"{name}.{projection}", width, width, times=tokens)
        yield _attention(name, width, tokens)
        yield linear(f"{name}.output", width, width, times=tokens)
        yield norm(f"{name}.norm1", width)
        yield linear(f"{name}.mlp1", width, 4 * width, times=tokens)
        yield linear(f"{name}.mlp2", 4 * width, width, times=tokens)
        yield norm(f"{name}.norm2", width)
    yield linear("pooler", width, width)


def gpt2(width: int, depth: int, *, tokens: int, vocabulary: int = 50257, positions: int = 1024) -> Iterator[Layer]:
    """Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; the output layer shares the weight
    of the embedding, whose gradient is complete when backward reaches the embedding."""
    yield Layer("tied_embeddings", ((vocabulary, width), (positions, width)), 0.0)
    for block in range(depth):
        yield from _pre_norm(f"block{block}", width, tokens)
    yield norm("norm", width)
    yield Layer("head", (), 2.0 * width * vocabulary * tokens)


def vit(width: int, depth: int, *, patch: int = 16, image: int = 224, classes: int = 1000) -> Iterator[Layer]:
    """Dosovitskiy et al., ICLR 2021, arXiv:2010.11929, as in torchvision: no layer before the classifier."""
    patches = (image // patch) ** 2
    yield Layer("token", ((1, 1, width),), 0.0)
    yield Layer("patches", ((width, 3, patch, patch), (width,)), 2.0 * width * 3 * patch * patch * patches)
    yield Layer("positions", ((1, patches + 1, width),), 0.0)
    for block in range(depth):
        yield from _pre_norm(f"block{block}", width, patches + 1)
    yield norm("norm", width)
    yield linear("classifier", width, classes)


def _pre_norm(name: str, width: int, tokens: int) -> Iterator[Layer]:
    yield norm(f"{name}.norm1", width)
    yield linear(f"{name}.query_key_value", width, 3 * width, times=tokens)
    yield _attention(name, width, tokens)
    yield linear(f"{name}.output", width, width, times=tokens)
    yield norm(f"{name}.norm2", width)
    yield linear(f"{name}.mlp1", width, 4 * width, times=tokens)
    yield linear(f"{name}.mlp2", 4 * width, width, times=tokens)


def _attention(name: str, width: int, tokens: int) -> Layer:
    """Scores and their use, of all tokens with all: a causal mask spares nothing in the usual implementations."""
    return Layer(f"{name}.attention", (), 4.0 * tokens * tokens * width)
