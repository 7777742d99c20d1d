from __future__ import annotations

import functools
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from testbed.core.parameters import CountOrZero, Fraction, LearningRate
from testbed.worker.data.published.fashion_images import CLASSES, DATASET, SIDE, TRAIN_IMAGES
from testbed.worker.interfaces.image_classifier import ImageClassifier, Images
from testbed.worker.interfaces.partition import AnyPartition
from testbed.worker.interfaces.schedule import FALLING, ScheduleName
from testbed.worker.interfaces.workload import Metric

_MEAN, _DEVIATION = 72.9, 90.0
"""Mean and standard deviation of training pixels, about."""
_STEM, _WIDE, _HIDDEN = 16, 32, 128
_EVALUATED_AT_ONCE = 250


class Fashion(ImageClassifier):
    """Fashion-MNIST: images of clothes of 10 classes, and a small residual network of 0.22 million parameters.

    Xiao, Rasul and Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms",
    arXiv:1708.07747: 60,000 grey images of 28 x 28 pixels to train on and 10,000 to test on. The data are under the MIT
    licence, from Debian's package dataset-fashion-mnist: 30.9 MB, fetched on first use.

    A 5 x 5 convolution, one residual block (He et al., "Deep Residual Learning for Image Recognition", CVPR 2016) whose
    shortcut has no parameters, and two linear layers. Convolutions have strides where others pool. Normalisation is by
    groups of 4 channels, so that ranks hold nothing that training does not average. SGD with Nesterov momentum, weight
    decay and a falling rate; images are neither moved nor mirrored.

    Args:
        learning_rate: Learning rate.
        momentum: Momentum of SGD.
        weight_decay: Weight decay.

    Raises:
        ValueError: A parameter is out of its range.
    """

    metric = Metric(name="accuracy", target=0.88)

    def __init__(
        self,
        *,
        learning_rate: LearningRate = 0.1,
        momentum: Fraction = 0.9,
        weight_decay: Fraction = 5e-4,
        schedule: ScheduleName = FALLING,
        warm_up_steps: CountOrZero = 20,
        partition: AnyPartition | None = None,
    ) -> None:
        self.learning_rate, self.momentum, self.weight_decay = learning_rate, momentum, weight_decay
        self.schedule, self.warm_up_steps = schedule, warm_up_steps
        self.partition = partition

    def to_fetch(self) -> str | None:
        return DATASET.to_fetch()

    def licence(self) -> str:
        return DATASET.licence

    def data_hash(self) -> str:
        _rows()
        return DATASET.sha256

    def preload(self) -> None:
        _rows()

    def model(self, seed: int) -> nn.Module:
        generator = torch.Generator().manual_seed(seed)
        model = nn.Sequential(
            nn.Conv2d(1, _STEM, 5, stride=2, padding=2, bias=False),
            _norm(_STEM),
            nn.ReLU(),
            Residual(_STEM, _WIDE),
            nn.Flatten(),
            nn.Linear(_WIDE * (SIDE // 4) ** 2, _HIDDEN),
            nn.ReLU(),
            nn.Linear(_HIDDEN, CLASSES),
        )
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=generator)
            elif isinstance(module, nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="linear", generator=generator)
                nn.init.zeros_(module.bias)
        return model

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            parameters,
            lr=self.learning_rate,
            momentum=self.momentum,
            nesterov=self.momentum > 0,
            weight_decay=self.weight_decay,
        )

    def samples(self) -> int:
        return TRAIN_IMAGES

    def picked(self, numbers: Tensor) -> Images:
        return _images_and_classes(_rows()[numbers])

    def labels(self) -> Tensor:
        """Return the kind of clothes."""
        return _rows()[:TRAIN_IMAGES, 0].long()

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> float:
        rows = _rows()[TRAIN_IMAGES:]
        model.eval()
        right = 0
        # few at once: what a layer makes of them stays in the processor's caches
        for images, classes in map(_images_and_classes, rows.split(_EVALUATED_AT_ONCE)):
            right += int((model(images).argmax(dim=1) == classes).sum())
        model.train()
        return right / len(rows)


class Residual(nn.Module):
    """Two convolutions next to a shortcut; the resolution halves."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.added = channels - channels_in
        """Channels of zeros that the shortcut is filled up with."""
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride=2, padding=1, bias=False)
        self.norm1 = _norm(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = _norm(channels)

    def forward(self, hidden: Tensor) -> Tensor:
        shortcut = nn.functional.pad(hidden[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.added))
        inner = nn.functional.relu(self.norm1(self.conv1(hidden)))
        return nn.functional.relu(shortcut + self.norm2(self.conv2(inner)))


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(channels // 4, channels)


def _images_and_classes(rows: Tensor) -> tuple[Tensor, Tensor]:
    images = rows[:, 1:].float().sub_(_MEAN).div_(_DEVIATION)
    return images.view(-1, 1, SIDE, SIDE), rows[:, 0].long()


@functools.cache
def _rows() -> Tensor:
    return torch.from_numpy(DATASET.array())
