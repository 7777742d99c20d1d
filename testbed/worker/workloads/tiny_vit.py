from __future__ import annotations

import functools
from typing import Annotated

import torch
from torch import Tensor

from testbed.core.kinds import Whole
from testbed.core.parameters import CountOrZero, Flag, Fraction, LearningRate
from testbed.worker.data.glyph_images import font_faults, glyph_images
from testbed.worker.data.pretrained import glyph_encoder
from testbed.worker.data.pretrained.fine_tuned import FineTuned, Labelled, Optimizer
from testbed.worker.data.pretrained.weights import State
from testbed.worker.interfaces.partition import AnyPartition
from testbed.worker.interfaces.schedule import CONSTANT, ScheduleName
from testbed.worker.interfaces.workload import Metric
from testbed.worker.model.chain import Chain

TRAIN_IMAGES = 3_200
_MAX_SHIFT = 8


class TinyVit(FineTuned):
    """The images of `glyphs` and a vision transformer of 0.43 million parameters, trained before on other images.

    Eight thin layers, so that freezing some of them means something (Dosovitskiy et al., "An Image is Worth 16x16
    Words", ICLR 2021); tokens are of 8 x 8 pixels, by convolutions. It has learnt to tell 23 of the 45 characters
    apart, on images of its own (testbed/worker/data/pretrained/glyph_encoder.py): once on each machine, which takes a
    minute of one core, and is kept in the clone's .cache. Fine-tuning has 3,200 images of all 45; the 10,000 test
    images are those of `glyphs`. No dropout, and no augmentation unless it is asked for.

    Args:
        augment: Most pixels by which training images are shifted. Along both axes, drawn again each time.

    Raises:
        ValueError: A parameter is out of its range.
    """

    metric = Metric(name="accuracy", target=0.6)

    def __init__(
        self,
        *,
        learning_rate: LearningRate = 0.0005,
        optimizer: Optimizer = "adamw",
        momentum: Fraction = 0.9,
        pretrained: Flag = True,
        augment: Annotated[int, Whole(0, _MAX_SHIFT, unit="pixels")] = 0,
        partition: AnyPartition | None = None,
        schedule: ScheduleName = CONSTANT,
        warm_up_steps: CountOrZero = 0,
    ) -> None:
        super().__init__(
            learning_rate=learning_rate,
            optimizer=optimizer,
            momentum=momentum,
            pretrained=pretrained,
            partition=partition,
            schedule=schedule,
            warm_up_steps=warm_up_steps,
        )
        self.augment = augment

    @property
    def varies_samples(self) -> bool:
        return self.augment > 0

    def validate(self) -> list[str]:
        return font_faults()

    def _source_hash(self) -> str:
        return glyph_images().sha256

    def batch(self, step: int, *, rank: int, world_size: int, batch_size: int, seed: int) -> Labelled:
        batch = super().batch(step, rank=rank, world_size=world_size, batch_size=batch_size, seed=seed)
        if not self.augment:
            return batch
        random = torch.Generator().manual_seed((seed << 32) + step)
        most = self.augment
        shifts = torch.randint(-most, most + 1, (world_size * batch_size, 2), generator=random)
        own = shifts[rank * batch_size : (rank + 1) * batch_size]
        return batch._replace(inputs=_shifted(batch.inputs, own))

    def _untrained(self, random: torch.Generator) -> Chain:
        return glyph_encoder.untrained(random)

    def _weights(self) -> State:
        return glyph_encoder.weights()

    def _training(self) -> tuple[Tensor, Tensor]:
        return _data()[0]

    def _test(self) -> tuple[Tensor, Tensor]:
        return _data()[1]

    def _prepared(self, stored: Tensor) -> Tensor:
        return glyph_encoder.scaled(stored)


def _shifted(images: Tensor, by: Tensor) -> Tensor:
    """Return images that are moved; pixels that move in repeat the edge."""
    side = images.shape[-1]
    down, right = ((torch.arange(side) - by[:, axis, None]).clamp(0, side - 1) for axis in (0, 1))
    samples = torch.arange(len(images))[:, None, None]
    return images[samples, 0, down[:, :, None], right[:, None, :]].unsqueeze(1)


@functools.cache
def _data() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return (pixels as bytes, labels) to train on and to test on."""
    images = glyph_images()
    (pixels, labels), (test_pixels, test_labels) = images.train, images.test
    train = torch.from_numpy(pixels[:TRAIN_IMAGES]), torch.from_numpy(labels[:TRAIN_IMAGES]).long()
    return train, (torch.from_numpy(test_pixels), torch.from_numpy(test_labels).long())
