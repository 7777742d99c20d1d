"""Texts whose beginning is computed at the far side, and which are decoded from there on at the near one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from testbed.worker.interfaces.workload import Workload
from testbed.worker.methods.kv_transfer.model.needle import FIRST_KEY
from testbed.worker.methods.kv_transfer.model.transformer import KVTransformer


class Texts(NamedTuple):
    text: Tensor
    """[samples, length], int64."""
    asked_at: Tensor
    """[samples, questions]: where the keys of questions are, ascending; the byte after each is the answer."""
    prefill: Tensor
    """[samples]: how many bytes of each are its beginning."""
    writes: Tensor
    """[samples], bool: bytes after the beginning, up to the first question, are to be written by whoever decodes."""

    def sample(self, index: int) -> Sample:
        return Sample(
            self.text[index].tolist(),
            self.asked_at[index].tolist(),
            int(self.prefill[index]),
            bool(self.writes[index]),
        )


class Sample(NamedTuple):
    """One of `Texts`."""

    text: list[int]
    asked_at: list[int]
    prefill: int
    writes: bool

    @property
    def steps(self) -> range:
        """Positions that are decoded: of each, and what comes before it, the next byte is predicted."""
        return range(self.prefill, len(self.text) - 1)

    def is_written(self, position: int) -> bool:
        """Whether the byte there is the decoder's own, not one that is given."""
        return self.writes and self.prefill < position < (self.asked_at[0] if self.asked_at else len(self.text))

    def counts(self, position: int) -> bool:
        """Whether the byte there can be foretold: text and answers, not where needles and questions begin."""
        return position - 1 in self.asked_at or self.text[position] < FIRST_KEY


class TextWorkload(Workload):
    """One whose model's keys and values can lie anywhere, with texts to decode."""

    @abstractmethod
    def model(self, seed: int) -> KVTransformer: ...

    @abstractmethod
    def batch(self, step: int, *, rank: int, world_size: int, batch_size: int, seed: int) -> Texts: ...

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=0.001)
