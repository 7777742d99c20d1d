"""Transformers: layers computed from width, depth and vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    """Dosovitskiy et al., ICLR 2021, arXiv:2010.11929, as in torchvision: no layer before the classifier.

    The token comes after the patches, to which it is put: in backward its gradient is ready before theirs.
    """
    patches = (image // patch) ** 2
    yield Layer("patches", ((width, 3, patch, patch), (width,)), 2.0 * width * 3 * patch * patch * patches)
    yield Layer("token", ((1, 1, width),), 0.0)
    yield Layer("positions", ((1, patches + 1, width),), 0.0)
    for block in range(depth):
        yield from _pre_norm(f"block{block}", width, patches + 1)
    yield norm("norm", width)
    yield linear("classifier", width, classes)


def swin(width: int, blocks: Sequence[int], heads: Sequence[int], *, image: int = 224) -> Iterator[Layer]:
    """Liu et al., ICCV 2021, arXiv:2103.14030, as in torchvision: patches of 4, windows of 7."""
    tokens = (image // 4) ** 2
    yield Layer("patches", ((width, 3, 4, 4), (width,)), 2.0 * width * 3 * 4 * 4 * tokens)
    yield norm("patches_norm", width)
    for stage, (count, parts) in enumerate(zip(blocks, heads, strict=True), 1):
        if stage > 1:  # four neighbours become one token of twice the width
            tokens //= 4
            yield norm(f"merge{stage}.norm", 4 * width)
            yield Layer(f"merge{stage}.reduction", ((2 * width, 4 * width),), 2.0 * 2 * width * 4 * width * tokens)
            width *= 2
        for block in range(count):
            yield from _pre_norm(f"stage{stage}.{block}", width, tokens, window=7, heads=parts)
    yield norm("norm", width)
    yield linear("classifier", width, 1000)


def _pre_norm(name: str, width: int, tokens: int, *, window: int = 0, heads: int = 0) -> Iterator[Layer]:
    """
    Args:
        window: side of the square of tokens that attend to each other; 0: all do.
        heads: heads that have a bias for each distance in a window; without a window none has.
    """
    yield norm(f"{name}.norm1", width)
    if window:
        yield Layer(f"{name}.positions", (((2 * window - 1) ** 2, heads),), 0.0)
    yield linear(f"{name}.query_key_value", width, 3 * width, times=tokens)
    yield _attention(name, width, tokens, window**2 or tokens)
    yield linear(f"{name}.output", width, width, times=tokens)
    yield norm(f"{name}.norm2", width)
    yield linear(f"{name}.mlp1", width, 4 * width, times=tokens)
    yield linear(f"{name}.mlp2", 4 * width, width, times=tokens)


def _attention(name: str, width: int, tokens: int, others: int | None = None) -> Layer:
    """Scores and their use, of all tokens with as many `others` (None: with all): a causal mask spares nothing in the
    usual implementations."""
    return Layer(f"{name}.attention", (), 4.0 * tokens * (others or tokens) * width)
