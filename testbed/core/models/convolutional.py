"""Convolutional networks: layers computed from each architecture, as torchvision and timm build them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from testbed.core.models.model import Layer, conv, linear, norm

CLASSES = 1000
CIFAR_CLASSES = 10


def resnet(blocks: Sequence[int], *, bottleneck: bool) -> Iterator[Layer]:
    """He et al., "Deep Residual Learning for Image Recognition", CVPR 2016; the stride is in the 3 x 3 convolution."""
    yield conv("stem", 3, 64, 7, 112)
    inputs, size = 64, 56
    for stage, (count, width) in enumerate(zip(blocks, (64, 128, 256, 512), strict=True), 1):
        outputs = 4 * width if bottleneck else width
        for block in range(count):
            name, before = f"stage{stage}.{block}", size
            if stage > 1 and block == 0:
                size //= 2
            if bottleneck:
                yield conv(f"{name}.conv1", inputs, width, 1, before)
                yield conv(f"{name}.conv2", width, width, 3, size)
                yield conv(f"{name}.conv3", width, outputs, 1, size)
            else:
                yield conv(f"{name}.conv1", inputs, width, 3, size)
                yield conv(f"{name}.conv2", width, width, 3, size)
            if inputs != outputs:
                yield conv(f"{name}.shortcut", inputs, outputs, 1, size)
            inputs = outputs
    yield linear("classifier", inputs, CLASSES)


def resnet_cifar(blocks: int) -> Iterator[Layer]:
    """He et al., CVPR 2016, section 4.2: 6 n + 2 layers for images of 32 x 32 pixels; shortcuts have no weights."""
    yield conv("stem", 3, 16, 3, 32)
    inputs, size = 16, 32
    for stage, width in enumerate((16, 32, 64), 1):
        for block in range(blocks):
            if stage > 1 and block == 0:
                size //= 2
            yield conv(f"stage{stage}.{block}.conv1", inputs, width, 3, size)
            yield conv(f"stage{stage}.{block}.conv2", width, width, 3, size)
            inputs = width
    yield linear("classifier", inputs, CIFAR_CLASSES)


def densenet_cifar(depth: int, growth: int) -> Iterator[Layer]:
    """Huang et al., CVPR 2017, section 4.2: three blocks for images of 32 x 32, no bottlenecks, no compression."""
    channels, size = 16, 32
    yield conv("stem", 3, channels, 3, size, norm="none")
    for stage in range(1, 4):
        for block in range((depth - 4) // 3):
            yield conv(f"block{stage}.{block}", channels, growth, 3, size, norm="before")
            channels += growth
        if stage < 3:  # it pools after its convolution
            yield conv(f"transition{stage}", channels, channels, 1, size, norm="before")
            size //= 2
    yield norm("norm", channels)
    yield linear("classifier", channels, CIFAR_CLASSES)


def densenet(blocks: Sequence[int], growth: int = 32) -> Iterator[Layer]:
    """Huang et al., "Densely Connected Convolutional Networks", CVPR 2017; DenseNet-BC, compression 0.5."""
    channels, size = 64, 56
    yield conv("stem", 3, channels, 7, 112)
    for stage, count in enumerate(blocks, 1):
        for block in range(count):
            yield conv(f"block{stage}.{block}.conv1", channels, 4 * growth, 1, size, norm="before")
            yield conv(f"block{stage}.{block}.conv2", 4 * growth, growth, 3, size, norm="before")
            channels += growth
        if stage < len(blocks):  # it pools after its convolution
            yield conv(f"transition{stage}", channels, channels // 2, 1, size, norm="before")
            channels, size = channels // 2, size // 2
    yield norm("norm", channels)
    yield linear("classifier", channels, CLASSES)


def vgg(stages: Sequence[int]) -> Iterator[Layer]:
    """Simonyan and Zisserman, ICLR 2015, arXiv:1409.1556, configurations D and E, without batch normalisation."""
    inputs, size = 3, 224
    for stage, (count, width) in enumerate(zip(stages, (64, 128, 256, 512, 512), strict=True), 1):
        for index in range(count):
            yield conv(f"conv{stage}.{index}", inputs, width, 3, size, bias=True, norm="none")
            inputs = width
        size //= 2
    yield from _classifier(inputs * size * size)


def alexnet() -> Iterator[Layer]:
    """Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014, arXiv:1404.5997."""
    rows = ((3, 64, 11, 55), (64, 192, 5, 27), (192, 384, 3, 13), (384, 256, 3, 13), (256, 256, 3, 13))
    for index, (inputs, outputs, kernel, size) in enumerate(rows, 1):
        yield conv(f"conv{index}", inputs, outputs, kernel, size, bias=True, norm="none")
    yield from _classifier(256 * 6 * 6)


def _classifier(inputs: int) -> Iterator[Layer]:
    yield linear("fc6", inputs, 4096)
    yield linear("fc7", 4096, 4096)
    yield linear("fc8", 4096, CLASSES)


def mobilenet_v2() -> Iterator[Layer]:
    """Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018, Table 2."""
    inputs, size = 32, 112
    yield conv("stem", 3, inputs, 3, size)
    table = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for stage, (expansion, outputs, count, stride) in enumerate(table, 1):
        for block in range(count):
            name, hidden, before = f"stage{stage}.{block}", expansion * inputs, size
            if block == 0:
                size //= stride
            if expansion > 1:
                yield conv(f"{name}.expand", inputs, hidden, 1, before)
            yield conv(f"{name}.depthwise", hidden, hidden, 3, size, groups=hidden)
            yield conv(f"{name}.project", hidden, outputs, 1, size)
            inputs = outputs
    yield conv("head", inputs, 1280, 1, size)
    yield linear("classifier", 1280, CLASSES)


def inception_v4() -> Iterator[Layer]:
    """Szegedy et al., "Inception-v4, Inception-ResNet and the Impact of Residual Connections", AAAI 2017."""
    yield from _chain("stem", 3, [(32, 3, 149), (32, 3, 147), (64, 3, 147)])
    yield from _chain("mixed3a", 64, [(96, 3, 73)])
    yield from _chain("mixed4a.0", 160, [(64, 1, 73), (96, 3, 71)])
    yield from _chain("mixed4a.1", 160, [(64, 1, 73), (64, (1, 7), 73), (64, (7, 1), 73), (96, 3, 71)])
    yield from _chain("mixed5a", 192, [(192, 3, 35)])
    for block in range(4):
        rows: list[list[_Row]] = [[(96, 1, 35)], [(64, 1, 35), (96, 3, 35)], [(64, 1, 35), (96, 3, 35), (96, 3, 35)]]
        yield from _branches(f"a{block}", 384, [*rows, [(96, 1, 35)]])
    yield from _branches("reduction_a", 384, [[(384, 3, 17)], [(192, 1, 35), (224, 3, 35), (256, 3, 17)]])
    for block in range(7):
        long: list[_Row] = [(192, (7, 1), 17), (224, (1, 7), 17), (224, (7, 1), 17), (256, (1, 7), 17)]
        short: list[_Row] = [(192, 1, 17), (224, (1, 7), 17), (256, (7, 1), 17)]
        yield from _branches(f"b{block}", 1024, [[(384, 1, 17)], short, [(192, 1, 17), *long], [(128, 1, 17)]])
    reduction: list[_Row] = [(256, 1, 17), (256, (1, 7), 17), (320, (7, 1), 17), (320, 3, 8)]
    yield from _branches("reduction_b", 1024, [[(192, 1, 17), (192, 3, 8)], reduction])
    for block in range(3):
        yield from _chain(f"c{block}.0", 1536, [(256, 1, 8)])
        yield from _chain(f"c{block}.1", 1536, [(384, 1, 8)])
        yield from _fork(f"c{block}.1", 384)
        yield from _chain(f"c{block}.2", 1536, [(384, 1, 8), (448, (3, 1), 8), (512, (1, 3), 8)])
        yield from _fork(f"c{block}.2", 512)
        yield from _chain(f"c{block}.3", 1536, [(256, 1, 8)])
    yield linear("classifier", 1536, CLASSES)


_Row = tuple[int, int | tuple[int, int], int]
"""(channels out, kernel, size of the output)."""


def _chain(name: str, inputs: int, rows: Sequence[_Row]) -> Iterator[Layer]:
    for index, (outputs, kernel, size) in enumerate(rows):
        yield conv(f"{name}.{index}", inputs, outputs, kernel, size)
        inputs = outputs


def _branches(name: str, inputs: int, branches: Sequence[Sequence[_Row]]) -> Iterator[Layer]:
    for index, rows in enumerate(branches):
        yield from _chain(f"{name}.{index}", inputs, rows)


def _fork(name: str, inputs: int) -> Iterator[Layer]:
    for suffix, kernel in (("wide", (1, 3)), ("high", (3, 1))):
        yield conv(f"{name}.{suffix}", inputs, 256, kernel, 8)
