from __future__ import annotations

import functools
import hashlib
import importlib.util
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from testbed.core.parameters import CountOrZero, Fraction, LearningRate
from testbed.worker.interfaces.image_classifier import ImageClassifier, Images
from testbed.worker.interfaces.partition import AnyPartition
from testbed.worker.interfaces.schedule import CONSTANT, ScheduleName
from testbed.worker.interfaces.workload import Metric

_TEST_SAMPLES = 360
_MEAN, _DEVIATION = 4.88, 6.02
"""Mean and standard deviation of all pixels."""
_SPLIT_SEED = 20
_SHA256 = "68aea062d35a127749050fa0e52dca09d6569ac08092c925610e0954e172dde2"
"""SHA-256 of the 1797 rows as unsigned bytes, 64 pixels from 0 to 16 and the digit."""


class Digits(ImageClassifier):
    """Handwritten digits of 8 x 8 pixels, and a convolutional network of 1.09 million parameters.

    Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998; the 1797
    images that scikit-learn carries, 1437 to train on and 360 to test on, the same split for every seed.
    SGD with Nesterov momentum. The target, 0.97, is reached after 20 to 30 steps of 128 samples.

    Args:
        learning_rate: Learning rate.
        momentum: Momentum of SGD.

    Raises:
        ValueError: A parameter is out of its range.
    """

    metric = Metric(name="accuracy", target=0.97)

    def __init__(
        self,
        *,
        learning_rate: LearningRate = 0.01,
        momentum: Fraction = 0.9,
        partition: AnyPartition | None = None,
        schedule: ScheduleName = CONSTANT,
        warm_up_steps: CountOrZero = 0,
    ) -> None:
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.partition = partition
        self.schedule, self.warm_up_steps = schedule, warm_up_steps

    def preload(self) -> None:
        _data()

    def model(self, seed: int) -> nn.Module:
        generator = torch.Generator().manual_seed(seed)
        model = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(1024, 640),
            nn.ReLU(),
            nn.Linear(640, 640),
            nn.ReLU(),
            nn.Linear(640, 10),
        )
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            else:
                nn.init.kaiming_normal_(parameter, nonlinearity="relu", generator=generator)
        return model

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=self.learning_rate, momentum=self.momentum, nesterov=self.momentum > 0)

    def samples(self) -> int:
        return len(_data()[0][0])

    def picked(self, numbers: Tensor) -> Images:
        images, digits = _data()[0]
        return images[numbers], digits[numbers]

    def labels(self) -> Tensor:
        """Return the digit."""
        return _data()[0][1]

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> float:
        images, digits = _data()[1]
        model.eval()
        accuracy = (model(images).argmax(dim=1) == digits).float().mean()
        model.train()
        return float(accuracy)


@functools.cache
def _data() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return (images, digits) to train on and to test on."""
    rows = torch.from_numpy(_rows())[torch.randperm(1797, generator=torch.Generator().manual_seed(_SPLIT_SEED))]
    images = rows[:, :64].float().sub_(_MEAN).div_(_DEVIATION).view(-1, 1, 8, 8)
    digits = rows[:, 64].long()
    return (images[_TEST_SAMPLES:], digits[_TEST_SAMPLES:]), (images[:_TEST_SAMPLES], digits[:_TEST_SAMPLES])


def _rows() -> np.ndarray:
    # Found without importing scikit-learn, which would take longer than all the rest of a worker's start.
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise FileNotFoundError("workload digits: scikit-learn is not installed; its data are needed, run 'make setup'")
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    rows = np.loadtxt(path, delimiter=",", dtype=np.uint8)
    found = hashlib.sha256(rows.tobytes()).hexdigest()
    if found != _SHA256:
        raise ValueError(f"workload digits: {path} holds other data than expected: sha256 {found}")
    return rows
