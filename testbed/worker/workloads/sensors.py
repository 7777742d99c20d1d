from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from testbed.core.parameters import CountOrZero, Fraction, LearningRate
from testbed.worker.data.sensor_windows import SENSORS, STEPS, TRAIN_WINDOWS, UNIT, sensor_windows
from testbed.worker.interfaces.numbered_workload import NumberedWorkload
from testbed.worker.interfaces.partition import AnyPartition
from testbed.worker.interfaces.schedule import CONSTANT, ScheduleName
from testbed.worker.interfaces.workload import Metric

_READINGS = SENSORS * STEPS
_HIDDEN, _CODE = 128, 16


class Sensors(NumberedWorkload):
    """Faults of devices, found by an autoencoder of 0.037 million parameters that has only seen them sound.

    Windows of 32 readings of 4 sensors. Devices are of 6 types, which differ in period, in the harmonics of every
    sensor and in their levels; windows of one type in phase, strength, pace, noise and how levels drift a little. 6,000
    sound windows to train on; to evaluate on 2,000 sound ones and 500 with each of four faults: a spike, a sensor that
    is stuck, a changed frequency, a drift. The same for every seed; how they are made is in
    testbed/worker/data/sensor_windows.py. SGD with Nesterov momentum. A window's loss is the squared error of its
    readings, summed; it is its score too, and the metric is how well scores tell faulty windows from sound ones.

    Measured without compression, global batches of 128 in one process, 400 steps, seeds 0 to 2: an area under the ROC
    curve of 0.925, 0.918 and 0.918, by fault (means) 0.84 of spikes, 0.94 of stuck sensors, 1.00 of frequencies and
    0.90 of drifts. Without a network the distance from the mean window has 0.54, the largest step between two readings
    0.62 (0.87 of spikes), what 24 principal components leave 0.81. The target, 0.9, is reached after 175 to 195 steps.
    A step takes 0.43 ms for 32 windows on one core, an evaluation 4 ms. At a learning rate of 0.02 batches of 32
    diverge or learn nothing.

    Args:
        learning_rate: Learning rate.
        momentum: Momentum of SGD.

    Raises:
        ValueError: A parameter is out of its range.
    """

    metric = Metric(name="roc_auc", target=0.9)

    def __init__(
        self,
        *,
        learning_rate: LearningRate = 0.005,
        momentum: Fraction = 0.9,
        partition: AnyPartition | None = None,
        schedule: ScheduleName = CONSTANT,
        warm_up_steps: CountOrZero = 0,
    ) -> None:
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.partition = partition
        self.schedule, self.warm_up_steps = schedule, warm_up_steps

    def data_hash(self) -> str:
        return sensor_windows().sha256

    def preload(self) -> None:
        sensor_windows()

    def model(self, seed: int) -> nn.Module:
        generator = torch.Generator().manual_seed(seed)
        model = nn.Sequential(
            nn.Linear(_READINGS, _HIDDEN),
            nn.ReLU(),
            nn.Linear(_HIDDEN, _CODE),
            nn.Linear(_CODE, _HIDDEN),
            nn.ReLU(),
            nn.Linear(_HIDDEN, _READINGS),
        )
        for module in model:
            if isinstance(module, nn.Linear):
                nn.init.xavier_normal_(module.weight, generator=generator)
                nn.init.zeros_(module.bias)
        return model

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=self.learning_rate, momentum=self.momentum, nesterov=self.momentum > 0)

    def samples(self) -> int:
        return TRAIN_WINDOWS

    def batch(self, step: int, *, rank: int, world_size: int, batch_size: int, seed: int) -> Tensor:
        """Return windows, [n, sensors × steps]: as inputs, and as the readings to be reproduced."""
        chosen = self.numbers(step, rank=rank, world_size=world_size, batch_size=batch_size, seed=seed)
        return self.picked(chosen)

    def picked(self, numbers: Tensor) -> Tensor:
        return _scaled(torch.from_numpy(sensor_windows().train)[numbers])

    def labels(self) -> Tensor:
        """Return the type of the device."""
        return torch.from_numpy(sensor_windows().train_types)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        return _errors(model, batch).mean()

    def sample_losses(self, model: nn.Module, batch: Tensor) -> Tensor:
        return _errors(model, batch)

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> float:
        windows = sensor_windows()
        model.eval()
        sound, faulty = (_errors(model, _scaled(torch.from_numpy(part))) for part in (windows.sound, windows.faulty))
        model.train()
        return roc_auc(sound, faulty)


def roc_auc(negatives: Tensor, positives: Tensor) -> float:
    """Return the area under the curve of hits over false alarms: the chance that a positive scores higher.

    Hanley and McNeil, "The meaning and use of the area under a receiver operating characteristic (ROC) curve",
    Radiology 1982. Equal scores count half; NaN where a score is.
    """
    if negatives.isnan().any() or positives.isnan().any():
        return float("nan")
    ordered = negatives.sort().values
    below, not_above = (torch.searchsorted(ordered, positives, right=right) for right in (False, True))
    return float((below + not_above).double().mean() / (2 * len(ordered)))


def _errors(model: nn.Module, windows: Tensor) -> Tensor:
    """Return [n]: the sum of squared errors of each window's readings."""
    return (model(windows) - windows).square().sum(dim=1)


def _scaled(readings: Tensor) -> Tensor:
    return readings.flatten(1).float().div_(UNIT)
