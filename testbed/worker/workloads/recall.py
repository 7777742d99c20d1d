"""Texts with needles that a trained model has to find again."""

from __future__ import annotations

import hashlib
from typing import Annotated

import torch
from torch import Tensor, nn

from testbed.core.kinds import Whole
from testbed.core.parameters import Flag, raise_all
from testbed.worker.data.library_corpus import corpus_faults, library
from testbed.worker.methods.kv_transfer.model import weights
from testbed.worker.methods.kv_transfer.model.needle import FIRST_KEY, KINDS, Needles, Task
from testbed.worker.methods.kv_transfer.model.texts import Texts, TextWorkload
from testbed.worker.methods.kv_transfer.model.transformer import KVTransformer

_EPOCH_SAMPLES = 1000


class Recall(TextWorkload):
    """Source text with needles in it, and questions about them in the end; a byte-level transformer that answers them.

    A needle is a key and its value, bytes that the text has not (`testbed.worker.methods.kv_transfer.model.needle`); a
    question is a key, and its value the answer. Texts are cut from files of the Python standard library that the model
    was not trained on, at random from the run's seed. The model, four layers of two heads of 32 channels, is trained
    here before the first run, for a minute or two on one core, and kept in .cache/recall; its hash goes into the spec.
    It is the same one whatever the run's seed. Its accuracy is at
    `testbed.worker.methods.kv_transfer.model.weights.COURSE`.

    Nothing is learnt in a run: strategy=kv_transfer decodes. Other strategies would train on.

    Args:
        length: Length of a text. The model was trained on 512, and finds less in longer ones.
        decoded: Bytes decoded at a text's end. Some of the source, and all questions.
        needles: Needles in a text.
        questions: Needles that a text asks for.
        writes: Decode the likeliest bytes instead of the source's.
        model_seed: Seed of the model's training.

    Raises:
        ValueError: A parameter is out of its range.
    """

    metric = None

    def __init__(
        self,
        *,
        length: Annotated[int, Whole(4, 2**16, unit="bytes")] = 512,
        decoded: Annotated[int, Whole(3, unit="bytes")] = 64,
        needles: Annotated[int, Whole(1, KINDS)] = 8,
        questions: Annotated[int, Whole(1, KINDS)] = 8,
        writes: Flag = False,
        model_seed: Annotated[int, Whole(0, 2**32)] = 0,
    ) -> None:
        raise_all(
            f"questions={questions}: must be about some of the needles, of which there are {needles}"
            if questions > needles
            else None,
            f"decoded={decoded}: must be at least {2 * questions + 1}, for {questions} questions and the byte before"
            f" them, and less than length={length}"
            if not 2 * questions + 1 <= decoded <= length - 1
            else None,
            f"length={length}: {needles} needles and {questions} questions take more"
            if length < 2 * (needles + questions)
            else None,
        )
        self.decoded, self.writes, self.model_seed = decoded, writes, model_seed
        self.task = Task(length=length, needles=needles, questions=questions)

    def validate(self) -> list[str]:
        return corpus_faults(library())

    def data_hash(self) -> str:
        return hashlib.sha256((weights.corpus().sha256 + weights.weights_sha256(self.model_seed)).encode()).hexdigest()

    def preload(self) -> None:
        self.model(0)

    def model(self, seed: int) -> KVTransformer:
        return weights.trained_model(self.model_seed)

    def samples(self) -> int:
        return _EPOCH_SAMPLES

    def batch(self, step: int, *, rank: int, world_size: int, batch_size: int, seed: int) -> Texts:
        first = (step * world_size + rank) * batch_size
        drawn = [self._drawn(seed, number) for number in range(first, first + batch_size)]
        text, asked_at = (torch.cat(parts) for parts in zip(*drawn, strict=True))
        prefill = torch.full((batch_size,), len(text[0]) - self.decoded)
        return Texts(text, asked_at, prefill, torch.full((batch_size,), self.writes))

    def loss(self, model: nn.Module, batch: Texts) -> Tensor:
        """Return nats of all bytes that can be predicted."""
        targets = batch.text[:, 1:]
        nats = nn.functional.cross_entropy(model(batch.text[:, :-1]).transpose(1, 2), targets, reduction="none")
        counts = (targets < FIRST_KEY).scatter(1, batch.asked_at, value=True)
        return nats[counts].mean()

    def evaluate(self, model: nn.Module) -> float:
        raise NotImplementedError("texts have no metric; results of each are in the events")

    def _drawn(self, seed: int, number: int) -> Needles:
        generator = torch.Generator().manual_seed((seed << 20) + number)
        return self.task.draw(1, weights.corpus().held_out, generator)
