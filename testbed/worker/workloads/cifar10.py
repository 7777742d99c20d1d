from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from torch import Tensor, nn

from testbed.core.errors import InputError
from testbed.core.kinds import PathOf
from testbed.core.parameters import CountOrZero, Fraction, LearningRate
from testbed.worker.interfaces.numbered_workload import NumberedWorkload
from testbed.worker.interfaces.partition import AnyPartition
from testbed.worker.interfaces.schedule import CONSTANT, ScheduleName
from testbed.worker.interfaces.workload import Metric

TRAIN_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_FILE = "test_batch.bin"
SIDE, CHANNELS, CLASSES = 32, 3, 10
RECORD_BYTES = 1 + CHANNELS * SIDE * SIDE
"""Bytes of a record: a label, then red, green and blue, each row by row."""
_MEAN = torch.tensor([125.3, 123.0, 113.9]).view(3, 1, 1)
_DEVIATION = torch.tensor([63.0, 62.1, 66.7]).view(3, 1, 1)
"""Standard deviation of training pixels, by channel."""
_PADDING, _GREY = 4, 120
"""Pixels on each side, and their value, which is about the mean."""
_BLOCKS = 3
"""Blocks of each of three widths: He et al.'s n, for 6 n + 2 layers."""
_EVALUATED_AT_ONCE = 100


class Cifar10(NumberedWorkload):
    """CIFAR-10's images of 32 x 32 pixels, and a residual network of 20 layers and 0.27 million parameters.

    Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009: the binary version's six files, which
    are read from a folder and never fetched. He et al., "Deep Residual Learning for Image Recognition", CVPR 2016,
    section 4.2: n = 3, shortcuts without parameters, batches padded by 4 pixels, cropped and mirrored at random, SGD
    with momentum 0.9 and weight decay 1e-4. Three differences: the rate stays as it is given, the mean that is taken
    off is the channel's instead of the pixel's, and normalisation is by groups of 4 channels instead of over the
    batch, so that ranks hold nothing that training does not average.

    Crops and mirrors follow from seed, step and place in the global batch. On one core a step takes 56 ms for 32
    images, an evaluation 6 s for 10,000. The target, 0.75, is a guess: no training on these images has been measured.

    Args:
        path: Folder of data_batch_1.bin to data_batch_5.bin and test_batch.bin.
        learning_rate: Learning rate.
        momentum: Momentum of SGD.
        weight_decay: Weight decay.

    Raises:
        ValueError: A parameter is out of its range.
    """

    metric = Metric(name="accuracy", target=0.75)

    def __init__(
        self,
        *,
        path: Annotated[str, PathOf("the folder of CIFAR-10's binary files")],
        learning_rate: LearningRate = 0.1,
        momentum: Fraction = 0.9,
        weight_decay: Fraction = 1e-4,
        partition: AnyPartition | None = None,
        schedule: ScheduleName = CONSTANT,
        warm_up_steps: CountOrZero = 0,
    ) -> None:
        self.path = Path(path)
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.partition = partition
        self.schedule, self.warm_up_steps = schedule, warm_up_steps
        self.weight_decay = weight_decay

    def validate(self) -> list[str]:
        return file_faults(self.path)

    def data_hash(self) -> str:
        return _data(self.path)[2]

    def preload(self) -> None:
        _data(self.path)

    def model(self, seed: int) -> nn.Module:
        generator = torch.Generator().manual_seed(seed)
        model = ResNet20()
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=generator)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5, generator=generator)
                nn.init.zeros_(module.bias)
        return model

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            parameters, lr=self.learning_rate, momentum=self.momentum, weight_decay=self.weight_decay
        )

    def samples(self) -> int:
        return len(_data(self.path)[0][0])

    def batch(self, step: int, *, rank: int, world_size: int, batch_size: int, seed: int) -> tuple[Tensor, Tensor]:
        chosen = self.numbers(step, rank=rank, world_size=world_size, batch_size=batch_size, seed=seed)
        # all of the global batch is drawn for, so that images do not depend on the number of workers
        place = slice(rank * batch_size, (rank + 1) * batch_size)
        draws = _draws(seed, step, world_size * batch_size)[place]
        pixels, labels = _data(self.path)[0]
        return _scaled(_cropped(pixels[chosen], draws)), labels[chosen]

    def picked(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return images that are neither cropped nor mirrored."""
        pixels, labels = _data(self.path)[0]
        return _scaled(pixels[numbers]), labels[numbers]

    def labels(self) -> Tensor:
        """Return the image's class."""
        return _data(self.path)[0][1]

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(model(images), labels)

    def sample_losses(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(model(images), labels, reduction="none")

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> float:
        pixels, labels = _data(self.path)[1]
        model.eval()
        right = 0
        for some, expected in zip(pixels.split(_EVALUATED_AT_ONCE), labels.split(_EVALUATED_AT_ONCE), strict=True):
            right += int((model(_scaled(some)).argmax(dim=1) == expected).sum())
        model.train()
        return right / len(labels)


class ResNet20(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, 16, 3, padding=1, bias=False)
        self.norm = _norm(16)
        widths = (
            [(16, 16)] * _BLOCKS + [(16, 32)] + [(32, 32)] * (_BLOCKS - 1) + [(32, 64)] + [(64, 64)] * (_BLOCKS - 1)
        )
        self.blocks = nn.Sequential(*(Residual(*width) for width in widths))
        self.head = nn.Linear(64, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.blocks(nn.functional.relu(self.norm(self.conv(images))))
        return self.head(hidden.mean(dim=(2, 3)))


class Residual(nn.Module):
    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.stride = channels // channels_in
        """The resolution halves where the width doubles."""
        self.added = channels - channels_in
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride=self.stride, padding=1, bias=False)
        self.norm1 = _norm(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = _norm(channels)

    def forward(self, hidden: Tensor) -> Tensor:
        shortcut = hidden
        if self.added:
            shortcut = nn.functional.pad(hidden[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.added))
        hidden = nn.functional.relu(self.norm1(self.conv1(hidden)))
        return nn.functional.relu(shortcut + self.norm2(self.conv2(hidden)))


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(channels // 4, channels)


def _draws(seed: int, step: int, count: int) -> Tensor:
    """Return [count, 3]: first row and column of the crop, and whether it is mirrored."""
    key = f"cifar10/{seed}/{step}".encode()
    digest = hashlib.blake2b(key, digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
    crops = torch.randint(2 * _PADDING + 1, (count, 2), generator=generator)
    return torch.cat([crops, torch.randint(2, (count, 1), generator=generator)], dim=1)


def _cropped(pixels: Tensor, draws: Tensor) -> Tensor:
    """Return images padded, cropped, and mirrored, each as drawn for it."""
    padded = nn.functional.pad(pixels, (_PADDING,) * 4, value=_GREY)
    out = torch.empty_like(pixels)
    for index, (top, left, mirrored) in enumerate(draws.tolist()):
        crop = padded[index, :, top : top + SIDE, left : left + SIDE]
        out[index] = crop.flip(2) if mirrored else crop
    return out


def _scaled(pixels: Tensor) -> Tensor:
    return pixels.float().sub_(_MEAN).div_(_DEVIATION)


def file_faults(folder: Path) -> list[str]:
    """Return a line for every file that is missing or has a length that the format does not have."""
    if not folder.is_dir():
        return [f"path={folder}: no such folder; give that of {TRAIN_FILES[0]} and CIFAR-10's other binary files"]
    faults = []
    for name in (*TRAIN_FILES, TEST_FILE):
        try:
            size = (folder / name).stat().st_size if (folder / name).is_file() else None
        except OSError as error:
            faults.append(f"path={folder}: {name}: {error.strerror}")
            continue
        if size is None:
            faults.append(f"path={folder}: {name} is missing")
        elif size == 0 or size % RECORD_BYTES:
            faults.append(f"path={folder}: {name} has {size} bytes, not one or more records of {RECORD_BYTES} bytes")
    return faults


Part = tuple[Tensor, Tensor]


@functools.cache
def _data(folder: Path) -> tuple[Part, Part, str]:
    """Return (pixels as bytes, labels) to train on and to test on, and the files' SHA-256."""
    faults = file_faults(folder)
    if not faults:
        rows = {}
        for name in (*TRAIN_FILES, TEST_FILE):
            rows[name] = np.fromfile(folder / name, dtype=np.uint8).reshape(-1, RECORD_BYTES)
            highest = int(rows[name][:, 0].max())
            if highest >= CLASSES:
                faults.append(f"path={folder}: {name} has a label of {highest}; labels are from 0 to {CLASSES - 1}")
    if faults:
        raise InputError(*(f"workload.{fault}" for fault in faults))
    digest = hashlib.sha256()
    for content in rows.values():
        digest.update(content.data)
    train = np.concatenate([rows[name] for name in TRAIN_FILES])
    return _part(train), _part(rows[TEST_FILE]), digest.hexdigest()


def _part(rows: np.ndarray) -> Part:
    pixels = torch.from_numpy(rows[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE))
    return pixels, torch.from_numpy(rows[:, 0].copy()).long()
