"""Recall of needles from a haystack of source text, the course by which a small model learns it, and its score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn

from testbed.core.declaration import checked
from testbed.core.kinds import Whole
from testbed.core.parameters import Count, raise_all, whole
from testbed.worker.methods.kv_transfer.model.transformer import KVTransformer

FIRST_KEY, FIRST_VALUE, KINDS = 128, 192, 64
"""Bytes from 128 are keys and from 192 values, 64 of each; the text has neither."""
_ONLY_ASCII = 127


class Needles(NamedTuple):
    text: Tensor
    """[samples, length]: haystack with needles, then questions, each a key and its value."""
    asked_at: Tensor
    """[samples, questions]: where the keys of questions are; the byte after each is the answer."""

    @property
    def answers(self) -> Tensor:
        return self.text.gather(1, self.asked_at + 1)


@checked
@dataclass(frozen=True, kw_only=True)
class Task:
    """A haystack of `length` - 2 `questions` bytes with `needles` needles, of which so many are asked for at the end.

    A needle is a byte that is a key and one that is its value, at a place of its own; keys are different, places and
    values any. One needle and one question is the plain needle test; with more it is the recall of many
    associations (Arora et al., "Zoology: Measuring and Improving Recall in Efficient Language Models", ICLR 2024).

    Raises:
        ValueError: a size is out of its range, or the haystack is too short for its needles.
    """

    length: Annotated[int, Whole(4)]
    needles: Annotated[int, Whole(1, KINDS)] = 1
    questions: Count = 1

    def __post_init__(self) -> None:
        raise_all(whole("questions", self.questions, 1, self.needles))
        if self.haystack < 2 * self.needles:
            raise ValueError(
                f"length={self.length}: {self.needles} needles and {self.questions} questions take at least"
                f" {2 * (self.needles + self.questions)} bytes"
            )

    @property
    def haystack(self) -> int:
        return self.length - 2 * self.questions

    def draw(self, samples: int, corpus: Tensor, generator: torch.Generator) -> Needles:
        """
        Args:
            corpus: bytes of text, longer than the haystack; what is not ASCII becomes a space.
        """
        starts = torch.randint(len(corpus) - self.haystack + 1, (samples, 1), generator=generator)
        text = torch.empty(samples, self.length, dtype=torch.long)
        hay = corpus[starts + torch.arange(self.haystack)].long()
        text[:, : self.haystack] = hay.masked_fill(hay > _ONLY_ASCII, ord(" "))
        keys = FIRST_KEY + _some(samples, KINDS, self.needles, generator)
        values = FIRST_VALUE + torch.randint(KINDS, (samples, self.needles), generator=generator)
        # places of two bytes each, so that needles never overlap
        places = 2 * _some(samples, self.haystack // 2, self.needles, generator)
        text.scatter_(1, places, keys).scatter_(1, places + 1, values)
        asked_at = (self.haystack + 2 * torch.arange(self.questions)).expand(samples, -1)
        text.scatter_(1, asked_at, keys[:, : self.questions])
        text.scatter_(1, asked_at + 1, values[:, : self.questions])
        return Needles(text, asked_at)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A part of the course: `steps` steps of Adam on batches of `samples`."""

    task: Task
    samples: int
    steps: int
    learning_rate: float


def train(
    model: KVTransformer, corpus: Tensor, course: Sequence[Stage], *, seed: int = 0, text_weight: float = 0.1
) -> Iterator[float]:
    """Train in place; after each step the loss of the answers, in nats.

    Args:
        text_weight: of the mean loss over all other bytes, so that the model is one of language too.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.01)
    for stage in course:
        for step in range(stage.steps):
            rate = stage.learning_rate * min(1.0, (step + 1) / 50, (stage.steps - step) / (0.2 * stage.steps))
            for group in optimizer.param_groups:
                group["lr"] = rate
            batch = stage.task.draw(stage.samples, corpus, generator)
            answers, text = losses(model, batch)
            optimizer.zero_grad()
            (answers + text_weight * text).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            yield float(answers.detach())


def losses(model: KVTransformer, batch: Needles) -> tuple[Tensor, Tensor]:
    """Mean nats of answers, and of all bytes of the haystack but needles."""
    targets = batch.text[:, 1:]
    nats = nn.functional.cross_entropy(model(batch.text[:, :-1]).transpose(1, 2), targets, reduction="none")
    is_text = targets < FIRST_KEY
    return nats.gather(1, batch.asked_at).mean(), nats[is_text].mean()


def _some(rows: int, among: int, count: int, generator: torch.Generator) -> Tensor:
    """[rows, count] different numbers below `among` in any order."""
    return torch.rand(rows, among, generator=generator).topk(count).indices
