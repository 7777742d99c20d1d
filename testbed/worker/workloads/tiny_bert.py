from __future__ import annotations

import functools

import torch
from torch import Tensor

from testbed.core.parameters import CountOrZero, Flag, Fraction, LearningRate
from testbed.worker.data.library_corpus import corpus_faults, library
from testbed.worker.data.pretrained import source_encoder
from testbed.worker.data.pretrained.fine_tuned import FineTuned, Optimizer
from testbed.worker.data.pretrained.source_encoder import HIDDEN, LENGTH
from testbed.worker.data.pretrained.weights import State
from testbed.worker.interfaces.partition import AnyPartition
from testbed.worker.interfaces.schedule import CONSTANT, ScheduleName
from testbed.worker.interfaces.workload import Metric
from testbed.worker.model.chain import Chain

TRAIN_SAMPLES, TEST_SAMPLES = 1_600, 4_000


class TinyBert(FineTuned):
    """Find the hidden keyword, one of 31, in the middle of 32 tokens of Python, with a pre-trained encoder.

    The encoder has 0.54 million parameters, and was trained before to tell any hidden token of the standard library's
    source.
    Eight thin layers (Devlin et al., "BERT", NAACL 2019; here normalised before each part), on frequent words and
    bytes. What comes before takes a minute of one core, once on each machine, and is kept in the clone's .cache
    (testbed/worker/data/pretrained/source_encoder.py). Fine-tuning has 1,600 samples, and 4,000 test it, from files
    that neither training has seen; the most frequent keyword is 22 % of them. Point releases of Python differ, and so
    do the
    weights: the hash of both goes into the spec. No dropout, no augmentation.

    Raises:
        ValueError: A parameter is out of its range.
    """

    metric = Metric(name="accuracy", target=0.55)

    def __init__(
        self,
        *,
        learning_rate: LearningRate = 0.0005,
        optimizer: Optimizer = "adamw",
        momentum: Fraction = 0.9,
        pretrained: Flag = True,
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

    def validate(self) -> list[str]:
        return corpus_faults(library())

    def _source_hash(self) -> str:
        return source_encoder.text().sha256

    def _untrained(self, random: torch.Generator) -> Chain:
        return source_encoder.untrained(random)

    def _weights(self) -> State:
        return source_encoder.weights()

    def _training(self) -> tuple[Tensor, Tensor]:
        return _data()[0]

    def _test(self) -> tuple[Tensor, Tensor]:
        return _data()[1]

    def _prepared(self, stored: Tensor) -> Tensor:
        return stored


@functools.cache
def _data() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return (tokens, classes) to train on and to test on."""
    text = source_encoder.text()
    train, test = (
        _hidden(tokens, text.classes, count, seed)
        for tokens, count, seed in ((text.train, TRAIN_SAMPLES, 1), (text.held_out, TEST_SAMPLES, 2))
    )
    return train, test


def _hidden(tokens: Tensor, classes: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
    windows = source_encoder.windows(tokens, source_encoder.middles(tokens, classes, count, seed))
    labels = classes[windows[:, LENGTH // 2]]
    windows[:, LENGTH // 2] = HIDDEN
    return windows, labels
