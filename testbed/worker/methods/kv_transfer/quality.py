"""How near attention over what was fetched comes to exact attention: on the same states, and along a whole answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from testbed.worker.methods.kv_transfer.cache.store import KVStore, LocalLink, Traffic
from testbed.worker.methods.kv_transfer.model.transformer import (
    Attend,
    AttentionRequest,
    DenseCache,
    KVTransformer,
    Prefilled,
    attention,
)
from testbed.worker.methods.kv_transfer.selection.selector import Attended, Selector


class Likeness(NamedTuple):
    """Of one layer at one step, a mean over its heads."""

    relative_error: float
    """|y - y'|_2 / |y|_2."""
    cosine: float
    mass_recall: float
    """Sum of exact attention weights of positions that were attended to."""
    overlap: float
    """Of as many positions of highest exact weight, how many were attended to: a share."""


@dataclass
class Report:
    """What one selector did on one text, step by step; shares and means are over steps, or steps and layers."""

    likenesses: list[Likeness] = field(default_factory=list)
    """On exact states: each step's and layer's."""
    kl_nats: list[float] = field(default_factory=list)
    """Of each step's next byte, D(exact || approximate), the approximation's own outputs going on to later layers."""
    matches: list[bool] = field(default_factory=list)
    """Of each step: the same most likely byte."""
    set_up_bytes: int = 0
    traffic: Traffic = field(default_factory=Traffic)
    """Of the approximation that went on."""

    @property
    def token_match(self) -> float:
        return sum(self.matches) / len(self.matches)

    @property
    def mean_kl_nats(self) -> float:
        return sum(self.kl_nats) / len(self.kl_nats)

    def mean(self, name: str) -> float:
        """Of one figure of `Likeness`."""
        return sum(getattr(likeness, name) for likeness in self.likenesses) / len(self.likenesses)


def likeness(asked: AttentionRequest, keys: Tensor, values: Tensor, found: Attended) -> Likeness:
    """
    Args:
        keys, values: all of the layer, [heads, length, head_width].
    """
    figures = []
    for head, positions in enumerate(found.positions):
        exact, weights = attention(asked.query[head], keys[head], values[head])
        error = (found.output[head] - exact).norm() / exact.norm()
        cosine = torch.cosine_similarity(found.output[head], exact, dim=0)
        best = weights.topk(len(positions)).indices
        overlap = torch.isin(best, positions).double().mean()
        figures.append(torch.stack([error, cosine, weights[positions].sum(), overlap]).double())
    return Likeness(*torch.stack(figures).mean(dim=0).tolist())


class Decoder:
    """A model, a selector and a store in one process, after a prefill that is far.

    Args:
        make: a new selector.
        last_position: Position of the last step; None: not known.
    """

    def __init__(
        self,
        model: KVTransformer,
        prefilled: Prefilled,
        make: Callable[[], Selector],
        last_position: int | None = None,
    ) -> None:
        self.model, self.selector = model, make()
        self.selector.last_position = last_position
        self.link = LocalLink(KVStore(prefilled.keys, prefilled.values, self.selector.coding))
        message = self.selector.set_up(self.link.store)
        self.set_up_bytes = len(message)
        self.selector.start(message)

    def attend(self, asked: AttentionRequest) -> Attended:
        return self.selector.attend(asked, self.link)

    def step(self, byte: int, before: int, position: int) -> Tensor:
        return self.model.step(byte, before, position, lambda asked: self.attend(asked).output)


def compare(model: KVTransformer, text: Tensor, prefill: int, make: Callable[[], Selector]) -> Report:
    """Feed `text` byte by byte to exact attention and to a selector's, after a prefill of its first `prefill` bytes.

    Two selectors are made: one sees the exact states, and what it gives is measured and dropped; the outputs of the
    other go on. A prefill computes exactly for all.
    """
    prefilled = model.prefill(text[:prefill])
    dense = DenseCache(prefilled)
    beside, own = (Decoder(model, prefilled, make, len(text) - 1) for _ in range(2))
    report = Report(set_up_bytes=own.set_up_bytes, traffic=own.link.traffic)
    for position in range(prefill, len(text)):
        byte, before = int(text[position]), int(text[position - 1])
        exact = model.step(byte, before, position, _measured(dense, beside, report.likenesses))
        found = own.step(byte, before, position)
        _judge(report, exact, found)
    return report


def _measured(dense: DenseCache, beside: Decoder, likenesses: list[Likeness]) -> Attend:
    def attend(asked: AttentionRequest) -> Tensor:
        keys, values = dense.append(asked)
        likenesses.append(likeness(asked, keys, values, beside.attend(asked)))
        return torch.stack([attention(*head)[0] for head in zip(asked.query, keys, values, strict=True)])

    return attend


def _judge(report: Report, exact: Tensor, found: Tensor) -> None:
    exact, found = (logits.double().log_softmax(dim=0) for logits in (exact, found))
    report.kl_nats.append(float((exact.exp() * (exact - found)).sum()))
    report.matches.append(bool(exact.argmax() == found.argmax()))
