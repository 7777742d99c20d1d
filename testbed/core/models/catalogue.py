"""Big models as tables: the shapes of their parameters and the work of each layer, computed from the architecture.

    model = find_model("bert-large", tokens=128)
    model.parameters, model.forward_flop, model.layers[0].shapes

Each table adds up to the published number of parameters; a test compares both, and FLOPs where they are published.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed.core.costs.low_rank import WeightLayer, ratio_rank
from testbed.core.errors import InputError
from testbed.core.kinds import Choice
from testbed.core.models.convolutional import (
    alexnet,
    densenet,
    densenet_cifar,
    inception_v4,
    mobilenet_v2,
    resnet,
    resnet_cifar,
    vgg,
)
from testbed.core.models.model import Layer, Model, Shape, linear
from testbed.core.models.model_file import read_model
from testbed.core.models.transformers import bert, gpt2, swin, vit

# Networks of which some layers are two factors, as Pufferfish leaves them: a quarter of the rank, in layers that its
# authors chose for each network.

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


# Recommendation: layers computed from how many users and items there are.

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


# Recurrent language models: layers computed from width, depth and vocabulary.


def lstm(width: int, depth: int, *, tokens: int, vocabulary: int = 10_000) -> Iterator[Layer]:
    """Zaremba, Sutskever and Vinyals, "Recurrent Neural Network Regularization", 2014, arXiv:1409.2329, on the Penn
    Treebank; the output layer has a weight of its own."""
    yield Layer("embeddings", ((vocabulary, width),), 0.0)
    for cell in range(depth):  # four gates, each of what comes in and of the state
        yield linear(f"cell{cell}", 2 * width, 4 * width, times=tokens)
    yield linear("head", width, vocabulary, times=tokens)


__all__ = ["MODEL_NAMES", "Layer", "Model", "ModelOrFile", "Shape", "find_model"]


@dataclass(frozen=True)
class _Row:
    layers: Callable[[int], Iterator[Layer]]
    """Of a number of tokens, which image models do without."""
    parameters: int
    gflop: float | None
    """At `tokens`, two for each multiply-add."""
    source: str
    tokens: int = 0
    """Default length of a sequence; 0 where a sample is none."""
    most_tokens: int = 0
    pixels: int = 224
    """Of an image's sides; 0 where a sample is a user and an item."""


_TORCHVISION = "torchvision's table of weights: parameters and GFLOPS, which there are multiply-adds"
_TIMM = "Keras Hub's preset inception_v4_imagenet (parameters); timm's model card: 12.3 GMAC"
_PUFFERFISH = "hwang595/Pufferfish: which layers; parameters by hand, without the extra norms"
_BERT = "transformers' BertModel; FLOPs: Sun et al., MobileBERT, ACL 2020"
_CIFAR = "tables of He et al. (0.27 million) and Huang et al. (1.0 million), both CVPR: exactly, the sum of its shapes"
_LSTM = "TensorFlow's PTB tutorial, the medium model: the sum of its shapes"
_NCF = "NVIDIA's DeepLearningExamples, NCF on MovieLens-20M: the sum of its shapes"
_GPT2 = "openai/gpt-2's checkpoints; FLOPs: nanoGPT's transformer_sizing notebook"


def _images(layers: Callable[[], Iterator[Layer]], parameters: int, gmac: float) -> _Row:
    return _Row(lambda _: layers(), parameters, 2 * gmac, _TORCHVISION)


def _bert(width: int, depth: int, parameters: int, gflop: float | None) -> _Row:
    return _Row(lambda tokens: bert(width, depth, tokens=tokens), parameters, gflop, _BERT, 128, 512)


def _gpt2(width: int, depth: int, parameters: int, gflop: float | None) -> _Row:
    return _Row(lambda tokens: gpt2(width, depth, tokens=tokens), parameters, gflop, _GPT2, 1024, 1024)


_MODELS: dict[str, _Row] = {
    "alexnet": _images(alexnet, 61_100_840, 0.71),
    "bert-base": _bert(768, 12, 109_482_240, 22.5),
    "bert-large": _bert(1024, 24, 335_141_888, None),
    "densenet40": _Row(lambda _: densenet_cifar(40, 12), 1_019_722, None, _CIFAR, pixels=32),
    "densenet121": _images(lambda: densenet((6, 12, 24, 16)), 7_978_856, 2.83),
    "densenet201": _images(lambda: densenet((6, 12, 48, 32)), 20_013_928, 4.29),
    "gpt2": _gpt2(768, 12, 124_439_808, 291.6483072),
    "gpt2-medium": _gpt2(1024, 24, 354_823_168, None),
    "gpt2-large": _gpt2(1280, 36, 774_030_080, None),
    "gpt2-xl": _gpt2(1600, 48, 1_557_611_200, None),
    "inception_v4": _Row(lambda _: inception_v4(), 42_679_816, 2 * 12.3, _TIMM, pixels=299),
    "lstm": _Row(lambda tokens: lstm(650, 2, tokens=tokens), 19_775_200, None, _LSTM, 35, 1024),
    "mobilenet_v2": _images(mobilenet_v2, 3_504_872, 0.30),
    "ncf": _Row(lambda _: neumf(138_493, 26_744), 31_832_577, None, _NCF, pixels=0),
    "resnet18": _images(lambda: resnet((2, 2, 2, 2), bottleneck=False), 11_689_512, 1.81),
    "resnet18-pufferfish": _Row(
        lambda _: resnet18(resnet((2, 2, 2, 2), bottleneck=False)), 3_851_816, None, _PUFFERFISH
    ),
    "resnet20": _Row(lambda _: resnet_cifar(3), 269_722, None, _CIFAR, pixels=32),
    "resnet34": _images(lambda: resnet((3, 4, 6, 3), bottleneck=False), 21_797_672, 3.66),
    "resnet50": _images(lambda: resnet((3, 4, 6, 3), bottleneck=True), 25_557_032, 4.09),
    "resnet50-pufferfish": _Row(
        lambda _: resnet50(resnet((3, 4, 6, 3), bottleneck=True)), 15_202_344, None, _PUFFERFISH
    ),
    "resnet101": _images(lambda: resnet((3, 4, 23, 3), bottleneck=True), 44_549_160, 7.80),
    "resnet152": _images(lambda: resnet((3, 8, 36, 3), bottleneck=True), 60_192_808, 11.51),
    "swin-t": _images(lambda: swin(96, (2, 2, 6, 2), (3, 6, 12, 24)), 28_288_354, 4.49),
    "vgg16": _images(lambda: vgg((2, 2, 3, 3, 3)), 138_357_544, 15.47),
    "vgg19": _images(lambda: vgg((2, 2, 4, 4, 4)), 143_667_240, 19.63),
    "vit-b": _images(lambda: vit(768, 12), 86_567_656, 17.56),
    "vit-l": _images(lambda: vit(1024, 24), 304_326_632, 61.55),
}

MODEL_NAMES = tuple(_MODELS)


@dataclass(frozen=True)
class ModelOrFile(Choice):
    """Names of models, and absolute paths of tables that users bring."""

    known: Collection[object] = MODEL_NAMES

    @property
    def values_text(self) -> str:
        return f"{super().values_text}, or the absolute path of a table (.json)"

    def allows(self, value: object) -> bool:
        return super().allows(value) or (isinstance(value, str) and _is_table(value) and Path(value).is_absolute())

    def wanted(self, value: object) -> str:
        if isinstance(value, str) and _is_table(value):
            return f"must be an absolute path; give {Path(value).name} with its folder, such as $PWD/{Path(value).name}"
        return super().wanted(value)


def _is_table(name: str) -> bool:
    return name.endswith(".json")


def find_model(name: str, tokens: int | None = None) -> Model:
    """Return the table of a model.

    Args:
        name: Name of a model, or the path of a table of docs/timelines.md.
        tokens: length of a sequence, for language models; None takes 128 for BERT, 1024 for GPT-2, 35 for lstm. Images
            are of 224 x 224 pixels, for inception_v4 of 299 x 299, for resnet20 and densenet40 of 32 x 32.

    Raises:
        ValueError: no such model, or it takes no such number of tokens.
    """
    if _is_table(name):
        return _table(name, tokens)
    if name not in _MODELS:
        raise ValueError(f"model={name}: unknown; known: {', '.join(MODEL_NAMES)}")
    row = _MODELS[name]
    single = f"{row.pixels} x {row.pixels} pixels" if row.pixels else "a user and an item"
    if tokens is not None and not row.tokens:
        raise ValueError(f"tokens={tokens}: {name} takes {'images of ' if row.pixels else ''}{single}")
    if tokens is not None and (isinstance(tokens, bool) or not 1 <= tokens <= row.most_tokens):
        raise ValueError(f"tokens={tokens}: {name} takes 1 to {row.most_tokens}")
    length = row.tokens if tokens is None else tokens
    flop = None if row.gflop is None or length != row.tokens else row.gflop * 1e9
    sample = f"{length} tokens" if length else single
    return Model(name, tuple(row.layers(length)), row.parameters, flop, sample, row.source)


def _table(path: str, tokens: int | None) -> Model:
    if tokens is not None:
        raise ValueError(f"tokens={tokens}: the table {path} is of one size of sample; leave out tokens")
    try:
        return read_model(Path(path))
    except InputError as error:
        raise ValueError("\n".join(error.faults)) from error
